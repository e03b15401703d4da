"""Pages of attention and of runs as files: one piece, nothing loaded, every word escaped, every number there."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attended import ODD_PAIR, pair_of
from logged_runs import LOG, ODD, SIGNATURE, finish, training_line, validation_line, write_logged_run

from minitransformer.extras.report.attended import AttendedPair
from minitransformer.extras.report.colours import head_colours
from minitransformer.extras.report.curves import MOST_POINTS
from minitransformer.extras.report.errors import ReportError
from minitransformer.extras.report.merging import merge_words
from minitransformer.extras.report.page import attention_page, page_data
from minitransformer.extras.report.run_page import run_page
from minitransformer.extras.report.run_record import read_runs
from minitransformer.extras.report.self_contained import embedded_json


class Structure(HTMLParser):
    """The elements of a page with their attributes and texts, as a browser's parser splits them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.is_open = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")
        self.is_open = True

    def handle_endtag(self, tag: str) -> None:
        self.is_open = False

    def handle_data(self, data: str) -> None:
        if self.is_open:
            self.texts[-1] += data

    def of(self, tag: str) -> list[str]:
        return [text for (name, _), text in zip(self.elements, self.texts, strict=True) if name == tag]

    def tags(self) -> list[str]:
        return [name for name, _ in self.elements]


PAGE = attention_page(ODD_PAIR)
STRUCTURE = Structure(PAGE)


def test_words_add_no_element_and_no_script() -> None:
    assert STRUCTURE.tags() == Structure(attention_page(pair_of(["a", "b"], ["c"]))).tags()
    assert STRUCTURE.tags().count("script") == 2
    assert STRUCTURE.of("title") == [f"Attention: {ODD_PAIR.sentence}"]


def test_the_data_are_the_words_and_the_weights() -> None:
    data = json.loads(STRUCTURE.of("script")[0])
    assert data == page_data(ODD_PAIR)
    assert data["words"] is None  # no word has two pieces
    assert_holds(data["pieces"], ODD_PAIR)


def test_the_words_of_several_pieces_are_there_merged_and_unmerged() -> None:
    pair = pair_of(["the", "hous", "·es"], ["die", "Häuser"])
    data = page_data(pair)
    assert_holds(data["pieces"], pair)
    assert_holds(data["words"], merge_words(pair))
    assert data["words"]["encoder"]["keys"] == ["the", "houses", "<EOS>"]
    kinds = page_data(pair_of(["a"], ["b"], n_layers=3, n_decoder_layers=1))["pieces"]
    assert {name: kind["layers"] for name, kind in kinds.items()} == {"encoder": 3, "decoder": 1, "encoder-decoder": 1}


def assert_holds(kinds: dict[str, Any], pair: AttendedPair) -> None:
    """Check that the data of a page's kinds are the words and the weights of a pair."""
    for kind in ("encoder", "decoder", "encoder-decoder"):
        queries, keys, weights = pair.of_kind(kind)  # type: ignore[arg-type]
        assert (kinds[kind]["queries"], kinds[kind]["keys"]) == (queries, keys)
        steps = np.frombuffer(base64.b64decode(kinds[kind]["weights"]), "<u2")
        np.testing.assert_allclose(steps.reshape(weights.shape) / 65_535, weights, atol=0.5 / 65_535)


def test_embedded_json_has_nothing_that_a_parser_of_html_or_script_could_stop_at() -> None:
    text = embedded_json(["</script><!--", "\u2028\u2029&", "ü🙂\ud800"])
    assert re.fullmatch(r"[\x20-\x7e]*", text)
    assert not set("<>&") & set(text)
    assert json.loads(text) == ["</script><!--", "\u2028\u2029&", "ü🙂\ud800"]


