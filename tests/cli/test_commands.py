"""The commands from end to end: a very small model is trained once, then every command is tried on it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from rich.console import Console

from cli.average import AverageOptions, average
from cli.command import run_command
from cli.prepare import PrepareOptions, prepare_data
from cli.score import BleuOptions, PairsOptions, score
from cli.train import train
from cli.translate import TranslateOptions, translate
from minitransformer.config import ConfigError
from minitransformer.data.corpus import CorpusError
from minitransformer.files import CheckpointError
from minitransformer.run import RunConfig
from minitransformer.training.monitor import ConsoleMonitor, TrainingReport, ValidationReport

ROOT = Path(__file__).parents[2]
NUMBERS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs"}
SMALL_MODEL = """--data.train-source train.en --data.train-target train.de --data.vocabulary-size 40
    --data.validation-source valid.en --data.validation-target valid.de
    --model.n-layers 1 --model.d-model 32 --model.d-ff 64 --model.n-heads 2 --model.d-k 16 --model.d-v 16
    --training.max-updates 60 --training.batch-tokens 300 --training.n-shards 2 --training.warmup-steps 30
    --training.log-every 10 --training.validate-every 30 --training.checkpoint-every 20
    --training.keep-checkpoints 3 --training.average-checkpoints 2"""
TRAINING_REPORT = TrainingReport(5, 0, 1.5, 1e-3, 0.25, 4_000.0, 2.0)
VALIDATION_REPORT = ValidationReport(5, 1.25, 3.49, 17.5, "signature", True, 0.5)


@dataclass(frozen=True)
class Trained:
    """A finished run, the words that made it, and what it said."""

    run: Path
    arguments: list[str]
    log: str


def write_parallel_text(folder: Path, name: str, n: int, seed: int) -> None:
    words = random.Random(seed)
    lines = [words.choices(list(NUMBERS), k=words.randint(1, 5)) for _ in range(n)]
    for language, translated in (("en", lines), ("de", [[NUMBERS[word] for word in line] for line in lines])):
        text = "".join(f"{' '.join(line)}\n" for line in translated)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


def said_while(command: Callable[[], int], status: int = 0) -> str:
    """What a command writes on stderr; it must return this status."""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        assert command() == status
    return said.getvalue()


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("commands")
    write_parallel_text(folder, "train", 200, seed=1)
    write_parallel_text(folder, "valid", 20, seed=2)
    arguments = ["--run", str(folder / "run"), "--data.raw", str(folder), *SMALL_MODEL.split()]
    return Trained(folder / "run", arguments, said_while(lambda: train(arguments)))


def translated(trained: Trained, source: bytes, *options: str) -> bytes:
    target = io.BytesIO()
    assert translate(["--run", str(trained.run), "--beam", "2", *options], io.BytesIO(source), target) == 0
    return target.getvalue()


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def plain(text: str) -> str:
    """Text without boxes, in one line."""
    return " ".join(re.sub(r"[╭╮╰╯─│]", " ", text).split())


def as_command(module: str, words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """What the installed command does: its main function, with these words on its command line."""
    monkeypatch.setattr(sys, "argv", [module, *words])
    status = import_module(f"cli.{module}").main()
    assert isinstance(status, int)
    return status


def process(module: str, *words: str) -> subprocess.Popen[bytes]:
    """The command as a process, which translates line by line."""
    code = f"import sys, cli.translate, cli.{module}; cli.translate.LINES_AT_ONCE = 1; sys.exit(cli.{module}.main())"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    command = [sys.executable, "-W", "error", "-c", code, *words]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)


# Training


def test_training_says_what_it_does(trained: Trained) -> None:
    for line in ("reading the text", "training a bpe tokenizer of 40 pieces", "200 training pairs (dropped: none)"):
        assert line in trained.log
    assert re.search(r"[\d,]+ parameters, 200 training pairs; processes 1, threads each \d+", trained.log)
    assert f"done: translate with minitransformer-translate --run {trained.run}" in trained.log


def test_the_log_of_a_file_has_plain_lines(trained: Trained) -> None:
    steps = re.findall(
        r"^step (\d+), epoch \d+: loss [\d.]+, [\d,]+ tokens/s, learning rate [\d.e-]+$", trained.log, re.M
    )
    assert steps == ["10", "20", "30", "40", "50", "60"]
    assert re.findall(r"^step (\d+): validation loss [\d.]+, perplexity", trained.log, re.M) == ["30", "60"]
    assert "\x1b" not in trained.log
    assert "━" not in trained.log


def test_the_run_holds_all_that_is_needed_later(trained: Trained) -> None:
    assert names_in(trained.run) == [
        "best", "checkpoints", "data", "metrics.jsonl", "model.json", "model.safetensors", "results.json", "run.json",
        "tokenizer.model",
    ]  # fmt: skip
    assert names_in(trained.run / "checkpoints") == ["step-00000020", "step-00000040", "step-00000060"]


def test_metrics_are_json_lines_with_their_fields(trained: Trained) -> None:
    lines = (trained.run / "metrics.jsonl").read_text().splitlines()
    of_kind: dict[str, list[dict[str, Any]]] = {"training": [], "validation": []}
    for record in map(json.loads, lines):
        of_kind[record["kind"]].append(record)
    assert [record["step"] for record in of_kind["training"]] == [10, 20, 30, 40, 50, 60]
    assert [record["step"] for record in of_kind["validation"]] == [30, 60]
    assert of_kind["training"][0].keys() == {
        "kind", "time", "step", "epoch", "loss", "learning_rate", "gradient_norm", "target_tokens_per_second",
        "seconds",
    }  # fmt: skip
    assert of_kind["validation"][0].keys() == {
        "kind", "time", "step", "loss", "perplexity", "bleu", "signature", "best", "seconds",
    }  # fmt: skip
    assert of_kind["training"][-1]["loss"] < of_kind["training"][0]["loss"]


def test_results_have_signature_code_and_configuration(trained: Trained) -> None:
    results = json.loads((trained.run / "results.json").read_text())
    assert results.keys() == {
        "code", "configuration", "updates", "training_seconds", "parameters", "validation", "evaluation_seconds",
    }  # fmt: skip
    assert results["updates"] == 60
    assert "tok:13a" in results["validation"]["signature"]
    assert re.fullmatch(r"[0-9a-f]{10}", results["configuration"])
    assert results["code"]
    for noted in ("code", "configuration"):
        assert results[noted] in trained.log
    assert results["validation"]["signature"] in trained.log


def test_a_finished_run_says_so_and_changes_nothing(trained: Trained) -> None:
    before = contents(trained.run)
    said = said_while(lambda: train(trained.arguments))
    assert "finished after 60 updates; nothing is left to do" in plain(said)
    assert contents(trained.run) == before


def test_another_seed_in_the_same_run_is_refused_by_the_field(trained: Trained) -> None:
    before = contents(trained.run)
    with pytest.raises(ConfigError, match="holds another run: training.seed is 1 there, 2 here. Choose another --run"):
        train([*trained.arguments, "--training.seed", "2"])
    assert contents(trained.run) == before


def test_more_updates_go_on_from_where_the_run_ended(trained: Trained, tmp_path: Path) -> None:
    for path, content in contents(trained.run).items():
        (tmp_path / "copy" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / path).write_bytes(content)
    arguments = [*trained.arguments, "--run", str(tmp_path / "copy"), "--training.max-updates", "70"]
    said = said_while(lambda: train(arguments))
    assert "going on from update 60 of 70" in said
    assert json.loads((tmp_path / "copy" / "results.json").read_text())["updates"] == 70


def test_prepared_data_is_what_training_would_have_made(trained: Trained, tmp_path: Path) -> None:
    words = [word for word in trained.arguments if not word.startswith("--model")]
    first = words.index("--data.raw")
    data = words[first : words.index("--training.max-updates")]
    data = [word for word in data if not re.fullmatch(r"\d+", word) or word == "40"]
    said = said_while(lambda: prepare_data(["--run", str(tmp_path), *data]))
    assert "200 training pairs (dropped: none), 20 validation pairs" in said
    assert contents(tmp_path / "data") == contents(trained.run / "data")


# Translating: one line out for each line in


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"one two\n",
        b"one two",
        b"\n",
        b"\n\none\n\n",
        b"one\r\ntwo\r\n\r\n",
        b"one \x0b two\x0cthree\x1cfour\n\x85\n",
        "one\u2028two\u2029three\x85four\n".encode(),
        b"\x00\x01\x02\x1b[31m\x7f\n\t\n",
        "🙂 one 👩‍👩‍👧 two\n漢字\n".encode(),
        b"one\rtwo\n",
        b"one \xff\xfe two\nthree\n",
        b" \n  one  \n",
    ],
    ids=repr,
)
def test_every_line_in_is_one_line_out(trained: Trained, source: bytes) -> None:
    n_lines = source.count(b"\n") + (not source.endswith(b"\n") and source != b"")
    target = translated(trained, source)
    assert target.count(b"\n") == n_lines
    assert target.endswith(b"\n") or n_lines == 0
    assert len(target.decode("utf-8").splitlines()) == n_lines


def test_line_ends_within_a_translation_do_not_end_its_line(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = "eins\nzwei\r\ndrei\u2028vier\x85fünf\x0bsechs\x1dacht"
    monkeypatch.setattr("minitransformer.data.tokenizer.Tokenizer.decode_target", lambda self, ids: [odd] * len(ids))
    assert translated(trained, b"one\n").decode() == "eins zwei drei vier fünf sechs acht\n"


def test_very_long_lines_are_cut_with_a_warning_and_one_line_each(
    trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    source = b"two " * 3_000 + b"\n" + b"x" * 20_000 + b"\none\n"
    target = translated(trained, source, "--beam", "1")
    assert [line[:15] for line in capsys.readouterr().err.splitlines()] == ["warning: line 1", "warning: line 2"]
    assert target.count(b"\n") == 3
    assert target.split(b"\n")[2] + b"\n" == translated(trained, b"one\n", "--beam", "1")


def test_empty_lines_stay_empty_and_do_not_shift_the_others(trained: Trained) -> None:
    alone = translated(trained, b"one two\nsix\n").splitlines()
    assert translated(trained, b"\none two\n \n\nsix\n").split(b"\n") == [b"", alone[0], b"", b"", alone[1], b""]


@pytest.mark.parametrize("source", [b"one two\r\nsix\r\n", b"one two\nsix", b"  one two \n\tsix\n"])
def test_line_ends_and_blanks_around_a_line_change_nothing(trained: Trained, source: bytes) -> None:
    assert translated(trained, source) == translated(trained, b"one two\nsix\n")


def test_invalid_utf8_is_translated_with_a_warning_that_names_the_line(
    trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    assert translated(trained, b"one\ntwo \xff\nsix\n").count(b"\n") == 3
    said = capsys.readouterr().err
    assert said == "warning: line 2 is not UTF-8 (invalid start byte); read with replacements\n"


def test_chunks_do_not_change_translations(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    source = b"one two\nsix five four\n\nthree\n"
    whole = translated(trained, source)
    monkeypatch.setattr("cli.translate.LINES_AT_ONCE", 1)
    assert translated(trained, source) == whole


def test_n_best_numbers_the_lines_and_orders_by_score(trained: Trained) -> None:
    target = translated(trained, b"one two\n\nsix\n", "--beam", "4", "--n-best", "3").decode()
    rows = [line.split("\t") for line in target.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "3", "3", "3"]
    assert all(len(row) == 4 for row in rows)
    for number in ("1", "3"):
        scores = [float(row[1]) for row in rows if row[0] == number]
        assert scores == sorted(scores, reverse=True)
        assert all(float(row[2]) <= float(row[1]) < 0 for row in rows if row[0] == number)
    assert rows[3] == ["2", "0.0000", "0.0000", ""]


def test_scores_are_divided_by_the_penalty_that_is_asked_for(trained: Trained) -> None:
    options = ["--n-best", "1", "--alpha", "2", "--normalisation"]
    by_length, by_gnmt = (
        translated(trained, b"one two\n", *options, name).decode().split("\t") for name in ("length", "gnmt")
    )
    assert by_length[1] != by_gnmt[1]
    score, log_p = float(by_length[1]), float(by_length[2])
    assert min(abs(score - log_p / length**2) for length in range(1, 60)) < 1.1e-4  # four decimals are printed
    assert min(abs(float(by_gnmt[1]) - log_p / ((5 + n) / 6) ** 2) for n in range(1, 60)) < 1.1e-4


def test_the_first_of_the_n_best_is_the_translation(trained: Trained) -> None:
    best = translated(trained, b"one two\nsix\n", "--beam", "4").decode().splitlines()
    ranked = translated(trained, b"one two\nsix\n", "--beam", "4", "--n-best", "2").decode().splitlines()
    assert [line.split("\t")[3] for line in ranked[::2]] == best


@pytest.mark.parametrize(
    "options",
    [["--beam", "2", "--n-best", "3"], ["--beam", "0"], ["--n-best", "0"], ["--alpha", "-1"], ["--threads", "-1"]],
    ids=" ".join,
)
def test_a_search_that_makes_no_sense_is_refused_in_one_line(
    trained: Trained, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))
    assert as_command("translate", ["--run", str(trained.run), *options], monkeypatch) == 1
    assert re.fullmatch(r"error: [^\n]+\n", capsys.readouterr().err)


# Scoring


def test_bleu_and_chrf_of_perfect_translations_are_100(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hypothesis = written(tmp_path / "hypothesis", "eins zwei drei vier fünf\nsechs drei zwei eins eins\n")
    assert score(["bleu", hypothesis, hypothesis]) == 0
    out, error = capsys.readouterr()
    bleu, chrf = out.splitlines()
    assert bleu.startswith("BLEU = 100.00 100.0/100.0/100.0/100.0 (BP = 1.000 ratio = 1.000 hyp_len = 10 ref_len = 10)")
    assert re.search(r"\[nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:[\d.]+\]$", bleu)
    assert chrf.startswith("chrF2 = 100.00")
    assert re.fullmatch(r"code \S+\n", error)


def test_a_translation_may_match_any_of_several_references(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hypothesis = written(tmp_path / "hypothesis", "eins zwei drei vier\nsechs drei zwei eins\n")
    one = written(tmp_path / "one", "eins zwei drei vier\nganz etwas anderes hier\n")
    two = written(tmp_path / "two", "ganz etwas anderes hier\nsechs drei zwei eins\n")
    score(["bleu", hypothesis, one, two])
    assert capsys.readouterr().out.startswith("BLEU = 100.00")
    score(["bleu", hypothesis, one])
    assert not capsys.readouterr().out.startswith("BLEU = 100.00")


def test_case_matters_unless_said_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hypothesis, reference = (
        written(tmp_path / "h", "EINS zwei drei vier\n"),
        written(tmp_path / "r", "eins ZWEI drei VIER\n"),
    )
    score(["bleu", hypothesis, reference, "--lowercase"])
    assert capsys.readouterr().out.startswith("BLEU = 100.00")
    score(["bleu", hypothesis, reference])
    assert not capsys.readouterr().out.startswith("BLEU = 100.00")


def test_only_line_feeds_separate_translations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hypothesis = written(tmp_path / "h", "eins\u2028zwei drei vier fünf\n")
    assert score(["bleu", hypothesis, hypothesis]) == 0


@pytest.mark.parametrize(("n_hypotheses", "n_references", "shorter"), [(3, 2, "second"), (2, 3, "hypothesis")])
def test_unequal_numbers_of_lines_name_the_shorter_file(
    tmp_path: Path, n_hypotheses: int, n_references: int, shorter: str
) -> None:
    hypothesis = written(tmp_path / "hypothesis", "a b\n" * n_hypotheses)
    first = written(tmp_path / "first", "a b\n" * n_hypotheses)
    second = written(tmp_path / "second", "a b\n" * n_references)
    with pytest.raises(CorpusError, match=f"{shorter}: ends after line 2"):
        score(["bleu", hypothesis, first, second])


def test_nothing_to_score_or_nothing_to_compare_with_is_refused(tmp_path: Path) -> None:
    empty, full = written(tmp_path / "empty", ""), written(tmp_path / "full", "a\n")
    with pytest.raises(CorpusError, match="empty: is empty"):
        score(["bleu", empty, empty])
    with pytest.raises(CorpusError, match="name at least one file of references"):
        score(["bleu", full])


def test_scores_of_pairs_add_up_to_that_of_the_whole(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = written(tmp_path / "source", "one two\nsix\n\nfive five five\n")
    target = written(tmp_path / "target", "eins zwei\n\neins\nfünf fünf\n")
    assert score(["pairs", source, target, "--run", str(trained.run)]) == 0
    out, error = capsys.readouterr()
    rows = [line.split("\t") for line in out.splitlines()]
    log_probability, n_tokens = sum(float(row[0]) for row in rows), sum(int(row[1]) for row in rows)
    whole = re.fullmatch(
        r"4 pairs, (\d+) target tokens: log-probability (-[\d.]+), ([\d.]+) nats per token, perplexity ([\d.]+)\n",
        error,
    )
    assert whole is not None
    assert len(rows) == 4
    assert int(rows[1][1]) == 1
    assert int(whole[1]) == n_tokens
    assert float(whole[2]) == pytest.approx(log_probability, abs=4e-4)
    assert float(whole[3]) == pytest.approx(-log_probability / n_tokens, abs=1e-4)
    assert float(whole[4]) == pytest.approx(2.718281828459045 ** float(whole[3]), rel=1e-3)


def test_the_score_of_a_pair_is_the_log_probability_that_search_gives_it(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, log_probability, text = translated(trained, b"one two\n", "--n-best", "1").decode().rstrip("\n").split("\t")
    pair = [written(tmp_path / "source", "one two\n"), written(tmp_path / "target", f"{text}\n")]
    score(["pairs", *pair, "--run", str(trained.run)])
    assert float(capsys.readouterr().out.split("\t")[0]) == pytest.approx(float(log_probability), abs=2e-3)


def test_pairs_of_files_of_unequal_lengths_are_refused(trained: Trained, tmp_path: Path) -> None:
    source, target = written(tmp_path / "source", "one\ntwo\n"), written(tmp_path / "target", "eins\n")
    with pytest.raises(CorpusError, match="target: ends after line 1"):
        score(["pairs", source, target, "--run", str(trained.run)])


def test_no_pairs_have_a_score_of_nothing(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = written(tmp_path / "empty", "")
    assert score(["pairs", empty, empty, "--run", str(trained.run)]) == 0
    assert capsys.readouterr().out == ""


# Averaging


def test_the_average_of_checkpoints_is_a_model_that_translates(trained: Trained, tmp_path: Path) -> None:
    words = ["--run", str(trained.run), "--last", "2", "--output", str(tmp_path / "mean")]
    said = said_while(lambda: average(words))
    assert said == f"averaged step-00000040, step-00000060 into {tmp_path / 'mean'}\n"
    averaged = dataclasses.replace(trained, run=tmp_path / "mean")
    assert translated(averaged, b"one\ntwo\n").count(b"\n") == 2


def test_the_average_of_the_last_is_the_last(trained: Trained, tmp_path: Path) -> None:
    said_while(lambda: average(["--run", str(trained.run), "--last", "1", "--output", str(tmp_path)]))
    last = trained.run / "checkpoints" / "step-00000060"
    assert contents(tmp_path)["model.safetensors"] == contents(last)["model.safetensors"]


@pytest.mark.parametrize("n", ["0", "4", "-1"])
def test_more_checkpoints_than_there_are_cannot_be_averaged(trained: Trained, tmp_path: Path, n: str) -> None:
    with pytest.raises(CheckpointError, match=f"has 3 checkpoints; cannot average the last {n}"):
        average(["--run", str(trained.run), "--last", n, "--output", str(tmp_path / "mean")])
    assert not (tmp_path / "mean").exists()


# Errors are one line


@pytest.mark.parametrize(
    "command", [["translate"], ["average"], ["score", "pairs", "text", "text"]], ids=lambda w: w[0]
)
def test_a_missing_run_is_one_line_with_the_remedy_and_status_1(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "text", "one\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))
    assert as_command(command[0], [*command[1:], "--run", "nowhere"], monkeypatch) == 1
    assert re.fullmatch(r"error: nowhere: [^\n]+\n", capsys.readouterr().err)


@pytest.mark.parametrize(("module", "remedy"), [("translate", "minitransformer-train"), ("prepare", "data.raw")])
def test_a_process_that_fails_writes_one_line_and_no_traceback(module: str, remedy: str, tmp_path: Path) -> None:
    words = {
        "translate": ["--run", str(tmp_path / "nowhere")],
        "prepare": ["--run", str(tmp_path), "--data.train-source", "absent.en", "--data.train-target", "absent.de"],
    }
    with process(module, *words[module]) as running:
        out, error = running.communicate(b"one\n", timeout=60)
    assert (running.returncode, out) == (1, b"")
    assert re.fullmatch(rf"(reading the text\n)?error: [^\n]*{remedy}[^\n]*\n", error.decode())


def test_expected_errors_become_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise CorpusError("text: is empty")

    assert run_command(fail) == 1
    assert capsys.readouterr().err == "error: text: is empty\n"


def test_an_interrupt_is_one_line_and_status_130(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise KeyboardInterrupt

    assert run_command(fail) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_errors_that_no_user_can_mend_keep_their_traceback() -> None:
    def fail() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_command(fail)


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (130, 130)])
def test_the_status_is_what_the_command_returns(returned: int | None, status: int) -> None:
    assert run_command(lambda: returned) == status


def test_a_reader_that_leaves_early_ends_the_command_without_a_word(trained: Trained) -> None:
    with process("translate", "--run", str(trained.run), "--beam", "1") as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdin.write(b"one\n" * 300)
        running.stdin.close()
        first = running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(timeout=60) == 141
    assert first.endswith(b"\n")


# Help


def options_of(options: Any, prefix: str = "") -> list[str]:
    """The options that the fields of a dataclass stand for."""
    hints = get_type_hints(options)
    names: list[str] = []
    for field in dataclasses.fields(options):
        inner, name = hints[field.name], f"{prefix}{field.name}"
        names += options_of(inner, f"{name}.") if dataclasses.is_dataclass(inner) else [f"--{name}".replace("_", "-")]
    return names


def help_of(command: Callable[[list[str]], int], words: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit) as caught:
        command([*words, "--help"])
    assert caught.value.code == 0
    return plain(re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue()))


COMMANDS: dict[str, tuple[Callable[[list[str]], int], list[str], Any, list[str]]] = {
    "train": (train, [], RunConfig, []),
    "prepare": (prepare_data, [], PrepareOptions, []),
    "translate": (lambda words: translate(words, io.BytesIO(), io.BytesIO()), [], TranslateOptions, []),
    "average": (average, [], AverageOptions, []),
    "score bleu": (score, ["bleu"], BleuOptions, ["--hypothesis", "--references"]),
    "score pairs": (score, ["pairs"], PairsOptions, ["--source", "--target"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_option(name: str) -> None:
    command, words, options, positional = COMMANDS[name]
    shown = help_of(command, words)
    for option in options_of(options):
        if option not in positional:
            explained = re.search(rf" {option}(?:, --\S+)? (?!--|\|)(.*?)\((?:default|required)", shown)
            assert explained, option
            assert re.search(r" [A-Za-z]{2,}", explained[1]), option


@pytest.mark.parametrize(
    ("name", "mentioned"),
    [
        ("train", ["--config FILE", "--preset NAME", "recipes/", "mpirun", "minitransformer-translate"]),
        ("prepare", ["--config FILE", "[data]"]),
        ("translate", ["one line out for each line in", "--n-best N"]),
        ("score bleu", ["BLEU and chrF", "reference translations"]),
        ("score pairs", ["Log-probability (nats)"]),
    ],
)
def test_help_tells_what_the_command_is_for(name: str, mentioned: list[str]) -> None:
    command, words, _, _ = COMMANDS[name]
    shown = help_of(command, words)
    for phrase in mentioned:
        assert phrase in shown


def test_score_without_a_kind_names_both_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        score([])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "bleu" in said
    assert "pairs" in said


# What a run shows


def monitored(folder: Path, console: Console) -> None:
    with ConsoleMonitor(folder, first_step=0, max_updates=1_000, console=console) as monitor:
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
    for _ in range(2):
        monitored(tmp_path, Console(file=io.StringIO()))
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert kinds == ["training", "validation", "training", "validation"]
