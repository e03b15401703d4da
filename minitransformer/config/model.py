"""The hyperparameters of the model, under the names of the paper."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from autograd import SmoothedClasses
from minitransformer.config.checks import (
    COUNT,
    FACTOR,
    SHARE,
    WIDTH,
    ConfigError,
    require,
    require_choices,
    with_changes,
)
from minitransformer.system.records import require_bounds, require_types

PositionLayout = Literal["interleaved", "halves", "learned"]
NormPlacement = Literal["post", "pre"]
Tying = Literal["all", "target", "none"]
Start = Literal["symbol", "zero", "end"]
Normalisation = Literal["gnmt", "length"]
Activation = Literal["relu", "swish", "gelu", "gelu_tanh"]
ALPHA = 0.6  # of the length penalty (section 6.1)

CHOICES = {
    "positions": PositionLayout, "norm": NormPlacement, "tied": Tying, "label_smoothing_over": SmoothedClasses,
    "start": Start, "normalisation": Normalisation, "activation": Activation,
}  # fmt: skip
_BOUNDS = {
    "vocabulary_size": (0, 2**31), "source_vocabulary_size": COUNT, "n_layers": (1, 1_000),
    "n_decoder_layers": (1, 1_000), "d_model": WIDTH,
    "d_ff": WIDTH, "n_heads": WIDTH, "d_k": WIDTH, "d_v": WIDTH, "p_drop": SHARE, "p_drop_attention": SHARE,
    "p_drop_relu": SHARE, "label_smoothing": SHARE, "max_positions": WIDTH, "first_position": (0, 2**16),
    "layer_norm_eps": FACTOR, "attention_gain": FACTOR, "neighbourhood": (0, 2**31), "alpha": (0, 50),
}  # fmt: skip


@dataclass(frozen=True)
class ModelConfig:
    """The model's hyperparameters (Vaswani et al. 2017, section 3 and Table 3); defaults: the paper's base model."""

    vocabulary_size: int = 0
    """Classes of the softmax and rows of the target embedding; rows of the source embedding, too, unless
    source_vocabulary_size is given."""
    source_vocabulary_size: int | None = None
    """Rows of the source embedding, if each language has its own vocabulary."""
    n_layers: int = 6
    """N: number of layers of the encoder, and of the decoder unless n_decoder_layers is given."""
    n_decoder_layers: int | None = None
    """Number of layers of the decoder, if it differs from n_layers (few layers make translation fast)."""
    d_model: int = 512
    """Width of the residual stream."""
    d_ff: int = 2048
    """Width of the hidden layer of the feed-forward networks."""
    activation: Activation = "relu"
    """Activation of the feed-forward networks: ReLU (the paper), swish x·σ(x) (Marian), GELU, or its approximation by
    tanh."""
    n_heads: int = 8
    """h: number of attention heads."""
    d_k: int = 64
    """Size of a head's queries and keys; need not be d_model / h."""
    d_v: int = 64
    """Size of a head's values; need not be d_model / h."""
    p_drop: float = 0.1
    """Dropout of each sublayer's output, and of the sums of embeddings and position encodings."""
    p_drop_attention: float = 0.0
    """Dropout of attention weights (none in the paper)."""
    p_drop_relu: float = 0.0
    """Dropout after the activation of the feed-forward networks (none in the paper)."""
    label_smoothing: float = 0.1
    """ε: probability that label smoothing takes from the correct class and divides evenly; see label_smoothing_over."""
    label_smoothing_over: SmoothedClasses = "V-1"
    """Classes that get equal parts of ε.  "V-1": all but the correct one (tensor2tensor).  "V": all (PyTorch, Marian).
    "V-2": all but the correct one and the start symbol (The Annotated Transformer and JoeyNMT leave out
    padding instead)."""
    positions: PositionLayout = "interleaved"
    """Position encodings.  "interleaved": sinusoids as the paper prints them.  "halves": sines before cosines, as in
    tensor2tensor.  "learned": a trained table (row E)."""
    max_positions: int = 512
    """Rows of the learned position table; sinusoids have no limit."""
    first_position: int = 0
    """Position of the first token of a sentence (1 in OpenNMT-tf's models)."""
    start: Start = "symbol"
    """First input of the decoder: a symbol with its own embedding, a zero vector (tensor2tensor, Marian), or the end
    symbol (fairseq)."""
    source_end: bool = True
    """Append the end symbol to every source (OpenNMT trains its models without it; we always train with it)."""
    norm: NormPlacement = "post"
    """Layer norm after the residual sum (the paper) or before the sublayer."""
    layer_norm_eps: float = 1e-6
    """Constant added to the variance in layer norm (1e-5 in PyTorch)."""
    attention_bias: bool = False
    """Biases of the projections of queries, keys, values and heads (none in the paper; PyTorch has them)."""
    attention_gain: float = 1.0
    """Factor on the initial values of the projections of queries, keys and values (1/√2 in fairseq)."""
    softmax_bias: bool = False
    """Bias of the projection to the vocabulary (none in the paper)."""
    tied: Tying = "all"
    """Embeddings that share one matrix: source, target and softmax (the paper); target and softmax; or none."""
    neighbourhood: int | None = None
    """r: self-attention is limited to positions at most r away (section 4); unlimited if not given."""
    implementation: str | None = None
    """The class of the model, package.module:Class, derived from Transformer; Transformer itself if not given."""
    normalisation: Normalisation = "gnmt"
    """Length penalty of translations, unless a search sets another: ((5 + length)/6)^α as in the paper, or length^α
    as in fairseq, Marian and CTranslate2."""
    alpha: float | None = None
    """Exponent α of the length penalty, unless a search sets another.  If not given, a training chooses α at its
    end, on held-out text; until then α is 0.6, as in the paper (section 6.1)."""

    def __post_init__(self) -> None:
        require_types(self, ConfigError, "model.")
        require_bounds(self, _BOUNDS, ConfigError, "model.")
        require_choices("model", self, CHOICES)
        require(
            self.positions != "learned" or self.longest_sentence > 0,
            "model.first_position",
            f"less than max_positions ({self.max_positions})",
            self.first_position,
        )
        require(self.d_model % 2 == 0, "model.d_model", "even (sines and cosines come in pairs)", self.d_model)
        require(
            self.tied != "all" or self.source_vocabulary_size in (None, self.vocabulary_size),
            "model.tied",
            '"target" or "none" where source and target have vocabularies of different sizes',
            self.tied,
        )

    @property
    def n_source_words(self) -> int:
        """Number of rows of the source embedding."""
        return self.source_vocabulary_size or self.vocabulary_size

    @property
    def decoder_depth(self) -> int:
        """Number of layers of the decoder."""
        return self.n_layers if self.n_decoder_layers is None else self.n_decoder_layers

    @property
    def own_alpha(self) -> float:
        """The exponent α of the length penalty in searches that set no other α."""
        return ALPHA if self.alpha is None else self.alpha

    @property
    def longest_sentence(self) -> int:
        """The most tokens of a sentence, start or end symbol included, that a learned position table allows."""
        return self.max_positions - self.first_position

    def to_json(self) -> str:
        """Return all fields as a JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_mapping(cls, fields: Mapping[str, Any]) -> ModelConfig:
        """Return the configuration with these fields.  Raises: ConfigError for unknown fields or wrong types."""
        require(isinstance(fields, Mapping), "model", "a table of settings", fields)
        return with_changes(cls(), fields, "model.")
