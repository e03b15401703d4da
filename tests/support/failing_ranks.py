"""Programs of ranks that wait for each other, disagree, freeze and die."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from summing_ranks import sums_of

from parallel.agreement import check_agreement
from parallel.communicator import Communicator


def exchange_values(world: Communicator, directory: Path) -> dict[str, Any]:
    if world.rank == 1:
        time.sleep(0.1)
        (directory / "rank 1 has come").touch()
    world.barrier()
    return {
        "all have come": (directory / "rank 1 has come").exists(),
        "rank": world.rank,
        "size": world.size,
        "local_size": world.local_size,
        "sum": world.allreduce(world.rank + 0.5),
        "any of one": world.any(world.rank == world.size - 1),
        "any of none": world.any(False),
        "broadcast": world.bcast({"from": [world.rank]}),
        "all": world.allgather([world.rank]),
    }


def raise_on_one_rank(world: Communicator, directory: Path, error: str) -> None:
    if world.rank == 1:
        (directory / "raised").touch()
        raise {"ValueError": ValueError, "SystemExit": SystemExit}[error]("on purpose")
    sums_of(world, 3).allreduce(1)


def impatient_world(patience: float) -> Communicator:
    from parallel.mpi import MpiCommunicator

    return MpiCommunicator(patience)


def freeze_one_rank(world: Communicator, directory: Path, when: str) -> None:
    """Rank 1 freezes, or rank 0 while it works alone, and the other waits for it."""

    def may_freeze(step: str) -> None:
        if step == when and world.rank == (0 if step == "work" else 1):
            os.kill(os.getpid(), signal.SIGSTOP)

    may_freeze("start")
    impatient = impatient_world(2)
    with impatient.waiting_for_rank_0():
        may_freeze("work")
    may_freeze("barrier")
    impatient.barrier()
    may_freeze("allocation")
    sums = sums_of(impatient, 300)
    sums.allreduce(1)
    may_freeze("sum")
    sums.allreduce(1)


def add_up_for_ever(world: Communicator, directory: Path) -> None:
    sums = sums_of(impatient_world(5), 1000)
    for _ in range(30_000):
        sums.allreduce(1)
        (directory / f"rank {world.rank} adds up").touch()
        time.sleep(0.01)


def wait_patiently(world: Communicator, directory: Path) -> None:
    """While rank 0 works, nobody is impatient."""
    impatient = impatient_world(2)
    with impatient.waiting_for_rank_0():
        if world.rank == 0:
            time.sleep(3)
    assert impatient.any(world.rank == 1)


def disagree(world: Communicator, directory: Path) -> None:
    check_agreement(world, {"code": "new", "data": "same"}, "before", "Nothing")
    check_agreement(world, {"code": "old" if world.rank == 2 else "new", "data": "same"}, "at the start", "Start anew")


def die_on_one_rank(world: Communicator, directory: Path) -> None:
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    world.barrier()


def return_nothing(world: Communicator, directory: Path) -> None:
    pass
