"""The languages of a server: their codes are options, or come from files beside the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from minitransformer.config import ConfigError
from minitransformer.config.data import require_language
from minitransformer.data.languages import normalised
from minitransformer.data.profile import TextProfile

# Source: ISO 639-1.
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
_EXAMPLES = {"source": "en", "target": "de"}


@dataclass(frozen=True)
class Language:
    """A language: its code, such as "en", and its English name; for an unknown code, the name is the code."""

    code: str

    def __post_init__(self) -> None:
        require_language("language", self.code)

    @property
    def name(self) -> str:
        return NAMES.get(self.code, self.code)


def pairs_of(run: Path, source: str | None, target: str | None) -> list[tuple[Language, Language]]:
    """Return the pairs of languages that a model translates; a language that is None is that of the run's ``run.json``.

    A model of several languages has a pair for each of them if ``target`` is None.
    Raises: ConfigError if ``run.json`` names no language (see ``language_of_run``), if a code has a wrong form, or if
    a model of several languages does not write ``target``.
    """
    profile = TextProfile.load(run)
    if profile.targets and target not in (None, *profile.targets):
        raise ConfigError(
            f"target: {run} does not translate to {target}; it translates to {', '.join(profile.targets)}"
        )
    targets = profile.targets if target is None and profile.targets else (target or profile.target,)
    codes = {"source": source or profile.source, "target": targets[0]}
    missing = [side for side, code in codes.items() if code is None]
    if missing:
        remedies = [f"set {side} (a code, such as {_EXAMPLES[side]})" for side in missing]
        raise ConfigError(
            f"{run}: no names of training text say its {' and '.join(missing)} language; {' and '.join(remedies)}"
        )
    read, *written = (Language(normalised(str(code))) for code in (codes["source"], *targets))
    return [(read, each) for each in written]
