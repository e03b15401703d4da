"""Files translated by a stand-in or a trained model, and failures at any operation on files."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from number_words import NUMBERS

from minitransformer.extras.files.resumable import translate_file
from minitransformer.extras.files.stream import LinesDone, LineTranslator
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator

FILES = ["out", "out.progress.json"]
ODD = [b"", b" ", b"one \xff", b"\xef\xbb\xbfone", "two\u2028three".encode(), b"six\r", b"\0"]


def lines_of(n: int, seed: int = 3) -> bytes:
    draw = random.Random(seed)
    lines = [" ".join(draw.choices(list(NUMBERS), k=draw.randint(1, 4))).encode() for _ in range(n)]
    return b"".join(line + b"\n" for line in (*lines[: n // 2], *ODD, *lines[n // 2 :]))


class PowerCutError(BaseException):
    """The process is gone."""


class FileOperations:
    """Counts what is done to files, and fails at the operation with a given number."""

    def __init__(self, last: int | None = None, error: BaseException | None = None) -> None:
        self.n, self.last, self.error = 0, last, error or PowerCutError()

    def counted(self, function: Any) -> Any:
        def operation(*arguments: Any, **keywords: Any) -> Any:
            self.n += 1
            if self.n == self.last:
                raise self.error
            return function(*arguments, **keywords)

        return operation


class Uppercase(LineTranslator):
    """Return the output for a line, and its number as its alignment, without a search."""

    def __init__(self, n_best: int | None, alignments: Path | None = None) -> None:
        object.__setattr__(self, "n_best", n_best)
        object.__setattr__(self, "alignments", alignments)

    def __call__(self, lines: Sequence[bytes], n_before: int, advance: LinesDone = lambda n: None) -> list[bytes]:
        if self.n_best is None:
            output = b"".join(line.upper() + b"\n" for line in lines)
        else:
            output = b"".join(f"{n}\t{line!r}\n".encode() * self.n_best for n, line in enumerate(lines, n_before + 1))
        numbers = "".join(f"{n}-{n}\n" for n in range(n_before, n_before + len(lines)))
        return [output] if self.alignments is None else [output, numbers.encode()]

    def outputs_of(self, texts: Sequence[str], n_before: int, advance: LinesDone) -> list[bytes]:
        return self([text.encode() for text in texts], n_before)

    def facts(self) -> dict[str, Any]:
        return {"n_best": self.n_best, "alignments": self.alignments and str(self.alignments)}


def uppercase(folder: Path, *, resume: bool, n_best: int | None = None, name: str = "out") -> bytes:
    translate_file(Uppercase(n_best), folder / "in", folder / name, resume=resume, lines_at_once=4)
    return (folder / name).read_bytes()


def run(
    translator: Translator, folder: Path, *, resume: bool, n_best: int | None = None, beam: int = 2, name: str = "out"
) -> bytes:
    search = SearchConfig(beam=beam, n_best=n_best or 1)
    translation = LineTranslator(translator, search, n_best, n_threads=1)
    translate_file(translation, folder / "in", folder / name, resume=resume, lines_at_once=4)
    return (folder / name).read_bytes()
