"""A long run takes no more memory, files or threads than a short one."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_run import write_parallel_text

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from pathlib import Path
from autograd.malloc import keep_freed_memory
from minitransformer.config import DataConfig, ModelConfig, RunConfig, TrainingConfig
from minitransformer.training.open_run import open_run
from minitransformer.training.run import train_to_end
from minitransformer.training.callbacks import Callback
from parallel.communicator import SerialCommunicator

class Meter(Callback):
    def after_step(self, result, state, model):
        step = state.step
        if step % 50 == 0:
            lines = dict(line.split(":") for line in open("/proc/self/status") if line.startswith(("VmRSS", "Threads")))
            n_files = len(list(Path("/proc/self/fd").iterdir()))
            print(step, 1024 * int(lines["VmRSS"].split()[0]), n_files, int(lines["Threads"]), flush=True)

keep_freed_memory()
folder = Path(sys.argv[1])
data = DataConfig(raw=folder, train_source=("train.en",), train_target=("train.de",), vocabulary_size=40, held_out=20)
model = ModelConfig(n_layers=1, d_model=32, d_ff=64, n_heads=2, d_k=16, d_v=16)
training = TrainingConfig(
    max_updates=2_000, batch_tokens=300, n_micro_batches=4, validate_every=250, checkpoint_every=100, warmup_steps=400
)
job = open_run(RunConfig(folder / "run", data, model, training), SerialCommunicator())
train_to_end(job, Meter())
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory, files and threads are read from Linux")
def test_two_thousand_updates_take_no_more_than_five_hundred(tmp_path: Path) -> None:
    """With 8 validations and 20 checkpoints.  The slope is that of a straight line through all points after these."""
    write_parallel_text(tmp_path, "train", 600, seed=1)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    steps, resident, files, threads = np.array([line.split() for line in run.stdout.splitlines()], np.int64)[9:].T
    slope = np.polyfit(steps, resident, 1)[0] * 1_000
    print(
        f"resident {resident[0] / 1e6:.1f} to {resident[-1] / 1e6:.1f} MB, {slope / 1e6:+.3f} MB per 1,000 updates,"
        f" {files.min()} to {files.max()} files, {threads.min()} to {threads.max()} threads"
    )
    assert steps.tolist() == list(range(500, 2_001, 50))
    assert slope < 1e6
    assert files.min() == files.max()
    assert threads.min() == threads.max()
