"""An extension of griffe: the labels of our docstrings (Source, Shapes, Saves, …) begin paragraphs of their own."""

from __future__ import annotations

import re
from typing import Any

import griffe

LABEL = re.compile(
    r"^(Source|Shapes|Saves|Units|Differs|Raises|Returns|Changes)((?:, [^:\n]*)?):[ ](?=\S)", re.MULTILINE
)


class Labels(griffe.Extension):
    """Set each label apart and bold."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that griffe has read."""
        if obj.docstring:
            obj.docstring.value = LABEL.sub(r"\n**\1**\2: ", obj.docstring.value)
