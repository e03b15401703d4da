"""A repro bundle: all inputs of one update on disk, so that it can be computed again on any machine.

It holds the model before the update, the tokens of its batch, and the few numbers that determine dropout and the
learning rate.  It needs no data and no checkpoint.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autograd import RandomStream, backward, to_host
from autograd.array import Array, IntArray
from autograd.inspection import NotFinite, first_not_finite
from autograd.optim import gradient_norm
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import cut_into_micro_batches
from minitransformer.data.store import SIDES
from minitransformer.model.batch import Batch
from minitransformer.model.symbols import START
from minitransformer.model.transformer import Transformer
from minitransformer.system.files import CheckpointError, read_arrays, read_json, write_arrays, write_text
from minitransformer.system.provenance import code_version
from minitransformer.training.state import TrainingState

UPDATE_FILE, BATCH_FILE = "update.json", "batch.safetensors"

Pairs = Sequence[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]  # ids without start and end symbols


@dataclass(frozen=True)
class UpdateFacts:
    """The inputs of an update besides parameters and tokens, and the non-finite number that was found."""

    step: int
    epoch: int
    batch_index: int
    """The index of the batch in the epoch's plan."""
    pairs: list[int]
    """Indices of the batch's pairs in the token store."""
    seed: int
    n_micro_batches: int
    learning_rate: float
    what: str
    """A description of the number that was not finite."""
    code: str = dataclasses.field(default_factory=code_version)

    @classmethod
    def of(
        cls, state: TrainingState, batch: IntArray, config: TrainingConfig, learning_rate: float, what: str
    ) -> UpdateFacts:
        """Return the facts of the last update of a run with this state."""
        return cls(
            step=state.step, epoch=state.epoch, batch_index=state.next_batch - 1, pairs=batch.tolist(),
            seed=config.seed, n_micro_batches=config.n_micro_batches, learning_rate=learning_rate, what=what,
        )  # fmt: skip


def write_repro_bundle(directory: Path, model: Transformer, pairs: Pairs, facts: UpdateFacts, gradients: Array) -> None:
    """Write the model, the batch, the facts, and the norm of every parameter and of its gradient.

    ``gradients`` are those of the rejected update: flat, summed over all ranks, and divided by the number of tokens.
    Shapes: ``pairs`` as many as ``facts.pairs``; ``gradients`` as the model's flat values.
    Raises: CheckpointError if the file system refuses.
    """
    model.save(directory)
    lengths = np.array([[len(ids) for ids in pair] for pair in pairs], np.int64).reshape(-1, 2)
    flat = {side: np.concatenate([np.asarray(pair[i], np.int64) for pair in pairs]) for i, side in enumerate(SIDES)}
    write_arrays(directory / BATCH_FILE, {"lengths": lengths, **flat})
    norms = {
        name: {"value": _norm(parameter.value), "gradient": _norm(parameter.view_of(gradients))}
        for name, parameter in model.named_parameters()
    }
    write_text(directory / UPDATE_FILE, json.dumps({**dataclasses.asdict(facts), "norms": norms}, indent=2) + "\n")


def _norm(x: Array) -> float | str:
    """Return the norm of x; a NaN or an infinity, which JSON lacks, as a string."""
    with np.errstate(all="ignore"):
        norm = gradient_norm(to_host(x).astype(np.float64).ravel())
    return norm if np.isfinite(norm) else str(norm)


@dataclass(frozen=True)
class Replay:
    """An update computed again in one precision: the mean loss, and the first number that was not finite, if any."""

    dtype: str
    mean_loss: float
    gradient_norm: float
    found: NotFinite | None
    parameter: str | None
    """Names of the parameters among the arguments of the operation that was found."""

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.dtype}: all numbers are finite; loss {self.mean_loss:.6g}, norm {self.gradient_norm:.6g}"
        of = f" ({self.parameter})" if self.parameter else ""
        return f"{self.dtype}: first not finite: {self.found}{of}"


