"""The rows of Table 1: the paper's claims, and our measurements."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from autograd import Layer, ParameterBuffer
from minitransformer.extras.paper.complexity.layers import (
    Convolutional,
    Recurrent,
    RestrictedSelfAttention,
    SelfAttention,
    SequenceLayer,
)
from minitransformer.extras.paper.complexity.measures import (
    exponent,
    longest_chain,
    multiply_adds,
    path_length,
    seconds,
)

Variable = Literal["n", "d", "r", "k"]
_log = logging.getLogger(__name__)

WIDTH_OF_PATHS = 4  # features; path lengths do not depend on their number


@dataclass(frozen=True)
class Sizes:
    """The sizes of a measurement: sentences in a batch, length n, features d, and r or k."""

    sentences: int
    n: int
    d: int
    width: int
    """r or k; 0 for layers that have neither."""

    def inputs(self) -> Any:
        """Return random inputs (sentences, n, d) in float32."""
        random = np.random.default_rng(1)
        return random.standard_normal((self.sentences, self.n, self.d), np.float32)

    def at(self, variable: Variable, size: int) -> Sizes:
        """Return these sizes with ``variable`` changed to ``size``."""
        changed = {"n": self.n, "d": self.d, "width": self.width}
        changed[variable if variable in ("n", "d") else "width"] = size
        return Sizes(self.sentences, **changed)

    def __str__(self) -> str:
        return f"{self.sentences} × n {self.n}, d {self.d}" + (f", width {self.width}" if self.width else "")


@dataclass(frozen=True)
class Sweep:
    """A variable and its sizes, a geometric sequence, at which cost is measured; ``fixed`` holds all other sizes."""

    variable: Variable
    sizes: tuple[int, ...]
    fixed: Sizes


@dataclass(frozen=True)
class LayerType:
    """A row of Table 1: the paper's claims, and a function that builds the layer from d and r or k."""

    name: str
    powers: Mapping[str, int]
    """Complexity per layer as powers of n, d, r and k."""
    sequential: str
    """Sequential operations, O(·)."""
    path: str
    """Maximum path length, O(·)."""
    build: Callable[[int, int], SequenceLayer]
    sweeps: tuple[Sweep, ...]
    path_width: int = 0
    """The value of r or k for which path lengths are measured; 0 if the layer has neither."""

    @property
    def complexity(self) -> str:
        """The complexity per layer in the paper's notation."""
        return " · ".join(f"{name}²" if power == 2 else name for name, power in self.powers.items())

    def made(self, d: int, width: int, dtype: str) -> SequenceLayer:
        """Build the layer with random parameters."""
        layer = self.build(d, width)
        if isinstance(layer, Layer):
            ParameterBuffer(layer, seed=1, dtype=dtype)
        return layer


@dataclass(frozen=True)
class Growth:
    """The measured cost of one forward pass at each size of one variable."""

    variable: Variable
    sizes: tuple[int, ...]
    fixed: Sizes
    seconds: tuple[float, ...]
    multiply_adds: tuple[int, ...]

    @property
    def time_exponent(self) -> float:
        return exponent(self.sizes, self.seconds)

    @property
    def count_exponent(self) -> float:
        return exponent(self.sizes, self.multiply_adds)


@dataclass(frozen=True)
class Row:
    """The measurements of a layer type.

    ``chains`` maps n to the number of sequential operations, ``paths`` maps n to the maximum path length.
    """

    type: LayerType
    growths: tuple[Growth, ...]
    chains: Mapping[int, int]
    paths: Mapping[int, int]


def measure_row(layer_type: LayerType, repeats: int, lengths: Sequence[int] = (16, 64, 256)) -> Row:
    """Measure a row; ``lengths`` are the values of n for paths and chains."""
    growths = []
    for sweep in layer_type.sweeps:
        _log.info(f"{layer_type.name}: {sweep.variable} {', '.join(map(str, sweep.sizes))} at {sweep.fixed}")
        growths.append(_measure_growth(layer_type, sweep, repeats))
    _log.info(f"{layer_type.name}: paths and chains at n {', '.join(map(str, lengths))}")
    width = layer_type.path_width
    narrow = layer_type.made(WIDTH_OF_PATHS, width, "float64")
    chains = {n: longest_chain(narrow.forward(np.ones((1, n, WIDTH_OF_PATHS)))) for n in lengths}
    return Row(layer_type, tuple(growths), chains, {n: path_length(narrow, n, WIDTH_OF_PATHS) for n in lengths})


def _measure_growth(layer_type: LayerType, sweep: Sweep, repeats: int) -> Growth:
    times, counts = [], []
    for size in sweep.sizes:
        sizes = sweep.fixed.at(sweep.variable, size)
        layer, x = layer_type.made(sizes.d, sizes.width, "float32"), sizes.inputs()
        times.append(seconds(layer, x, repeats))
        counts.append(multiply_adds(layer, x))
    return Growth(sweep.variable, sweep.sizes, sweep.fixed, tuple(times), tuple(counts))


def sweeps(sentences: int, fixed: tuple[int, int, int], **sizes: tuple[int, ...]) -> tuple[Sweep, ...]:
    """Return a sweep for each variable in ``sizes``; ``fixed`` gives n, d and width when they do not vary."""
    return tuple(Sweep(name, values, Sizes(sentences, *fixed)) for name, values in sizes.items())  # type: ignore[arg-type]


_CONVOLUTIONAL = sweeps(1, (512, 512, 3), n=(512, 1024, 2048, 4096), d=(256, 512, 1024, 2048), k=(3, 6, 12, 24))

LAYER_TYPES = (
    LayerType(
        "Self-Attention", {"n": 2, "d": 1}, "1", "1", lambda d, _: SelfAttention(),
        sweeps(1, (1024, 64, 0), n=(1024, 2048, 4096)) + sweeps(1, (1024, 64, 0), d=(256, 512, 1024, 2048)),
    ),
    LayerType(
        "Recurrent", {"n": 1, "d": 2}, "n", "n", lambda d, _: Recurrent(d),
        sweeps(8, (32, 256, 0), n=(32, 64, 128, 256), d=(256, 512, 1024)),
    ),
    LayerType(
        "Convolutional", {"k": 1, "n": 1, "d": 2}, "1", "n/k", Convolutional,
        _CONVOLUTIONAL, path_width=4,
    ),
    LayerType(
        "Convolutional (dilated)", {"k": 1, "n": 1, "d": 2}, "1", "log_k(n)",
        lambda d, k: Convolutional(d, k, growth=k), _CONVOLUTIONAL, path_width=4,
    ),
    LayerType(
        "Self-Attention (restricted)", {"r": 1, "n": 1, "d": 1}, "1", "n/r", lambda d, r: RestrictedSelfAttention(r),
        sweeps(1, (4096, 256, 64), n=(2048, 4096, 8192), r=(32, 64, 128, 256))
        + sweeps(1, (2048, 64, 64), d=(256, 512, 1024)), path_width=4,
    ),
)  # fmt: skip
