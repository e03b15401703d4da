"""The two languages of a server: their codes are options, or come from ``run.json`` of the training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minitransformer.config import ConfigError
from minitransformer.config.data import common_ending, require_language
from minitransformer.config.run import RUN_FILE
from minitransformer.data.prepare import LANGUAGES
from minitransformer.extras.demo_translator import is_demonstration
from minitransformer.system.file_kinds import has_both_sides
from minitransformer.system.records import as_object, read_object

# Source: ISO 639-1.  The language of a file is recognised by these codes only: "txt" is no language.
NAMES = {
    "af": "Afrikaans", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali",
    "bs": "Bosnian", "ca": "Catalan", "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "gu": "Gujarati", "ha": "Hausa", "he": "Hebrew",
    "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "is": "Icelandic",
    "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "km": "Khmer", "ko": "Korean", "la": "Latin",
    "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian", "ml": "Malayalam", "mn": "Mongolian", "mr": "Marathi",
    "ms": "Malay", "mt": "Maltese", "nb": "Norwegian Bokmål", "ne": "Nepali", "nl": "Dutch", "nn": "Norwegian Nynorsk",
    "no": "Norwegian", "pl": "Polish", "ps": "Pashto", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili",
    "ta": "Tamil", "te": "Telugu", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu",
    "uz": "Uzbek", "vi": "Vietnamese", "xh": "Xhosa", "yo": "Yoruba", "zh": "Chinese", "zu": "Zulu",
}  # fmt: skip
_DEMONSTRATION = {"source": "en", "target": "de"}


@dataclass(frozen=True)
class Language:
    """A language: its code, such as "en", and its English name; for an unknown code, the name is the code."""

    code: str

    def __post_init__(self) -> None:
        require_language("language", self.code)

    @property
    def name(self) -> str:
        return NAMES.get(self.code, self.code)


@dataclass(frozen=True)
class Languages:
    """The languages that a model reads (``source``) and writes (``target``)."""

    source: Language
    target: Language


def languages_of(run: Path, source: str | None, target: str | None) -> Languages:
    """Return the languages ``source`` and ``target``; if one is None, use the language in the run's ``run.json``.

    Raises: ConfigError if ``run.json`` names no language (see ``language_of_run``), or if a code has a wrong form.
    """
    content = read_object(run / RUN_FILE)  # empty for a model without a run
    codes = {
        "source": source or language_of_run(content, "source"),
        "target": target or language_of_run(content, "target"),
    }
    missing = [side for side, code in codes.items() if code is None]
    if missing:
        remedies = [f"set {side} (a code, such as {_DEMONSTRATION[side]})" for side in missing]
        raise ConfigError(
            f"{run}: no names of training text say its {' and '.join(missing)} language; {' and '.join(remedies)}"
        )
    return Languages(*(Language(str(code).lower().replace("_", "-")) for code in codes.values()))


def language_of_run(run: Mapping[str, Any], side: str) -> str | None:
    """Return the language of a side, "source" or "target", given the content of ``run.json``; None if it names none.

    The language is named by ``data.languages``, by a translation memory, or by the common ending of all training files,
    if this is a code in ``NAMES``.  The demonstration, which has no files, translates from English to German.
    """
    data = as_object(run.get("data"))
    if is_demonstration(data):
        return _DEMONSTRATION[side]
    for languages in (data.get("languages"), run.get(LANGUAGES)):
        if isinstance(languages, list) and len(languages) == 2:
            return str(languages[side == "target"])
    files = data.get(f"train_{side}")
    names = [str(name) for name in files if not has_both_sides(str(name))] if isinstance(files, list) else []
    code = common_ending(names)
    return code if code in NAMES else None
