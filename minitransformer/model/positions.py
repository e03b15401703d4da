"""Positional encodings, from which the model learns the order of tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from autograd import Layer, Parameter, Tensor, ops, to_device
from autograd.array import Array, Device, device_of, namespace_of_device, persistent_pool
from autograd.parameters import scaled_normal
from minitransformer.config import ModelConfig
from minitransformer.system.errors import UserError


class PositionError(UserError, ValueError):
    """An error: a sentence is longer than the learned table of positions."""


class SamePosition(NamedTuple):
    """The position that tokens have in a step of a search: all ``n_tokens`` tokens, or those of each sentence.

    ``position`` is a number on the host, or an array (S,) on the device, with the position of n_tokens / S tokens each.
    ``farthest`` is an upper bound, which gives the length of the table without copying ``position`` to the host.
    """

    position: int | Array
    n_tokens: int
    farthest: int

    def rows(self, first_position: int, device: Device) -> Array:
        """Return the row (n_tokens,) of each token in a table that begins with position −``first_position``."""
        xp, position = namespace_of_device(device), self.position
        if isinstance(position, int):
            return xp.full(self.n_tokens, position + first_position, np.int64)
        return xp.repeat(position + first_position, self.n_tokens // len(position))


class PositionalEncoding(Layer, ABC):
    """A table of encodings, with one row for each position."""

    @abstractmethod
    def table_and_rows(
        self, positions: Array | SamePosition, dtype: Any, device: Device
    ) -> tuple[Tensor | Array, Array]:
        """Return the table (N, D) and the row (T,) of each token's position (T,) in its sentence."""

    def add_to(self, x: Tensor, positions: Array | SamePosition, order: Array | None = None) -> Tensor:
        """Add to x (T, D) the encoding of each token's position (T,) in its sentence; see ``ops.embedding``."""
        return x + ops.embedding(*self.table_and_rows(positions, x.dtype, x.device), order=order)


class LearnedPositions(PositionalEncoding):
    """A trained table with a row for every position: Table 3, row (E)."""

    def __init__(self, config: ModelConfig) -> None:
        self.first_position, self.longest_sentence = config.first_position, config.longest_sentence
        self.weight = Parameter((config.max_positions, config.d_model), scaled_normal)

    def table_and_rows(self, positions: Array | SamePosition, dtype: Any, device: Device) -> tuple[Tensor, Array]:
        """Return the table and the rows.  Raises: PositionError if a sentence is longer than the table.

        Positions on a GPU are not checked, because reading them would wait for the GPU.  A training run checks all
        sentences before the first update, and a search limits the length of translations.
        """
        if isinstance(positions, SamePosition):
            return self.weight, positions.rows(self.first_position, device)
        if device_of(positions) == "cpu" and positions.max(initial=0) >= self.longest_sentence:
            raise PositionError(
                f"positions: a sentence of {positions.max() + 1} tokens is longer than the learned table,"
                f" which holds {self.longest_sentence} (max_positions)"
            )
        return self.weight, to_device(positions + self.first_position, device)


class SinusoidalPositions(PositionalEncoding):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)): section 3.5.

    Differs, if ``layout`` is "halves": all sines, then all cosines, with frequencies 10000^(−i/(D/2 − 1)), as in
    tensor2tensor, which trained the paper's models.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.d_model, self.layout, self.first_position = config.d_model, config.positions, config.first_position

    def table_and_rows(self, positions: Array | SamePosition, dtype: Any, device: Device) -> tuple[Array, Array]:
        if isinstance(positions, SamePosition):
            rows, farthest = positions.rows(self.first_position, device), positions.farthest
        else:
            # On a GPU the number of positions is an upper bound that is known without waiting.
            farthest = len(positions) if device_of(positions) == "cuda" else positions.max(initial=0)
            rows = to_device(positions + self.first_position, device)
        n_rows = 1 << int(farthest + self.first_position).bit_length()  # a power of two: few distinct tables are cached
        return _table(n_rows, self.d_model, self.layout, np.dtype(dtype).name, device), rows


@cache  # all tables take at most twice the largest one; never evicted, because captured CUDA graphs read them
def _table(n_positions: int, d_model: int, layout: str, dtype: str, device: Device) -> Array:
    with persistent_pool(device):
        return namespace_of_device(device).asarray(sinusoids(n_positions, d_model, layout).astype(dtype))


def sinusoids(n_positions: int, d_model: int, layout: str = "interleaved") -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the encodings of positions 0 … n − 1, in float64.  Shapes: returns (n_positions, d_model)."""
    half = d_model // 2
    divisor, axis = {"interleaved": (half, 2), "halves": (max(1, half - 1), 1)}[layout]
    angles = np.arange(n_positions)[:, None] * 10_000.0 ** -(np.arange(half) / divisor)
    return np.stack([np.sin(angles), np.cos(angles)], axis=axis).reshape(n_positions, d_model)


def positions_of(config: ModelConfig) -> PositionalEncoding:
    """Return the positional encoding that the configuration names."""
    return LearnedPositions(config) if config.positions == "learned" else SinusoidalPositions(config)
