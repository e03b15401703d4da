"""The demonstration's translator, which writes no vulgar word.

The model copies what it does not know in pieces, so foreign text may become any word.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autograd.array import Device
from autograd.packed_weight import PackedDtype
from minitransformer.config.run import RUN_FILE
from minitransformer.inference.prefix import Prefix
from minitransformer.inference.search import Hypothesis
from minitransformer.inference.translator import Translation, Translator
from minitransformer.system.records import as_object, read_object

_ANYWHERE = """bitch cunt fick fotz fuck hure kack kanake möse muschi nigger neger nutte penis pimmel piss pussy
scheiss scheiß schlampe schwuchtel shit slut titte vagina whore wichs"""
_AT_THE_BEGINNING = "arsch cock fag porn tits twat wank"
_ALONE = "ass dick fut sex tit"
_VULGAR = re.compile(
    rf"\w*(?:{'|'.join(_ANYWHERE.split())})\w*|\b(?:{'|'.join(_AT_THE_BEGINNING.split())})\w*"
    rf"|\b(?:{'|'.join(_ALONE.split())})\b",
    re.IGNORECASE,
)


class DemonstrationTranslator(Translator):
    """A translator that writes a vulgar word as its first letter and asterisks."""

    def _decoded(self, hypotheses: Sequence[Hypothesis], prefix: Prefix) -> list[Translation]:
        found = super()._decoded(hypotheses, prefix)
        return [dataclasses.replace(each, text=without_vulgar_words(each.text)) for each in found]


def without_vulgar_words(text: str) -> str:
    """Replace all letters of a vulgar word but its first by three asterisks."""
    return _VULGAR.sub(lambda match: f"{match[0][0]}***", text)


def load_translator(
    directory: Path, *others: Path, device: Device = "cpu", weights: PackedDtype = "float32"
) -> Translator:
    """Load the translator of a run, as ``Translator.load`` does; that of the demonstration writes no vulgar word."""
    data = as_object(read_object(directory / RUN_FILE).get("data"))  # empty for a model without a run
    kind = DemonstrationTranslator if is_demonstration(data) else Translator
    return kind.load(directory, *others, device=device, weights=weights)


def is_demonstration(data: Mapping[str, Any]) -> bool:
    """Return whether settings of data, as a run's file has them, are the demonstration's: no text and no trees."""
    return data.get("train_source") == [] and not data.get("train_trees")
