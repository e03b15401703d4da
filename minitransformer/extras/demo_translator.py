"""The demonstration's translator, which also translates lines in capitals, and masks vulgar words.

The training text of the demonstration has no lines in capitals and no vulgar words.  But the model copies unknown words
piece by piece, so that a translation may have any word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograd.array import Device
from autograd.packed_weight import PackedDtype
from minitransformer.config.run import RUN_FILE
from minitransformer.data.normalisation import words_of_line
from minitransformer.inference.prefix import Prefix
from minitransformer.inference.translator import Translator
from minitransformer.system.records import as_object, read_object

_ANYWHERE = """bitch cunt fick fotz fuck hure kack kanake möse muschi nigger neger nutte penis pimmel piss pussy
scheiss scheiß schlampe schwuchtel shit slut titte vagina whore wichs"""
_AT_THE_BEGINNING = "arsch cock fag porn tits twat wank"
_ALONE = "ass dick fut sex tit"
_VULGAR = re.compile(
    rf"\b(?:\w*(?:{'|'.join(_ANYWHERE.split())})\w*|(?:{'|'.join(_AT_THE_BEGINNING.split())})\w*"
    rf"|(?:{'|'.join(_ALONE.split())})\b)",
    re.IGNORECASE,
)


class DemonstrationTranslator(Translator):
    """A translator that writes a vulgar word as its first letter and asterisks.

    A line in capitals is translated in lower case, and its translation is converted to capitals.
    """

    def model_text(self, text: str, line: str) -> str:
        is_lowered = is_in_capitals(line) and text.isupper()
        return re.sub(r"\bi\b", "I", text.capitalize()) if is_lowered else text

    def shown_text(self, text: str, line: str) -> str:
        proper = without_vulgar_words(text)
        return proper.upper() if is_in_capitals(line) else proper

    def prefix_of(self, text: str, line: str) -> Prefix:
        prefix = super().prefix_of(self.model_text(text, line), line)
        return _ShownPrefix(**vars(prefix), written=" ".join(words_of_line(text)), in_capitals=is_in_capitals(line))


@dataclass(frozen=True)
class _ShownPrefix(Prefix):
    """A prefix that masks vulgar words in the translation.

    With ``in_capitals``, the translation is the prefix as the user has ``written`` it, and the rest in capitals.
    """

    written: str = ""
    in_capitals: bool = False

    def completed(self, decoded: str) -> str:
        text = super().completed(decoded)
        if self.in_capitals:
            rest = text.removeprefix(self.text)
            text = self.written * (len(rest) < len(text)) + rest.upper()
        return without_vulgar_words(text)


def is_in_capitals(line: str) -> bool:
    """Return whether a line is in capitals, and has two letters in a row; "I" and "A" alone do not count."""
    return line.isupper() and re.search(r"[^\W\d_]{2}", line) is not None


def without_vulgar_words(text: str) -> str:
    """Replace each vulgar word by its first letter and three asterisks."""
    return _VULGAR.sub(lambda match: f"{match[0][0]}***", text)


def load_translator(
    directory: Path, *others: Path, device: Device = "cpu", weights: PackedDtype = "float32"
) -> Translator:
    """Load the translator of a run, as ``Translator.load`` does; for the demonstration, a DemonstrationTranslator."""
    data = as_object(read_object(directory / RUN_FILE).get("data"))  # empty for a model without a run
    kind = DemonstrationTranslator if is_demonstration(data) else Translator
    return kind.load(directory, *others, device=device, weights=weights)


def is_demonstration(data: Mapping[str, Any]) -> bool:
    """Return whether ``data``, the settings of data in run.json, are the demonstration's: no text and no trees."""
    return data.get("train_source") == [] and not data.get("train_trees")
