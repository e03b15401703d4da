"""The hyperparameters of model, data and training, under the names of the paper."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from autograd import SmoothedClasses
from minitransformer.errors import UserError
from parallel.communicator import SentIn, SumOrder

PositionLayout = Literal["interleaved", "halves", "learned"]
NormPlacement = Literal["post", "pre"]
Tying = Literal["all", "target", "none"]
Start = Literal["symbol", "zero", "end"]
Normalisation = Literal["gnmt", "length"]
TokenizerType = Literal["bpe", "unigram", "word"]
LeafSymbols = Literal["normalised", "tags"]
Precision = Literal["float32", "bfloat16"]
MOST_SHARDS = 1_024  # each costs a pass over all parameters

_CHOICES = {
    "positions": PositionLayout, "norm": NormPlacement, "tied": Tying, "label_smoothing_over": SmoothedClasses,
    "start": Start, "normalisation": Normalisation,
}  # fmt: skip

_COUNT = (1, 2**31)  # fits the integers of libraries
_WIDTH = (1, 2**20)  # keeps the sizes of matrices within NumPy's integers
_SHARE = (0, 1)
_FACTOR = (1e-30, 10**6)  # float32 can hold its inverse, and its product with any number of a healthy model
_MODEL_BOUNDS = {
    "vocabulary_size": (0, 2**31), "source_vocabulary_size": _COUNT, "n_layers": (1, 1_000), "d_model": _WIDTH,
    "d_ff": _WIDTH, "n_heads": _WIDTH, "d_k": _WIDTH, "d_v": _WIDTH, "p_drop": _SHARE, "p_drop_attention": _SHARE,
    "p_drop_relu": _SHARE, "label_smoothing": _SHARE, "max_positions": _WIDTH, "first_position": (0, 2**16),
    "layer_norm_eps": _FACTOR, "attention_gain": _FACTOR, "neighbourhood": (0, 2**31),
}  # fmt: skip
_DATA_BOUNDS = {"held_out": _COUNT, "vocabulary_size": _COUNT, "max_length": _COUNT, "max_ratio": (1, 1e30)}
_TRAINING_BOUNDS = {
    "max_updates": _COUNT, "batch_tokens": _COUNT, "n_shards": (1, 2 * MOST_SHARDS), "warmup_steps": _COUNT,
    "learning_rate_factor": _FACTOR, "beta1": _SHARE, "beta2": _SHARE, "eps": _FACTOR, "clip_norm": (1e-30, 1e30),
    "seed": (0, 2**64), "log_every": _COUNT, "validate_every": _COUNT, "checkpoint_every": _COUNT,
    "keep_checkpoints": _COUNT, "average_checkpoints": _COUNT,
}  # fmt: skip


class ConfigError(UserError, ValueError):
    """A configuration that is invalid for a model or a training run."""


@dataclass(frozen=True)
class ModelConfig:
    """The model's hyperparameters (Vaswani et al. 2017, section 3 and Table 3); defaults: the paper's base model."""

    vocabulary_size: int = 0
    """Classes of the softmax and rows of the target embedding; rows of the source embedding, too, unless given."""
    source_vocabulary_size: int | None = None
    """Rows of the source embedding, if each language has its own vocabulary."""
    n_layers: int = 6
    """N: number of layers of the encoder, and of the decoder."""
    d_model: int = 512
    """Width of the residual stream."""
    d_ff: int = 2048
    """Width of the hidden layer of the feed-forward networks."""
    n_heads: int = 8
    """h: number of attention heads."""
    d_k: int = 64
    """Size of a head's queries and keys; need not be d_model / h."""
    d_v: int = 64
    """Size of a head's values; need not be d_model / h."""
    p_drop: float = 0.1
    """Dropout of each sublayer's output, and of the sums of embeddings and positions."""
    p_drop_attention: float = 0.0
    """Dropout of attention weights (none in the paper)."""
    p_drop_relu: float = 0.0
    """Dropout after the ReLU of the feed-forward networks (none in the paper)."""
    label_smoothing: float = 0.1
    """ε: probability that label smoothing takes from the correct class and divides evenly among other classes."""
    label_smoothing_over: SmoothedClasses = "V-1"
    """Classes that share ε: all but the correct one (tensor2tensor); all V, the correct one too (PyTorch, Marian); or
    all but the correct one and the start symbol (The Annotated Transformer and JoeyNMT: padding)."""
    positions: PositionLayout = "interleaved"
    """Position encodings: sinusoids as the paper prints them, sines before cosines as in tensor2tensor, or a learned
    table (row E)."""
    max_positions: int = 512
    """Rows of the learned position table; sinusoids have no limit."""
    first_position: int = 0
    """Position of the first token of a sentence (1 in OpenNMT-tf's models)."""
    start: Start = "symbol"
    """First input of the decoder: a symbol with its own embedding, a zero vector (tensor2tensor, Marian), or the end
    symbol (fairseq)."""
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
    normalisation: Normalisation = "gnmt"
    """Length penalty of translations, unless a search sets another: ((5 + length)/6)^α as in the paper, or length^α
    as in fairseq, Marian and CTranslate2."""

    def __post_init__(self) -> None:
        _require_bounds("ModelConfig", self, _MODEL_BOUNDS)
        for name, allowed in _CHOICES.items():
            _require(getattr(self, name) in get_args(allowed), name, f"one of {get_args(allowed)}", getattr(self, name))
        _require(
            self.positions != "learned" or self.longest_sentence > 0, "first_position",
            f"less than max_positions ({self.max_positions})", self.first_position,
        )  # fmt: skip
        _require(self.d_model % 2 == 0, "d_model", "even (sines and cosines come in pairs)", self.d_model)
        _require(
            self.tied != "all" or self.source_vocabulary_size in (None, self.vocabulary_size),
            "tied",
            '"target" or "none" where source and target have vocabularies of different sizes',
            self.tied,
        )

    @property
    def n_source_words(self) -> int:
        """Number of rows of the source embedding."""
        return self.source_vocabulary_size or self.vocabulary_size

    @property
    def longest_sentence(self) -> int:
        """The longest sentence in tokens that a learned position table allows, start or end symbol included."""
        return self.max_positions - self.first_position

    def to_json(self) -> str:
        """Return all fields as a JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_mapping(cls, fields: Mapping[str, Any]) -> ModelConfig:
        """Return the configuration with these fields.  Raises: ConfigError for unknown fields or wrong types."""
        if not isinstance(fields, Mapping):
            raise ConfigError(f"ModelConfig: expected fields with names; got {fields!r:.60}")
        unknown = set(fields) - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            raise ConfigError(f"ModelConfig: unknown fields {sorted(unknown)}")
        for field in dataclasses.fields(cls):
            value, default = fields.get(field.name, field.default), field.default
            allowed = {float: (int, float), type(None): (int, type(None))}.get(type(default), (type(default),))
            _require(type(value) in allowed, field.name, f"of the type of {default!r}", value)
        return cls(**fields)


def _require(condition: bool, name: str, expected: str, got: Any) -> None:
    if not condition:
        raise ConfigError(f"ModelConfig: {name} must be {expected}; got {got!r}")


@dataclass(frozen=True)
class DataConfig:
    """The text and its conversion to tokens.  Without training files, the text is the project's own demo corpus."""

    directory: Path | None = None
    """Directory of the prepared data; "data" in the run's directory if not given."""
    raw: Path = Path()
    """Folder that contains the text files named below."""
    train_source: tuple[str, ...] = ()
    """Training text, source side: UTF-8, one sentence per line, plain, .gz or .xz; several files are concatenated."""
    train_target: tuple[str, ...] = ()
    """Training text, target side: as many files, with the same numbers of lines."""
    validation_source: tuple[str, ...] = ()
    """Held-out text, source side; if not given, pairs spread over the training text are held out."""
    validation_target: tuple[str, ...] = ()
    """Held-out text, target side."""
    train_trees: tuple[str, ...] = ()
    """For parsing, instead of text: treebank files in Penn bracket format; sources are the words of the trees."""
    validation_trees: tuple[str, ...] = ()
    """Held-out treebank files."""
    leaf_symbols: LeafSymbols = "normalised"
    """Symbols for the words of a tree: XX for all but punctuation (Vinyals et al.), or the part-of-speech tags."""
    held_out: int = 1_000
    """Pairs to hold out of the training text if there are no validation files (at most a tenth of it)."""
    tokenizer: TokenizerType = "bpe"
    """Kind of subword model that sentencepiece trains; or, for parsing, whole words, with classes for rare words."""
    vocabulary_size: int = 2_000
    """Number of subword pieces (from 20,000 on, 256 of them are bytes) or words; per side if it is not joint."""
    joint_vocabulary: bool = True
    """One vocabulary for both languages (the paper), or one for each; two vocabularies share no matrix (model.tied)."""
    max_length: int = 256
    """Training pairs with more tokens than this on a side are dropped, and counted.  Held-out pairs with more tokens
    than this and than 1,024 do not count in the validation loss."""
    max_ratio: float = 6.0
    """Pairs with a side over this many times as long as the other, and over 20 tokens, are dropped, and counted."""
    download_from: str = ""
    """URL of the folder from which missing files are downloaded."""
    sha256: tuple[str, ...] = ()
    """Checksums of downloads, as "file name:hexadecimal digits"; the name may be a URL.  A file without a checksum is
    not downloaded.  From archives (.tar, .tgz …) the text files above are extracted."""

    def __post_init__(self) -> None:
        _require_bounds("data", self, _DATA_BOUNDS)
        for side_a, side_b in (("train_source", "train_target"), ("validation_source", "validation_target")):
            a, b = getattr(self, side_a), getattr(self, side_b)
            if len(a) != len(b):
                raise ConfigError(f"data: expected as many {side_b} files as {side_a} files; got {len(b)} and {len(a)}")
        if bool(self.train_trees) != bool(self.validation_trees) or (self.is_treebank and self.train_source):
            raise ConfigError("data: name both train_trees and validation_trees, or text, not one of each")
        if self.is_treebank and self.joint_vocabulary:
            raise ConfigError("data: words and trees share no vocabulary; set joint_vocabulary = false")
        if self.tokenizer == "word" and not self.is_treebank:
            raise ConfigError('data: tokenizer = "word" is for parsing; name train_trees, or take "bpe" or "unigram"')
        if self.validation_source and not self.train_source:
            raise ConfigError("data: validation files without training files; name train_source and train_target")

    @property
    def is_demo(self) -> bool:
        """Whether the corpus is the generated demo corpus."""
        return not self.train_source and not self.is_treebank

    @property
    def is_treebank(self) -> bool:
        """Whether targets are trees."""
        return bool(self.train_trees)


