"""The program without what only Linux has: as on macOS, and as on Windows, where more is missing and no compiler is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_run import SMALL_MODEL, changed, write_parallel_text
from waiting import TIME_LIMIT

ROOT = Path(__file__).resolve().parents[1]
ONLY_LINUX = {
    "os": ["sched_getaffinity", "sched_setaffinity", "memfd_create", "posix_fallocate", "eventfd", "pidfd_open"],
    "fcntl": ["F_ADD_SEALS", "F_GET_SEALS", "F_SETPIPE_SZ"],
    "signal": ["SIGPWR", "SIGSTKFLT"],
    "resource": ["prlimit", "RLIMIT_MSGQUEUE", "RUSAGE_THREAD"],
}
NOT_ON_WINDOWS = {
    "os": ["getuid", "killpg", "statvfs", "fork", "getpgid", "setsid"],
    "signal": ["SIGALRM", "SIGBUS", "SIGHUP", "SIGQUIT", "SIGUSR1", "alarm", "pthread_sigmask"],
}
PROGRAM = """
import builtins, ctypes, io, os, sys
from importlib import import_module
import portalocker, psutil  # these packages ask each system in its own way

missing_modules, missing_names, arguments = {missing!r}
for name in missing_modules:
    sys.modules[name] = None
for missing in missing_names:
    for module, names in missing.items():
        for name in names:
            if module not in missing_modules and hasattr(import_module(module), name):
                delattr(import_module(module), name)

def without_linux(call):
    def of_path(path, *arguments, **settings):
        caller = sys._getframe(1).f_globals["__name__"]
        if str(path).startswith(("/proc", "/sys", "/dev/shm")) and not caller.startswith("psutil"):
            raise FileNotFoundError(2, "hidden", str(path))
        return call(path, *arguments, **settings)
    return of_path

builtins.open = io.open = without_linux(open)
os.stat, os.open = without_linux(os.stat), without_linux(os.open)
load = ctypes.CDLL
ctypes.CDLL = lambda name=None, *rest, **settings: load(name, *rest, **settings) if name else object()  # no mallopt

import autograd.kernels.cuda.check, cli.doctor, cli.serve, cli.train, cli.translate, minitransformer.extras.serve.server
sys.argv = ["train", *arguments]
assert cli.train.main() == 0
sys.argv = ["doctor", "--run", "run"]
print("doctor", cli.doctor.main())
sys.argv = ["translate", "--run", "run", "--input", "train.en", "--output", "out", "--beam", "1"]
assert cli.translate.main() == 0
"""


SYSTEMS: dict[str, tuple[tuple[str, ...], tuple[dict[str, list[str]], ...], dict[str, str]]] = {
    "macOS": ((), (ONLY_LINUX,), {"MINITRANSFORMER_CFLAGS": "-O1"}),
    "Windows": (("fcntl", "resource", "pwd", "grp"), (ONLY_LINUX, NOT_ON_WINDOWS), {"CC": "no-such-compiler"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_it_trains_examines_and_translates(system: str, tmp_path: Path) -> None:
    modules, names, variables = SYSTEMS[system]
    write_parallel_text(tmp_path, "train", 100, seed=1)
    write_parallel_text(tmp_path, "valid", 8, seed=2)
    arguments = changed(["--run", "run", "--data.raw", ".", *SMALL_MODEL.split()], "--training.max-updates", "2")
    program = PROGRAM.format(missing=(modules, names, arguments))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=TIME_LIMIT,
        env=os.environ | variables | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text().count("\n") == 100
    assert "cores" in done.stdout
    assert ("no C compiler was found" in done.stderr) == ("CC" in variables)