def test_the_policy_allows_this_script_and_this_style_and_nothing_else() -> None:
    policies = [attributes["content"] for _, attributes in STRUCTURE.elements if "http-equiv" in attributes]
    script, style = STRUCTURE.of("script")[1], STRUCTURE.of("style")[0]
    hashes = ["sha256-" + base64.b64encode(hashlib.sha256(x.encode()).digest()).decode() for x in (script, style)]
    assert policies == [
        f"default-src 'none'; script-src '{hashes[0]}'; style-src '{hashes[1]}'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    ]


def assert_loads_nothing(page: str) -> None:
    """Check that a page loads nothing, that no attribute is code, and that words are text."""
    structure = Structure(page)
    attributes = [pair for _, pairs in structure.elements for pair in pairs.items()]
    assert not {name for name, _ in attributes if name == "style" or name.startswith("on")}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", page)
    loading = ("src", "href", "srcset", "action", "data", "poster")
    assert [value for name, value in attributes if name in loading] == ["data:,"]
    code = (structure.of("style")[0] + structure.of("script")[1]).replace("http://www.w3.org/2000/svg", "")  # a name
    assert not re.search(r"https?:|@import|url\(|//[a-z]", code)


@pytest.mark.parametrize("kind", ["attention", "runs"])
def test_nothing_is_loaded_from_anywhere_no_attribute_is_code_and_words_are_text(kind: str, tmp_path: Path) -> None:
    page = PAGE if kind == "attention" else run_page(read_runs([write_logged_run(tmp_path / "run")]))
    assert_loads_nothing(page)


GOOD = ["eins zwei", "drei", ODD, "fünf sechs"]
BAD = ["zwei eins", "vier", "sieben acht", "fünf fünf fünf"]


def data_of(*runs: Path) -> dict[str, Any]:
    return dict(json.loads(Structure(run_page(read_runs(runs))).of("script")[0]))


def panel_of(data: dict[str, Any], title: str) -> dict[str, Any]:
    (found,) = (panel for panel in data["panels"] if panel["title"] == title)
    return dict(found)


def fact_of(data: dict[str, Any], name: str) -> list[str]:
    (found,) = (row["values"] for rows in data["facts"].values() for row in rows if row["name"] == name)
    return list(found)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_logged_run(tmp_path / "mine")


def test_curves_are_the_figures_of_the_log(run: Path) -> None:
    data = data_of(run)
    loss = panel_of(data, "Loss")
    assert loss["names"] == ["training", "validation"]
    training = {"steps": [10, 20, 30, 40], "seconds": [2.5, 5, 7.5, 10], "values": [1.0, 0.5, 0.333333, 0.25]}
    assert loss["curves"] == [[training, {"steps": [20, 40], "seconds": [5, 10], "values": [0.4, 0.2]}]]
    expected = {
        "Perplexity": [3.25, 3.25],
        "BLEU": [20.5, 40.5],
        "Learning rate": [0.01, 0.02, 0.03, 0.04],
        "Norm of the gradient": [2.42857, 3.85714, 5.28571, 6.71429],
        "Speed": [4010, 4020, 4030, 4040],
        "Peak memory": [0.5, 0.5, 0.5, 0.5],
    }
    assert {panel["title"]: panel["curves"][0][0]["values"] for panel in data["panels"][1:]} == expected


def test_a_validation_has_a_training_time_between_log_lines_and_a_long_run_is_thinned(tmp_path: Path) -> None:
    run = write_logged_run(tmp_path / "run", [training_line(10), training_line(20), validation_line(15)])
    assert panel_of(data_of(run), "BLEU")["curves"][0][0]["seconds"] == [3.75]
    n = 2 * MOST_POINTS + 3
    run = write_logged_run(tmp_path / "long", [training_line(step) for step in range(1, n + 1)])
    steps = panel_of(data_of(run), "Speed")["curves"][0][0]["steps"]
    assert MOST_POINTS / 2 < len(steps) <= MOST_POINTS + 1
    assert (steps[0], steps[-1]) == (1, n)


def test_an_unfinished_run_shows_how_far_it_is(run: Path) -> None:
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LOG[:2]))
    data = data_of(run)
    state = "update 20 of 40: still training, or interrupted"
    assert data["runs"] == [{"name": "mine", "state": state, "colour": head_colours(1)[0]}]
    assert {row["name"] for row in data["facts"]["Result"]} == {"last line", "last training loss"}
    assert fact_of(data, "training time") == ["0 min 05 s"]
    assert data["samples"] == data["paired"] == data["facts"]["Data"] == []


