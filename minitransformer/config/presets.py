"""Model configurations by name: the paper's models, every row of its Table 3, and small models for a CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from minitransformer.config.checks import ConfigError
from minitransformer.config.model import ModelConfig

Row = Literal["A", "B", "C", "D", "E"]

_HEAD_SIZES = ("d_model", "n_heads", "d_k")
_HEADS = {1: 512, 4: 128, 8: 64, 16: 32, 32: 16}  # Table 3 (A): h → d_k = d_v, at constant computation
_HEAD_SIZE = {256: 32, 512: 64, 1024: 128}  # Table 3 (C): d_model → d_k = d_v


def base(vocabulary_size: int = 0) -> ModelConfig:
    """Return the paper's base model: Table 3, first row."""
    return ModelConfig(vocabulary_size=vocabulary_size)


def big(vocabulary_size: int = 0) -> ModelConfig:
    """Return the paper's big model: Table 3, last row."""
    return dataclasses.replace(base(vocabulary_size), d_model=1024, d_ff=4096, n_heads=16, p_drop=0.3)


def small(vocabulary_size: int = 0) -> ModelConfig:
    """Return a model of 4 + 4 layers of width 128, for tens of thousands of sentences on a CPU (docs/guide/sizes.md).

    Differs: projections of queries, keys and values begin with a gain of 1/√2, with which the model learns faster.
    α is 1.4, because with 0.6 the translations of small models are too short (docs/lab/results.md).
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
        alpha=1.4,
        attention_gain=0.5**0.5,
    )


def tiny(vocabulary_size: int = 0) -> ModelConfig:
    """Return a model of 2 + 2 layers of width 128: the demonstration's model, which trains in minutes.

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

    Differs: words and trees have separate vocabularies.  The paper does not print its dropout of residuals and
    attention; 0.2 is the dropout of tensor2tensor's parsing model.
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


def table3(
    row: Row,
    *,
    vocabulary_size: int = 37_000,
    n_heads: int | None = None,
    d_k: int | None = None,
    n_layers: int | None = None,
    d_model: int | None = None,
    d_ff: int | None = None,
    p_drop: float | None = None,
    label_smoothing: float | None = None,
) -> ModelConfig:
    """Return a variation of the base model from Table 3, given its row and the one setting that it changes.

    (A) n_heads 1, 4, 16, 32 at constant computation; (B) d_k 16, 32 (d_v stays 64); (C) n_layers 2, 4, 8, or d_model
    256, 1024 (d_k = d_v = d_model/8), or d_ff 1024, 4096; (D) p_drop 0.0, 0.2 or label_smoothing 0.0, 0.2;
    (E) learned positions.

    Raises: ConfigError if the row does not vary the given setting, or if Table 3 does not have the given value.
    """
    given = {
        "n_heads": n_heads, "d_k": d_k, "n_layers": n_layers, "d_model": d_model, "d_ff": d_ff,
        "p_drop": p_drop, "label_smoothing": label_smoothing,
    }  # fmt: skip
    changes = {name: value for name, value in given.items() if value is not None}
    for variation in TABLE3.values():
        if variation.row == row and variation.changes == changes:
            return variation.of(base(vocabulary_size))
    known = ", ".join(str(v.changes or "(nothing)") for v in TABLE3.values() if v.row == row)
    raise ConfigError(f"table3: row {row!r} has the variations {known}; got {changes or '(nothing)'}")


@dataclasses.dataclass(frozen=True)
class Variation:
    """One line of Table 3: its row and the settings that it varies.

    It also has the settings that follow from these, and the number of parameters that the paper prints.
    """

    row: Row
    changes: dict[str, float]
    consequences: dict[str, float | str] = dataclasses.field(default_factory=dict)
    printed_millions: int | None = None

    def of(self, config: ModelConfig) -> ModelConfig:
        """Return a configuration with this variation."""
        return ModelConfig.from_mapping(dataclasses.asdict(config) | self.changes | self.consequences)


