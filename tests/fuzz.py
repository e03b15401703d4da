"""Fuzzing of everything that reads a file: corrupt or hostile input must end in one of our own errors.

    python tests/fuzz.py [--inputs 100000] [--first 0] [--reader NAME …] [--seed 0]

Inputs are files that were written as they should be and then changed: bits flipped, cut off, spliced, numbers made
huge, lengths that lie, names that lead elsewhere.  An input is a function of (seed, reader, index): --first is the
index to begin with, so that one input can be repeated alone, or many be tried in parts.  A reader works in a process of
its own with bounded memory, and may open no file outside its directory.  Anything but a result or an error for users is
a fault; so is damage to a checkpoint that nobody notices.  Prints counts, and how to repeat every fault.
"""

import argparse
import contextlib
import io
import json
import os
import random
import re
import resource
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from fuzzed_readers import READERS, Reader  # noqa: E402

from autograd.kernels.cpu.library import library  # noqa: E402
from minitransformer.system.errors import UserError  # noqa: E402

MEMORY = 1 << 30  # bytes of address space that a reader may ask for beyond those it has at the start
HUGE = [*b"-1 0 1e999 99999999999 18446744073709551615 NaN null [] 1.5".split(), b"9" * 400, b'"x"']
ELSEWHERE = [b"../../../../etc/passwd", b"/etc/passwd", b"../state.json", b"\\u0000", b"step-../x"]
FAULTS_SHOWN = 10

Mutation = Callable[[random.Random, bytes, bytes], bytes]


def flip_bits(draw: random.Random, content: bytes, other: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 4, 32))):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def flip_bits_at_the_beginning(draw: random.Random, content: bytes, other: bytes) -> bytes:
    return flip_bits(draw, content[:200], other) + content[200:]


def cut_off(draw: random.Random, content: bytes, other: bytes) -> bytes:
    return content[: draw.randrange(len(content))]


def cut_out(draw: random.Random, content: bytes, other: bytes) -> bytes:
    start = draw.randrange(len(content))
    return content[:start] + content[start + draw.randint(1, 40) :]


def splice(draw: random.Random, content: bytes, other: bytes) -> bytes:
    start, start_there = draw.randrange(len(content)), draw.randrange(len(other) or 1)
    piece = other[start_there : start_there + draw.choice((1, 8, 100, 10_000))]
    return content[:start] + piece + content[start + draw.choice((0, len(piece))) :]


def repeat(draw: random.Random, content: bytes, other: bytes) -> bytes:
    start = draw.randrange(len(content))
    piece = content[start : start + draw.randint(1, 20)]
    return content[:start] + piece * draw.choice((2, 100, 5_000)) + content[start:]


def replacing(pattern: bytes, replacements: list[bytes]) -> Mutation:
    """A change of what the group is in one of the places that match; where there is none, bits are flipped."""

    def replace(draw: random.Random, content: bytes, other: bytes) -> bytes:
        found = list(re.finditer(pattern, content[:20_000]))
        if not found:
            return flip_bits(draw, content, other)
        where = draw.choice(found)
        return content[: where.start(1)] + draw.choice(replacements) + content[where.end(1) :]

    return replace


replace_number = replacing(rb"(-?\d+(?:\.\d+)?)", HUGE)
replace_name = replacing(rb"[\"']([^\"']{1,60})[\"']", ELSEWHERE)


def lie_about_length(draw: random.Random, content: bytes, other: bytes) -> bytes:
    lie = draw.choice((0, 1, len(content) - 8, len(content), 2**31, 2**40, 2**63 - 1, 2**64 - 1))
    start = draw.choice((0, 0, 0, draw.randrange(len(content))))
    return content[:start] + struct.pack("<Q", max(0, lie)) + content[start + 8 :]


