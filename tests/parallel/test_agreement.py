"""Ranks are compared, fact by fact, and whoever differs is named; their warnings appear in the log of rank 0."""

import logging
import socket
from typing import Any

import numpy as np
import pytest

from parallel.agreement import DisagreementError, check_agreement, checksum, warn_of_differences
from parallel.communicator import SerialCommunicator
from parallel.rank_log import collected_warnings, log_warnings_of_other_ranks

HERE, LIBRARY = socket.gethostname(), logging.getLogger("autograd.kernels")


class World(SerialCommunicator):
    """A rank; each of the others has one value, which it gives where this rank gives one of the same type."""

    def __init__(self, *others: Any, rank: int = 0) -> None:
        self.rank, self.size, self.others = rank, 1 + len(others), others
        self.sent: list[Any] = []
        self.n_barriers = 0

    def allgather(self, value: Any) -> list[Any]:
        self.sent.append(value)
        values = [other if isinstance(other, type(value)) else type(value)() for other in self.others]
        values.insert(self.rank, value)
        return values

    def barrier(self) -> None:
        self.n_barriers += 1


def check(all_facts: list[dict[str, str]], rank: int = 0) -> World:
    others = [(f"host{number}", facts) for number, facts in enumerate(all_facts) if number != rank]
    world = World(*others, rank=rank)
    check_agreement(world, all_facts[rank], "now", "Do this")
    return world


DIFFERENT = [{"code": "a", "data": "x"}, {"code": "a", "data": "y"}, {"code": "b", "data": "x"}]


def test_rank_0_names_every_difference_and_the_others_wait_for_its_end() -> None:
    message = (
        rf"now ranks disagree: data is y on rank 1 \(host1\), x on rank 0 \({HERE}\);"
        rf" code is b on rank 2 \(host2\), a on rank 0 \({HERE}\)\. Do this$"
    )
    with pytest.raises(DisagreementError, match=message):
        check(DIFFERENT)
    with pytest.raises(DisagreementError, match=rf"on rank 4 \(host4\), 0 on rank 0 \({HERE}\) and 3 more\."):
        check([{"code": str(rank)} for rank in range(8)])
    assert check(DIFFERENT, rank=1).n_barriers == 1
    assert check(DIFFERENT[:1] * 3).n_barriers == check(DIFFERENT[:1]).n_barriers == 0


def test_a_checksum_changes_with_any_bit_and_is_that_of_the_numbers_alone() -> None:
    x = np.arange(12, dtype=np.float32)
    changed = x.copy()
    changed[7] = np.nextafter(np.float32(7), np.float32(8))
    assert checksum(changed) != checksum(x) == checksum(np.repeat(x, 2)[::2])


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
    assert world.sent == [["it is slow"], [], [], []]
    assert caplog.messages.count("it is slow") == 3, "the rank's own log is as before"


def test_what_differs_between_ranks_is_one_warning_on_rank_0(caplog: pytest.LogCaptureFixture) -> None:
    facts = [{"BLAS": blas, "NumPy": "2"} for blas in ("Haswell", "Zen", "Haswell", "Zen")]
    warn_of_differences(World(*facts[1:]), facts[0], "bits differ")
    assert caplog.messages == ["BLAS differs: Haswell on ranks 0, 2; Zen on ranks 1, 3: bits differ"]
    caplog.clear()
    warn_of_differences(World(facts[0], *facts[2:], rank=1), facts[1], "bits differ")
    assert caplog.messages == []
