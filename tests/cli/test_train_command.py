"""Training from end to end: what the command says, what a run holds, and how it goes on."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_run import Trained, contents, output_of, plain, translated

from cli.command import run_command
from cli.prepare import prepare_data
from cli.train import train
from minitransformer import Transformer
from minitransformer.config import ConfigError
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.beam import SearchConfig
from minitransformer.inference.bleu import bleu
from minitransformer.inference.translator import Translator
from minitransformer.system.files import CheckpointError, CorruptFileError
from minitransformer.training.run import run_lock
from parallel.communicator import SerialCommunicator


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_training_says_what_it_does(trained: Trained) -> None:
    for line in ("reading the text", "training a bpe tokenizer of 40 pieces", "200 training pairs (dropped: none)"):
        assert line in trained.log
    assert re.search(r"[\d,]+ parameters, 200 training pairs; processes 1, threads each \d+", trained.log)
    assert f"done: translate with minitransformer-translate --run {trained.run}" in trained.log


def test_the_command_shown_at_the_end_is_one_for_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.train.train_run", lambda *_, **__: SimpleNamespace(is_complete=True))
    train(["--run", str(tmp_path / "x$(y)")])
    assert f"minitransformer-translate --run '{tmp_path}/x$(y)'\n" in capsys.readouterr().err


def test_the_log_of_a_file_has_plain_lines(trained: Trained) -> None:
    steps = re.findall(
        r"^\d\d:\d\d:\d\d step (\d+) of 60, epoch \d+: loss [\d.]+, [\d,]+ tokens/s, learning rate [\d.e-]+,"
        r" \d+ s left$",
        trained.log,
        re.M,
    )
    assert steps == ["10", "20", "30", "40", "50", "60"]
    assert re.findall(r"^\d\d:\d\d:\d\d step (\d+): validation loss [\d.]+, perplexity", trained.log, re.M) == [
        "30",
        "60",
    ]
    assert "\x1b" not in trained.log
    assert "━" not in trained.log


def test_the_run_holds_all_that_is_needed_later(trained: Trained) -> None:
    assert names_in(trained.run) == [
        "best",
        "checkpoints",
        "checksums.json",
        "data",
        "metrics.jsonl",
        "model.json",
        "model.safetensors",
        "report.html",
        "results.json",
        "run.json",
        "tokenizer.checksums.json",
        "tokenizer.model",
        "translations.jsonl",
    ]
    assert names_in(trained.run / "checkpoints") == ["step-00000020", "step-00000040", "step-00000060"]


def test_metrics_are_json_lines_with_their_fields(trained: Trained) -> None:
    lines = (trained.run / "metrics.jsonl").read_text().splitlines()
    of_kind: dict[str, list[dict[str, Any]]] = {"training": [], "validation": []}
    for record in map(json.loads, lines):
        of_kind[record["kind"]].append(record)
    assert [record["step"] for record in of_kind["training"]] == [10, 20, 30, 40, 50, 60]
    assert [record["step"] for record in of_kind["validation"]] == [30, 60]
    assert of_kind["training"][0].keys() == {
        "kind",
        "time",
        "peak_memory",
        "step",
        "epoch",
        "loss",
        "learning_rate",
        "gradient_norm",
        "target_tokens_per_second",
        "seconds",
        "flops",
    }
    assert of_kind["validation"][0].keys() == {
        "kind",
        "time",
        "peak_memory",
        "step",
        "loss",
        "perplexity",
        "bleu",
        "signature",
        "best",
        "seconds",
        "samples",
    }
    assert of_kind["training"][-1]["loss"] < of_kind["training"][0]["loss"]


def test_results_have_signature_code_and_configuration(trained: Trained) -> None:
    results = json.loads((trained.run / "results.json").read_text())
    assert results.keys() == {
        "code",
        "configuration",
        "updates",
        "training_seconds",
        "parameters",
        "validation",
        "evaluation_seconds",
        "flops",
        "flops_by_time",
        "device_seconds",
        "device_flops_per_second",
        "weights",
        "data",
    }
    assert results["data"] == {
        "train_pairs": 200,
        "validation_pairs": 20,
        "dropped": {},
        "source_words": 40,
        "target_words": 40,
    }
    assert results["updates"] == 60
    assert results["flops_by_time"] == results["device_seconds"] * results["device_flops_per_second"]
    assert "tok:13a" in results["validation"]["signature"]
    assert re.fullmatch(r"[0-9a-f]{10}", results["configuration"])
    assert results["code"]
    for noted in ("code", "configuration"):
        assert results[noted] in trained.log
    assert results["validation"]["signature"] in trained.log


def test_the_translations_behind_the_scores_are_kept(trained: Trained) -> None:
    """Of the last model every one; of each validation the first five, which are greedy ones."""
    lines = [json.loads(line) for line in (trained.run / "translations.jsonl").read_text().splitlines()]
    text = [tuple(pair) for pair in json.loads((trained.run / "data" / "validation.json").read_text())]
    assert [(line["split"], line["source"], line["reference"]) for line in lines] == [("validation", *t) for t in text]
    again = bleu([line["translation"] for line in lines], [[line["reference"] for line in lines]])
    assert again.value == json.loads((trained.run / "results.json").read_text())["validation"]["bleu"]
    records = map(json.loads, (trained.run / "metrics.jsonl").read_text().splitlines())
    *_, last = (record for record in records if record["kind"] == "validation")
    best = Translator(Transformer.load(trained.run / "best"), Tokenizer.load(trained.run))
    found = best.n_best([source for source, _ in text], SearchConfig(beam=1, max_extra_tokens=25))
    assert last["best"]
    assert [list(sample.values()) for sample in last["samples"]] == [
        [*pair, translation.text] for pair, (translation,) in zip(text[:5], found, strict=False)
    ]


def test_a_finished_run_says_so_and_changes_nothing(trained: Trained) -> None:
    before = contents(trained.run)
    output = output_of(lambda: train(trained.arguments))
    assert "finished after 60 updates; nothing is left to do (to go on, raise training.max_updates)" in plain(output)
    assert contents(trained.run) == before


def test_patience_may_change_within_a_run(trained: Trained, tmp_path: Path) -> None:
    shutil.copytree(trained.run, tmp_path / "run")
    arguments = ["--run", str(tmp_path / "run"), *trained.arguments[2:], "--training.patience", "5"]
    assert "finished after 60 updates" in plain(output_of(lambda: train(arguments)))


def test_another_normalisation_of_the_same_run_is_refused_by_the_field(trained: Trained) -> None:
    with pytest.raises(ConfigError, match="holds another run: model.normalisation is 'gnmt' there, 'length' here"):
        train([*trained.arguments, "--model.normalisation", "length"])


def test_settings_of_which_one_is_missing_are_no_settings_of_a_run(trained: Trained, tmp_path: Path) -> None:
    shutil.copytree(trained.run, tmp_path / "run")
    of_run = json.loads((tmp_path / "run" / "run.json").read_text())
    del of_run["model"]["normalisation"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(of_run))
    with pytest.raises(CorruptFileError, match=r"run\.json: does not hold the settings of a run; remove it"):
        train([*trained.arguments, "--run", str(tmp_path / "run")])


def test_another_seed_in_the_same_run_is_refused_by_the_field(trained: Trained) -> None:
    before = contents(trained.run)
    with pytest.raises(ConfigError, match="holds another run: training.seed is 1 there, 2 here. To go on with"):
        train([*trained.arguments, "--training.seed", "2"])
    assert contents(trained.run) == before


def test_more_updates_go_on_from_where_the_run_ended(trained: Trained, tmp_path: Path) -> None:
    for path, content in contents(trained.run).items():
        (tmp_path / "copy" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / path).write_bytes(content)
    arguments = [*trained.arguments, "--run", str(tmp_path / "copy"), "--training.max-updates", "70"]
    output = output_of(lambda: train(arguments))
    assert "going on from update 60 of 70" in output
    assert json.loads((tmp_path / "copy" / "results.json").read_text())["updates"] == 70


def in_bfloat16(trained: Trained, run: Path) -> list[str]:
    return [
        *trained.arguments,
        "--run",
        str(run),
        "--data.directory",
        str(trained.run / "data"),
        "--training.precision",
        "bfloat16",
        "--training.max-updates",
        "30",
    ]


def test_a_run_in_bfloat16_learns_and_is_translated_with_in_float32(trained: Trained, tmp_path: Path) -> None:
    log = output_of(lambda: train(in_bfloat16(trained, tmp_path / "run")))
    losses = [float(loss) for loss in re.findall(r" step \d+ of \d+, epoch \d+: loss ([\d.]+)", log, re.M)]
    of_float32 = [float(loss) for loss in re.findall(r" step \d+ of \d+, epoch \d+: loss ([\d.]+)", trained.log, re.M)]
    assert losses != of_float32[:3]
    assert losses == pytest.approx(of_float32[:3], rel=0.02)
    result = json.loads((tmp_path / "run" / "results.json").read_text())
    assert result["updates"] == 30
    assert translated(Trained(tmp_path / "run", [], ""), b"one two\n").endswith(b"\n")


def test_bfloat16_without_ml_dtypes_is_refused_with_the_remedy(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    output = output_of(lambda: run_command(lambda: train(in_bfloat16(trained, tmp_path / "run"))), 1)
    assert re.search(
        r'^error: device: precision "bfloat16" needs ml_dtypes, .* or use precision "float32"$', output, re.M
    )


def test_prepared_data_is_what_training_would_have_made(trained: Trained, tmp_path: Path) -> None:
    words = [word for word in trained.arguments if not word.startswith("--model")]
    first = words.index("--data.raw")
    data = words[first : words.index("--training.max-updates")]
    data = [word for word in data if not re.fullmatch(r"\d+", word) or word == "40"]
    output = output_of(lambda: prepare_data(["--run", str(tmp_path), *data]))
    assert "200 training pairs (dropped: none), 20 validation pairs" in output
    assert contents(tmp_path / "data") == contents(trained.run / "data")


def test_the_prepared_data_of_a_run_that_has_begun_is_not_replaced(trained: Trained) -> None:
    before = contents(trained.run)
    with pytest.raises(ConfigError, match="its training has begun, so its text is not prepared again; for other text"):
        prepare_data(["--run", str(trained.run), "--data.train-source", "other.en", "--data.train-target", "other.de"])
    assert contents(trained.run) == before


def test_a_run_that_another_process_trains_is_left_to_it(trained: Trained) -> None:
    with run_lock(trained.run, SerialCommunicator()):
        before = contents(trained.run)
        with pytest.raises(CheckpointError, match="another process is training there"):
            train(trained.arguments)
        assert contents(trained.run) == before
