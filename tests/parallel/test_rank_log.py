"""Warnings of other ranks appear in the log of rank 0: each once, with the numbers of its ranks."""

import logging
from typing import Any

import pytest

from parallel.agreement import warn_of_differences
from parallel.communicator import SerialCommunicator
from parallel.rank_log import collected_warnings, log_warnings_of_other_ranks

LIBRARY = logging.getLogger("autograd.kernels")


class World(SerialCommunicator):
    """Rank 0 or another rank; ``others`` are the values of ranks 1, 2, …"""

    def __init__(self, *others: Any, rank: int = 0) -> None:
        self.rank, self.size, self.others, self.sent = rank, 1 + len(others), others, [[""]]

    def allgather(self, value: Any) -> list[Any]:
        self.sent.append(value)
        return [value, *self.others]


def test_rank_0_logs_each_warning_of_others_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(["no compiler", "full disk"], ["no compiler"], ["no compiler", "known"])
    with collected_warnings(world):
        LIBRARY.warning("known")
        caplog.clear()
        log_warnings_of_other_ranks(world)
        log_warnings_of_other_ranks(world)
        assert caplog.messages == ["ranks 1 to 3: no compiler", "rank 1: full disk"]
    caplog.clear()
    with collected_warnings(world):
        log_warnings_of_other_ranks(world)
        assert len(caplog.messages) == 3, "another run begins anew"


def test_another_rank_hands_over_its_new_warnings_alone(caplog: pytest.LogCaptureFixture) -> None:
    world = World([], rank=1)
    LIBRARY.warning("before")
    with collected_warnings(world):
        LIBRARY.warning("it is %s", "slow")
        LIBRARY.warning("it is slow")
        LIBRARY.info("progress")
        log_warnings_of_other_ranks(world)
        log_warnings_of_other_ranks(world)
        LIBRARY.warning("it is slow")
        log_warnings_of_other_ranks(world)
    LIBRARY.warning("after")
    log_warnings_of_other_ranks(world)
    assert world.sent[1:] == [["it is slow"], [], [], []]
    assert caplog.messages.count("it is slow") == 3, "the rank's own log is as before"


def test_what_differs_between_ranks_is_one_warning_on_rank_0(caplog: pytest.LogCaptureFixture) -> None:
    others = [{"BLAS": blas, "NumPy": "2"} for blas in ("Zen", "Haswell", "Zen")]
    warn_of_differences(World(*others), {"BLAS": "Haswell", "NumPy": "2"}, "bits differ")
    assert caplog.messages == ["BLAS differs: Haswell on ranks 0, 2; Zen on ranks 1, 3: bits differ"]
    caplog.clear()
    warn_of_differences(World(*others, rank=1), {"BLAS": "Haswell", "NumPy": "2"}, "bits differ")
    assert caplog.messages == []
