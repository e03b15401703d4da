"""Instructions of the CUDA kernels in a GPU's machine code (SASS): counted, not timed, so no GPU is needed.

``python benchmarks/gpu_instructions.py layer_norm.cu add_norm`` prints, for every kernel of a source whose name
contains a text, its instructions and those of each loop.  A loop may be unrolled; branches that are rarely taken are
counted, too.
Needs NVRTC and nvdisasm: ``pip install nvidia-cuda-nvrtc nvidia-cuda-nvdisasm``.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from autograd.kernels.cuda.nvrtc import compile_source


class Count(NamedTuple):
    """The numbers of instructions of a kernel, and of each loop in it, in the order of their ends."""

    instructions: int
    loops: tuple[int, ...]


def counted(listing: str) -> dict[str, Count]:
    """Count the instructions of each kernel in a listing of nvdisasm; padding (NOP) is left out."""
    counts = {}
    for section in re.split(r"^\s*\.section\s+\.text\.", listing, flags=re.MULTILINE)[1:]:
        name = re.match(r"\w+", section)
        lines = re.findall(r"^(\.L\w+):|^\s*/\*([0-9a-f]{4,})\*/\s+(?!NOP)(\S.*?);", section, re.MULTILINE)
        starts: dict[str, int] = {}
        n, loops = 0, []
        for label, _, instruction in lines:
            if label:
                starts[label] = n
                continue
            n += 1
            target = re.search(r"\bBRA\b.*`\((\.L\w+)\)", instruction)
            if target and target[1] in starts:
                loops.append(n - starts[target[1]])
        # The last instruction is a branch to itself, behind the end.
        counts[name[0] if name else "?"] = Count(n - 1, tuple(loops[:-1]))
    return counts


def disassembled(cubin: bytes) -> str:
    """Return nvdisasm's listing of machine code."""
    wheels = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (wheels.submodule_search_locations or ())] if wheels else []
    found = shutil.which("nvdisasm") or next((str(p) for f in folders for p in f.glob("*/bin/nvdisasm")), None)
    if found is None:
        sys.exit("nvdisasm is not installed; pip install nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([found, "-c", file.name], check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", help="a file of autograd/kernels/cuda, such as layer_norm.cu")
    parser.add_argument("text", nargs="?", default="", help="a part of the names of kernels")
    parser.add_argument("--architecture", default="sm_90")
    options = parser.parse_args()
    counts = counted(disassembled(compile_source(options.source, options.architecture).cubin))
    for name, count in sorted(counts.items()):
        if options.text in name:
            print(f"{name:40} {count.instructions:6} instructions, loops {', '.join(map(str, count.loops)) or 'none'}")


if __name__ == "__main__":
    main()
