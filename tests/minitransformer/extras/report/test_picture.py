"""Pictures of attention and of runs: every weight a line, every word itself, every file whole."""

import io
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from attended import ODD_PAIR, pair_of
from logged_runs import LOG, finish, training_line, validation_line, write_logged_run
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread

from minitransformer.extras.report.colours import head_colours
from minitransformer.extras.report.errors import ReportError
from minitransformer.extras.report.picture import INVISIBLE, attention_picture
from minitransformer.extras.report.run_picture import run_picture
from minitransformer.extras.report.run_record import read_runs
from minitransformer.extras.report.saving import boxes_for_missing_letters, save_picture
from minitransformer.system.files import CheckpointError

PAIR = pair_of(["the", "small", "dog"], ["der", "kleine", "Hund"])


def lines_of(figure: Figure, panel: int) -> list[LineCollection]:
    return [line for line in figure.axes[panel].collections if isinstance(line, LineCollection)]


def test_a_line_stands_for_every_weight_as_opaque_as_it_is_large() -> None:
    figure = attention_picture(PAIR, ["encoder", "decoder"], [1, 0], [0, 2])
    assert len(figure.axes) == 4
    for number, head in enumerate((0, 2)):
        lines = lines_of(figure, 2)[number]  # the second row's first panel: the decoder's second layer
        weights = PAIR.weights.decoder[1, head]
        assert {to_hex(colour) for colour in np.asarray(lines.get_colors())} == {head_colours(3)[head]}
        np.testing.assert_allclose(np.asarray(lines.get_colors())[:, 3], weights[weights > INVISIBLE])
        rows = np.array([segment[:, 1] for segment in lines.get_segments()])
        np.testing.assert_array_equal(np.rint(rows), np.argwhere(weights > INVISIBLE))


def test_layers_that_a_stack_does_not_have_have_no_panel() -> None:
    pair = pair_of(["the", "dog"], ["der", "Hund"], n_layers=3, n_decoder_layers=1)
    assert [pair.depth(kinds) for kinds in (["encoder"], ["encoder-decoder"], ["decoder", "encoder"])] == [3, 1, 3]
    figure = attention_picture(pair, ["encoder", "encoder-decoder"], [0, 2], [0])
    titles = [text.get_text() for text in figure.texts if "layer" in text.get_text()]
    assert titles == ["encoder, layer 1", "encoder, layer 3", "encoder-decoder, layer 1"]
    with_empty_row, without = (
        attention_picture(pair, kinds, [1, 2], [0]) for kinds in (["encoder", "encoder-decoder"], ["encoder"])
    )
    np.testing.assert_array_equal(with_empty_row.get_size_inches(), without.get_size_inches())


def test_smaller_weights_have_no_line_and_the_picture_says_so() -> None:
    figure = attention_picture(PAIR, ["encoder"], [0], [1], least_weight=0.2)
    weights = PAIR.weights.encoder[0, 1]
    assert 0 < len(lines_of(figure, 0)[0].get_segments()) == (weights >= 0.2).sum() < weights.size
    assert "Lines show weights from 20%." in [text.get_text() for text in figure.texts]


def test_any_words_are_text_in_the_svg_also_what_xml_has_no_character_for_and_can_be_drawn(tmp_path: Path) -> None:
    words = [*map(chr, range(32)), "\x7f", "\x85", "\u2028", "a\ufffe", "a\uffff", "\U0001fffe"]
    found = []
    for pair, kinds in ((ODD_PAIR, ["encoder"]), (pair_of(words, words), ["encoder", "encoder-decoder"])):
        save_picture(attention_picture(pair, kinds, [0], [0]), tmp_path / "odd.svg")  # type: ignore[arg-type]
        root = ElementTree.parse(tmp_path / "odd.svg").getroot()
        assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
        texts = root.iter("{http://www.w3.org/2000/svg}text")
        found.append(["".join(node.itertext()).strip() for node in texts])
    assert {"<script>alert(1)</script>", "$x^2$", "$title", "<EOS>", "שלום", "␁"} <= set(found[0])
    assert found[1].count("a\ufffd") == 2 * 4  # two words, on two sides of two panels
    save_picture(attention_picture(ODD_PAIR, ["encoder-decoder"], [0], [0]), tmp_path / "odd.png")
    assert imread(io.BytesIO((tmp_path / "odd.png").read_bytes())).ndim == 3


def test_what_would_take_gigabytes_as_png_or_cannot_be_written_is_refused(tmp_path: Path) -> None:
    huge = Figure(figsize=(200, 56))
    with pytest.raises(ReportError, match=r"huge.png: would have 30,000 x 8,400 pixels, .* ends in .svg or .pdf"):
        save_picture(huge, tmp_path / "huge.png")
    save_picture(huge, tmp_path / "huge.svg")
    (tmp_path / "a.png").mkdir()
    with pytest.raises(CheckpointError, match="a.png: cannot be written"):
        save_picture(Figure(), tmp_path / "a.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "huge.svg"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.svg", "a.png", "a.pdf"])
