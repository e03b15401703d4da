"""What the commands say when something goes wrong: errors are one line."""

import errno
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TextIO
from unittest.mock import Mock

import pytest
from small_run import Command, Trained, translated, written
from waiting import TIME_LIMIT

import cli.train
from cli.command import run_command
from minitransformer.data.survey import CorpusError
from minitransformer.system.errors import UserError
from parallel import launch
from parallel.communicator import SerialCommunicator

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
ENVIRONMENT["PYTHONPATH"] = str(Path(__file__).parents[2])


def program(trained: Trained, before: str) -> list[str]:
    """Return the command to translate in a process of its own; ``before`` is code that it runs first."""
    code = f"import sys, cli.translate; {before}; sys.exit(cli.translate.main())"
    return [sys.executable, "-W", "error", "-c", code, "--run", str(trained.run), "--beam", "1"]


def translating(trained: Trained, lines_at_once: int) -> subprocess.Popen[bytes]:
    """A process that translates so many lines together."""
    command, pipe = program(trained, f"cli.translate.LINES_AT_ONCE = {lines_at_once}"), subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT)


@pytest.mark.parametrize(
    ("words", "name"),
    [("translate", "input"), ("parse", "output"), ("score bleu text text", "output"), ("score bleu --help", "output")],
)
def test_a_closed_standard_stream_is_one_line(
    words: str, name: str, command: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(here / "text", "eins zwei drei vier\n")
    monkeypatch.setattr(sys, f"std{name.removesuffix('put')}", None)  # as Python does for <&- and >&-
    ended = command(*words.split())
    assert ended.status == 1
    assert re.fullmatch(rf"error: standard {name} is closed: [^\n]*/dev/null[^\n]*\n", ended.error)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (CorpusError("text: is empty"), 1, "error: text: is empty"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, r"error: out of memory \(no details\); use less: a smaller model[^\n]*"),
        (MemoryError("3 TiB"), 1, r"error: out of memory \(3 TiB\); use less: a smaller model[^\n]*"),
    ],
)
def test_expected_errors_become_one_line_and_a_status(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(Mock(side_effect=error)) == status
    assert re.fullmatch(f"{said}\n", capsys.readouterr().err)


@pytest.mark.parametrize("error", [ZeroDivisionError(), PermissionError(errno.EACCES, "Permission denied")])
def test_errors_that_no_user_can_mend_keep_their_traceback(error: Exception) -> None:
    with pytest.raises(type(error)):
        run_command(Mock(side_effect=error))


def test_debug_shows_an_errors_origin(command: Command) -> None:
    words = ["score", "pairs", "absent", "target", "--run", "nowhere"]
    without, (status, _, shown) = command(*words).refusal, command(*words, "--debug")
    assert (status, shown.splitlines()[-1]) == (1, without.rstrip())
    assert shown.startswith("Traceback (most recent call last):\n")
    assert "in score_with_model" in shown


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (130, 130)])
def test_the_status_needs_no_output(returned: int | None, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run_command(lambda: returned) == status


def test_a_reader_that_leaves_early_ends_the_command_without_an_error(trained: Trained) -> None:
    with translating(trained, 1) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdin.write(b"one\n" * 300)
        running.stdin.close()
        first = running.stdout.readline()
        running.stdout.close()
        assert [line for line in running.stderr.read().splitlines() if not line.startswith(b"warning")] == []
        assert running.wait(timeout=TIME_LIMIT) == 141
    assert first.endswith(b"\n")


def test_an_output_that_takes_no_more_is_an_error_also_without_buffer(trained: Trained, tmp_path: Path) -> None:
    """Python's standard output may then write a part of what it is given."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))"
    command = program(trained, code)
    for environment in (ENVIRONMENT, ENVIRONMENT | {"PYTHONUNBUFFERED": "1"}):
        with (tmp_path / "out").open("wb") as file:
            done = subprocess.run(
                command, input=b"six\n" * 50, stdout=file, stderr=subprocess.PIPE, env=environment, check=False
            )
        assert done.returncode == 1
        assert b"File too large" in done.stderr


def test_results_that_cannot_be_written_at_the_end_are_one_line_or_for_a_reader_that_left_none(
    unwritable: TextIO, command: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output fits into the buffer, and is written when the command ends."""
    written(here / "text", "eins zwei drei vier\n")
    monkeypatch.setattr(sys, "stdout", unwritable)
    ended = command("score", "bleu", "text", "text")
    full_disk = r"error: .*No space left on device; free some disk space, and .*\n"
    status, message = (1, full_disk) if "/dev/full" in str(unwritable.name) else (141, "")
    assert ended.status == status
    assert re.fullmatch(rf"code .*\n{message}", ended.error)


def test_results_that_cannot_be_written_change_nothing_of_an_error(
    unwritable: TextIO, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        print("half a result")
        raise UserError("on purpose")

    monkeypatch.setattr(sys, "stdout", unwritable)
    assert run_command(fail) == 1
    assert capsys.readouterr().err == "error: on purpose\n"


def test_an_error_that_cannot_be_told_keeps_its_status(unwritable: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", unwritable)
    assert run_command(Mock(side_effect=CorpusError("text: is empty"))) == 1


def test_a_line_is_translated_before_the_next_is_written(trained: Trained) -> None:
    """Through a pipe that stays open, as from a program that waits for each answer."""
    with translating(trained, 2_048) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        answers = []
        for line in (b"one\n", b"two\nthree\n", b"\n"):
            running.stdin.write(line)
            running.stdin.flush()
            answers += [running.stdout.readline() for _ in range(line.count(b"\n"))]
        running.stdin.close()
        assert running.stdout.read() == b""
        assert running.wait(timeout=TIME_LIMIT) == 0
    assert b"".join(answers) == translated(trained, b"one\ntwo\nthree\n\n", "--beam", "1")


def test_what_a_terminal_has_no_character_for_is_spelt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    written_bytes = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written_bytes, encoding="latin-1"))
    assert run_command(lambda: print("± →")) == 0
    assert written_bytes.getvalue() == b"\xb1 \\u2192\n"


class OneOfTwo(SerialCommunicator):
    """A rank that cannot end the other one, which does not exist."""

    size = 2

    def abort(self) -> None:
        print("aborted", file=sys.stderr)


@pytest.fixture
def one_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "SECONDS_TO_FORWARD", 0)
    monkeypatch.setattr(cli.train, "communicator", OneOfTwo)