def _variations() -> dict[str, Variation]:
    def heads(n: int) -> Variation:
        return Variation("A", {"n_heads": n}, {"d_k": _HEADS[n], "d_v": _HEADS[n]})

    def width(d_model: int, millions: int) -> Variation:
        size = _HEAD_SIZE[d_model]
        return Variation("C", {"d_model": d_model}, {"d_k": size, "d_v": size}, millions)

    return {
        "table3-A-h1": heads(1),
        "table3-A-h4": heads(4),
        "table3-A-h16": heads(16),
        "table3-A-h32": heads(32),
        "table3-B-dk16": Variation("B", {"d_k": 16}, printed_millions=58),
        "table3-B-dk32": Variation("B", {"d_k": 32}, printed_millions=60),
        "table3-C-n2": Variation("C", {"n_layers": 2}, printed_millions=36),
        "table3-C-n4": Variation("C", {"n_layers": 4}, printed_millions=50),
        "table3-C-n8": Variation("C", {"n_layers": 8}, printed_millions=80),
        "table3-C-d256": width(256, 28),
        "table3-C-d1024": width(1024, 168),
        "table3-C-ff1024": Variation("C", {"d_ff": 1024}, printed_millions=53),
        "table3-C-ff4096": Variation("C", {"d_ff": 4096}, printed_millions=90),
        "table3-D-drop0": Variation("D", {"p_drop": 0.0}),
        "table3-D-drop2": Variation("D", {"p_drop": 0.2}),
        "table3-D-ls0": Variation("D", {"label_smoothing": 0.0}),
        "table3-D-ls2": Variation("D", {"label_smoothing": 0.2}),
        "table3-E": Variation("E", {}, {"positions": "learned"}),
    }


TABLE3 = _variations()


def _preset_of(variation: Variation) -> Callable[[int], ModelConfig]:
    def preset(vocabulary_size: int = 0) -> ModelConfig:
        return variation.of(base(vocabulary_size))

    return preset


PRESETS: dict[str, Callable[[int], ModelConfig]] = {
    "tiny": tiny,
    "small": small,
    "base": base,
    "big": big,
    "parsing": parsing,
    "parsing-small": parsing_small,
    **{name: _preset_of(variation) for name, variation in TABLE3.items()},
}


def head_size_advice(model: ModelConfig, preset: str) -> str | None:
    """Return advice if d_model, n_heads or d_k differ from the preset, but not all of them, and no longer fit together.

    Return None if n_heads · d_k = d_model, as in the paper's base and big models, or if the sizes are the preset's.
    """
    sizes, preset_sizes = ({name: getattr(x, name) for name in _HEAD_SIZES} for x in (model, named(preset)))
    kept = [f"model.{name}" for name in _HEAD_SIZES if sizes[name] == preset_sizes[name]]
    if len(kept) in (0, len(_HEAD_SIZES)) or model.n_heads * model.d_k == model.d_model:
        return None
    d_k, rest = divmod(model.d_model, model.n_heads)
    remedy = (
        f"set model.n_heads to a divisor of {model.d_model}"
        if rest
        else f"set model.d_k and model.d_v to {d_k}"
        if "model.d_k" in kept
        else f"set model.d_model to {model.n_heads * model.d_k}"
    )
    return (
        f"{' and '.join(kept)} {'stays' if len(kept) == 1 else 'stay'} as in the preset {preset}: model.n_heads ·"
        f" model.d_k = {model.n_heads} · {model.d_k} = {model.n_heads * model.d_k}, but model.d_model is"
        f" {model.d_model}. If you want them to be equal, as in the paper, {remedy}"
    )


def named(name: str, vocabulary_size: int = 0) -> ModelConfig:
    """Return the preset of a name.  Raises: ConfigError listing the names, if the name is unknown."""
    if name not in PRESETS:
        raise ConfigError(f"preset: expected one of {', '.join(PRESETS)}; got {name!r}")
    return PRESETS[name](vocabulary_size)
