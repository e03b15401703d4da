"""Model configurations by name: the paper's models, every row of its Table 3, and small models for a CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

from minitransformer.config.checks import ConfigError, suggestion
from minitransformer.config.model import ModelConfig


def base(vocabulary_size: int = 0) -> ModelConfig:
    """Return the paper's base model: Table 3, first row."""
    return ModelConfig(vocabulary_size=vocabulary_size)


def big(vocabulary_size: int = 0) -> ModelConfig:
    """Return the paper's big model: Table 3, last row."""
    return dataclasses.replace(base(vocabulary_size), d_model=1024, d_ff=4096, n_heads=16, p_drop=0.3)


def small(vocabulary_size: int = 0) -> ModelConfig:
    """Return a model of 4 + 4 layers of width 128, for tens of thousands of sentences on a CPU (docs/guide/sizes.md).

    Differs: projections of queries, keys and values begin with a gain of 1/√2, so that the model learns faster.
    """
    return dataclasses.replace(
        base(vocabulary_size),
        n_layers=4,
        d_model=128,
        d_ff=256,
        n_heads=4,
        d_k=32,
        d_v=32,
        p_drop=0.25,
        attention_gain=0.5**0.5,
    )


def tiny(vocabulary_size: int = 0) -> ModelConfig:
    """Return the demonstration's model of 2 + 2 layers of width 128, which trains in minutes.

    Differs: as in `small`, projections of queries, keys and values begin with a gain of 1/√2.
    There is no dropout, because the demonstration's corpus hardly repeats itself.
    """
    return dataclasses.replace(
        base(vocabulary_size),
        n_layers=2,
        d_model=128,
        d_ff=512,
        n_heads=4,
        d_k=32,
        d_v=32,
        p_drop=0.0,
        attention_gain=0.5**0.5,
    )


def parsing(vocabulary_size: int = 0) -> ModelConfig:
    """Return the paper's model for constituency parsing (section 6.3): 4 layers of width 1024, d_k = d_v = d_model/h.

    Differs: words and trees have separate vocabularies.  The paper does not print the rate of dropout in residuals and
    attention; 0.2 is the rate of tensor2tensor's parsing model.
    """
    return dataclasses.replace(
        base(vocabulary_size),
        n_layers=4,
        d_model=1024,
        d_k=128,
        d_v=128,
        p_drop=0.2,
        p_drop_attention=0.2,
        tied="target",
    )


def parsing_small(vocabulary_size: int = 0) -> ModelConfig:
    """Return a parsing model of 3 + 3 layers of width 256, for tens of thousands of trees on a CPU."""
    return dataclasses.replace(
        base(vocabulary_size),
        n_layers=3,
        d_model=256,
        d_ff=512,
        n_heads=4,
        d_k=64,
        d_v=64,
        p_drop=0.2,
        tied="target",
        norm="pre",
    )


TABLE3: dict[str, dict[str, Any]] = {  # row → its changes of the base model's settings
    "table3-A-h1": {"n_heads": 1, "d_k": 512, "d_v": 512},
    "table3-A-h4": {"n_heads": 4, "d_k": 128, "d_v": 128},
    "table3-A-h16": {"n_heads": 16, "d_k": 32, "d_v": 32},
    "table3-A-h32": {"n_heads": 32, "d_k": 16, "d_v": 16},
    "table3-B-dk16": {"d_k": 16},
    "table3-B-dk32": {"d_k": 32},
    "table3-C-n2": {"n_layers": 2},
    "table3-C-n4": {"n_layers": 4},
    "table3-C-n8": {"n_layers": 8},
    "table3-C-d256": {"d_model": 256, "d_k": 32, "d_v": 32},
    "table3-C-d1024": {"d_model": 1024, "d_k": 128, "d_v": 128},
    "table3-C-ff1024": {"d_ff": 1024},
    "table3-C-ff4096": {"d_ff": 4096},
    "table3-D-drop0": {"p_drop": 0.0},
    "table3-D-drop2": {"p_drop": 0.2},
    "table3-D-ls0": {"label_smoothing": 0.0},
    "table3-D-ls2": {"label_smoothing": 0.2},
    "table3-E": {"positions": "learned"},
}


def _base_with(changes: dict[str, Any], vocabulary_size: int = 0) -> ModelConfig:
    return dataclasses.replace(base(vocabulary_size), **changes)


PRESETS: dict[str, Callable[[int], ModelConfig]] = {
    "tiny": tiny,
    "small": small,
    "base": base,
    "big": big,
    "parsing": parsing,
    "parsing-small": parsing_small,
    **{name: partial(_base_with, changes) for name, changes in TABLE3.items()},
}


def __getattr__(name: str) -> Any:
    """Name a similar preset in the error for an unknown one; those of Table 3 are made by ``named``."""
    raise AttributeError(f"presets has no {name!r}; {suggestion(name, [*PRESETS])}", name=name)


def named(name: str, vocabulary_size: int = 0) -> ModelConfig:
    """Return the preset with this name.  Raises: ConfigError with all names, if the name is unknown."""
    if name not in PRESETS:
        raise ConfigError(f"preset: expected one of {', '.join(PRESETS)}; got {name!r}")
    return PRESETS[name](vocabulary_size)
