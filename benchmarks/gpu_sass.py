"""Machine instructions of the CUDA kernels, counted: whole kernels, and the bodies of their innermost loops."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from autograd.kernels.cuda.nvrtc import SOURCES, compile_source

ARCHITECTURE = "sm_90"
INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)(.*)")
TARGET = re.compile(r"`\((\.L_x_\d+)\)")
REPORT = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) reg", re.S
)
MEMORY = ("LDG", "STG", "LDS", "STS", "LDSM", "STSM", "LDGSTS", "LDL", "STL", "ATOM", "RED", "LD", "ST")
N_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}  # of a thread's access; 4 if nothing is said


class Instruction(NamedTuple):
    """An instruction; ``target`` is the label that it may jump to."""

    name: str
    is_conditional: bool
    target: str | None

    @property
    def kind(self) -> str:
        return self.name.partition(".")[0]

    @property
    def n_bytes(self) -> int:
        return next((N_BYTES[part] for part in self.name.split(".")[1:] if part in N_BYTES), 4)


@dataclass
class Block:
    """Instructions that run one after the other, and the indices of the blocks that may follow."""

    instructions: list[Instruction]
    following: list[int]


class Counts(NamedTuple):
    """The instructions of a piece of code, and the bytes that a thread loads in it from global memory."""

    instructions: int
    products: int
    memory: int
    loaded: int

    @classmethod
    def of(cls, instructions: list[Instruction]) -> Counts:
        """Count."""
        return cls(
            len(instructions),
            sum("MMA" in one.kind and one.kind != "HFMA2" for one in instructions),
            sum(one.kind in MEMORY for one in instructions),
            sum(one.n_bytes for one in instructions if one.kind in ("LDG", "LDGSTS")),
        )


class Kernel(NamedTuple):
    """A compiled kernel; code that only slow paths reach is not counted."""

    name: str
    source: str
    registers: int
    spilled: int
    whole: Counts
    loops: list[Counts]


def disassembler() -> str | None:
    """Return the path of nvdisasm, or None if it is not installed."""
    folders = (Path(folder) / "nvidia" for folder in sys.path)
    return next((str(p) for folder in folders for p in folder.glob("*/bin/nvdisasm")), None) or shutil.which("nvdisasm")


def kernels() -> Iterator[Kernel]:
    """Compile and disassemble all sources.  Raises: RuntimeError without nvdisasm; CompilerError without NVRTC."""
    program = disassembler()
    if program is None:
        raise RuntimeError('nvdisasm, the disassembler of CUDA, is not installed; pip install "nvidia-cuda-nvdisasm"')
    for source in sorted(path.name for path in SOURCES.glob("*.cu")):
        compiled = compile_source(source, ARCHITECTURE)
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            Path(file.name).write_bytes(compiled.cubin)
            done = subprocess.run([program, "-c", file.name], capture_output=True, text=True, check=True)
        reports = {name: (int(stores) + int(loads), int(registers))
                   for name, stores, loads, registers in REPORT.findall(compiled.log)}  # fmt: skip
        for name, text in texts_of(done.stdout):
            blocks = reachable(blocks_of(text.splitlines()))
            whole = Counts.of([one for block in blocks.values() for one in block.instructions])
            loops = [
                Counts.of([one for i in sorted(loop) for one in blocks[i].instructions]) for loop in innermost(blocks)
            ]
            spilled, registers = reports[name]
            yield Kernel(name, source, registers, spilled, whole, loops)


def texts_of(disassembly: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every kernel; functions that it calls follow under other names."""
    for text in disassembly.split("\n.text.")[1:]:
        name, _, code = text.partition(":\n")
        yield name, re.split(r"\n\t\.section|\n\$", code)[0]


def blocks_of(lines: list[str]) -> list[Block]:
    """Cut code into blocks: at labels, and after jumps and exits."""
    blocks, labels = [Block([], [])], dict[str, int]()
    for line in lines:
        if line.startswith(".L_x_"):
            if blocks[-1].instructions:
                blocks.append(Block([], []))
            labels[line.rstrip(":")] = len(blocks) - 1
        elif found := INSTRUCTION.match(line):
            _, predicate, name, rest = found.groups()
            target = TARGET.search(rest) if name.startswith("BRA") else None
            blocks[-1].instructions.append(
                Instruction(name, predicate is not None, target.group(1) if target else None)
            )
            if name.startswith(("BRA", "EXIT", "RET")):
                blocks.append(Block([], []))
    for i, block in enumerate(blocks):
        last = block.instructions[-1] if block.instructions else None
        is_jump = last is not None and last.kind in ("BRA", "EXIT", "RET")
        if last is not None and last.target and not last.name.startswith("BRA.DIV"):  # divergent warps are a slow path
            block.following.append(labels[last.target])
        goes_on = not is_jump or last.is_conditional or last.name.startswith("BRA.DIV")
        if goes_on and i + 1 < len(blocks):
            block.following.append(i + 1)
    return blocks


def reachable(blocks: list[Block]) -> dict[int, Block]:
    """Return the blocks that are reached from the first."""
    found, waiting = set[int](), [0]
    while waiting:
        i = waiting.pop()
        if i not in found:
            found.add(i)
            waiting += blocks[i].following
    return {i: blocks[i] for i in sorted(found)}


def innermost(blocks: dict[int, Block]) -> list[set[int]]:
    """Return the natural loops that contain no other, by their blocks: jumps back to a block that dominates them."""
    before: dict[int, set[int]] = {i: set() for i in blocks}
    for i, block in blocks.items():
        for other in block.following:
            before[other].add(i)
    dominators = dominators_of(blocks, before)
    loops: dict[int, set[int]] = {}
    for i, block in blocks.items():
        for head in block.following:
            if head in dominators[i]:
                loops.setdefault(head, {head}).update(body_of(head, i, before))
    return [loop for loop in loops.values() if not any(other < loop for other in loops.values())]


def dominators_of(blocks: dict[int, Block], before: dict[int, set[int]]) -> dict[int, set[int]]:
    """Return for every block those through which every path to it leads, itself included."""
    dominators = {i: {0} if i == 0 else set(blocks) for i in blocks}
    changed = True
    while changed:
        changed = False
        for i in blocks:
            if i:
                new = {i} | set.intersection(*(dominators[other] for other in before[i]))
                changed, dominators[i] = changed or new != dominators[i], new
    return dominators


def body_of(head: int, end: int, before: dict[int, set[int]]) -> set[int]:
    """Return the blocks from which ``end`` is reached without passing ``head``."""
    body, waiting = {head}, [end]
    while waiting:
        i = waiting.pop()
        if i not in body:
            body.add(i)
            waiting += before[i]
    return body
