"""Back-translation: a model of the other direction translates text in the target language; training has these pairs.

Source: Sennrich, Haddow & Birch 2016, "Improving Neural Machine Translation Models with Monolingual Data"; Edunov, Ott,
    Auli & Grangier 2018, "Understanding Back-Translation at Scale" (sampling); Caswell, Chelba & Grangier 2019, "Tagged
    Back-Translation" (a tag at the beginning of sources that a model has made).
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from minitransformer.config import ConfigError, RunConfig
from minitransformer.config.data import common_ending
from minitransformer.config.run import RUN_FILE
from minitransformer.data.languages import languages_of_data
from minitransformer.data.prepare import PreparedData
from minitransformer.data.profile import TextProfile
from minitransformer.data.selection import reason_to_drop
from minitransformer.data.survey import CorpusError, Found, fingerprint_of_file, read_lines
from minitransformer.extras.made_pairs import (
    Train,
    backward_run,
    exists,
    files_of,
    given_parts,
    log_dropped,
    on_text,
    pairs_of,
    translate_text,
    usable_pairs,
    write_given_text,
    write_pairs,
)
from minitransformer.extras.sampling import Sampling
from minitransformer.inference.search import SearchConfig
from minitransformer.model.files import model_directory, require_weights
from minitransformer.system.files import atomic_write, make_directory, remove_unfinished, write_text
from minitransformer.system.records import read_object
from minitransformer.training.run_data import open_or_prepare
from parallel.communicator import Communicator, call_on_rank_0

BackSearch: TypeAlias = Literal["beam", "sampling"]

TAG = "⟲"
"""The first word of a source that a model has made; Caswell et al. write "<BT>".

As a single frequent character it is a piece of every tokenizer that is trained on this text.  A given tokenizer reads
it as unknown, which tells these sources from the others, too.
"""
SETTINGS_FILE = "back-translation.json"
"""The file, beside the text, with the settings from which the text is made."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BackTranslation:
    """The text to translate back, and how."""

    files: tuple[str, ...]
    """Names of text files in the target language, in the folder ``data.raw``, one sentence a line."""
    run: Path | None = None
    """Directory of a model from target to source; None to train one."""
    search: BackSearch = "beam"
    """"beam": the best translation found; "sampling": a translation drawn at random, with ``training.seed``."""
    tag: bool = True
    """True to mark sources that a model has made by ``TAG``."""


def train_back_translated(config: RunConfig, back: BackTranslation, train: Train, world: Communicator) -> bool:
    """Train a model on the given pairs, and on text in the target language with translations by another model.

    The other model is that of ``back.run``.  Otherwise it is trained first, on the given pairs from target to source,
    with BACKWARD_UPDATES times as many updates.  Validation has the same held-out pairs as without back-translation.
    Lines with the target of such a pair are left out.

    The text and the other run are folders in the run's directory.  To continue after an interruption, call this
    function again.  All ranks must call it; rank 0 alone translates.
    Returns: whether all trainings are complete.
    Raises: ConfigError for settings that contradict each other or an earlier call; CorpusError; ResumeError; the
        exceptions of ``train``.
    """
    text = config.run / "text"
    if not write_target_text(config, back, world):
        backward = backward_run(config, config, text)
        if back.run is not None:
            backward = dataclasses.replace(backward, run=back.run)
        else:
            _log.info("back-translation, training 1 of 2: from target to source")
            if not train(backward):
                return False
        call_on_rank_0(lambda: _write_made_pairs(config, backward, back, text), world)
    _log.info("back-translation, the last training: on the given pairs and the translations")
    weights = (*config.data.weights, 1.0) if config.data.weights else ()
    return train(on_text(config, config, text, [*given_parts(config.data), "made"], weights))


def write_target_text(config: RunConfig, back: BackTranslation, world: Communicator) -> bool:
    """Check the settings, prepare the given text, and write the lines in the target language.  All ranks must call it.

    Returns: whether the pairs of these lines and their translations exist, too.
    Raises: ConfigError for settings that contradict each other or an earlier call; CorpusError; CheckpointError.
    """
    _check(config)
    return call_on_rank_0(lambda: _write_target_text(config, back, config.run / "text"), world)


def _check(config: RunConfig) -> None:
    """Raise ConfigError if a training would be refused, or the directory holds a run without back-translation."""
    if config.data.task != "translation":
        raise ConfigError("back_translate is set, but only a translation of text has another direction: leave it out")
    if config.init_from:
        raise ConfigError("back_translate trains new models, not from init_from: leave one out")
    if config.data.tags:
        raise ConfigError("back_translate trains one direction, and data.tags names several: leave one out")
    if (last := read_object(config.run / RUN_FILE)) and "made-source" not in last["data"]["train_source"]:
        raise ConfigError(f"{config.run}: holds a run without back_translate: set run to another directory")


