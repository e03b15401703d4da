"""What a command loads before it does anything: each module costs the first translation its time."""

from __future__ import annotations

import subprocess
import sys

UNNEEDED = {"minitransformer.training", "minitransformer.data.demo", "sacrebleu", "mpi4py.MPI", "pooch", "rich"}


def test_translating_loads_nothing_of_training() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, cli.translate; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert "cli.translate" in loaded
    assert not UNNEEDED & set(loaded)
