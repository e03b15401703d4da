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
    ("options", "named"), [({"beam": 3}, "beam"), ({"n_best": 2}, "n_best, n_best"), ({"beam": 1, "n_best": 1}, "beam")]
)
def test_another_search_is_not_mixed_into_the_output(
    translator: Translator, half_done: Path, options: dict[str, int], named: str
) -> None:
    before = contents(half_done)
    with pytest.raises(
        ResumeError, match=f"out: was begun with another {named.split(',', maxsplit=1)[0]}.*choose another output"
    ):
        run(translator, half_done, resume=True, **options)  # type: ignore[arg-type]
    assert contents(half_done) == before


def test_another_model_is_not_mixed_into_the_output(trained: Trained, translator: Translator, half_done: Path) -> None:
    other = Translator.load(trained.run)
    assert other.fingerprint() == translator.fingerprint()
    other.model.parameters.values[0] += 1e-3
    with pytest.raises(ResumeError, match="out: was begun with another model"):
        run(other, half_done, resume=True)


@pytest.mark.parametrize("change", [(b"one", b"two"), (b"\n", b"")], ids=["a word", "a line"])
def test_an_input_that_changed_where_it_was_translated_is_noticed(
    translator: Translator, half_done: Path, change: tuple[bytes, bytes]
) -> None:
    source = half_done / "in"
    source.write_bytes(source.read_bytes().replace(*change, 1))
    with pytest.raises(ResumeError, match="in has changed since 8 of its lines were translated"):
        run(translator, half_done, resume=True)


def test_an_input_that_became_shorter_is_noticed(translator: Translator, half_done: Path) -> None:
    (half_done / "in").write_bytes(b"one\n")
    with pytest.raises(ResumeError, match="has changed since"):
        run(translator, half_done, resume=True)


@pytest.mark.parametrize("damage", [b"x", b""], ids=["another byte", "shorter"])
def test_an_output_that_was_changed_is_noticed(translator: Translator, half_done: Path, damage: bytes) -> None:
    text = (half_done / "out").read_bytes()
    (half_done / "out").write_bytes(damage + text[1:])
    with pytest.raises(ResumeError, match=f"its first {len(text)} bytes have changed since they were written"):
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


def test_a_complete_output_of_another_search_is_not_taken_for_ones_own(translator: Translator, done: Path) -> None:
    before = contents(done)
    with pytest.raises(ResumeError, match="out: was begun with another beam; choose another output, or remove this"):
        run(translator, done, resume=True, beam=3)
    assert contents(done) == before


def test_a_complete_output_of_another_input_is_not_taken_for_ones_own(translator: Translator, done: Path) -> None:
    (done / "in").write_bytes(lines_of(5, seed=4))
    with pytest.raises(ResumeError, match="in has changed since 12 of its lines were translated"):
        run(translator, done, resume=True)


@pytest.mark.parametrize("change", [lambda text: text + b"more\n", lambda text: b"x" + text[1:]])
def test_a_complete_output_that_was_changed_is_noticed_and_left_alone(
    translator: Translator, done: Path, change: Callable[[bytes], bytes]
) -> None:
    (done / "out").write_bytes(changed := change((done / "out").read_bytes()))
    with pytest.raises(ResumeError, match="something was appended to|have changed since they were written"):
        run(translator, done, resume=True)
    assert (done / "out").read_bytes() == changed


@pytest.mark.parametrize("text", [b"my diary\n", lines_of(5)], ids=["fewer lines", "as many lines"])
def test_a_file_that_is_not_known_is_not_taken_for_an_output(
    translator: Translator, tmp_path: Path, text: bytes
) -> None:
    (tmp_path / "in").write_bytes(lines_of(5))
    (tmp_path / "out").write_bytes(text)
    with pytest.raises(ResumeError, match=r"out: exists, but .*out\.progress\.json, .*; remove the output, or choose"):
        run(translator, tmp_path, resume=True)
    assert (tmp_path / "out").read_bytes() == text


def test_two_processes_do_not_write_one_output(translator: Translator, half_done: Path) -> None:
    with open_output(half_done / "out"), pytest.raises(ResumeError, match="another process is writing it"):
        run(translator, half_done, resume=True)
