"""A process that builds a model on the stand-in for a GPU, which registers the CUDA kernels that pass their check.

    python checking_parent.py FAULTS CHOICE

Arguments: see ``checking_child.py``, and the setting ``kernels``.  The log goes to stderr; the last line of stdout is
the JSON list of the kernels that are registered.
"""

import functools
import json
import logging
import sys
from pathlib import Path

import fake_cuda
import gpu_stand_in

gpu_stand_in.install()

from autograd.kernel_registry import at_first_use, kernels_for, references_only  # noqa: E402
from autograd.kernels.cuda.check import register_checked  # noqa: E402
from minitransformer import ModelConfig, Transformer  # noqa: E402

CHILD = Path(__file__).with_name("checking_child.py")

if __name__ == "__main__":
    faults, choice = sys.argv[1:]
    fake_cuda.Device.compute_capability = json.loads(faults).get("GPU", "90")
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    at_first_use("cuda", functools.partial(register_checked, (sys.executable, str(CHILD), faults)))
    with references_only(when=choice == "reference"):
        for device in ("cpu", "cuda", "cuda"):
            Transformer(ModelConfig(9, n_layers=1, d_model=4, d_ff=4, n_heads=2, d_k=2, d_v=2), device=device)
    print(json.dumps(sorted(kernels_for("cuda"))))
