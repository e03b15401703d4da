"""Pairs that models of our own make: the text of a run, its translation by a model, and trainings on the pairs.

The text is a folder of files with one sentence a line.  A *part* of it, such as "given", is two files: given-source and
given-target.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import TextIO, TypeAlias

from minitransformer.config import DataConfig, RunConfig
from minitransformer.config.checks import with_changes
from minitransformer.data.corpus import read_pairs
from minitransformer.data.languages import languages_of_data
from minitransformer.data.prepare import PreparedData, selected_text
from minitransformer.data.store import MANIFEST, SIDES
from minitransformer.data.survey import Found, Pair
from minitransformer.extras.files.resumable import translate_file
from minitransformer.extras.files.stream import LINES_AT_ONCE, LinesDone, LineTranslator, TextTranslator
from minitransformer.extras.sampling import Sampling
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.task import task_of
from minitransformer.inference.translator import load_translator
from minitransformer.system.files import atomic_write
from minitransformer.system.progress import LOG_INTERVAL
from minitransformer.system.records import read_object
from minitransformer.text.loops import repetition
from minitransformer.text.road import STEPS

Train: TypeAlias = Callable[[RunConfig], bool]
"""A function that trains a run, and returns whether it is complete."""

BACKWARD_UPDATES = 0.4
"""Number of updates of the training from target to source / number of updates of the run."""

_log = logging.getLogger(__name__)


def on_text(
    config: RunConfig,
    given: RunConfig,
    text: Path,
    parts: Sequence[str],
    weights: Sequence[float] = (),
    sides: Sequence[str] = SIDES,
) -> RunConfig:
    """Return the settings of a run on parts of the text, with these weights, from ``sides[0]`` to ``sides[1]``.

    Its prepared data is in the text's folder "data", because the run's own may have data of the given text.
    ``given`` is the run whose prepared data names the languages.
    """
    source, target = sides
    named = languages_of_data(read_object(given.data_directory / MANIFEST))
    codes = [code for side in sides if (code := named[side]) is not None]
    data = dataclasses.replace(
        config.data,
        directory=text / "data",
        raw=text,
        train_source=tuple(f"{part}-{source}" for part in parts),
        train_target=tuple(f"{part}-{target}" for part in parts),
        validation_source=(f"validation-{source}",),
        validation_target=(f"validation-{target}",),
        weights=tuple(weights),
        languages=tuple(codes) if len(codes) == 2 else (),
        download_from="",
        sha256=(),
    )
    return dataclasses.replace(config, data=data, init_from=None, init_optimizer=False, init_extend_vocabulary=False)


def backward_run(config: RunConfig, given: RunConfig, text: Path) -> RunConfig:
    """Return the settings of a shorter run on the given text, from target to source, in the folder "backward".

    The run chooses its own length penalty, because α depends on the direction.
    """
    reverse = on_text(config, given, text, given_parts(config.data), config.data.weights, SIDES[::-1])
    reverse = dataclasses.replace(reverse, run=config.run / "backward")
    n_updates = math.ceil(BACKWARD_UPDATES * config.training.max_updates)
    changes = {"data": {"directory": None}, "model": {"alpha": None}, "training": {"max_updates": n_updates}}
    return with_changes(reverse, changes)


def given_parts(config: DataConfig) -> list[str]:
    """Return the parts with the given text: "given", or with weights of files one for each file, such as "given-1"."""
    return [f"given-{number}" for number, _ in enumerate(config.weights, 1)] or ["given"]


def write_given_text(config: RunConfig, text: Path) -> None:
    """Write the given parts, and the part "validation", from a run's prepared data, if they do not exist."""
    parts = [text / name for name in given_parts(config.data)]
    if not exists(parts[-1]):
        corpus, data = task_of(config.data).corpus(config.data), PreparedData.open(config.data_directory)
        write_pairs(text / "validation", data.text("validation"))
        pairs = selected_text(corpus, data, config.data)
        write_parts(parts, ((file if config.data.weights else 0, pair) for file, pair in pairs))


