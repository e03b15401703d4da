"""The hyperparameters of training, under the names of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

from minitransformer.config.checks import COUNT, FACTOR, SHARE, ConfigError, require, require_choices, suggestion
from minitransformer.system.records import require_bounds, require_types
from parallel.communicator import SentIn, SumOrder

PrecisionChoice = Literal["automatic", "float32", "bfloat16"]
NoiseKind = Literal["no_end_mark", "typos", "blanks", "title", "capitals"]
SCHEDULES = ("paper", "linear", "cosine", "constant")
ADAM = "adam"  # the built-in optimizer
MAX_MICRO_BATCHES = 1_024  # each costs a pass over all parameters

_CHOICES = {"sum": SumOrder, "precision": PrecisionChoice, "gradients_sent_in": SentIn}
_BOUNDS = {
    "max_updates": COUNT, "batch_tokens": COUNT, "n_micro_batches": (0, 2 * MAX_MICRO_BATCHES), "warmup_steps": COUNT,
    "learning_rate_factor": FACTOR, "beta1": SHARE, "beta2": SHARE, "eps": FACTOR, "clip_norm": (1e-30, 1e30),
    "seed": (0, 2**64), "log_every": COUNT, "validate_every": COUNT, "validation_sentences": COUNT, "patience": COUNT,
    "checkpoint_every": COUNT,
    "keep_checkpoints": COUNT, "bpe_dropout": SHARE, "word_dropout": (0, 10**6), "average_checkpoints": COUNT,
    "ema": SHARE,
}  # fmt: skip


@dataclass(frozen=True)
class TrainingConfig:
    """The hyperparameters of training; the defaults are the paper's (section 5).

    ``n_micro_batches`` and ``precision`` are automatic by default.  ``resolve`` of ``training/automatic_settings.py``
    replaces both by the values for the device before anything else reads them.
    """

    max_updates: int = 100_000
    """Total number of updates of the parameters."""
    batch_tokens: int = 25_000
    """Tokens in a global batch: at most this many source tokens and this many target tokens, end symbols included."""
    n_micro_batches: int = 0
    """Number of micro-batches of a global batch, a power of two; their gradients are added in a fixed order.  0: a
    resumed run keeps its number; a new run has one per process on GPUs, and 8 on CPUs, or 2 for batches of less than
    4,000 tokens."""
    warmup_steps: int = 4_000
    """Updates of linear warm-up; then the learning rate falls with the inverse square root of the step."""
    schedule: str = "paper"
    """The learning rate after warm-up.  "paper": it falls with the inverse square root of the step.  "linear" and
    "cosine": it falls, to 0 at update max_updates + 1.  "constant": it stays.
    "package.module:function": the result of this function for the number of the update and these settings."""
    learning_rate_factor: float = 1.0
    """Constant factor on the learning rate of the built-in schedules."""
    optimizer: str = ADAM
    """The optimizer: "adam", or "package.module:Class", a class of yours derived from
    minitransformer.autograd.optim.Optimizer."""
    beta1: float = 0.9
    """The optimizer's β₁."""
    beta2: float = 0.98
    """The optimizer's β₂."""
    eps: float = 1e-9
    """The optimizer's ε."""
    clip_norm: float | None = None
    """Clip the gradient of the mean loss to this norm; off in the paper."""
    ema: float = 0.0
    """Decay d of a moving average of the weights, such as 0.999: after each update, average ← d average + (1 − d)
    weights, with a smaller d in the first updates.  Validations score the average; the best one of them, or the last
    one, becomes the final model, instead of the average of checkpoints.  0: no moving average."""
    sum: SumOrder = "exact"
    """Order in which processes add gradients.  "exact": along one fixed tree, with the same bits for any number of
    processes; only a power of two of them compute.  "fast": all processes compute, up to one per micro-batch, and the
    last bits depend on their number; between GPUs, the library NCCL chooses the order."""
    gradients_sent_in: SentIn = "float32"
    """Type of gradients in messages between machines or GPUs: "bfloat16" halves the size of the messages.  Gradients
    are added in float32.  They are not rounded in shared memory, or if NCCL chooses the order."""
    precision: PrecisionChoice = "automatic"
    """Type of the numbers that matrix products multiply; sums are in float32.  With "bfloat16" a GPU also stores
    weights and activations in bfloat16; a CPU rounds only the factors of products.  Updates are computed, and
    everything is saved, in float32.  "automatic": a resumed run keeps its type; a new run has bfloat16 if the processor
    has AMX, or AVX-512 BF16 and is not Intel's, or if the GPU has kernels for bfloat16, else float32."""
    freeze: tuple[str, ...] = ()
    """Names of parameters that are not trained, as in the model's file; * stands for any characters, as in encoder.*
    and *.bias."""
    bpe_dropout: float = 0.0
    """Probability that a merge of byte pairs is left out when training text is segmented, anew in every epoch; 0 keeps
    one segmentation.  Short trainings learn more slowly with BPE dropout."""
    word_dropout: float = 0.0
    """α: a word that occurs n times in the sources is replaced by its class of rare words with probability α / (α + n),
    anew in every epoch; 0 never does.  It needs whole words as tokens (data.tokenizer = "word")."""
    noise: tuple[str, ...] = ()
    """Kinds of noise in training text, and the share of pairs that gets each, drawn anew in every epoch, such as
    capitals=0.05 typos=0.02.  On both sides: "capitals", "title" (Every Word Capitalised), "no_end_mark".  In the
    source: "typos", "blanks" (left out, doubled, before the line).  Held-out text has none."""
    seed: int = 1
    """Seed of everything random: initial weights, order of sentences, dropout, segmentations, word dropout, noise."""
    log_every: int = 50
    """Updates between log lines."""
    validate_every: int = 1_000
    """Updates between validations: loss, perplexity and (greedy) BLEU of held-out text."""
    validation_sentences: int = 1_000
    """Number of held-out sentences, the first ones, on which a validation computes BLEU; final scores are on all."""
    best_by: str = "loss"
    """The figure of validations by which the best model is chosen: "loss", "perplexity", "bleu" ("f1" of trees), or the
    name of a callback's measure; with - before the name if a lower value is better."""
    patience: int | None = None
    """End the training after this many validations in a row without a better ``patience_for``; never by default."""
    patience_for: str = "loss"
    """The figure that ``patience`` watches, named as in ``best_by``; while that figure is 0, the loss."""
    checkpoint_every: int = 1_000
    """Updates between checkpoints."""
    keep_checkpoints: int = 5
    """Number of latest checkpoints that are kept; the best model so far is kept, too."""
    average_checkpoints: int = 5
    """Number of last checkpoints whose average becomes the final model, unless the best single model is better: by
    ``best_by``, and if that is the loss or the perplexity, also by greedy BLEU (F1).  Not used with a moving average
    (ema)."""

    def __post_init__(self) -> None:
        require_types(self, ConfigError, "training.")
        require_bounds(self, _BOUNDS, ConfigError, "training.")
        require_choices("training", self, _CHOICES)
        expected = f"one of {', '.join(SCHEDULES)}, or package.module:function"
        require(self.schedule in SCHEDULES or ":" in self.schedule, "training.schedule", expected, self.schedule)
        expected = f"{ADAM}, or package.module:Class"
        require(self.optimizer == ADAM or ":" in self.optimizer, "training.optimizer", expected, self.optimizer)
        require(
            self.n_micro_batches & (self.n_micro_batches - 1) == 0,
            "training.n_micro_batches",
            "a power of two, or 0",
            self.n_micro_batches,
        )
        if len(self.noise_shares) < len(self.noise):
            raise ConfigError(f"training.noise: expected each kind once; got {' '.join(self.noise)}")
        if self.average_checkpoints > self.keep_checkpoints:
            raise ConfigError(
                f"training.average_checkpoints ({self.average_checkpoints}) cannot exceed"
                f" training.keep_checkpoints ({self.keep_checkpoints})"
            )

    @property
    def noise_shares(self) -> dict[NoiseKind, float]:
        """The share of pairs that gets each kind in ``noise``.  Raises: ConfigError."""
        return dict(map(_noise_share, self.noise))


def _noise_share(setting: str) -> tuple[NoiseKind, float]:
    kind, _, number = setting.partition("=")
    if kind not in get_args(NoiseKind):
        raise ConfigError(f"training.noise: unknown kind {kind!r}; {suggestion(kind, get_args(NoiseKind))}")
    try:
        share = float(number)
    except ValueError:
        share = -1.0
    require(0 < share <= 1, f"training.noise: {kind}", f"{kind}=SHARE, a share above 0 and at most 1", setting)
    return cast(NoiseKind, kind), share
