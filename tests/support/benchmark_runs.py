"""Runs of the scripts of ``benchmarks/`` at their smallest size."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL_CONFIG = "ModelConfig(300, n_layers=1, d_model=32, d_ff=32, n_heads=2, d_k=16, d_v=16)"


def benchmark(script: str, *arguments: object, change: str = "pass") -> str:
    """Run a script after ``change``, statements that make its sizes smaller; return its output."""
    name = script.removesuffix(".py")
    program = f"from minitransformer import ModelConfig; import sys, {name}; {change}; sys.exit({name}.main())"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