def test_the_figures_of_a_finished_run(run: Path) -> None:
    data = data_of(finish(run, GOOD))
    assert data["runs"][0]["state"] == "finished after 40 updates: BLEU 62.25"
    expected = {
        "final score, validation": f"BLEU 62.25\n{SIGNATURE}", "best score in training (greedy)":
        f"BLEU 40.50, update 40\n{SIGNATURE}", "best validation loss": "0.2000, update 40", "last training loss":
        "0.2500", "peak memory": "0.50 GB", "FLOPs of matrix products": "4e+13", "FLOPs as the paper estimates":
        "5e+13", "parameters": "1,234", "training pairs": "5,678", "dropped pairs": "too long 7", "code": "0123456789",
        "speed": "4,025 target tokens per second (median)", "last line": "2023-11-14 22:14:00 UTC", "epoch": "2",
    }  # fmt: skip
    assert {name: fact_of(data, name) for name in expected} == {name: [value] for name, value in expected.items()}
    goes_on = data_of(finish(run, GOOD, updates=20))
    assert goes_on["runs"][0]["state"].startswith("update 40 of 40")
    assert fact_of(goes_on, "final score, validation")[0].startswith("BLEU 62.25, after 20 updates\n")


def test_translations_are_the_final_ones_and_those_of_every_validation(run: Path) -> None:
    first, second, third, _ = data_of(finish(run, GOOD))["samples"]
    assert (first["source"], first["reference"], first["final"]) == ("one two", "eins zwei", ["eins zwei"])
    assert first["history"] == [[[20, "eins eins"], [40, "eins zwei"]]]
    assert second["history"] == [[[20, "drei"], [40, "drei"]]]
    assert third == {"source": ODD, "reference": ODD, "final": [ODD], "history": [[]]}


def test_words_of_samples_names_and_settings_add_no_element(tmp_path: Path) -> None:
    odd = finish(write_logged_run(tmp_path / "<script>alert(1)", note=ODD), GOOD)
    plain = finish(write_logged_run(tmp_path / "plain", note="note"), BAD)
    page, other = (Structure(run_page(read_runs([run]))) for run in (odd, plain))
    assert page.tags() == other.tags()
    assert page.of("title") == ["Training: <script>alert(1)"]
    (sample,) = (sample for sample in json.loads(page.of("script")[0])["samples"] if sample["source"] == ODD)
    assert sample["final"] == [ODD]
    assert page.of("script")[1:] == other.of("script")[1:]


def test_several_runs_lie_side_by_side_with_what_their_settings_differ_in(tmp_path: Path) -> None:
    runs = [write_logged_run(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 2))]
    data = data_of(*runs)
    assert [run["name"] for run in data["runs"]] == ["a", "b"]
    assert len({run["colour"] for run in data["runs"]}) == 2
    assert [len(curves) for curves in panel_of(data, "Loss")["curves"]] == [2, 2]
    seed = {"name": "training.seed", "values": ["1", "2"], "differs": True}
    assert [row for row in data["settings"] if row["differs"]] == [seed]
    assert len(data["settings"]) == 3
    assert data["samples"][0]["history"] == [[[20, "eins eins"], [40, "eins zwei"]]] * 2


def test_runs_that_begin_from_other_models_differ_in_that_and_have_the_model_as_a_result(tmp_path: Path) -> None:
    runs = [write_logged_run(tmp_path / name) for name in "abc"]
    for run, model, digit, has_optimizer in ((runs[0], "runs/news", "0", False), (runs[1], "runs/web", "f", True)):
        noted = {"weights": f"{model}/model.safetensors", "sha256": digit * 64, "optimizer_updates": 0}
        record = {"init_from": model, "init_optimizer": has_optimizer, "init_extend_vocabulary": False}
        record |= json.loads((run / "run.json").read_text()) | {"pretrained": noted}
        (run / "run.json").write_text(json.dumps(record))
    data = data_of(*runs)
    assert {row["name"]: row["values"] for row in data["settings"] if row["differs"]} == {
        "init_from": ["runs/news", "runs/web", ""],
        "init_optimizer": ["false", "true", ""],
        "init_extend_vocabulary": ["false", "false", ""],
    }
    assert len(data["settings"]) == 6
    finish(runs[2], GOOD, pretrained={"weights": "runs/old/model.safetensors", "sha256": "1" * 64})
    models = {"news": "0", "web": "f", "old": "1"}
    begun = [f"runs/{name}/model.safetensors\nSHA-256 {digit * 10}…" for name, digit in models.items()]
    assert fact_of(data_of(*runs), "begun from") == begun
    assert fact_of(data_of(runs[0], write_logged_run(tmp_path / "d")), "begun from") == [begun[0], ""]