def replay_repro_bundle(directory: Path, dtype: str = "float64") -> Replay:
    """Compute a repro bundle's update again on the CPU, and check every number on the way.

    Raises: CheckpointError if the directory is not a repro bundle, or is corrupt.
    """
    facts, pairs = _read_facts(directory), _read_pairs(directory)
    model = Transformer.load(directory, dtype=dtype)
    _check_ids(pairs, model, directory)
    total, losses = np.zeros_like(model.parameters.values), []
    n_tokens = sum(len(target) + 1 for _, target in pairs)

    def compute() -> None:
        for batch, stream in _micro_batches_of(pairs, facts):
            loss = model.loss(batch, stream)
            losses.append(float(loss))
            backward(loss)
            np.add(total, model.parameters.gradients, out=total)

    found = first_not_finite(compute)
    norm = gradient_norm(total) / n_tokens
    return Replay(dtype, sum(losses) / n_tokens, norm, found, _parameter_in(found, model) if found else None)


def _check_ids(pairs: Pairs, model: Transformer, directory: Path) -> None:
    sizes = (model.config.n_source_words, model.config.vocabulary_size)
    for pair in pairs:
        for side, ids, size in zip(SIDES, pair, sizes, strict=True):
            if len(ids) and not 0 <= ids.min() <= ids.max() < size:
                raise CheckpointError(
                    f"{directory / BATCH_FILE}: {side} has ids outside of the model's {size} words;"
                    " the repro bundle is corrupt"
                )
        if START in pair[1]:
            raise CheckpointError(
                f"{directory / BATCH_FILE}: a target has the start symbol; the repro bundle is corrupt"
            )


def _micro_batches_of(pairs: Pairs, facts: UpdateFacts) -> Iterator[tuple[Batch, RandomStream]]:
    lengths = np.array([[len(ids) for ids in pair] for pair in pairs], np.int64).reshape(-1, 2)
    for number, indices in enumerate(cut_into_micro_batches(np.arange(len(pairs)), lengths, facts.n_micro_batches)):
        if len(indices):
            sources, targets = zip(*(pairs[i] for i in indices), strict=True)
            yield Batch.from_token_ids(sources, targets), RandomStream(facts.seed, facts.step, number)


def _parameter_in(found: NotFinite, model: Transformer) -> str | None:
    """Return the names of the parameters among the operation's arguments."""
    names = [
        name
        for name, parameter in model.named_parameters()
        if any(isinstance(x, np.ndarray) and np.shares_memory(x, parameter.value) for x in found.arguments)
    ]
    return ", ".join(names) or None


def _read_facts(directory: Path) -> UpdateFacts:
    path = directory / UPDATE_FILE
    fields = read_json(path)
    known = {field.name: field.type for field in dataclasses.fields(UpdateFacts)}
    if not isinstance(fields, dict) or not fields.keys() >= known.keys():
        raise CheckpointError(f"{path}: is not what a repro bundle holds; expected {', '.join(known)}")
    facts = UpdateFacts(**{name: fields[name] for name in known})
    checks: dict[str, Callable[[Any], bool]] = {
        "step": lambda n: 1 <= n < 2**63, "seed": lambda n: 0 <= n < 2**64,
        "n_micro_batches": lambda n: 1 <= n <= 2**16,
    }  # fmt: skip
    for name, is_right in checks.items():
        value = getattr(facts, name)
        if not isinstance(value, int) or not is_right(value):
            raise CheckpointError(f"{path}: {name} is {value!r}; the repro bundle is corrupt")
    return facts


def _read_pairs(directory: Path) -> Pairs:
    path = directory / BATCH_FILE
    arrays = read_arrays(path)
    if set(arrays) != {"lengths", *SIDES} or any(x.dtype != np.int64 for x in arrays.values()):
        raise CheckpointError(f"{path}: is not the batch of a repro bundle; it is corrupt")
    lengths = arrays["lengths"]
    if lengths.ndim != 2 or lengths.shape[1] != 2 or not len(lengths) or (lengths < 0).any():
        raise CheckpointError(
            f"{path}: expected two lengths for each pair, got {lengths.shape}; the repro bundle is corrupt"
        )
    sides = []
    for i, side in enumerate(SIDES):
        if arrays[side].shape != (lengths[:, i].sum(),):
            raise CheckpointError(
                f"{path}: {side} has not as many tokens as its lengths say; the repro bundle is corrupt"
            )
        sides.append(np.split(arrays[side], np.cumsum(lengths[:, i])[:-1]))
    return list(zip(*sides, strict=True))
