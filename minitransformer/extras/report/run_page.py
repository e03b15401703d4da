"""Training runs as one self-contained HTML file."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minitransformer.config.data import target_language
from minitransformer.config.run import METRICS_FILE, RUN_FILE
from minitransformer.data.languages import language_of_run
from minitransformer.data.store import SIDES
from minitransformer.extras.report.colours import head_colours
from minitransformer.extras.report.comparison import compare_systems
from minitransformer.extras.report.curves import shown_panels
from minitransformer.extras.report.run_facts import facts, settings, state
from minitransformer.extras.report.run_record import RunRecord, is_sample, read_run
from minitransformer.extras.report.self_contained import page_with_plots
from minitransformer.system.errors import UserError
from minitransformer.system.files import write_text
from minitransformer.system.records import as_object
from minitransformer.training.callbacks import Callback, TrainingReport, ValidationReport

REPORT_FILE = "report.html"
_log = logging.getLogger(__name__)


MOST_SAMPLES = 20  # sentences whose translations a page shows


def run_page(runs: Sequence[RunRecord], *, is_training: bool = False) -> str:
    """Return the HTML page of runs.

    If ``is_training``, the page reloads every minute, unless the reader has opened a section.
    """
    title = f"Training: {', '.join(run.name for run in runs)}"
    data = {**run_page_data(runs), "isTraining": is_training}
    return page_with_plots("training_page", ("page.js",), title, data)


def run_page_data(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the data that the page's script reads."""
    return {
        "runs": [
            {"name": run.name, "state": state(run), "colour": colour}
            for run, colour in zip(runs, head_colours(len(runs)), strict=True)
        ],
        "panels": [
            {
                "title": panel.title,
                "unit": panel.unit,
                "scale": panel.scale,
                "note": panel.note,
                "fromZero": panel.from_zero,
                "names": [series.kind for series in panel.series],
                "curves": [[curve._asdict() for curve in run_curves] for run_curves in curves],
            }
            for panel, curves in shown_panels(runs)
        ],
        "facts": {
            title: [{"name": row.name, "values": row.values} for row in rows] for title, rows in facts(runs).items()
        },
        "settings": [{"name": row.name, "values": row.values, "differs": row.differs} for row in settings(runs)],
        "paired": paired_tests(runs),
        "languages": [language_of_run(runs[0].settings, side) or "" for side in SIDES],  # "": unknown, as in HTML
        "samples": list(itertools.islice(samples(runs), MOST_SAMPLES)),
    }


def paired_tests(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Compare the BLEU of each run's final translations with the BLEU of the first run that has translations.

    Leave out parsers, runs without translations, and runs with another validation set than the first run's.
    """
    scored = [run for run in runs if run.translations and run.score_key == "bleu"]
    found = []
    for run in scored[1:]:
        if run.pairs() != scored[0].pairs():
            continue
        references = [reference for _, reference in run.pairs()]
        systems = [(each.name, [line["translation"] for line in each.translations]) for each in (scored[0], run)]
        language = target_language(as_object(scored[0].settings.get("data")))
        (bleu,) = compare_systems(systems, references, metrics=["BLEU"], language=language)
        baseline, other = bleu.scores
        found.append(
            {
                "baseline": scored[0].name,
                "run": run.name,
                "baselineBleu": baseline.value,
                "bleu": other.value,
                "interval": other.interval,
                "p": other.p_value,
                "signature": bleu.signature,
                "sentences": len(references),
            }
        )
    return found


def samples(runs: Sequence[RunRecord]) -> Iterator[dict[str, Any]]:
    """Yield validation sentences, each with the final translation and the earlier translations of each run.

    Earlier translations are samples that a run logs at its validations.  Sentences with samples are first, because they
    show how translations change.
    """
    validated = [[_by_pair(line.get("samples")) for line in run.validation] for run in runs]
    final = [_by_pair(run.translations) for run in runs]
    validated_pairs = itertools.chain.from_iterable(itertools.chain.from_iterable(validated))
    for pair in dict.fromkeys(itertools.chain(validated_pairs, *final)):
        yield {
            "source": pair[0],
            "reference": pair[1],
            "final": [translations.get(pair) for translations in final],
            "history": [
                [
                    [line["step"], found[pair]]
                    for line, found in zip(run.validation, validations, strict=True)
                    if pair in found
                ]
                for run, validations in zip(runs, validated, strict=True)
            ],
        }


def _by_pair(lines: Any) -> dict[tuple[str, str], str]:
    """Return translations by (source, reference); skip lines that are no samples, as in logs of earlier versions."""
    found = filter(is_sample, lines) if isinstance(lines, list) else ()
    return {(line["source"], line["reference"]): line["translation"] for line in found}


class ReportPage(Callback):
    """A callback that writes ``report.html``, a page of the run's logs, after each validation and at the end.

    It must follow the callback ``MetricsFile``, because it reads the lines of that callback's file.  If the page cannot
    be written, training goes on.
    """

    def __init__(self, run: Path) -> None:
        self._run = run

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Write the page after a validation."""
        if isinstance(report, ValidationReport):
            self._write()

    def end(self) -> None:
        """Write the page, with the final scores if the run is complete."""
        self._write(is_training=False)

    def _write(self, *, is_training: bool = True) -> None:
        if not all((self._run / name).exists() for name in (RUN_FILE, METRICS_FILE)):
            return  # nothing is logged yet; or the directory was moved or removed, and must not be made again
        try:
            write_text(self._run / REPORT_FILE, run_page([read_run(self._run)], is_training=is_training))
        except UserError as error:
            _log.warning(f"{self._run / REPORT_FILE}: not written: {error}; training goes on")