def translate_text(
    run: RunConfig, source: Path, output: Path, search: SearchConfig | None = None, sampling: Sampling | None = None
) -> None:
    """Translate a file, line by line, with the model of a run; after an interruption, continue at the last group.

    Raises: ResumeError if the output was begun with other settings.
    """
    translator = load_translator(run.run, device=run.device, weights="float32")
    translate = TextTranslator(translator, search or SearchConfig(), translator.road(STEPS), sampling)
    with source.open("rb") as file:
        n_lines = sum(1 for _ in file)
    _log.info(f"translating {n_lines:,} lines of {source} with the model in {run.run}")
    translate_file(
        LineTranslator(translate),
        source,
        output,
        resume=True,
        lines_at_once=LINES_AT_ONCE,
        advance=_logged_count(n_lines),
    )


def _logged_count(n_lines: int) -> LinesDone:
    """Return a function that counts finished lines on any thread, and logs the count twice a minute."""
    n_done, logged, lock = 0.0, time.monotonic(), Lock()

    def advance(n: float) -> None:
        nonlocal n_done, logged
        with lock:
            n_done += n
            if time.monotonic() > logged + LOG_INTERVAL:
                logged = time.monotonic()
                _log.info(f"translated {n_done:,.0f} of {n_lines:,} lines")

    return advance


def usable_pairs(pairs: Iterable[Pair], made: str, data: PreparedData) -> Iterator[Pair]:
    """Yield pairs of which a model made one side, except useless ones; the log counts these by reason.

    A pair is useless if the translation is empty or repeats itself, or if the pair is a copy of a held-out pair.

    Args:
        made: the side that is the model's translation, "source" or "target".
        data: the prepared data with the held-out pairs.
    """
    held_out = set(data.tokenizer.normalised(data.text("validation")))
    dropped = dict[str, Found]()
    for number, pair in enumerate(pairs, 1):
        original, translation = pair if made == "target" else pair[::-1]
        if not translation:
            reason = "empty"
        elif repetition(translation, original):
            reason = "repeating itself"
        elif data.tokenizer.normalised([pair])[0] in held_out:
            reason = "copies of held-out pairs"
        else:
            yield pair
            continue
        dropped.setdefault(reason, Found()).add(number)
    log_dropped("translations", dropped)


def log_dropped(what: str, dropped: dict[str, Found]) -> None:
    """Log how many lines were dropped for each reason, with their first locations."""
    for reason, found in dropped.items():
        _log.info(f"{what} dropped as {reason}: {found.count:,} ({found.locations})")


def files_of(part: Path) -> tuple[Path, Path]:
    """Return the paths of source and target of a part."""
    source, target = (Path(f"{part}-{side}") for side in SIDES)
    return source, target


def exists(part: Path) -> bool:
    """Return whether both files of a part are complete: the target file appears last."""
    return files_of(part)[1].exists()


def pairs_of(part: Path) -> Iterator[Pair]:
    """Yield the pairs of lines in the two files of a part."""
    return read_pairs(*files_of(part))


def write_pairs(part: Path, pairs: Iterable[Pair]) -> None:
    """Write a part of the text; see ``write_parts``."""
    write_parts([part], ((0, pair) for pair in pairs))


def write_parts(parts: Sequence[Path], pairs: Iterable[tuple[int, Pair]]) -> None:
    """Write parts of the text, pair by pair; each pair comes with the index of its part.

    All files appear at the end, the target file of the last part last.
    """
    with ExitStack() as stack:
        files = list[TextIO]()
        for path in reversed([path for part in parts for path in files_of(part)]):
            temporary = stack.enter_context(atomic_write(path))
            files.append(stack.enter_context(temporary.open("w", encoding="utf-8", newline="\n")))
        sides = files[::-1]
        for i, (source, target) in pairs:
            sides[2 * i].write(f"{source}\n")
            sides[2 * i + 1].write(f"{target}\n")
