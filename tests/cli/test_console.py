"""What a run shows: plain lines in a file, a progress bar on a terminal."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

from rich.console import Console

from minitransformer.evaluation.bleu import Score
from minitransformer.training.monitor import ConsoleMonitor, TrainingReport, ValidationReport

TRAINING_REPORT = TrainingReport(5, 0, 1.5, 1e-3, 0.25, 4_000.0, 2.0, 10**9)
VALIDATION_REPORT = ValidationReport(5, 1.25, 3.49, Score("BLEU", 17.5, "signature", "detail"), True, 0.5)


def monitored(folder: Path, console: Console, first_step: int = 0) -> None:
    with ConsoleMonitor(folder, first_step=first_step, max_updates=1_000, console=console) as monitor:
        monitor.say("something [to] read")
        monitor.advance(5)
        monitor.report(TRAINING_REPORT)
        monitor.report(VALIDATION_REPORT)


def test_off_a_terminal_there_are_plain_lines(tmp_path: Path) -> None:
    shown = io.StringIO()
    monitored(tmp_path, Console(file=shown, highlight=False))
    assert shown.getvalue() == (
        "something [to] read\n"
        "step 5, epoch 0: loss 1.5000, 4,000 tokens/s, learning rate 1.00e-03\n"
        "step 5: validation loss 1.2500, perplexity 3.49, greedy BLEU 17.50 [signature], the best so far\n"
    )


def test_on_a_terminal_there_is_a_progress_bar_with_the_figures(tmp_path: Path) -> None:
    shown = io.StringIO()
    monitored(tmp_path, Console(file=shown, force_terminal=True, width=160, highlight=False))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    assert "\x1b[" in shown.getvalue()
    assert "5/1,000" in text
    assert "loss 1.5000, 4,000 tokens/s, learning rate 1.00e-03" in text
    assert "step 5: validation loss 1.2500" in text
    assert "step 5, epoch 0" not in text
    assert "something [to] read" in text


def test_a_resumed_bar_begins_where_the_run_stands(tmp_path: Path) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=160, highlight=False)
    with ConsoleMonitor(tmp_path, first_step=700, max_updates=1_000, console=console):
        pass
    assert "700/1,000" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())


def test_metrics_are_appended_to_those_of_an_earlier_part(tmp_path: Path) -> None:
    for first_step in (0, 5):
        monitored(tmp_path, Console(file=io.StringIO()), first_step)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [record["kind"] for record in records] == ["training", "validation", "training", "validation"]
    assert (records[1]["bleu"], records[1]["signature"]) == (17.5, "signature")  # a score is called by its name
