"""The conventions of other Transformers: how each system differs from the paper.

The effect of each difference on a model can be measured (``effects``).

Sources, from their code: tensor2tensor bafdc1b6 (``transformer_base_v1``, the settings of the paper's models),
    fairseq 3d262bb2 (``transformer_wmt_en_de``), marian-dev 0888d122 (``--task transformer-base``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autograd.array import Array
from minitransformer.config import ConfigError, ModelConfig, Normalisation
from minitransformer.config.model import ALPHA
from minitransformer.inference.search import SearchConfig
from minitransformer.model.batch import Batch
from minitransformer.model.transformer import Transformer


@dataclass(frozen=True)
class Conventions:
    """The settings of a system: the fields of ``ModelConfig`` that differ from the paper's, and the length penalty.

    Two differences of initial values are left out, because they vanish with the first updates.  Marian draws initial
    embeddings from a uniform distribution; ours are normal, with the same variance.  fairseq draws feed-forward
    matrices and biases, and the biases of queries, keys and values, uniformly from ±1/√inputs (PyTorch's Linear); our
    matrices are initialised by Glorot's rule, and our biases are 0.

    One trained parameter is left out: the vector that tensor2tensor adds to every source embedding for the kind of
    target (``use_target_space_embedding``).  If there is only one kind, the vector is the same for all sentences.
    """

    model: dict[str, Any]
    normalisation: Normalisation


CONVENTIONS: dict[str, Conventions] = {
    "paper": Conventions({}, "gnmt"),
    "tensor2tensor": Conventions({"positions": "halves", "start": "zero"}, "gnmt"),
    "fairseq": Conventions(
        {
            "positions": "halves",
            "first_position": 2,  # its first two positions belong to the padding symbol
            "start": "end",
            "layer_norm_eps": 1e-5,
            "attention_bias": True,
            "attention_gain": 0.5**0.5,
        },
        "length",
    ),
    "marian": Conventions(
        {
            "positions": "halves",
            "start": "zero",
            "label_smoothing_over": "V",
            "attention_bias": True,
            "softmax_bias": True,
        },
        "length",
    ),
}


def conventions_of(system: str) -> Conventions:
    """Return the conventions of a system.  Raises: ConfigError listing the systems, if the name is unknown."""
    if system not in CONVENTIONS:
        raise ConfigError(f"compat: expected one of {', '.join(CONVENTIONS)}; got {system!r}")
    return CONVENTIONS[system]


def compatible(config: ModelConfig, system: str) -> ModelConfig:
    """Return ``config`` with a system's conventions, including its length penalty.

    Raises: ConfigError for an unknown system.
    """
    conventions = conventions_of(system)
    return dataclasses.replace(config, **conventions.model, normalisation=conventions.normalisation)


@dataclass(frozen=True)
class Effect:
    """The effect of one switch on a batch; a switch is a setting of the model in which a system differs from the paper.

    ``loss_before`` and ``loss_after`` are mean losses in nats per target token.  ``largest_change`` is the greatest
    |Δ log p| over all positions of the batch and all tokens of the vocabulary, in nats.
    """

    switch: str
    before: Any
    after: Any
    loss_before: float
    loss_after: float
    largest_change: float


def effects(
    config: ModelConfig,
    batch: Batch,
    system: str,
    *,
    weights: Mapping[str, Array] | None = None,
    seed: int = 1,
    dtype: str = "float32",
) -> Iterator[Effect]:
    """Yield the effect of each switch of a system, changed alone; skip switches that ``config`` already has.

    Without ``weights`` the model is untrained, and a switch may change the initial values.  With ``weights`` the model
    has these weights; parameters that a switch adds are 0, and parameters that a switch makes useless (a learned table
    of positions) are removed.
    Raises: ConfigError for an unknown system; WeightsError if the weights belong to another model.
    """

    def model_of(changed: ModelConfig) -> Transformer:
        model = Transformer(changed, seed=seed, dtype=dtype)
        if weights is not None:
            before, after = untrained.parameters.named, model.parameters.named
            kept = {name: value for name, value in weights.items() if name in after or name not in before}
            added = {name: np.zeros(after[name].shape) for name in after.keys() - before.keys()}
            model.set_weights(kept | added)
        return model

    untrained = Transformer(config, seed=None, dtype=dtype)
    loss, log_p = _measure(model_of(config), batch)
    for name, value in conventions_of(system).model.items():
        old = getattr(config, name)
        if old != value:
            changed_loss, changed_log_p = _measure(model_of(dataclasses.replace(config, **{name: value})), batch)
            yield Effect(name, old, value, loss, changed_loss, float(np.abs(changed_log_p - log_p).max()))


def _measure(model: Transformer, batch: Batch) -> tuple[float, Array]:
    """Return the mean loss in nats per target token, and all log-probabilities (T, W)."""
    return float(model.loss(batch)) / batch.n_target_tokens, model.log_probabilities(batch)


def penalties(system: str, lengths: Sequence[int], *, alpha: float = ALPHA) -> list[float]:
    """Return a system's length penalty, which divides the log-probability, for translations of ``lengths`` tokens."""
    config = SearchConfig(alpha=alpha, normalisation=conventions_of(system).normalisation)
    return [float(config.length_penalty(length)) for length in lengths]
