"""The effect of each switch of another system, measured on a run's model or on a small untrained model.

A switch is a setting of the model in which a system, such as fairseq, differs from the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autograd.array import Array
from minitransformer.config import ModelConfig, RunConfig, presets
from minitransformer.data.prepare import PreparedData
from minitransformer.extras.paper.compatibility import Effect, conventions_of, effects
from minitransformer.model.batch import Batch
from minitransformer.model.files import WEIGHTS_FILE
from minitransformer.model.symbols import END
from minitransformer.model.transformer import Transformer

N_PAIRS = 16  # small enough for the log-probabilities of a large vocabulary in float64
_N_WORDS, _LONGEST, _SEED = 200, 20, 1


@dataclass(frozen=True)
class Subject:
    """A model and a batch on which effects of switches are measured; without weights the model is untrained."""

    what: str
    config: ModelConfig
    batch: Batch
    weights: Mapping[str, Array] | None = None

    @classmethod
    def of(cls, config: RunConfig) -> Subject:
        """Return the run's model and the first validation pairs, or an ``untrained`` model if either is missing.

        Raises: CheckpointError for a corrupt model or corrupt data.
        """
        if not (config.run / WEIGHTS_FILE).exists():
            return cls.untrained(f"{config.run} holds no model")
        if not PreparedData.is_in(config.data_directory):
            return cls.untrained(f"there are no prepared data in {config.data_directory}")
        store = PreparedData.open(config.data_directory).stores["validation"].read()
        model = Transformer.load(config.run)
        pairs = [store.pair(i) for i in range(min(N_PAIRS, len(store)))]
        if not pairs:
            return cls.untrained(f"{config.data_directory} has no validation pairs")
        what = f"the trained model of {config.run}, on the first {len(pairs)} pairs of its validation data"
        return cls(what, model.config, _batch_of(pairs), model.weights())

    @classmethod
    def untrained(cls, why: str) -> Subject:
        """Return an untrained tiny model, and pairs of random words from a fixed seed; ``why`` is put in ``what``."""
        draw = np.random.default_rng(_SEED)
        lengths = draw.integers(1, _LONGEST, (N_PAIRS, 2), endpoint=True)
        pairs = [tuple(draw.integers(END + 1, _N_WORDS, n) for n in pair) for pair in lengths]
        return cls(f"an untrained tiny model, on random words ({why})", presets.tiny(_N_WORDS), _batch_of(pairs))


def _batch_of(pairs: Any) -> Batch:
    return Batch.from_token_ids(*zip(*pairs, strict=True))


@dataclass(frozen=True)
class Switch:
    """One switch of a system; ``effect`` is None if the model already has the system's value."""

    name: str
    paper_value: Any
    system_value: Any
    effect: Effect | None


def switches(subject: Subject, system: str) -> Iterator[Switch]:
    """Yield every switch of a system with its effect on ``subject``, in float64; each switch is changed alone.

    Raises: ConfigError for an unknown system.
    """
    found = effects(subject.config, subject.batch, system, weights=subject.weights, dtype="float64")
    by_name = {effect.switch: effect for effect in found}
    for name, value in conventions_of(system).model.items():
        yield Switch(name, getattr(ModelConfig(), name), value, by_name.get(name))
