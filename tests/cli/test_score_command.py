"""Scoring from end to end: translations, pairs under a model, systems compared, and length penalties."""

import errno
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_run import Trained, contents, plain, write_parallel_text, written

from cli.score import score
from minitransformer.config import ConfigError
from minitransformer.data.survey import CorpusError
from minitransformer.extras.convert.parts import Parts, write_bundle
from minitransformer.inference.bleu import Score
from minitransformer.inference.task import Evaluation, Sample, TranslationTask
from minitransformer.inference.translator import Translator
from minitransformer.system.files import CheckpointError


def test_bleu_and_chrf_of_perfect_translations_are_100(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "eins\u2028zwei drei vier fünf\nsechs drei zwei eins eins\n"  # only line feeds separate translations
    hypothesis = written(tmp_path / "hypothesis", lines)
    assert score(["bleu", hypothesis, hypothesis]) == 0
    out, error = capsys.readouterr()
    bleu, chrf = out.splitlines()
    assert bleu.startswith("BLEU = 100.00 100.0/100.0/100.0/100.0 (BP = 1.000 ratio = 1.000 hyp_len = 10 ref_len = 10)")
    assert re.search(r"\[nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:[\d.]+\]$", bleu)
    assert chrf.startswith("chrF2 = 100.00")
    assert re.fullmatch(r"code \S+\n", error)


@pytest.mark.parametrize(
    ("kind", "piped", "lines", "perfect"),
    [
        ("bleu", "eins zwei drei vier\nsechs drei zwei eins\n", None, r"BLEU = 100\.00"),
        ("trees", "(S (NN one))\n(S (NN two))\n", None, r"Bracketing FMeasure += +100\.00"),
        ("trees", "(S (NN one))\n(S\n (NN two))\n", "(S (NN one))\n(S (NN two))\n", r"FMeasure += +100\.00"),
    ],
)
def test_each_file_is_read_once_so_that_it_may_be_a_pipe(
    kind: str, piped: str, lines: str | None, perfect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = written(tmp_path / "other", lines or piped)
    end_to_read, end_to_write = os.pipe()
    os.write(end_to_write, piped.encode())
    os.close(end_to_write)
    try:
        assert score([kind, f"/dev/fd/{end_to_read}", other]) == 0
    finally:
        os.close(end_to_read)
    assert re.search(perfect, capsys.readouterr().out)


def test_a_score_is_no_failure_because_its_provenance_cannot_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = written(tmp_path / "text", "eins zwei drei vier\n")

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    assert score(["bleu", text, text]) == 0
    assert capsys.readouterr().out.startswith("BLEU = 100.00")


def test_case_may_be_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hypothesis = written(tmp_path / "hypothesis", "EINS zwei drei vier\n")
    reference = written(tmp_path / "reference", "eins ZWEI drei VIER\n")
    score(["bleu", hypothesis, reference, "--lowercase"])
    bleu, chrf = capsys.readouterr().out.splitlines()
    assert re.match(r"BLEU = 100\.00 .*\|case:lc\|", bleu)
    assert re.match(r"chrF2 = 100\.00.*\|case:lc\|", chrf)


def test_the_audit_prints_conventions_with_what_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hypothesis = written(tmp_path / "hypothesis", "eins zwei drei vier fünf\nsechs drei zwei eins eins\n")
    assert score(["audit", hypothesis, hypothesis, "--language", "fr"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 * 6
    assert lines[0] == "100.00 ± 0.00  sacreBLEU, 13a"
    assert lines[1].startswith("    nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|")
    assert lines[2].startswith("    compare with: sacreBLEU figures")
    assert lines[15] == "100.00 ± 0.00  tokenised"
    single = written(tmp_path / "single", "eins zwei drei vier fünf\n")  # which has no interval
    assert score(["audit", single, single, "--language", "fr"]) == 0
    assert capsys.readouterr().out.startswith("100.00 ±   ?  sacreBLEU, 13a\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bleu empty empty", "^empty: is empty"),
        ("audit empty empty", "^empty: is empty"),
        ("bleu two", "name at least one file of references"),
        ("bleu three three two", "^two: ends after line 2"),
        ("bleu two two three", "^two: ends after line 2"),
        ("pairs two one --run {run}", "^one: ends after line 1"),
    ],
)
def test_nothing_to_score_and_files_of_other_lengths_are_refused(
    words: str, message: str, trained: Trained, here: Path
) -> None:
    for n, name in enumerate(("empty", "one", "two", "three")):
        written(here / name, "a b\n" * n)
    with pytest.raises(CorpusError, match=message):
        score(words.format(run=trained.run).split())


def test_scores_of_pairs_add_to_the_whole(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_no_pairs_have_a_score_of_nothing(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = [written(tmp_path / name, "") for name in ("empty.en", "empty.de")]
    assert score(["pairs", *empty, "--run", str(trained.run)]) == 0
    assert capsys.readouterr().out == ""


WORDS = ["der", "die", "das", "kleine", "Hund", "Katze", "sieht", "schläft", "rote", "Häuser", "drei", "und", ",", "."]


@pytest.fixture
def files(here: Path) -> list[str]:
    """References of 40 lines, and systems with errors in a twentieth, a tenth and a third of the words."""
    draw = random.Random(3)
    reference = [draw.choices(WORDS, k=draw.randint(4, 12)) for _ in range(40)]
    for name, share in (("A", 0.1), ("B", 0.05), ("C", 0.33), ("ref", 0.0)):
        lines = [[draw.choice(WORDS) if draw.random() < share else word for word in line] for line in reference]
        written(here / name, "".join(" ".join(line) + "\n" for line in lines))
    return ["A", "B", "C", "ref"]


def sacrebleu_table(files: list[str], test: str) -> tuple[list[list[str]], list[str]]:
    """The numbers of sacrebleu's table, row by row, without the means of resampled scores; and its signatures."""
    *systems, reference = files
    command = [sys.executable, "-m", "sacrebleu", reference, "-i", *systems, test]
    options = ["-m", "bleu", "chrf", "ter", "-w", "2", "--format", "latex"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    table = done.stdout.partition(r"\midrule")[2].partition(r"\bottomrule")[0].strip().splitlines()
    rows = [re.sub(r"[\d.]+ ±", "±", row.partition("&")[2]) for row in table]
    return [re.findall(r"\d+\.\d+\)?\*?", row) for row in rows], re.findall(r"\S*seed:\S*", done.stdout)


@pytest.mark.parametrize(("test", "option"), [("bootstrap", "--paired-bs"), ("randomisation", "--paired-ar")])
def test_numbers_and_signatures_are_those_of_sacrebleus_command(
    files: list[str], test: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files if test == "bootstrap" else ["A", "C", "ref"]  # 10,000 trials take seconds
    rows, signatures = sacrebleu_table(files, option)
    assert score(["compare", *files, "--test", test]) == 0
    _, *lines, _, bleu, chrf, ter = capsys.readouterr().out.splitlines()
    ours = [re.findall(r"\d+\.\d+\*?", line) for line in lines]
    assert ours == [[number.replace(")", "") for number in row] for row in rows]
    assert [line.split()[0] for line in lines] == files[:-1]
    assert any("*" in number for row in ours for number in row)
    assert [line.split()[1] for line in (bleu, chrf, ter)] == signatures


def test_an_equal_system_has_no_p_value(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert score(["compare", "A", "C", "A", "ref"]) == 0
    _, *rows, about, bleu, chrf, ter = capsys.readouterr().out.splitlines()
    assert [row.count("p=") for row in rows] == [0, 3, 0]
    assert rows[0] == rows[2]
    assert about.startswith("p: of the difference from A; * p < 0.05; ")
    assert [line.split()[0] for line in (bleu, chrf, ter)] == ["BLEU", "chrF2", "TER"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["A", "ref"], "expected two files of translations or more, then the references; got 2 files"),
        ([], "got 0 files"),
        (["A", "B", "short"], "short: ends after line 2, but A has 40; line n of one file"),
        (["A", "short", "ref"], "short: ends after line 2, but ref has 40; line n of one file"),
        (["empty", "empty", "empty"], "empty: is empty"),
        (["A", "absent", "ref"], "absent: not found"),
    ],
)
def test_files_that_cannot_be_compared_are_refused(files: list[str], names: list[str], message: str) -> None:
    written(Path("short"), "a\nb\n")
    written(Path("empty"), "")
    with pytest.raises(CorpusError, match=message):
        score(["compare", *names])


ALPHAS = ["0", "0.6", "1.2", "40"]  # the last one prefers the longest translations, which repeat themselves


@pytest.fixture
def text(tmp_path: Path) -> list[str]:
    write_parallel_text(tmp_path, "held-out", 12, seed=3)
    return [str(tmp_path / "held-out.en"), str(tmp_path / "held-out.de")]


def test_the_best_exponent_is_stored(run_copy: Path, text: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert score(["tune-length", *text, "--run", str(run_copy), "--alphas", *ALPHAS]) == 0
    output = capsys.readouterr()
    found = dict(re.findall(r"^alpha (\S+): BLEU = (\S+) ", output.out, flags=re.MULTILINE))
    assert list(found) == ALPHAS
    assert found["40"] != found["0.6"]
    verb, alpha = re.findall(r"(stored|kept) alpha (\S+) ", plain(output.err))[0]
    assert verb == ("kept" if alpha == "0.6" else "stored")
    assert float(found[alpha]) >= float(found["0.6"])
    assert Translator.load(run_copy).model.config.alpha == float(alpha)


@pytest.mark.parametrize(
    ("alphas", "scores", "message"),
    [
        ("0 0.3 0.6", [50, 50, 50], "kept alpha 0.6 of {run}: BLEU is the same with all 3 exponents, so this text"),
        ("0.3 0.6 0.9", [50, 50, 40], "kept alpha 0.6 of {run}: the best ones, 0.3, 0.6, have the same BLEU, so"),
        ("0.3 0.6 0.9", [40, 50, 40], "kept alpha 0.6 of {run}: no other exponent is better"),
        ("0.3 0.6 0.9", [40, 50, 60], "kept alpha 0.6 of {run}: no other exponent is better, or its translations are"),
        ("0.6 1.5 0.9 1.2", [40, 50, 50, 50], "stored alpha 1.2 in {run} (before: 0.6), the middle of the best"),
    ],
)
def test_the_outcome_is_said_and_the_models_own_exponent_is_kept_unless_another_is_better(
    alphas: str,
    scores: list[float],
    message: str,
    run_copy: Path,
    text: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = iter(scores)

    def evaluation(*_: object, **__: object) -> Evaluation:
        value = next(values)
        too_long = (Sample("one", "eins", "eins eins"),) if value == 60 else ()
        return Evaluation(Score("BLEU", value, "signature", "detail"), too_long)

    monkeypatch.setattr(TranslationTask, "evaluate", evaluation)
    before = contents(run_copy)
    assert score(["tune-length", *text, "--run", str(run_copy), "--alphas", *alphas.split()]) == 0
    assert plain(capsys.readouterr().err).startswith(message.format(run=run_copy))
    assert (contents(run_copy) == before) == message.startswith("kept")


def test_without_files_the_runs_validation_text_is_taken(run_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(["tune-length", "--run", str(run_copy), "--alphas", "0", "40"]) == 0
    given = capsys.readouterr()
    line = json.loads((run_copy / "results.json").read_text(encoding="utf-8"))["validation"]
    assert f"alpha 0.6: {line['detail']}  [{line['signature']}]" in given.out.splitlines()


def test_wrong_files_and_exponents_are_refused_before_the_search(
    run_copy: Path, text: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TranslationTask, "evaluate", lambda *_, **__: pytest.fail("the search has begun"))
    write_bundle(Parts.load(run_copy), tmp_path / "bundle")
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run_copy, unfinished)
    (unfinished / "translations.jsonl").unlink()
    before = (run_copy / "model.json").read_bytes()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "empty.de").write_bytes(b"")
    empty = str(tmp_path / "empty")
    options = ["--run", str(run_copy)]
    for arguments, error, message in (
        ([empty, f"{empty}.de", *options], CorpusError, "is empty"),
        ([text[0], empty, *options], CorpusError, "held-out.en"),
        ([*text, *options, "--alphas", "-1"], ConfigError, "alpha must be at least 0 and less than 50; got -1.0"),
        ([*text, *options, "--alphas", "0", "50"], ConfigError, "alpha must be at least 0 and less than 50; got 50.0"),
        ([*text, "--run", str(tmp_path / "bundle")], CheckpointError, "is a bundle, whose files never change"),
        ([*text, "--run", str(tmp_path)], CheckpointError, "no model here"),
        ([text[0], *options], CorpusError, "expected a file of sources and one of references; got 1 files"),
        (["--run", str(unfinished)], CorpusError, "has no translations.jsonl, which holds the validation text of a"),
    ):
        with pytest.raises(error, match=message):
            score(["tune-length", *arguments])
    assert (run_copy / "model.json").read_bytes() == before
