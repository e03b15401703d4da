"""Scoring from end to end: translations, pairs under a model, systems compared, and length penalties."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest
from small_run import Command, Trained, contents, plain, write_parallel_text, written

from minitransformer.extras.convert.parts import Parts, write_bundle
from minitransformer.inference.bleu import Score
from minitransformer.inference.task import Evaluation, Sample, TranslationTask
from minitransformer.inference.translator import Translator


def test_bleu_and_chrf_of_perfect_translations_are_100_also_in_capitals_if_case_is_ignored(
    command: Command, tmp_path: Path
) -> None:
    lines = "eins\u2028zwei drei vier fünf\nsechs drei zwei eins eins\n"  # only line feeds separate translations
    hypothesis = written(tmp_path / "hypothesis", lines)
    _, output, error = command("score", "bleu", hypothesis, hypothesis)
    bleu, chrf = output.splitlines()
    assert bleu.startswith("BLEU = 100.00 100.0/100.0/100.0/100.0 (BP = 1.000 ratio = 1.000 hyp_len = 10 ref_len = 10)")
    assert re.search(r"\[nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:[\d.]+\]$", bleu)
    assert chrf.startswith("chrF2 = 100.00")
    assert re.fullmatch(r"code \S+\n", error)
    capitals, titles = written(tmp_path / "capitals", lines.upper()), written(tmp_path / "titles", lines.title())
    output = command("score", "bleu", capitals, titles, "--lowercase").output
    for line, name in zip(output.splitlines(), ("BLEU", "chrF2"), strict=True):
        assert re.match(rf"{name} = 100\.00.*\|case:lc\|", line)


@pytest.mark.parametrize(
    ("kind", "piped", "lines", "perfect"),
    [
        ("bleu", "eins zwei drei vier\nsechs drei zwei eins\n", None, r"BLEU = 100\.00"),
        ("trees", "(S (NN one))\n(S (NN two))\n", None, r"Bracketing FMeasure += +100\.00"),
        ("trees", "(S (NN one))\n(S\n (NN two))\n", "(S (NN one))\n(S (NN two))\n", r"FMeasure += +100\.00"),
    ],
)
def test_each_file_is_read_once_so_that_it_may_be_a_pipe(
    kind: str, piped: str, lines: str | None, perfect: str, command: Command, tmp_path: Path
) -> None:
    other = written(tmp_path / "other", lines or piped)
    end_to_read, end_to_write = os.pipe()
    os.write(end_to_write, piped.encode())
    os.close(end_to_write)
    with os.fdopen(end_to_read):
        assert re.search(perfect, command("score", kind, f"/dev/fd/{end_to_read}", other).output)


def test_a_score_is_no_failure_because_its_provenance_cannot_be_told(
    unwritable: TextIO, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = written(tmp_path / "text", "eins zwei drei vier\n")
    monkeypatch.setattr(sys, "stderr", unwritable)
    ended = command("score", "bleu", text, text)
    assert (ended.status, ended.output.startswith("BLEU = 100.00")) == (0, True)


def test_the_audit_prints_conventions_with_what_to_compare(command: Command, tmp_path: Path) -> None:
    hypothesis = written(tmp_path / "hypothesis", "eins zwei drei vier fünf\nsechs drei zwei eins eins\n")
    lines = command("score", "audit", hypothesis, hypothesis, "--language", "fr").output.splitlines()
    assert len(lines) == 3 * 6
    assert lines[0] == "100.00 ± 0.00  sacreBLEU, 13a"
    assert lines[1].startswith("    nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|")
    assert lines[2].startswith("    compare with: sacreBLEU figures")
    assert lines[15] == "100.00 ± 0.00  tokenised"
    single = written(tmp_path / "single", "eins zwei drei vier fünf\n")  # which has no interval
    output = command("score", "audit", single, single, "--language", "fr").output
    assert output.startswith("100.00 ±   ?  sacreBLEU, 13a\n")


def test_scores_of_pairs_add_to_the_whole(trained: Trained, command: Command, tmp_path: Path) -> None:
    source = written(tmp_path / "source", "one two\nsix\n\nfive five five\n")
    target = written(tmp_path / "target", "eins zwei\n\neins\nfünf fünf\n")
    _, output, error = command("score", "pairs", source, target, "--run", str(trained.run))
    rows = [line.split("\t") for line in output.splitlines()]
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


def test_no_pairs_have_a_score_of_nothing(trained: Trained, command: Command, tmp_path: Path) -> None:
    empty = [written(tmp_path / name, "") for name in ("empty.en", "empty.de")]
    assert command("score", "pairs", *empty, "--run", str(trained.run))[:2] == (0, "")


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
    files: list[str], test: str, option: str, command: Command
) -> None:
    files = files if test == "bootstrap" else ["A", "C", "ref"]  # 10,000 trials take seconds
    rows, signatures = sacrebleu_table(files, option)
    _, *lines, _, bleu, chrf, ter = command("score", "compare", *files, "--test", test).output.splitlines()
    ours = [re.findall(r"\d+\.\d+\*?", line) for line in lines]
    assert ours == [[number.replace(")", "") for number in row] for row in rows]
    assert [line.split()[0] for line in lines] == files[:-1]
    assert any("*" in number for row in ours for number in row)
    assert [line.split()[1] for line in (bleu, chrf, ter)] == signatures


@pytest.mark.usefixtures("files")
def test_an_equal_system_has_no_p_value(command: Command) -> None:
    _, *rows, about, bleu, chrf, ter = command("score", "compare", "A", "C", "A", "ref").output.splitlines()
    assert [row.count("p=") for row in rows] == [0, 3, 0]
    assert rows[0] == rows[2]
    assert about.startswith("p: of the difference from A; * p < 0.05; ")
    assert [line.split()[0] for line in (bleu, chrf, ter)] == ["BLEU", "chrF2", "TER"]


ALPHAS = ["0", "0.6", "1.2", "40"]  # the last one prefers the longest translations, which repeat themselves


def test_the_best_exponent_is_stored(run_copy: Path, command: Command, tmp_path: Path) -> None:
    write_parallel_text(tmp_path, "held-out", 12, seed=3)
    text = [str(tmp_path / "held-out.en"), str(tmp_path / "held-out.de")]
    _, output, error = command("score", "tune-length", *text, "--run", str(run_copy), "--alphas", *ALPHAS)
    found = dict(re.findall(r"^alpha (\S+): BLEU = (\S+) ", output, flags=re.MULTILINE))
    assert list(found) == ALPHAS
    assert found["40"] != found["0.6"]
    verb, alpha = re.findall(r"(stored|kept) alpha (\S+) ", plain(error))[0]
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
    alphas: str, scores: list[float], message: str, run_copy: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter(scores)

    def evaluation(*_: object, **__: object) -> Evaluation:
        value = next(values)
        too_long = (Sample("one", "eins", "eins eins"),) if value == 60 else ()
        return Evaluation(Score("BLEU", value, "signature", "detail"), too_long)

    monkeypatch.setattr(TranslationTask, "evaluate", evaluation)
    before = contents(run_copy)
    ended = command("score", "tune-length", "--run", str(run_copy), "--alphas", *alphas.split())
    assert plain(ended.error).startswith(message.format(run=run_copy))
    assert (contents(run_copy) == before) == message.startswith("kept")


def test_without_files_the_runs_validation_text_is_taken_if_it_has_one(run_copy: Path, command: Command) -> None:
    words = ["score", "tune-length", "--run", str(run_copy), "--alphas"]
    line = json.loads((run_copy / "results.json").read_text(encoding="utf-8"))["validation"]
    assert f"alpha 0.6: {line['detail']}  [{line['signature']}]" in command(*words, "0", "40").output.splitlines()
    (run_copy / "translations.jsonl").unlink()
    assert "has no translations.jsonl, which holds the validation text of a" in command(*words, "0").refusal


def test_the_exponent_of_a_bundle_is_not_tuned(trained: Trained, command: Command, tmp_path: Path) -> None:
    write_bundle(Parts.load(trained.run), tmp_path / "bundle")
    text = [written(tmp_path / name, "one\n") for name in ("source", "target")]
    ended = command("score", "tune-length", *text, "--run", str(tmp_path / "bundle"))
    assert "is a bundle, whose files never change" in ended.refusal
    assert ended.output == ""
