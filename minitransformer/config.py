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

_COUNT = (1, 2**31)  # what libraries' integers hold
_WIDTH = (1, 2**20)  # so that the sizes of matrices are numbers that NumPy counts with
_SHARE = (0, 1)
_FACTOR = (1e-30, 10**6)  # float32 holds its inverse, and its product with any number of a sound model
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
    """A configuration that makes no model or no training run."""


@dataclass(frozen=True)
class ModelConfig:
    """What the model is (Vaswani et al. 2017, section 3 and Table 3); the defaults are the paper's base model."""

    vocabulary_size: int = 0
    """Classes of the softmax, and rows of the target embedding (of the source's too, unless given on its own)."""
    source_vocabulary_size: int | None = None
    """Rows of the source embedding where the languages have vocabularies of their own."""
    n_layers: int = 6
    """N: layers of the encoder, and of the decoder."""
    d_model: int = 512
    """Width of the residual stream."""
    d_ff: int = 2048
    """Width of the hidden layer of the feed-forward networks."""
    n_heads: int = 8
    """h: attention heads."""
    d_k: int = 64
    """Size of a head's queries and keys; need not be d_model / h."""
    d_v: int = 64
    """Size of a head's values; need not be d_model / h."""
    p_drop: float = 0.1
    """Dropout of each sublayer's output and of the sums of embeddings and positions."""
    p_drop_attention: float = 0.0
    """Dropout of attention weights (none in the paper)."""
    p_drop_relu: float = 0.0
    """Dropout behind the ReLU of the feed-forward networks (none in the paper)."""
    label_smoothing: float = 0.1
    """ε: probability that the training target gives to other classes than the right one, in equal parts."""
    label_smoothing_over: SmoothedClasses = "V-1"
    """Who shares ε: all classes but the right one (tensor2tensor); all V, the right one too (PyTorch, Marian); or all
    but the right one and the start symbol, which never is right (The Annotated Transformer and JoeyNMT: padding)."""
    positions: PositionLayout = "interleaved"
    """Sinusoids as the paper prints them, sines before cosines as in tensor2tensor, or a learned table (row E)."""
    max_positions: int = 512
    """Rows of the learned position table; sinusoids have no end."""
    first_position: int = 0
    """Position of the first token of a sentence (1 in OpenNMT-tf's models)."""
    start: Start = "symbol"
    """What stands before the first target token: a symbol with an embedding of its own, a zero vector (tensor2tensor,
    Marian), or the end symbol (fairseq)."""
    norm: NormPlacement = "post"
    """Layer norm behind the residual sum (the paper) or before the sublayer."""
    layer_norm_eps: float = 1e-6
    """Added to the variance under the root (1e-5 in PyTorch's layer norm)."""
    attention_bias: bool = False
    """Biases behind the projections of queries, keys, values and heads (none in the paper; PyTorch's have them)."""
    attention_gain: float = 1.0
    """Factor on the initial values of the projections of queries, keys and values (1/√2 in fairseq)."""
    softmax_bias: bool = False
    """A bias of the projection to the vocabulary (none in the paper)."""
    tied: Tying = "all"
    """Share one matrix: source, target and softmax (the paper); target and softmax; or none."""
    neighbourhood: int | None = None
    """r: self-attention sees only positions at most r away (section 4); all if not given."""
    normalisation: Normalisation = "gnmt"
    """The length penalty of translations, unless a search asks for another: ((5 + length)/6)^α (the paper), or
    length^α (fairseq, Marian, CTranslate2)."""

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
        """Rows of the source embedding."""
        return self.source_vocabulary_size or self.vocabulary_size

    @property
    def longest_sentence(self) -> int:
        """Tokens for which a learned table of positions has room, start or end symbol included."""
        return self.max_positions - self.first_position

    def to_json(self) -> str:
        """All fields, as a JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_mapping(cls, fields: Mapping[str, Any]) -> ModelConfig:
        """The configuration with these fields; ConfigError names one that does not exist."""
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
    """Where the text comes from and how it becomes tokens.  Without training files, the project's own demo corpus."""

    directory: Path | None = None
    """Where the prepared data lies, or is written to; "data" in the run's directory if not given."""
    raw: Path = Path()
    """The folder that the names of text files below are relative to."""
    train_source: tuple[str, ...] = ()
    """Training text, source side: UTF-8, a sentence a line, plain, .gz or .xz; several files are read in a row."""
    train_target: tuple[str, ...] = ()
    """Training text, target side: as many files, with the same numbers of lines."""
    validation_source: tuple[str, ...] = ()
    """Held-out text, source side; without it, pairs spread over the training text are held out."""
    validation_target: tuple[str, ...] = ()
    """Held-out text, target side."""
    train_trees: tuple[str, ...] = ()
    """For parsing, in the place of text: treebank files in Penn bracket format; sources are the trees' words."""
    validation_trees: tuple[str, ...] = ()
    """Held-out treebank files."""
    leaf_symbols: LeafSymbols = "normalised"
    """What stands for a word among the symbols of a tree: XX and tags of punctuation (Vinyals et al.), or all tags."""
    held_out: int = 1_000
    """Pairs to hold out of the training text where there are no validation files (at most a tenth of it)."""
    tokenizer: TokenizerType = "bpe"
    """Kind of subword model that sentencepiece trains; or, for parsing, whole words, the rare ones by classes."""
    vocabulary_size: int = 2_000
    """Subword pieces (256 of 20,000 and more are bytes), or words; of each side, if the vocabulary is not joint."""
    joint_vocabulary: bool = True
    """One vocabulary for both languages (the paper), or one each; these share no matrix (model.tied)."""
    max_length: int = 256
    """Training pairs with more tokens than this on a side are dropped, and counted; held-out ones with more than
    this and than 1,024 are left out of the validation loss."""
    max_ratio: float = 6.0
    """Pairs with a side over this many times as long as the other, and over 20 tokens, are dropped, and counted."""
    download_from: str = ""
    """Address of the folder to fetch missing files from."""
    sha256: tuple[str, ...] = ()
    """Checksums of downloads, as "file name:hexadecimal digits", or a whole address for the name; a file without one is
    not downloaded.  Out of archives (.tar, .tgz …) the text files above are taken."""

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
        """Whether the corpus is the one that the project generates."""
        return not self.train_source and not self.is_treebank

    @property
    def is_treebank(self) -> bool:
        """Whether targets are trees."""
        return bool(self.train_trees)


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained; the defaults are the paper's (section 5)."""

    max_updates: int = 100_000
    """Updates of the parameters in all."""
    batch_tokens: int = 25_000
    """Tokens in a global batch: at most so many source tokens and so many target tokens, end symbols included."""
    n_shards: int = 8
    """Parts of a global batch that are computed on their own and added in a fixed order: a power of two."""
    warmup_steps: int = 4_000
    """Updates of linear warm-up, after which the learning rate falls with the inverse root of the step."""
    learning_rate_factor: float = 1.0
    """Constant factor on the paper's schedule."""
    beta1: float = 0.9
    """Adam's β₁."""
    beta2: float = 0.98
    """Adam's β₂."""
    eps: float = 1e-9
    """Adam's ε."""
    clip_norm: float | None = None
    """Scale the gradient of the mean loss down to this norm; off in the paper."""
    sum: SumOrder = "exact"
    """The order in which processes add gradients.  "exact": along one fixed tree, the same bits for any number of
    processes; a power of two of them compute.  "fast": all processes compute, up to one a shard, and the last bits
    depend on their number; between GPUs the library chooses the order."""
    gradients_sent_in: SentIn = "float32"
    """What gradients are rounded to where messages carry them, between machines or GPUs: "bfloat16" halves what is sent
    of them.  They are added in float32.  Nothing is rounded in memory that processes share, nor where a library chooses
    the order."""
    precision: Precision = "float32"
    """What weights and activations are stored in.  With "bfloat16" the GPU's tensor cores compute with them, summing in
    float32; on a CPU it is slower.  Updates are made, and everything is saved, in float32."""
    seed: int = 1
    """Of everything random: initial weights, order of sentences, dropout."""
    log_every: int = 50
    """Updates between log lines."""
    validate_every: int = 1_000
    """Updates between validations: loss, perplexity and (greedy) BLEU of held-out text."""
    checkpoint_every: int = 1_000
    """Updates between checkpoints."""
    keep_checkpoints: int = 5
    """Checkpoints kept, the latest ones (the best model so far is kept besides)."""
    average_checkpoints: int = 5
    """The final model is the average of so many last ones, or the best single one if that is better: results.json."""

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
    """Raise ConfigError if a number is less than the first of its bounds, not less than the second, or no number."""
    for name, (least, below) in bounds.items():
        value = getattr(config, name)
        if value is not None and not least <= value < below:
            raise ConfigError(f"{what}: {name} must be at least {least:,} and less than {below:,}; got {value!r}")


def _require_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"training: {name} must be one of {allowed}; got {value!r}")
