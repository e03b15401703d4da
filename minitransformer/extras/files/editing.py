"""Parts of all documents: checks of segments and units, and the edits that turn the input's text into the output's."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from minitransformer.data.survey import LONGEST_LINE, CorpusError, Found
from minitransformer.text.codes import Code, Parts, text_of, with_textual_codes
from minitransformer.text.sentence import UNCERTAIN

Edit: TypeAlias = tuple[int, int, str]  # begin and end of a piece of a text, and the text in its place
_log = logging.getLogger(__name__)
_DEEPEST = 100  # pairs of codes within each other: no real segment has so many


def coded(text: str, where: str) -> Parts:
    """Return the parts of a text, with its tags and placeholders as codes.  Raises: CorpusError as ``checked`` does."""
    require_length(len(text), where)
    return checked(with_textual_codes([text]), where)


def require_length(n_characters: int, where: str) -> None:
    """Raise CorpusError if the segment ``where`` has too many characters."""
    if n_characters > LONGEST_LINE:
        raise CorpusError(f"{where}: a segment has more than {LONGEST_LINE:,} characters; expected a paragraph at most")


def checked(parts: Parts, where: str) -> Parts:
    """Return the parts of the segment ``where``, for example "a.po, line 3".

    Raises: CorpusError if the segment has too many characters, or too many pairs of codes within each other.
    """
    require_length(sum(len(text_of(part)) for part in parts), where)
    if _depth(parts) > _DEEPEST:
        raise CorpusError(f"{where}: a segment has more than {_DEEPEST} tags within each other; remove some of them")
    return parts


def _depth(parts: Parts) -> int:
    """Return the greatest number of pairs of codes within each other; a code without its partner is no pair."""
    begins, depths = list[str](), [0]  # names of open codes; the depth outside of them, then within each
    n_open = Counter[str]()
    for code in parts:
        if isinstance(code, Code) and code.kind == "begin":
            begins.append(code.name)
            depths.append(0)
            n_open[code.name] += 1
        elif isinstance(code, Code) and code.kind == "end" and n_open[code.name]:
            depth, name = 0, ""
            while name != code.name:
                depth, name = max(depth, depths.pop()), begins.pop()
                n_open[name] -= 1
            depths[-1] = max(depths[-1], depth + 1)
    return max(depths)


def require_same_units(path: object, before: Sequence[object], after: Sequence[object]) -> None:
    """Raise CorpusError if the units of a translated file are not those of its input, in the same order.

    A unit is what a translation must not change, such as its name and its source text.
    """
    if list(before) != list(after):
        i = next(
            (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
        )
        raise CorpusError(
            f"{path}: unit {i + 1:,} of the translated file would not be that of the input, so nothing was written;"
            " this is an error of this program: please report it with the file"
        )


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits, which do not overlap; of several at one place, the first comes first."""
    pieces, end = list[str](), 0
    for begin, stop, piece in sorted(edits, key=lambda edit: edit[0]):
        pieces += [text[end:begin], piece]
        end = stop
    return "".join([*pieces, text[end:]])


def log_uncertain(path: object, lines: Found) -> None:
    """Log the lines of a document that has no place for a note, where codes were placed without their words."""
    if lines.count:
        _log.warning(f"{path}, line {lines.locations}: {UNCERTAIN}")