def _write_target_text(config: RunConfig, back: BackTranslation, text: Path) -> bool:
    """Write the given text, and the lines to translate, if these files do not exist; see ``write_target_text``."""
    if back.run is not None and not exists(text / "made"):
        require_weights(model_directory(back.run))
    data = open_or_prepare(config)
    _check_direction(languages_of_data(data.manifest), back)
    make_directory(text)
    remove_unfinished(text)
    _check_settings(config, back, text)
    write_given_text(config, text)
    lines, _ = _monolingual(text)
    if not lines.exists():
        with atomic_write(lines) as path, path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in _lines_to_translate(config, back, data))
    return exists(text / "made")


def _monolingual(text: Path) -> tuple[Path, Path]:
    """Return the paths of the lines to translate, and of their translations."""
    source, target = files_of(text / "monolingual")
    return target, source


def _check_direction(languages: dict[str, str | None], back: BackTranslation) -> None:
    """Raise ConfigError if a file, or the run, is known to be of other languages than ours from target to source.

    ``languages`` are ours, of source and target.
    """
    source, target = languages.values()
    if source and (swapped := [name for name in back.files if common_ending([name]) == source != target]):
        raise ConfigError(
            f"{swapped[0]}: has text in {source}, by its ending; back_translate needs text in the target language"
        )
    if back.run is None:
        return
    theirs = TextProfile.load(back.run)
    written = theirs.targets or (theirs.target,)
    is_known = None not in (source, target, theirs.source, theirs.target)
    if theirs.targets or (is_known and theirs.languages != (target, source)):
        raise ConfigError(
            f"{back.run}: translates from {theirs.source} to {' and '.join(map(str, written))}; back_translate needs a"
            f" model from {target} to {source} alone"
        )


def _check_settings(config: RunConfig, back: BackTranslation, text: Path) -> None:
    """Write the settings from which the text is made.  If they changed, the lines to translate are removed.

    Raises: ConfigError if lines were translated already, with other settings.
    """
    files = {name: fingerprint_of_file(path) for name in back.files if (path := config.data.raw / name).exists()}
    here: dict[str, Any] = {**dataclasses.asdict(back), "run": back.run and str(back.run), "files": list(back.files)}
    here |= {"seed": config.training.seed}
    there = read_object(text / SETTINGS_FILE)
    different = [name for name in here if there.get(name) != here[name]]
    different += [name for name, its in files.items() if its != there.get("fingerprints", {}).get(name, its)]
    lines, translations = _monolingual(text)
    if different and translations.exists():
        raise ConfigError(
            f"{text}: was made with other settings of back_translate: {', '.join(different)}; set them back, or set"
            " run to another directory"
        )
    if different or not lines.exists():
        lines.unlink(missing_ok=True)
        write_text(text / SETTINGS_FILE, json.dumps(here | {"fingerprints": files}, indent=2) + "\n")


def _lines_to_translate(config: RunConfig, back: BackTranslation, data: PreparedData) -> Iterator[str]:
    """Yield the lines in the target language that may be trained on; the log counts the others by reason.

    Raises: CorpusError if a file cannot be read as text, or no line is left.
    """
    tokenizer, n_lines, dropped = data.tokenizer, 0, dict[str, Found]()
    held_out = {target for _, target in tokenizer.normalised(data.text("validation"))}
    for path in (config.data.raw / name for name in back.files):
        for number, line in enumerate(read_lines(path), 1):
            [(_, normalised)], [ids] = tokenizer.normalised([("", line)]), tokenizer.encode_target([line])
            reason = "held-out targets" if normalised in held_out else reason_to_drop((ids, ids), config.data)
            if reason:
                dropped.setdefault(reason, Found()).add(f"{path.name}:{number}")
            else:
                n_lines += 1
                yield line
    log_dropped("lines to translate back", dropped)
    if not n_lines:
        raise CorpusError(f"{', '.join(back.files)}: no line is left to translate back")


def _write_made_pairs(config: RunConfig, backward: RunConfig, back: BackTranslation, text: Path) -> None:
    """Translate the lines in the target language, and write the pairs that may be trained on."""
    lines, translations = _monolingual(text)
    sampling = Sampling(seed=config.training.seed) if back.search == "sampling" else None
    translate_text(backward, lines, translations, SearchConfig(beam=1 if sampling else SearchConfig.beam), sampling)
    pairs = usable_pairs(pairs_of(text / "monolingual"), "source", PreparedData.open(config.data_directory))
    tag = f"{TAG} " if back.tag else ""
    write_pairs(text / "made", ((tag + source, target) for source, target in pairs))