@dataclass(frozen=True)
class TrainingConfig:
    """The hyperparameters of training; the defaults are the paper's (section 5)."""

    max_updates: int = 100_000
    """Total number of updates of the parameters."""
    batch_tokens: int = 25_000
    """Tokens in a global batch: at most this many source tokens and this many target tokens, end symbols included."""
    n_shards: int = 8
    """Micro-batches of a global batch, whose gradients are added in a fixed order: a power of two."""
    warmup_steps: int = 4_000
    """Updates of linear warm-up; then the learning rate falls with the inverse square root of the step."""
    learning_rate_factor: float = 1.0
    """Constant factor on the paper's schedule."""
    beta1: float = 0.9
    """Adam's β₁."""
    beta2: float = 0.98
    """Adam's β₂."""
    eps: float = 1e-9
    """Adam's ε."""
    clip_norm: float | None = None
    """Clip the gradient of the mean loss to this norm; off in the paper."""
    sum: SumOrder = "exact"
    """Order in which processes add gradients.  "exact": along one fixed tree, with the same bits for any number of
    processes; a power of two of them compute.  "fast": all processes compute, up to one per micro-batch, and the last
    bits depend on their number; between GPUs the library chooses the order."""
    gradients_sent_in: SentIn = "float32"
    """Type of gradients in messages between machines or GPUs: "bfloat16" halves the size of the messages.  Gradients
    are added in float32.  They are not rounded in shared memory, nor if a library chooses the order."""
    precision: Precision = "float32"
    """Type of weights and activations.  With "bfloat16" the GPU's tensor cores multiply them and add in float32; a CPU
    is slower with it.  Updates are computed, and everything is saved, in float32."""
    seed: int = 1
    """Seed of everything random: initial weights, order of sentences, dropout."""
    log_every: int = 50
    """Updates between log lines."""
    validate_every: int = 1_000
    """Updates between validations: loss, perplexity and (greedy) BLEU of held-out text."""
    checkpoint_every: int = 1_000
    """Updates between checkpoints."""
    keep_checkpoints: int = 5
    """Number of latest checkpoints that are kept; the best model so far is kept, too."""
    average_checkpoints: int = 5
    """Number of last checkpoints whose average becomes the final model, unless the best single one is better."""

    def __post_init__(self) -> None:
        _require_bounds("training", self, _TRAINING_BOUNDS)
        _require_choice("sum", self.sum, get_args(SumOrder))
        _require_choice("precision", self.precision, get_args(Precision))
        _require_choice("gradients_sent_in", self.gradients_sent_in, get_args(SentIn))
        if self.n_shards & (self.n_shards - 1):
            raise ConfigError(f"training: n_shards must be a power of two; got {self.n_shards}")
        if self.average_checkpoints > self.keep_checkpoints:
            raise ConfigError(
                f"training: average_checkpoints ({self.average_checkpoints}) cannot exceed"
                f" keep_checkpoints ({self.keep_checkpoints})"
            )


def _require_bounds(what: str, config: Any, bounds: Mapping[str, tuple[float, float]]) -> None:
    """Check that every number is within its bounds, least ≤ number < below.  Raises: ConfigError."""
    for name, (least, below) in bounds.items():
        value = getattr(config, name)
        if value is not None and not least <= value < below:
            raise ConfigError(f"{what}: {name} must be at least {least:,} and less than {below:,}; got {value!r}")


def _require_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"training: {name} must be one of {allowed}; got {value!r}")
