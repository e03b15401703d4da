"""Programs of ranks that wait for each other, disagree, freeze and die."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from summing_ranks import add_up, in_two_slices, zeros_in

from parallel.agreement import check_agreement
from parallel.communicator import Communicator


def exchange_values(world: Communicator, directory: Path) -> dict[str, Any]:
    world.barrier()
    return {
        "rank": world.rank,
        "size": world.size,
        "node_size": world.node_size,
        "sum": world.sum_of_numbers(world.rank + 0.5),
        "any of one": world.any(world.rank == world.size - 1),
        "any of none": world.any(False),
        "broadcast": world.broadcast({"from": [world.rank]}),
        "all": world.all_of([world.rank]),
    }


def meet_at_barrier(world: Communicator, directory: Path) -> bool:
    if world.rank == 1:
        time.sleep(0.3)
        (directory / "rank 1 has come").touch()
    world.barrier()
    return (directory / "rank 1 has come").exists()


def raise_on_one_rank(world: Communicator, directory: Path) -> None:
    if world.rank == 1:
        (directory / "raised").touch()
        raise ValueError("on purpose")
    world.barrier()


def freeze_one_rank(world: Communicator, directory: Path) -> None:
    exchange = zeros_in(impatient_world(2), 300, 2)
    add_up(exchange, 1)
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    add_up(exchange, 1)


def impatient_world(patience: float) -> Communicator:
    from parallel.mpi import MpiCommunicator

    return MpiCommunicator(patience)


def freeze_rank_0_at_work(world: Communicator, directory: Path) -> None:
    impatient = impatient_world(2)
    with impatient.waiting_for_rank_0():
        if world.rank == 0:
            os.kill(os.getpid(), signal.SIGSTOP)


def freeze_before_barrier(world: Communicator, directory: Path) -> None:
    impatient = impatient_world(2)
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    impatient.barrier()


def freeze_before_first_meeting(world: Communicator, directory: Path) -> None:
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    impatient_world(2)


def freeze_before_exchange(world: Communicator, directory: Path) -> None:
    impatient = impatient_world(2)
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    zeros_in(impatient, 300, 3)


def add_up_for_ever(world: Communicator, directory: Path) -> None:
    exchange = zeros_in(impatient_world(5), 1000, 2)
    for _ in range(30_000):
        add_up(exchange, 1)
        (directory / f"rank {world.rank} adds up").touch()
        time.sleep(0.01)


def wait_patiently(world: Communicator, directory: Path) -> None:
    """While rank 0 works, and between calls, nobody is impatient."""
    impatient = impatient_world(2)
    for _ in range(2):
        with impatient.waiting_for_rank_0():
            if world.rank == 0:
                time.sleep(3)
    time.sleep(3)
    assert impatient.any(world.rank == 1)


def disagree(world: Communicator, directory: Path) -> None:
    check_agreement(world, {"code": "new", "data": "same"}, "before", "Nothing")
    check_agreement(world, {"code": "old" if world.rank == 2 else "new", "data": "same"}, "at the start", "Start anew")


def exit_on_one_rank(world: Communicator, directory: Path) -> None:
    if world.rank == 1:
        (directory / "raised").touch()
        sys.exit("out of here")
    zeros_in(world, 3, 2).sum_gradients(in_two_slices)


def die_on_one_rank(world: Communicator, directory: Path) -> None:
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    world.barrier()


def return_nothing(world: Communicator, directory: Path) -> None:
    pass
