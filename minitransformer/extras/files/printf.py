"""Arguments of printf in a message: a translation takes them in the order of its source, or numbers them.

In C, ``printf("%s has %d files", name, n)`` takes its arguments by position.  A translation that needs the number first
must write ``%2$d`` and ``%1$s``; "%d %s" would read the name as a number.

Source: ISO C, "fprintf"; POSIX, "fprintf" (numbered arguments); GNU gettext's manual, "Format Flags".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from minitransformer.text.codes import Parts

NUMBERED_FORMATS = frozenset(
    f"{name}-format"
    for name in ("c", "objc", "php", "perl", "awk", "tcl", "ruby", "boost", "gcc-internal", "javascript", "elisp")
)  # flags of messages whose arguments may be numbered
FORMATS = NUMBERED_FORMATS | {"python-format", "lua-format", "gfc-internal-format"}
_CONVERSION = re.compile(
    r"%(?P<number>\d+\$)?(?P<rest>(?P<name>\(\w+\)|<\w+>)?"
    r"[-+\ #0'I]*+(?:\*|\d++)?(?:\.(?:\*|\d*+))?(?:hh|ll|[hlqLjzZt])?[A-Za-z@%])"
)


class _Conversion(NamedTuple):
    """A conversion of a text, such as "%5d": its match, and the code and the offset within the code, if it is one."""

    match: re.Match[str]
    code: tuple[int, int] | None

    @property
    def takes_next(self) -> bool:
        """True if the conversion takes the next argument: it has neither number nor name, and is not "%%"."""
        return not self.match["number"] and not self.match["name"] and self.match["rest"] != "%"


def takes_arguments_in_order(text: str) -> bool:
    """Return whether a text has conversions without a number or a name."""
    return any(_Conversion(match, None).takes_next for match in _CONVERSION.finditer(text))


def with_arguments(
    source: Sequence[Parts], target: Sequence[Parts], *, can_be_numbered: bool
) -> tuple[str, bool] | None:
    """Return the text of ``target`` such that each conversion takes the argument that it has in ``source``.

    Both are messages as lists of lines.  If the order differs and cannot be numbered, the conversions of ``target`` are
    replaced by those of ``source``, in the order of ``source``.
    Returns: the text, and whether conversions were replaced; None if both have different conversions.
    """
    before, wanted = _conversions(source)
    text, found = _conversions(target)
    if Counter(each.match[0] for each in wanted) != Counter(each.match[0] for each in found):
        return None
    if _CONVERSION.sub("", text).count("%") != _CONVERSION.sub("", before).count("%"):
        return None
    wanted, found = ([each for each in some if each.takes_next] for some in (wanted, found))
    order = _order(wanted, found)
    if order == sorted(order):
        return text, False
    can_be_numbered = can_be_numbered and all("*" not in each.match[0] for each in wanted)
    pieces, end = list[str](), 0
    for i, each in zip(order, found, strict=True):
        number = f"%{i + 1}${each.match['rest']}" if can_be_numbered else wanted[len(pieces) // 2].match[0]
        pieces += [text[end : each.match.start()], number]
        end = each.match.end()
    return "".join([*pieces, text[end:]]), not can_be_numbered


def _conversions(lines: Sequence[Parts]) -> tuple[str, list[_Conversion]]:
    """Return the text of a message, and its conversions."""
    text, codes = "", [(0, 0, 0)]  # begin, end and id of each code
    for i, line in enumerate(lines):
        text += "\n" * (i > 0)
        for part in line:
            begin, content = len(text), part if isinstance(part, str) else str(part.content)
            text += content
            codes += [] if isinstance(part, str) else [(begin, len(text), id(part))]
    found, begins = list[_Conversion](), [begin for begin, _, _ in codes]
    for match in _CONVERSION.finditer(text):
        begin, end, name = codes[bisect_right(begins, match.start()) - 1]
        found.append(_Conversion(match, (name, match.start() - begin) if match.end() <= end else None))
    return text, found


def _order(wanted: Sequence[_Conversion], found: Sequence[_Conversion]) -> list[int]:
    """Return the index in ``wanted`` of each conversion of ``found``: of the same code, or else of the same text."""
    index_of = {each.code: i for i, each in enumerate(wanted) if each.code}
    known = [index_of.get(each.code) if each.code else None for each in found]
    free = dict[str, list[int]]()
    for i in sorted(set(range(len(wanted))) - set(known), reverse=True):
        free.setdefault(wanted[i].match[0], []).append(i)
    return [free[each.match[0]].pop() if i is None else i for i, each in zip(known, found, strict=True)]
