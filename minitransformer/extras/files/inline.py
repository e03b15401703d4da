"""Inline elements of segments in TMX and XLIFF: read as codes, and written again."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from minitransformer.data.tmx import is_break
from minitransformer.text.codes import Code, Kind, Part, Parts

_LINE_END, _NOWHERE = re.compile(r"(?<!\s)\s*\n\s*"), re.compile("(?!)")  # XML may break lines anywhere
_PAIR_ELEMENTS = {"hi", "g", "mrk", "pc"}  # elements of TMX and XLIFF with text between their tags
_BEGIN_ELEMENTS, _END_ELEMENTS = {"bpt", "bx", "sc", "sm"}, {"ept", "ex", "ec", "em"}
_PARTNER_ATTRIBUTES = ("i", "rid", "startRef", "id")  # attributes with the name of an element's pair


def parts_of(element: Any, *, keeps_lines: bool = False) -> Parts:
    """Return the parts of a segment in TMX or XLIFF: its text, and its elements as codes.

    An element whose text must not be translated is one code.  With ``keeps_lines`` false, line ends become blanks.
    """
    line_end = _NOWHERE if keeps_lines else _LINE_END
    parts: Parts = [line_end.sub(" ", element.text or "")]
    for child in element:
        name = _local_name(child)
        if name in _PAIR_ELEMENTS and not _is_untranslated(child):
            pair = f"{name} {id(child)}"
            parts += [Code(child, "begin", pair), *parts_of(child, keeps_lines=keeps_lines), Code(child, "end", pair)]
        else:
            kind: Kind = "begin" if name in _BEGIN_ELEMENTS else "end" if name in _END_ELEMENTS else "alone"
            partner = next((child.get(key) for key in _PARTNER_ATTRIBUTES if child.get(key)), "")
            breaks = name != "" and is_break("".join(child.itertext()), child.get("type") or child.get("ctype"))
            parts.append(Code(child, kind, f"code {partner}", is_break=breaks))
        parts.append(line_end.sub(" ", child.tail or ""))
    return [part for part in parts if part != ""]


def _is_untranslated(element: Any) -> bool:
    """Return whether an element is marked as not to be translated: translate="no", or mtype="protected" in XLIFF 1."""
    return bool(element.get("translate") == "no" or element.get("mtype") == "protected")


def write_parts(parts: Sequence[Part], element: Any) -> None:
    """Replace the content of a segment's XML element by parts; XML elements in codes are copied."""
    for child in list(element):
        element.remove(child)
    element.text, within = None, [element]
    for part in parts:
        code = part if isinstance(part, Code) else Code(part)
        if isinstance(code.content, str):
            _add_text(within[-1], code.content)
        elif _local_name(code.content) in _PAIR_ELEMENTS and code.kind == "end":
            within.pop()
        elif _local_name(code.content) in _PAIR_ELEMENTS and code.kind == "begin":
            child = element.makeelement(code.content.tag, dict(code.content.attrib))
            within[-1].append(child)
            within.append(child)
        else:
            child = copy.deepcopy(code.content)
            child.tail = None
            within[-1].append(child)


def _local_name(element: Any) -> str:
    """Return the name of an element without its namespace; "" for a comment or an instruction."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _add_text(element: Any, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text
