"""Translating from end to end: one line out for each line in."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_run import Trained, as_command, output_of, translated

from cli.train import train
from minitransformer import Transformer
from minitransformer.data.file_kinds import N_FIRST_BYTES
from minitransformer.extras.paper.compatibility import CONVENTIONS, compatible


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
        b"\xef\xbb\xbfone\n\xef\xbb\xbf\n",
        b"\xed\xa0\x80\n\xed\xb0\x80 one\n",
        b"gr\xfcn\n" + "grün\n".encode(),
        "שלום \u202eעולם\u202c\nمرحبا\n".encode(),
        b"x" * 100_000 + b"\none\n",
        b" " * 100_000 + b"\n",
        b" \n  one  \n",
    ],
    ids=lambda source: repr(source[:40]),
)
def test_every_line_in_is_one_line_out(trained: Trained, source: bytes) -> None:
    n_lines = source.count(b"\n") + (not source.endswith(b"\n") and source != b"")
    target = translated(trained, source)
    assert target.count(b"\n") == n_lines
    assert target.endswith(b"\n") or n_lines == 0
    assert len(target.decode("utf-8").splitlines()) == n_lines


@settings(max_examples=12)
@given(lines=st.lists(st.binary(max_size=12) | st.text(max_size=12).map(lambda s: s.encode("utf-8", "surrogatepass"))))
def test_arbitrary_bytes_are_one_line_out_for_each_line_in(trained: Trained, lines: list[bytes]) -> None:
    source = b"\n".join([b" " * N_FIRST_BYTES, *lines])  # the first bytes might be those of another kind of file
    target = translated(trained, source, "--beam", "1")
    assert target.count(b"\n") == source.count(b"\n") + (source[-1:] not in (b"", b"\n"))
    assert len(target.decode("utf-8").splitlines()) == target.count(b"\n")


def test_line_ends_within_a_translation_do_not_end_its_line(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = "eins\nzwei\r\ndrei\u2028vier\x85fünf\x0bsechs\x1dacht"
    monkeypatch.setattr("minitransformer.data.tokenizer.Tokenizer.decode_target", lambda self, ids: [odd] * len(ids))
    assert translated(trained, b"one\n").decode() == "eins zwei drei vier fünf sechs acht\n"


def test_very_long_lines_are_cut_with_a_warning_and_one_line_each(trained: Trained, logged: list[str]) -> None:
    source = b"two " * 3_000 + b"\n" + b"x" * 20_000 + b"\none\n"
    target = translated(trained, source, "--beam", "1")
    assert [line[:15] for line in logged[:2]] == ["warning: line 1", "warning: line 2"]
    assert target.count(b"\n") == 3
    assert target.split(b"\n")[2] + b"\n" == translated(trained, b"one\n", "--beam", "1")


def test_empty_lines_stay_empty_and_do_not_shift_the_others(trained: Trained) -> None:
    alone = translated(trained, b"one two\nsix\n").splitlines()
    assert translated(trained, b"\none two\n \n\nsix\n").split(b"\n") == [b"", alone[0], b"", b"", alone[1], b""]


@pytest.mark.parametrize(
    "source", [b"one two\r\nsix\r\n", b"one two\nsix", b"  one two \n\tsix\n", b"\xef\xbb\xbfone two\nsix\n"]
)
def test_line_ends_blanks_around_a_line_and_a_byte_order_mark_change_nothing(trained: Trained, source: bytes) -> None:
    assert translated(trained, source) == translated(trained, b"one two\nsix\n")


def test_invalid_utf8_is_translated_with_a_warning_that_names_the_line(trained: Trained, logged: list[str]) -> None:
    assert translated(trained, b"one\ntwo \xff\nsix\n").count(b"\n") == 3
    assert logged == ["warning: line 2 is not UTF-8 (invalid start byte); read with replacements"]


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
    best = translated(trained, b"one two\nsix\n", "--beam", "4").decode().splitlines()
    assert [rows[0][3], rows[4][3]] == best


def test_scores_are_divided_by_the_penalty_that_is_asked_for(trained: Trained) -> None:
    options = ["--n-best", "1", "--alpha", "2", "--normalisation"]
    by_length, by_gnmt = (
        translated(trained, b"one two\n", *options, name).decode().split("\t") for name in ("length", "gnmt")
    )
    assert by_length[1] != by_gnmt[1]
    score, log_p = float(by_length[1]), float(by_length[2])
    assert min(abs(score - log_p / length**2) for length in range(1, 70)) < 1.1e-4  # four decimals are printed
    assert min(abs(float(by_gnmt[1]) - log_p / ((5 + n) / 6) ** 2) for n in range(1, 70)) < 1.1e-4


@pytest.mark.parametrize("system", CONVENTIONS)
def test_models_of_a_systems_conventions_translate_by_them(trained: Trained, tmp_path: Path, system: str) -> None:
    """From its own directory alone: nobody has to name them again."""
    words = [*trained.arguments, "--run", str(tmp_path / "run"), "--compat", system, "--training.max-updates", "1"]
    run = Trained(tmp_path / "run", words, output_of(lambda: train(words)))
    config = Transformer.load(run.run).config
    assert config == compatible(config, system)
    options = ["--n-best", "2", "--alpha", "2"]
    own, (other,) = CONVENTIONS[system].normalisation, {"gnmt", "length"} - {CONVENTIONS[system].normalisation}
    found = translated(run, b"one two\n", *options)
    assert found == translated(run, b"one two\n", *options, "--normalisation", own)
    assert found != translated(run, b"one two\n", *options, "--normalisation", other)


def test_a_model_whose_weights_are_not_finite_is_reported_in_one_line(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Transformer.load(run_copy)
    model.parameters.values[...] = np.nan
    model.save(run_copy)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))
    with np.errstate(invalid="ignore"):
        assert as_command("translate", ["--run", str(run_copy)], monkeypatch) == 1
    assert re.fullmatch(
        r"error: [^\n]+ the model's weights or its outputs are not finite[^\n]*\n", capsys.readouterr().err
    )