def not_a_number(draw: random.Random, content: bytes, other: bytes) -> bytes:
    start = 4 * draw.randrange(1 + len(content) // 4)
    return content[:start] + struct.pack("<f", float(draw.choice(("nan", "inf", "-inf")))) + content[start + 4 :]


def nest(draw: random.Random, content: bytes, other: bytes) -> bytes:
    start, bracket = draw.randrange(len(content)), draw.choice((b"[", b"{", b"(", b'{"a":'))
    return content[:start] + bracket * draw.choice((1, 100, 100_000)) + content[start:]


MUTATIONS: list[Mutation] = [
    flip_bits, flip_bits, flip_bits_at_the_beginning, cut_off, cut_out, splice, repeat, replace_number, replace_number,
    replace_name, lie_about_length, not_a_number, nest,
]  # fmt: skip


def mutated(draw: random.Random, files: dict[str, bytes]) -> tuple[str, bytes | None]:
    """A file of the reader's, changed one to three times, or missing."""
    name = draw.choice(sorted(files))
    if draw.random() < 0.01:
        return name, None
    content, other = files[name], files[draw.choice(sorted(files))]
    for _ in range(draw.choice((1, 1, 2, 3))):
        content = draw.choice(MUTATIONS)(draw, content, other) if content else b"\x00"
    return name, content


def try_input(reader: Reader, directory: Path, files: dict[str, bytes], key: str) -> str:
    """ "accepted" or "refused", or what went wrong."""
    name, content = mutated(random.Random(key), files)
    path = directory / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    opened_elsewhere.clear()
    try:
        reader.prepare(directory)
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            reader.read(directory)
        outcome = "accepted"
    except (UserError, *reader.also_allowed):
        outcome = "refused"
    except BaseException:
        outcome = traceback.format_exc()
    finally:
        restore(directory, files if reader.changes_others else {name: files[name]})
    if opened_elsewhere:
        outcome = f"opened {opened_elsewhere}"
    if outcome == "accepted" and reader.notices_all and content != files[name]:
        outcome = "damage was not noticed"
    return outcome


def restore(directory: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (directory / name).write_bytes(content)


opened_elsewhere: list[str] = []


def watch_paths(directory: Path) -> None:
    """Remember files opened outside of the directory, but for Python's own."""
    own = (str(directory), sys.prefix, sys.base_prefix, "/proc/", "/dev/", "/sys/", str(ROOT))

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.fsdecode(arguments[0])
            if not str(Path(path).resolve()).startswith(own):
                opened_elsewhere.append(path)

    sys.addaudithook(hook)


def bound_memory() -> None:
    limit = psutil.Process().memory_info().vms + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def fuzz(reader: Reader, name: str, seed: int, indices: range) -> Counter[str]:
    """Try inputs in child processes; one that dies counts as a fault, and the next goes on after its input."""
    library()  # before paths are watched: kernels are compiled, or read from the user's cache, when first needed
    counts, first = Counter[str](), indices.start
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        directory = Path(folder).resolve()
        reader.write(directory)
        files = {
            p.relative_to(directory).as_posix(): p.read_bytes()
            for p in directory.rglob("*")
            if p.is_file() and p.name not in reader.untouched
        }
        while first < indices.stop:
            first = _fuzz_in_child(reader, name, seed, range(first, indices.stop), directory, files, counts)
            restore(directory, files)
    return counts


def _fuzz_in_child(
    reader: Reader, name: str, seed: int, indices: range, directory: Path, files: dict[str, bytes], counts: Counter[str]
) -> int:
    """Return the index to go on from."""
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        os.close(readable)
        try:
            warnings.simplefilter("error")
            watch_paths(directory)
            bound_memory()
            with os.fdopen(writable, "w", buffering=1) as results:
                for i in indices:
                    results.write(json.dumps(try_input(reader, directory, files, f"{seed} {name} {i}")) + "\n")
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writable)
    next_index = indices.start
    with os.fdopen(readable) as results:
        for line in results:
            _count(json.loads(line), counts, f"--reader {name} --seed {seed}, input {next_index}")
            next_index += 1
    _, status = os.waitpid(child, 0)
    if status:
        _count(f"the process ended with status {status}", counts, f"--reader {name} --seed {seed}, input {next_index}")
        next_index += 1
    return next_index


def _count(outcome: str, counts: Counter[str], where: str) -> None:
    is_fault = outcome not in ("accepted", "refused")
    counts["fault" if is_fault else outcome] += 1
    if is_fault and counts["fault"] <= FAULTS_SHOWN:
        print(f"fault ({where}):\n{outcome}", flush=True)


def main() -> int:
    """Fuzz, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000, help="for each reader")
    parser.add_argument("--first", type=int, default=0, help="the index of the first input")
    parser.add_argument("--reader", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    n_faults, indices = 0, range(options.first, options.first + options.inputs)
    for name in options.reader:
        start = time.perf_counter()
        counts = fuzz(READERS[name], name, options.seed, indices)
        n_faults += counts["fault"]
        print(
            f"{name}: {options.inputs:,} inputs, {counts['refused']:,} refused, {counts['accepted']:,} read,"
            f" {counts['fault']:,} faults ({time.perf_counter() - start:.0f} s)",
            flush=True,
        )
    return min(1, n_faults)


if __name__ == "__main__":
    sys.exit(main())