def test_help_is_no_failure_of_a_rank_and_an_unknown_option_is(one_of_two: None, command: Command) -> None:
    assert command("train", "--help")[::2] == (0, "")
    status, _, error = command("train", "--no-such-option")
    assert status == 2
    assert re.fullmatch(r"error: unknown option .*\nrank 0 of 2 .* failed; ending all ranks\naborted\n", error)


def test_debug_shows_where_an_error_arose_on_a_rank(one_of_two: None, command: Command, tmp_path: Path) -> None:
    ended = command("train", "--config", str(tmp_path / "absent"), "--debug")
    assert ended.status == 1
    assert re.search(r"(?s)Traceback \(most recent call last\).*ConfigError: .*aborted", ended.error)


@pytest.mark.parametrize(
    ("error", "message"),
    [(PermissionError(errno.EACCES, "Permission denied", "run"), "run: Permission denied; choose another path, or"),
     (MemoryError("of 3 TiB"), "out of memory (of 3 TiB); use less: "),
     (OSError(errno.ENOSPC, "No space left on device"), "[Errno 28] No space left on device; free some disk"),
     (CorpusError("text: is empty"), "text: is empty")],
)  # fmt: skip
def test_what_one_rank_of_several_is_refused_is_one_line_too(
    error: Exception, message: str, one_of_two: None, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("minitransformer.training.run.open_run", Mock(side_effect=error))
    ended = command("train", "--run", str(tmp_path))
    lines = ended.error.splitlines()
    assert ended.status == 1
    assert lines[1].startswith(f"error: {message}")
    assert lines[2:] == ["aborted", lines[1]]
