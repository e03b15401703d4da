"""The languages of a text: codes of ISO 639-1, and the languages that the settings of a run name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minitransformer.config.data import common_ending
from minitransformer.system.file_kinds import has_both_sides
from minitransformer.system.records import as_object

NAMED_LANGUAGES = "languages"  # a field with the codes of source and target that translation memories name

# Source: ISO 639-1.  The language of a file is recognised by these codes only: "txt" is no language.
LANGUAGES = {
    "aa", "ab", "ae", "af", "ak", "am", "an", "ar", "as", "av", "ay", "az", "ba", "be", "bg", "bi", "bm", "bn",
    "bo", "br", "bs", "ca", "ce", "ch", "co", "cr", "cs", "cu", "cv", "cy", "da", "de", "dv", "dz", "ee", "el",
    "en", "eo", "es", "et", "eu", "fa", "ff", "fi", "fj", "fo", "fr", "fy", "ga", "gd", "gl", "gn", "gu", "gv",
    "ha", "he", "hi", "ho", "hr", "ht", "hu", "hy", "hz", "ia", "id", "ie", "ig", "ii", "ik", "io", "is", "it",
    "iu", "ja", "jv", "ka", "kg", "ki", "kj", "kk", "kl", "km", "kn", "ko", "kr", "ks", "ku", "kv", "kw", "ky",
    "la", "lb", "lg", "li", "ln", "lo", "lt", "lu", "lv", "mg", "mh", "mi", "mk", "ml", "mn", "mr", "ms", "mt",
    "my", "na", "nb", "nd", "ne", "ng", "nl", "nn", "no", "nr", "nv", "ny", "oc", "oj", "om", "or", "os", "pa",
    "pi", "pl", "ps", "pt", "qu", "rm", "rn", "ro", "ru", "rw", "sa", "sc", "sd", "se", "sg", "si", "sk", "sl",
    "sm", "sn", "so", "sq", "sr", "ss", "st", "su", "sv", "sw", "ta", "te", "tg", "th", "ti", "tk", "tl", "tn",
    "to", "tr", "ts", "tt", "tw", "ty", "ug", "uk", "ur", "uz", "ve", "vi", "vo", "wa", "wo", "xh", "yi", "yo",
    "za", "zh", "zu",
}  # fmt: skip
_DEMONSTRATION = {"source": "en", "target": "de"}


def normalised(language: str) -> str:
    """Return the code of a language in lower case, with hyphens between its parts: "pt-br" for "pt_BR"."""
    return language.lower().replace("_", "-")


def without_region(language: str) -> str:
    """Return the code of a language in lower case, without its region or script: "de" for "de_AT"."""
    return normalised(language).partition("-")[0]


def is_demonstration(data: Mapping[str, Any]) -> bool:
    """Return whether ``data``, the settings of data in run.json, are the demonstration's: no text and no trees."""
    return data.get("train_source") == [] and not data.get("train_trees")


def language_of_run(run: Mapping[str, Any], side: str) -> str | None:
    """Return the language of a side, "source" or "target", given the content of ``run.json``; None if it names none.

    The language is named by ``data.languages``, by a translation memory, or by the common ending of all training files,
    if this is a code in ``LANGUAGES``.  The demonstration, which has no files, translates from English to German.
    """
    data = as_object(run.get("data"))
    if is_demonstration(data):
        return _DEMONSTRATION[side]
    for languages in (data.get("languages"), run.get(NAMED_LANGUAGES)):
        if isinstance(languages, list) and len(languages) == 2:
            return str(languages[side == "target"])
    files = data.get(f"train_{side}")
    names = [str(name) for name in files if not has_both_sides(str(name))] if isinstance(files, list) else []
    code = common_ending(names)
    return code if code in LANGUAGES else None


def languages_of_data(manifest: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the language code of each side of prepared data, given its manifest; None if the text does not name it."""
    run = {"data": manifest.get("config"), NAMED_LANGUAGES: manifest.get(NAMED_LANGUAGES)}
    return {side: language_of_run(run, side) for side in ("source", "target")}
