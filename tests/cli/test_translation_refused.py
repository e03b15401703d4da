"""An interrupted or complete translation is never mixed with another, nor overwritten by mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_run import Trained, contents
from translated_files import lines_of, run

from minitransformer.extras.files.output_file import ResumeError, open_output
from minitransformer.extras.files.resumable import progress_file
from minitransformer.inference.translator import Translator
from minitransformer.system.files import CorruptFileError


@pytest.mark.parametrize(
    ("options", "named"), [({"beam": 3}, "beam"), ({"n_best": 2}, "n_best"), ({"beam": 1, "n_best": 1}, "beam")]
)
def test_searches_are_never_mixed(translator: Translator, half_done: Path, options: dict[str, int], named: str) -> None:
    before = contents(half_done)
    with pytest.raises(ResumeError, match=f"out: was begun with another {named}.*choose another output"):
        run(translator, half_done, resume=True, **options)  # type: ignore[arg-type]
    assert contents(half_done) == before


def test_another_model_is_not_mixed_into_the_output(trained: Trained, translator: Translator, half_done: Path) -> None:
    other = Translator.load(trained.run)
    assert other.fingerprint() == translator.fingerprint()
    other.model.parameters.values[0] += 1e-3
    with pytest.raises(ResumeError, match="out: was begun with another model"):
        run(other, half_done, resume=True)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("in", lambda text: text.replace(b"one", b"two", 1), "in has changed since 8 of its lines were translated"),
        ("in", lambda text: text.replace(b"\n", b"", 1), "in has changed since 8 of its lines were translated"),
        ("in", lambda text: b"one\n", "in has changed since 8 of its lines were translated"),
        ("out", lambda text: b"x" + text[1:], r"its first \d+ bytes have changed since they were written"),
        ("out", lambda text: text[1:], r"its first \d+ bytes have changed since they were written"),
    ],
)
def test_an_input_or_an_output_that_changed_where_it_was_translated_is_noticed(
    translator: Translator, half_done: Path, name: str, change: Callable[[bytes], bytes], message: str
) -> None:
    (half_done / name).write_bytes(change((half_done / name).read_bytes()))
    with pytest.raises(ResumeError, match=message):
        run(translator, half_done, resume=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_lines": -1}, "has changed since -1 of its lines were translated"),
        ({"n_lines": 2**64}, "has changed since 18,446,744,073,709,551,616 of its lines were translated"),
        ({"n_bytes": -1}, "its first -1 bytes have changed since they were written"),
        (
            {"n_lines": "8"},
            r"progress\.json: n_lines must be a whole number; got '8'; it is corrupt or of another kind: remove it",
        ),
        ({"made_with": None}, "made_with must be an object; got None; .*: remove it"),
        ({"more": 1}, r"expected an object with n_lines, .*; missing or unknown: \['more'\]"),
    ],
)
def test_a_note_that_is_corrupt_is_refused_and_changes_nothing(
    translator: Translator, half_done: Path, changes: dict[str, Any], message: str
) -> None:
    note = progress_file(half_done / "out")
    note.write_text(json.dumps(json.loads(note.read_text()) | changes))
    before = contents(half_done)
    with pytest.raises((ResumeError, CorruptFileError), match=message):
        run(translator, half_done, resume=True)
    assert contents(half_done) == before


def test_an_interrupted_output_is_not_overwritten_by_mistake(translator: Translator, half_done: Path) -> None:
    before = contents(half_done)
    with pytest.raises(ResumeError) as caught:
        run(translator, half_done, resume=False)
    assert "an interrupted translation; set resume to continue it, or remove" in str(caught.value)
    assert contents(half_done) == before


@pytest.mark.parametrize(
    ("name", "change", "options", "message"),
    [
        (
            "out",
            lambda text: text,
            {"beam": 3},
            "out: was begun with another beam; choose another output, or remove this",
        ),
        ("in", lambda text: lines_of(5, seed=4), {}, "in has changed since 12 of its lines were translated"),
        ("out", lambda text: text + b"more\n", {}, "something was appended to"),
        ("out", lambda text: b"x" + text[1:], {}, "have changed since they were written"),
    ],
)
def test_a_complete_output_of_another_search_or_input_or_changed_is_noticed_and_left_alone(
    translator: Translator,
    done: Path,
    name: str,
    change: Callable[[bytes], bytes],
    options: dict[str, int],
    message: str,
) -> None:
    (done / name).write_bytes(change((done / name).read_bytes()))
    before = contents(done)
    with pytest.raises(ResumeError, match=message):
        run(translator, done, resume=True, **options)  # type: ignore[arg-type]
    assert contents(done) == before


@pytest.mark.parametrize("text", [b"my diary\n", lines_of(5)], ids=["fewer lines", "as many lines"])
def test_an_unknown_file_is_not_taken_for_an_output(translator: Translator, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "in").write_bytes(lines_of(5))
    (tmp_path / "out").write_bytes(text)
    with pytest.raises(ResumeError, match=r"out: exists, but .*out\.progress\.json, .*; remove the output, or choose"):
        run(translator, tmp_path, resume=True)
    assert (tmp_path / "out").read_bytes() == text


def test_two_processes_do_not_write_one_output(translator: Translator, half_done: Path) -> None:
    with open_output(half_done / "out"), pytest.raises(ResumeError, match="another process is writing it"):
        run(translator, half_done, resume=True)
