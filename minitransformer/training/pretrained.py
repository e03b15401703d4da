"""The pretrained model from which a run begins: settings, tokenizer, weights, and perhaps the optimizer's moments."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autograd.array import Array
from autograd.optim import AVERAGE
from minitransformer.config import ConfigError, ModelConfig, RunConfig
from minitransformer.config.checks import require, unexpected_settings, with_changes
from minitransformer.config.run import RUN_FILE, saved_settings
from minitransformer.data.given_tokenizer import TOKENIZER_SETTINGS, GivenTokenizer, settings_of
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.task import task_of
from minitransformer.inference.translator import require_same_words
from minitransformer.model.files import CONFIG_FILE, WEIGHTS_FILE, load_model_config, load_model_files
from minitransformer.model.transformer import Transformer, WeightsError
from minitransformer.system.checksums import checksums_of
from minitransformer.system.files import CheckpointError, CorruptFileError, UnfitError
from minitransformer.system.records import as_object, read_object
from minitransformer.training.checkpoint import Snapshot, checkpoints, read_checkpoint, require_moments_of
from minitransformer.training.loop import Trainer

PRETRAINED = "pretrained"  # field of run.json and results.json: the model from which the run began
MAY_CHANGE = (
    "p_drop", "p_drop_attention", "p_drop_relu", "label_smoothing", "label_smoothing_over", "normalisation", "alpha",
)  # fmt: skip
_LEAVES = "leaf_symbols"  # a setting of data that a parser's vocabulary determines
_TOKENIZER_FIELDS = ("vocabulary_size", "source_vocabulary_size")  # fields of ModelConfig that a tokenizer determines

_log = logging.getLogger(__name__)


def fine_tuning(config: RunConfig) -> RunConfig:
    """Return the settings of a run that begins from the model in ``config.init_from``.

    Replace the settings of the model, and the settings of data that determine the tokenizer, by the pretrained model's.
    A model of the class ``Transformer`` may be trained further with a class of the user, ``model.implementation``.
    If the pretrained model no longer exists, but the run in ``config.run`` began from it, copy these settings from the
    run.
    Raises: CheckpointError if there is no model; ConfigError if the model cannot be trained, or if ``init_from`` is
    None.
    """
    directory = config.init_from
    if directory is None:
        raise ConfigError("fine_tuning: no model to begin from; set init_from to the directory of one")
    begun = {} if (directory / CONFIG_FILE).exists() else read_object(config.run / RUN_FILE)
    if begun.get("init_from") == str(directory):
        settings = saved_settings(config.run)
        old = with_changes(config, {part: settings[part] for part in ("model", "data")})
        model = old.model
        tokenizer_settings = {name: getattr(old.data, name) for name in (*TOKENIZER_SETTINGS, _LEAVES)}
    else:
        model, tokenizer = _model_and_tokenizer(directory)
        expected, got = model.implementation, config.model.implementation  # a file alone must not choose an import
        require(expected in (None, got), "model.implementation", f"{expected}, as of the model in {directory},", got)
        model = dataclasses.replace(model, implementation=got)
        tokenizer_settings = settings_of(tokenizer) | task_of(config.data).settings_of(tokenizer)
    if config.data.task != "parsing" and tokenizer_settings["tokenizer"] == "word":  # valid only for treebanks
        del tokenizer_settings["tokenizer"]
    model = dataclasses.replace(model, vocabulary_size=0, source_vocabulary_size=None, alpha=None)  # α is chosen anew
    return dataclasses.replace(config, model=model, data=dataclasses.replace(config.data, **tokenizer_settings))


def _model_and_tokenizer(directory: Path) -> tuple[ModelConfig, Tokenizer]:
    """Read a model's configuration and its tokenizer.

    Raises: CheckpointError if there is no model, or if it is corrupt; ConfigError if the model cannot be trained.
    """
    if not directory.is_dir():
        raise CheckpointError(
            f"{directory}: there is no such directory; init_from must be the directory of a run or of a model"
        )
    if not (directory / CONFIG_FILE).exists():
        raise CheckpointError(
            f"{directory}: there is no model here (no {CONFIG_FILE}); init_from must be the directory of a model, or of"
            " a run after its first validation"
        )
    model, tokenizer = load_model_config(directory), Tokenizer.load(directory)
    if not model.source_end:
        raise ConfigError(
            f"the model in {directory} reads sources without an end symbol, and cannot be trained further; set"
            " init_from to another model"
        )
    require_same_words(directory, model, tokenizer)
    return model, tokenizer


def pretrained_tokenizer(directory: Path, config: RunConfig) -> GivenTokenizer:
    """Return the tokenizer of the model from which a run begins.

    Raises: CheckpointError if there is no model; ConfigError if settings contradict the model or its tokenizer.
    """
    there, tokenizer = _model_and_tokenizer(directory)
    may_change = (*MAY_CHANGE, "implementation") if there.implementation is None else MAY_CHANGE
    kept = {name: value for name, value in vars(there).items() if name not in (*may_change, *_TOKENIZER_FIELDS)}
    if different := unexpected_settings("model", config.model, kept):
        raise ConfigError(
            f"the run begins from the model in {directory}, which determines its own sizes. {'; '.join(different)}."
            f" Leave these settings out (in Python, use fine_tuning); {', '.join(MAY_CHANGE)} may be others"
        )
    given = GivenTokenizer(tokenizer, extends=config.init_extend_vocabulary)
    given.check(config.data, directory)
    if given.extends and there.tied == "all" and not tokenizer.is_joint:
        raise ConfigError(
            f"init_extend_vocabulary is set, but the model in {directory} has two tokenizers that share one vocabulary,"
            " which cannot be extended: set it to false"
        )
    return given


def begin_from_pretrained(directory: Path, config: RunConfig, trainer: Trainer) -> dict[str, Any]:
    """Give the trainer the pretrained weights, and with ``init_optimizer`` also the moments of the pretrained run.

    All ranks must call this.
    Returns: the fields for ``run.json`` and ``results.json``: the file of the weights, its SHA-256, and the number of
    updates after which the moments were saved.
    Raises: CheckpointError if there is no model, if it is corrupt, if it does not fit the configuration, or if its
    weights have changed since the run began.
    """
    path, found = _newest_checkpoint(directory) if config.init_optimizer else (directory, None)
    there, weights = load_model_files(path) if found is None else (found.config, found.weights)
    new = {} if there.implementation == trainer.model.config.implementation else _new_weights(weights, trainer.model)
    if new and found is not None:
        raise ConfigError(
            f"init_optimizer is set, but {path} has no moments of {', '.join(list(new)[:3])}: set it to false to begin"
            " from the weights alone"
        )
    if found is not None:
        require_moments_of(trainer.optimizer, path, found.moments)
    moments = None if found is None else _with_new_rows(_without_average(found.moments), trainer, mean=False)
    n_updates = 0 if found is None else found.state.step + found.state.earlier_updates
    digest = checksums_of(path, [WEIGHTS_FILE])[WEIGHTS_FILE]["sha256"]
    begun = pretrained_of(config.run)
    if begun.get("sha256", digest) != digest:
        raise CheckpointError(
            f"{path / WEIGHTS_FILE}: has changed since {config.run} began from it (its SHA-256 was {begun['sha256']});"
            " set run to another directory, or remove this one to begin anew"
        )
    try:
        trainer.begin_from(new | _with_new_rows(weights, trainer, mean=True), moments, n_updates)
    except WeightsError as error:
        raise UnfitError(f"{path}: {error}") from error
    moments_used = f"the optimizer's moments of {n_updates:,} updates" if found else "new moments of the optimizer"
    _log.info(f"begun from the model in {path} (SHA-256 of its weights {digest}) with its tokenizer and {moments_used}")
    if new:
        n_new = sum(array.size for array in new.values())
        _log.info(f"{n_new:,} parameters that the model there lacks keep their initial values: {', '.join(new):.200}")
    return {"weights": str(path / WEIGHTS_FILE), "sha256": digest, "optimizer_updates": n_updates}


def _new_weights(weights: Mapping[str, Array], model: Transformer) -> dict[str, Array]:
    """Return the weights of ``model`` whose names are not among the pretrained ``weights``."""
    return {name: array.copy() for name, array in model.weights().items() if name not in weights}


def _newest_checkpoint(directory: Path) -> tuple[Path, Snapshot]:
    """Return the newest complete checkpoint of a run, and its content; warn of newer checkpoints that are corrupt.

    Raises: CheckpointError if there is none.
    """
    for path in reversed(checkpoints(directory)):
        try:
            return path, read_checkpoint(path)
        except CorruptFileError as error:
            _log.warning(f"checkpoint {path.name} is corrupt: {error}")
    raise CheckpointError(
        f"{directory}: has no complete checkpoint, and only checkpoints have moments of the optimizer; set"
        " init_optimizer to false to begin from the weights alone"
    )


def _without_average(moments: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array for name, array in moments.items() if not name.startswith(f"{AVERAGE}.")}


def _with_new_rows(arrays: Mapping[str, Array], trainer: Trainer, *, mean: bool) -> dict[str, Array]:
    """Append rows for the new tokens of an extended vocabulary: the mean of the old rows, or zeros.

    With the mean, a new token has at most 1/W of the probability of all W old tokens.  So a few new tokens hardly
    change the distribution over the old tokens.  (Tokens with random rows may get most of the probability.)
    Source: Hewitt 2021, "Initializing New Word Embeddings for Pretrained Language Models",
    https://nlp.stanford.edu/~johnhew/vocab-expansion.html.
    """
    shapes = {name: parameter.shape for name, parameter in trainer.model.named_parameters()}
    return {
        name: _extend(array, shapes.get(name) or shapes.get(name.partition(".")[2], array.shape), mean=mean)
        for name, array in arrays.items()
    }


def _extend(array: Array, shape: tuple[int, ...], *, mean: bool) -> Array:
    n_new = shape[0] - len(array)
    if n_new <= 0 or shape[1:] != array.shape[1:]:
        return array
    row = array.mean(axis=0, dtype=np.float64) if mean else np.zeros(shape[1:])
    return np.concatenate([array, np.broadcast_to(row, (n_new, *shape[1:])).astype(array.dtype)])


def pretrained_of(run: Path) -> dict[str, Any]:
    """Return the facts about the model from which a run began; {} if the run began from random weights."""
    return as_object(read_object(run / RUN_FILE).get(PRETRAINED))
