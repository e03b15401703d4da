"""A command of the user that measures translations in each validation."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from minitransformer.config import ConfigError
from minitransformer.inference.translator import Translator
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError
from minitransformer.training.callbacks import Callback

FILES = ("source", "reference", "translation")
EXPECTED = "expected a number, or lines of a name and a number, on standard output"


class ValidationCommandError(UserError):
    """An error: the command of the user failed, or it printed no number."""


class ValidationCommand(Callback):
    """A command that reads files of sources, references and translations, a sentence a line, and prints measures.

    ``{source}``, ``{reference}`` and ``{translation}`` stand for the files.  If the command prints only a number, the
    measure has the name of the program; otherwise each line is a name and a number.
    Raises: ConfigError if there is no such program, or no file of translations in the command.
    """

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:  # an open quotation
            raise ConfigError(f"--validation-command {command!r}: {error}") from error
        if "{translation}" not in command or shutil.which(self._words[0]) is None:
            raise ConfigError(
                f"--validation-command {command!r}: expected a program that can be run, and {{translation}} where it"
                " takes the file of translations"
            )

    def validated(
        self,
        model: Transformer,
        translator: Translator,
        sources: Sequence[str],
        references: Sequence[str],
        translations: Sequence[str],
    ) -> dict[str, float]:
        """Write the files, and return what the command prints.  Raises: ValidationCommandError."""
        with tempfile.TemporaryDirectory() as directory:
            words = self._words
            for name, lines in zip(FILES, (sources, references, translations), strict=True):
                path = Path(directory) / name
                path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
                words = [word.replace(f"{{{name}}}", str(path)) for word in words]
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            *_, last = ["no message", *done.stderr.strip().splitlines()]
            raise ValidationCommandError(f"{shlex.join(self._words)}: ended with status {done.returncode}: {last}")
        return self._measures(done.stdout)

    def _measures(self, output: str) -> dict[str, float]:
        lines = [line.split() for line in output.splitlines() if line.strip()]
        if [len(line) for line in lines] == [1]:
            lines = [[Path(self._words[0]).stem, *lines[0]]]
        try:
            return {name: float(value) for name, value in lines or [[]]}
        except ValueError as error:
            raise ValidationCommandError(f"{shlex.join(self._words)}: printed {output!r:.200}; {EXPECTED}") from error