def test_runs_of_the_same_validation_set_are_compared_with_the_first_in_its_language(tmp_path: Path) -> None:
    translations = {"bad": BAD, "good": GOOD, "the same": BAD}
    runs = [finish(write_logged_run(tmp_path / name), texts) for name, texts in translations.items()]
    better, same = data_of(*runs)["paired"]
    assert (better["baseline"], better["run"], better["sentences"]) == ("bad", "good", 4)
    assert better["bleu"] == pytest.approx(100)
    assert better["baselineBleu"] < 20
    assert 0 < better["p"] < 0.05
    assert "|bs:1000|" in better["signature"]
    assert (same["run"], same["p"], same["bleu"]) == ("the same", None, better["baselineBleu"])
    settings = json.loads((runs[0] / "run.json").read_text()) | {"data": {"languages": ["en", "zh"]}}
    (runs[0] / "run.json").write_text(json.dumps(settings))
    assert "|tok:zh|" in data_of(*runs)["paired"][0]["signature"]
    path = runs[1] / "translations.jsonl"
    path.write_text(path.read_text().replace("three", "four"))
    assert data_of(*runs[:2])["paired"] == []  # another validation set


def test_what_an_earlier_version_lacks_and_numbers_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    log = [{k: v for k, v in line.items() if k not in ("peak_memory", "samples", "seconds", "time")} for line in LOG]
    run = write_logged_run(tmp_path / "old", log)
    (run / "run.json").unlink()
    data = data_of(run)
    assert "Peak memory" not in [panel["title"] for panel in data["panels"]]
    assert panel_of(data, "Loss")["curves"][0][0]["seconds"] is None
    assert data["runs"][0]["state"] == "update 40: still training, or interrupted"
    assert data["samples"] == data["settings"] == []
    log = [training_line(10), training_line(20, loss=float("nan"), gradient_norm=float("inf")), training_line(30)]
    data = data_of(write_logged_run(tmp_path / "run", [*log, validation_line(30, perplexity=float("inf"))]))
    for title in ("Loss", "Norm of the gradient"):
        assert panel_of(data, title)["curves"][0][0]["steps"] == [10, 30]
    assert "Perplexity" not in [panel["title"] for panel in data["panels"]]


def test_the_score_of_a_parser_is_f1(tmp_path: Path) -> None:
    lines = [validation_line(step, f1=step * 1.5) for step in (20, 40)]
    lines = [{key: value for key, value in line.items() if key != "bleu"} for line in lines]
    data = data_of(write_logged_run(tmp_path / "parser", [training_line(20), *lines]))
    assert panel_of(data, "F1 of brackets")["curves"][0][0]["values"] == [30, 60]
    assert fact_of(data, "best score in training (greedy)")[0].startswith("F1 60.00, update 40\n")


def test_a_line_that_is_being_written_is_left_out_and_corrupt_ones_are_counted(run: Path, logged: list[str]) -> None:
    path = run / "metrics.jsonl"
    path.write_text(path.read_text() + '{"kind": "training", "st')
    assert panel_of(data_of(run), "Speed")["curves"][0][0]["steps"] == [10, 20, 30, 40]
    assert logged == []
    path.write_text("nonsense\n[1]\n" + path.read_text())
    assert panel_of(data_of(run), "Speed")["curves"][0][0]["steps"] == [10, 20, 30, 40]
    assert logged == [f"warning: {path}: 2 lines are corrupt and left out"]


def test_runs_are_named_by_as_few_folders_as_tell_them_apart(tmp_path: Path) -> None:
    runs = [write_logged_run(tmp_path / name) for name in ("a/run", "b/run", "b/other")]
    assert [run.name for run in read_runs(runs)] == ["a/run", "b/run", "b/other"]
    assert [run.name for run in read_runs(runs[1:])] == ["run", "other"]


def test_directories_that_are_no_run_have_an_error_with_the_remedy(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "absent"):
        with pytest.raises(ReportError, match=rf"{name}: holds no training run \(neither run.json nor metrics.jsonl\)"):
            read_runs([tmp_path / name])
    with pytest.raises(ReportError, match="mine: is named twice"):
        read_runs([run, run.parent / "." / "mine"])
    (run / "metrics.jsonl").write_text("")
    with pytest.raises(ReportError, match=r"mine: has logged nothing yet; .* training\.log_every updates"):
        read_runs([run])
