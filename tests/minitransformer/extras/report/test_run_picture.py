"""The curves of training runs as a picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from logged_runs import LOG, finish, training_line, write_logged_run
from matplotlib.colors import to_hex

from minitransformer.extras.report.colours import head_colours
from minitransformer.extras.report.errors import ReportError
from minitransformer.extras.report.run_picture import run_picture
from minitransformer.extras.report.run_record import read_runs
from minitransformer.extras.report.saving import save_picture


def test_a_picture_has_a_panel_for_each_figure_and_the_points_of_the_log(tmp_path: Path) -> None:
    runs = [write_logged_run(tmp_path / name) for name in ("a", "b")]
    panels = {axes.get_title(loc="left"): axes for axes in run_picture(read_runs(runs)).axes}
    assert list(panels) == [
        "Loss",
        "Perplexity",
        "BLEU",
        "Learning rate",
        "Norm of the gradient",
        "Speed",
        "Peak memory",
    ]
    loss = panels["Loss"].get_lines()
    assert [line.get_xydata().tolist() for line in loss[:2]] == [  # type: ignore[union-attr]
        [[10, 1], [20, 0.5], [30, 0.333333], [40, 0.25]],
        [[20, 0.4], [40, 0.2]],
    ]
    assert [line.get_label() for line in loss] == [f"{n}, {k}" for n in "ab" for k in ("training", "validation")]
    assert [to_hex(str(line.get_color())) for line in loss[::2]] == head_colours(2)
    assert {title: axes.get_yscale() for title, axes in panels.items() if axes.get_yscale() != "linear"} == {
        "Perplexity": "log",
        "Norm of the gradient": "log",
    }
    assert (panels["Loss"].get_ylabel(), panels["Speed"].get_xlabel()) == ("nats per target token", "updates")


def test_the_same_runs_give_the_same_bytes_also_when_a_log_scale_is_impossible(tmp_path: Path) -> None:
    log = [training_line(10, gradient_norm=0.0), *LOG]
    run = finish(write_logged_run(tmp_path / "run", log), ["x"] * 4)
    for name in ("a.svg", "b.svg"):
        save_picture(run_picture(read_runs([run])), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "Peak memory" in (tmp_path / "a.svg").read_text()


def test_a_log_without_figures_is_an_error(tmp_path: Path) -> None:
    run = write_logged_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text('{"kind": "training", "step": 1}\n')
    with pytest.raises(ReportError, match="run: the log has no figures yet"):
        run_picture(read_runs([run]))