def test_the_same_picture_is_the_same_bytes_also_when_a_log_scale_is_impossible(name: str, tmp_path: Path) -> None:
    log = [training_line(10, gradient_norm=0.0), *LOG]
    run = finish(write_logged_run(tmp_path / "run", log), ["x"] * 4)
    for draw in (lambda: attention_picture(PAIR, ["encoder"], [0], [0, 1]), lambda: run_picture(read_runs([run]))):
        written = []
        for _ in range(2):
            save_picture(draw(), tmp_path / name)
            written.append((tmp_path / name).read_bytes())
        assert written[0] == written[1]
    assert b"Peak memory" in written[0] or name != "a.svg"


@pytest.mark.parametrize(
    "words", [["歩" * 21, "x"], ["W" * 26], ["word"], ["word"] * 60], ids=lambda words: words[0][:5]
)
def test_no_text_is_cut_off_at_the_edge_nor_a_long_sentence_which_is_folded(words: list[str]) -> None:
    pair = pair_of(words, words[::-1], n_heads=32)
    for kind in ("encoder", "encoder-decoder"):
        figure = attention_picture(pair, [kind], [0], range(32))  # type: ignore[list-item]
        renderer = FigureCanvasAgg(figure).get_renderer()
        texts = [*figure.texts, *figure.axes[0].texts]
        with boxes_for_missing_letters():
            boxes = [text.get_window_extent(renderer) for text in texts]
        assert min(box.x0 for box in boxes) >= 0
        assert max(box.x1 for box in boxes) <= figure.bbox.width


def test_a_picture_has_a_panel_for_each_figure_and_the_points_of_the_log(tmp_path: Path) -> None:
    runs = [write_logged_run(tmp_path / name) for name in ("a", "b")]
    panels = {axes.get_title(loc="left"): axes for axes in run_picture(read_runs(runs)).axes}
    figures = ["Loss", "Perplexity", "BLEU", "Learning rate", "Norm of the gradient", "Speed", "Peak memory"]
    assert list(panels) == figures
    loss = panels["Loss"].get_lines()
    assert [line.get_xydata().tolist() for line in loss[:2]] == [  # type: ignore[union-attr]
        [[10, 1], [20, 0.5], [30, 0.333333], [40, 0.25]],
        [[20, 0.4], [40, 0.2]],
    ]
    assert [line.get_label() for line in loss] == [f"{n}, {k}" for n in "ab" for k in ("training", "validation")]
    assert [to_hex(str(line.get_color())) for line in loss[::2]] == head_colours(2)
    assert [title for title, axes in panels.items() if axes.get_yscale() == "log"] == [figures[1], figures[4]]
    assert (panels["Loss"].get_ylabel(), panels["Speed"].get_xlabel()) == ("nats per target token", "updates")


def test_log_scales_have_plain_numbers_and_a_log_without_figures_is_an_error(tmp_path: Path) -> None:
    log = [training_line(10, gradient_norm=0.2), training_line(20, gradient_norm=7.0)]
    log += [validation_line(20, perplexity=2.0), validation_line(30, perplexity=1.288)]
    figure = run_picture(read_runs([write_logged_run(tmp_path / "run", log)]))
    FigureCanvasAgg(figure).draw()
    labels = {}
    for axes in figure.axes:
        low, high = axes.get_ylim()
        shown = [label for label in axes.get_yticklabels(which="both") if low <= label.get_position()[1] <= high]
        labels[axes.get_title(loc="left")] = [label.get_text() for label in shown]
    assert (labels["Norm of the gradient"], labels["Perplexity"]) == (["0.2", "0.5", "1", "2", "5"], ["1.5", "2"])
    (tmp_path / "run/metrics.jsonl").write_text('{"kind": "training", "step": 1}\n')
    with pytest.raises(ReportError, match="run: the log has no figures yet"):
        run_picture(read_runs([tmp_path / "run"]))


def test_letters_come_from_any_installed_font_and_those_of_none_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fonts = {entry.fname.rpartition("/")[2]: entry for entry in font_manager.fontManager.ttflist}
    usual, other = (fonts[name] for name in ("DejaVuSans.ttf", "STIXGeneral.ttf"))
    known = font_manager.get_font(usual.fname).get_charmap().keys()
    letter = chr(min(font_manager.get_font(other.fname).get_charmap().keys() - known - set(range(0xE000, 0xF900))))
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [usual, other])
    for text, families in ((f"a{letter}", ["sans-serif", "STIXGeneral"]), ("a", ["sans-serif"])):
        figure = Figure()
        shown = figure.text(0, 0, text)
        save_picture(figure, tmp_path / "a.png")
        assert shown.get_fontfamily() == families
    assert caplog.messages == []
    figure.text(0, 0, "\U00010cc0")  # of the Old Hungarian script
    save_picture(figure, tmp_path / "a.png")
    assert "a.png: no installed font has the letters" in caplog.text
