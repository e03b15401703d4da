"""What a rank does in tests under mpirun: the program that its command line names."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from summing_ranks import ELEMENTS_AT_ONCE

from parallel import host_reducer
from parallel.communicator import Communicator
from parallel.launch import all_or_none, communicator

MODULES = ("failing_ranks", "summing_ranks", "training_ranks", "graph_ranks")  # the quickest import first


def program_named(name: str) -> Callable[..., Any]:
    if name == "in_turn":
        return in_turn
    return next(getattr(module, name) for module in map(importlib.import_module, MODULES) if hasattr(module, name))


def in_turn(world: Communicator, directory: Path, jobs: str) -> list[Any]:
    """Run several programs, each in a directory of its own, named by its number."""
    return [
        program_named(name)(world, directory / str(number), *arguments)
        for number, (name, *arguments) in enumerate(json.loads(jobs))
    ]


def run_as_rank(program: str, directory: str, *arguments: str) -> None:
    host_reducer.ELEMENTS_AT_ONCE = ELEMENTS_AT_ONCE  # type: ignore[attr-defined]
    world = communicator()
    with all_or_none(world):
        result = program_named(program)(world, Path(directory), *arguments)
        (Path(directory) / f"{world.rank}.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    run_as_rank(*sys.argv[1:])
