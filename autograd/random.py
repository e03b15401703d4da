"""Random bits as a pure function of (seed, update, micro-batch, stream, index), without state.

The generator is Philox4x64-10.  Its bits are those of ``numpy.random.Philox``.  The key is (seed, stream).  The counter
is (block, micro-batch, update, 0); blocks are counted from 1.  So a dropout mask can be drawn again in the backward
pass, and need not be saved in checkpoints.  It is the same on every device and for any number of processes.

Source: Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", which calls such generators
    counter-based.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from autograd.array import Array, namespace
from autograd.op import Dispatch

_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10
_WORD = 2**64


@dataclass(frozen=True, slots=True)
class StreamId:
    """The id of a random stream.  All four numbers are in [0, 2⁶⁴); ``micro_batch`` is the index of the micro-batch.

    ``update`` may be a scalar array, uint64, on the device that draws.  So a captured CUDA graph draws new numbers in
    every update.
    """

    seed: int
    stream: int
    update: int | Array = 0
    micro_batch: int = 0


class RandomStream:
    """A source of the random stream ids of one forward pass, numbered in the order of use.

    Dropout is on if and only if a stream is passed to the model; there is no other switch.  A training makes one for
    each update and micro-batch (see ``StreamId``).

    Raises: TypeError if the seed is no whole number; ValueError if it is outside of [0, 2⁶⁴).
    """

    def __init__(self, seed: int, update: int | Array = 0, micro_batch: int = 0) -> None:
        _check(seed)
        self.seed, self.update, self.micro_batch = seed, update, micro_batch
        self._n_ids = 0

    def next_id(self) -> StreamId:
        """Return the next unused random stream id of this pass."""
        self._n_ids += 1
        return StreamId(self.seed, self._n_ids, self.update, self.micro_batch)


def named_stream_id(seed: int, name: str) -> StreamId:
    """Return the random stream id of a name, for draws that do not depend on the update (a parameter's initial values).

    Raises: TypeError if the seed is no whole number; ValueError if it is outside of [0, 2⁶⁴).
    """
    _check(seed)
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return StreamId(seed, int.from_bytes(digest, "little"))


def _check(seed: Any) -> None:
    if not isinstance(seed, Integral):
        raise TypeError(f"a seed must be a whole number; got {seed!r:.80}")
    if not 0 <= int(seed) < 2**64:
        raise ValueError(f"a seed must be in [0, 2⁶⁴); got {seed}")


@Dispatch
def random_words(like: Array, *, stream_id: StreamId, count: int) -> Array:
    """Return ``count`` random 64-bit words of a random stream id, computed on the device of ``like``.

    Shapes: returns (count,) uint64, equal to ``numpy.random.Philox(key=…, counter=…).random_raw(count)``.
    """
    xp = namespace(like)
    blocks = xp.arange(1, -(-count // 4) + 1, dtype=xp.uint64)
    counter = [blocks, *(xp.full_like(blocks, word) for word in (stream_id.micro_batch, stream_id.update, 0))]
    return xp.stack(philox4x64_10(counter, (stream_id.seed, stream_id.stream)), axis=1).reshape(-1)[:count]


def philox4x64_10(counter: Sequence[Array], key: Sequence[int]) -> list[Array]:
    """Apply ten rounds of Philox: compute a block of four random words from each 256-bit counter.

    For each key this is a bijection: no two counters give the same block.
    Shapes: counter, four arrays (n,) uint64, the lowest words first; key, two words in [0, 2⁶⁴).  Returns the n blocks
        as four arrays (n,) uint64.
    """
    xp = namespace(counter[0])
    for _ in range(_ROUNDS):
        counter = _round(xp, counter, key)
        key = [(word + weyl) % _WORD for word, weyl in zip(key, _WEYL, strict=True)]
    return list(counter)


def _round(xp: Any, counter: Sequence[Array], key: Sequence[int]) -> list[Array]:
    high0, low0 = _multiply_wide(xp, counter[0], _MULTIPLIERS[0])
    high1, low1 = _multiply_wide(xp, counter[2], _MULTIPLIERS[1])
    return [high1 ^ counter[1] ^ xp.uint64(key[0]), low1, high0 ^ counter[3] ^ xp.uint64(key[1]), low0]


def _multiply_wide(xp: Any, x: Array, factor: int) -> tuple[Array, Array]:
    """Return the high and low 64 bits of the 128-bit products x · factor, computed from 32-bit halves."""
    mask, half = xp.uint64(0xFFFFFFFF), xp.uint64(32)
    x_high, x_low = x >> half, x & mask
    f_high, f_low = xp.uint64(factor >> 32), xp.uint64(factor & 0xFFFFFFFF)
    low_low, low_high, high_low = x_low * f_low, x_low * f_high, x_high * f_low
    middle = (low_low >> half) + (low_high & mask) + (high_low & mask)
    high = x_high * f_high + (low_high >> half) + (high_low >> half) + (middle >> half)
    return high, x * xp.uint64(factor)


def random_uint16(like: Array, *, stream_id: StreamId, count: int) -> Array:
    """Return ``count`` random 16-bit numbers: four from each random word, lowest bits first.

    Shapes: returns (count,) uint16 on the device of ``like``.
    """
    words = random_words(like, stream_id=stream_id, count=-(-count // 4))
    return words.view(namespace(like).uint16)[:count]


def uniform(stream_id: StreamId, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Draw numbers uniform in [0, 1), 53 random bits each.  Returns float64 on the host."""
    words = random_words(np.empty(0), stream_id=stream_id, count=int(np.prod(shape)))
    numbers: np.ndarray[Any, Any] = (words >> np.uint64(11)) * 2.0**-53
    return numbers.reshape(shape)


def normal(stream_id: StreamId, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Draw standard normal numbers by the method of Box & Muller 1958.  Returns float64 on the host."""
    radius, angle = uniform(stream_id, (2, *shape))
    return np.asarray(np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle))


def permutation(stream_id: StreamId, n: int) -> np.ndarray[Any, Any]:
    """Return a random permutation of 0 … n−1, the argsort of n random words.  Returns int64 on the host."""
    words: np.ndarray[Any, Any] = random_words(np.empty(0), stream_id=stream_id, count=n)
    order: np.ndarray[Any, Any] = words.argsort(kind="stable")
    return order
