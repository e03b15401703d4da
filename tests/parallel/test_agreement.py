"""Ranks are compared, fact by fact, and whoever differs is named."""

from typing import Any

import numpy as np
import pytest

from parallel.agreement import DisagreementError, check_agreement, checksum
from parallel.communicator import SerialCommunicator


class World(SerialCommunicator):
    """This rank among others that have said something already."""

    def __init__(self, rank: int, logged: list[dict[str, str]]) -> None:
        self.rank, self.size, self.logged = rank, len(logged), logged
        self.n_barriers = 0

    def allgather(self, value: Any) -> list[Any]:
        if value == []:  # no new warnings
            return [[]] * self.size
        assert value[1] == self.logged[self.rank]
        return [(f"host{rank}", facts) for rank, facts in enumerate(self.logged)]

    def barrier(self) -> None:
        self.n_barriers += 1


SAID = [{"code": "a", "data": "x"}, {"code": "a", "data": "y"}, {"code": "b", "data": "x"}]


def test_those_who_say_the_same_agree() -> None:
    check_agreement(World(0, [SAID[0]] * 3), SAID[0], "now", "Do this")
    check_agreement(SerialCommunicator(), SAID[0], "now", "Do this")


def test_rank_0_names_every_difference() -> None:
    message = (
        r"now ranks disagree: data is y on rank 1 \(host1\), x on rank 0 \(host0\);"
        r" code is b on rank 2 \(host2\), a on rank 0 \(host0\)\. Do this$"
    )
    with pytest.raises(DisagreementError, match=message):
        check_agreement(World(0, SAID), SAID[0], "now", "Do this")


def test_the_others_wait_for_the_end() -> None:
    world = World(1, SAID)
    check_agreement(world, SAID[1], "now", "Do this")
    assert world.n_barriers == 1


def test_of_many_differences_some_are_reported() -> None:
    logged = [{"code": str(rank)} for rank in range(8)]
    with pytest.raises(DisagreementError, match=r"on rank 4 \(host4\), 0 on rank 0 \(host0\) and 3 more\."):
        check_agreement(World(0, logged), logged[0], "now", "Do this")


def test_a_checksum_changes_with_any_bit_and_is_that_of_the_numbers_alone() -> None:
    x = np.arange(12, dtype=np.float32)
    changed = x.copy()
    changed[7] = np.nextafter(np.float32(7), np.float32(8))
    assert len({checksum(x), checksum(changed)}) == 2
    assert checksum(np.repeat(x, 2)[::2]) == checksum(x)
