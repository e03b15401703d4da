"""The figures of training runs as texts for tables: results, cost, data, settings."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from minitransformer.config.run import BEGINNING, PARTS
from minitransformer.extras.report.curves import best
from minitransformer.extras.report.run_record import Line, RunRecord, number
from minitransformer.system.records import as_object
from minitransformer.training.callbacks import SCORES


class Fact(NamedTuple):
    """A row of a table: its name, and the value for each run, or "" if the value is not known."""

    name: str
    values: list[str]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


def facts(runs: Sequence[RunRecord]) -> dict[str, list[Fact]]:
    """Return the tables of a report by their titles; leave out rows without a value of any run."""
    return {
        title: [row for name, value in rows.items() if any((row := Fact(name, [value(run) for run in runs])).values)]
        for title, rows in _TABLES.items()
    }


def settings(runs: Sequence[RunRecord]) -> list[Fact]:
    """Return all settings, by names such as "training.seed"; settings of the initial model are first."""
    names = dict.fromkeys((part, name) for part in PARTS for run in runs for name in as_object(run.settings.get(part)))
    begun = [name for name in BEGINNING if any(name in run.settings for run in runs)]
    return [Fact(name, [_setting(run.settings, name) for run in runs]) for name in begun] + [
        Fact(f"{part}.{name}", [_setting(run.settings.get(part), name) for run in runs]) for part, name in names
    ]


def _setting(fields: Any, name: str) -> str:
    if name not in as_object(fields):
        return ""
    value = fields[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def state(run: RunRecord) -> str:
    """Return a text: a finished run's final score, or the last logged update of a run that is not finished."""
    if run.is_finished:
        scores = (_final(split)(run).partition("\n")[0] for split in ("test", "validation"))
        score = next(filter(None, scores), "")
        return f"finished after {run.step:,} updates{': ' if score else ''}{score}"
    planned = as_object(run.settings.get("training")).get("max_updates")
    of = f" of {planned:,}" if isinstance(planned, int) else ""
    return f"update {run.step:,}{of}: still training, or interrupted"


def _time_of_last_line(run: RunRecord) -> str:
    moment = max((number(line, "time") or 0.0 for line in (*run.training[-1:], *run.validation[-1:])), default=0.0)
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC" if 0 < moment < 2**33 else ""


def _initial_weights(run: RunRecord) -> str:
    """Return the weights from which a run began, with the first digits of their SHA-256; "" for random weights."""
    model = as_object(run.results.get("pretrained", run.settings.get("pretrained")))  # unfinished runs have no results
    if "weights" not in model:
        return ""
    return f"{model['weights']}\nSHA-256 {str(model.get('sha256', ''))[:10]}…"


def _final(split: str) -> Callable[[RunRecord], str]:
    """Return a function that describes the final score of "validation" or "test"."""

    def describe(run: RunRecord) -> str:
        scores = as_object(run.results.get(split))
        if not scores:
            return ""
        named = (f"{key.upper()} {score:.2f}" for key in SCORES if (score := number(scores, key)) is not None)
        after = "" if run.is_finished else f", after {number(run.results, 'updates') or 0:,.0f} updates"
        return f"{next(named, '')}{after}\n{scores.get('signature', '')}"

    return describe


def _best_score(run: RunRecord) -> str:
    found = best(run.validation, run.score_key, greatest=True)
    signature = run.validation[-1].get("signature", "") if run.validation else ""
    return f"{run.score_key.upper()} {found[0]:.2f}, update {found[1]:,}\n{signature}" if found else ""


def _best_loss(run: RunRecord) -> str:
    found = best(run.validation, "loss", greatest=False)
    return f"{found[0]:.4f}, update {found[1]:,}" if found else ""


def _last(key: str, form: str, factor: float = 1.0) -> Callable[[RunRecord], str]:
    """Return a function that formats a figure of the last line of training."""
    return lambda run: _format(run.training[-1] if run.training else {}, key, form, factor)


def _format(record: Line, key: str, form: str = "{:,.0f}", factor: float = 1.0) -> str:
    value = number(record, key)
    return "" if value is None else form.format(value * factor)


def _speed(run: RunRecord) -> str:
    speeds = [speed for line in run.training if (speed := number(line, "target_tokens_per_second")) is not None]
    return f"{statistics.median(speeds):,.0f} target tokens per second (median)" if speeds else ""


def _duration(run: RunRecord) -> str:
    seconds = number(run.training[-1] if run.training else {}, "seconds")
    if seconds is None:
        return ""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours} h {rest // 60:02d} min" if hours else f"{rest // 60} min {rest % 60:02d} s"


def _dropped_pairs(run: RunRecord) -> str:
    dropped = run.data.get("dropped")
    if not isinstance(dropped, dict):
        return ""
    return ", ".join(f"{reason} {count:,}" for reason, count in dropped.items() if type(count) is int) or "none"


_TABLES: dict[str, dict[str, Callable[[RunRecord], str]]] = {
    "Result": {
        "last line": _time_of_last_line,
        "begun from": _initial_weights,
        "final score, validation": _final("validation"),
        "final score, test": _final("test"),
        "final weights": lambda run: str(run.results.get("weights", "")),
        "best score in training (greedy)": _best_score,
        "best validation loss": _best_loss,
        "last training loss": _last("loss", "{:.4f}"),
    },
    "Cost": {
        "epoch": _last("epoch", "{:,.0f}"),
        "training time": _duration,
        "speed": _speed,
        "peak memory": _last("peak_memory", "{:.2f} GB", 1e-9),
        "FLOPs of matrix products": _last("flops", "{:.3g}"),
        "FLOPs as the paper estimates": lambda run: _format(run.results, "flops_by_time", "{:.3g}"),
        "parameters": lambda run: _format(run.results, "parameters"),
    },
    "Data": {
        "training pairs": lambda run: _format(run.data, "train_pairs"),
        "validation pairs": lambda run: _format(run.data, "validation_pairs"),
        "dropped pairs": _dropped_pairs,
        "source vocabulary": lambda run: _format(run.data, "source_words"),
        "target vocabulary": lambda run: _format(run.data, "target_words"),
        "code": lambda run: str(run.results.get("code", "")),
        "configuration": lambda run: str(run.results.get("configuration", "")),
    },
}
