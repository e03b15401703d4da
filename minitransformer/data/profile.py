"""The profile of a model's training text: languages, and the sentences and tokens of its lines.

A file beside the model has it, so that texts are cut into pieces like those lines.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minitransformer.config.checks import ConfigError
from minitransformer.config.run import RUN_FILE
from minitransformer.data.languages import LANGUAGES, language_of_run, without_region
from minitransformer.data.sentences import SentenceSplitter
from minitransformer.data.survey import Pair
from minitransformer.model.batch import IdPair
from minitransformer.model.symbols import language_code
from minitransformer.system.files import write_text
from minitransformer.system.records import as_object, read_object, read_record

PROFILE_FILE = "text.json"
USUAL_LINES = "usual_lines"  # the manifest's field with ``sentences`` and ``tokens``


@dataclass(frozen=True)
class TextProfile:
    """The languages of a model, and the usual lines of its training text.

    ``sentences`` is the number of sentences that at least half of the lines have.  ``tokens`` is the number of source
    tokens that 99 % of the lines do not exceed; None if it is not known.  ``targets`` are the languages of a model
    that was trained with tags, which has no ``target``.
    """

    source: str | None = None
    target: str | None = None
    sentences: int = 1
    tokens: int | None = None
    targets: tuple[str, ...] = ()

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The codes of source and target."""
        return self.source, self.target

    def require_tags(self, lines: Iterable[str]) -> None:
        """Raise ConfigError if the model was trained with tags, and a line, which it reads alone, begins with none."""
        codes = tuple(f"{language_code(language)} " for language in self.targets)
        if codes and (without := next((line for line in lines if line.strip() and not line.startswith(codes)), None)):
            raise ConfigError(
                f"the model translates to {', '.join(self.targets)}, and the line {without[:40]!r} does not say to"
                f" which: begin it with {codes[0]}or with another tag"
            )

    @classmethod
    def load(cls, directory: Path) -> TextProfile:
        """Read the profile beside a model; without one, the languages of its run, and lines of one sentence."""
        if (directory / PROFILE_FILE).exists():
            return read_record(directory / PROFILE_FILE, cls, ignore_unknown=True)
        return profile_of({}, read_object(directory / RUN_FILE))  # empty for a model without a run

    def save(self, directory: Path) -> None:
        """Write the profile beside a model, unless nothing is known."""
        if self != TextProfile():
            write_text(directory / PROFILE_FILE, json.dumps(dataclasses.asdict(self), indent=2) + "\n")


def splitter_for(language: str | None) -> SentenceSplitter:
    """Return the splitter of a language; that of English if the language is not known, or has no code of ISO 639-1."""
    code = without_region(language or "")
    return SentenceSplitter(code if code in LANGUAGES else "en")


@dataclass(frozen=True)
class LineCounts:
    """The number of training lines with each number of sentences, and with each number of source tokens."""

    language: str | None
    sentences: Counter[int] = field(default_factory=Counter)
    tokens: Counter[int] = field(default_factory=Counter)

    def count_sentences(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the pairs, and count the sentences of their sources."""
        split = splitter_for(self.language)
        for pair in pairs:
            self.sentences[len(split(pair[0]))] += 1
            yield pair

    def count_tokens(self, pairs: Iterable[IdPair]) -> Iterator[IdPair]:
        """Yield the pairs of ids, and count the tokens of their sources."""
        for pair in pairs:
            self.tokens[len(pair[0])] += 1
            yield pair

    def add(self, other: LineCounts) -> None:
        """Add the counts of other lines."""
        self.sentences.update(other.sentences)
        self.tokens.update(other.tokens)

    @property
    def description(self) -> str:
        """The shares of lines with one sentence, with two, and with more, as text."""
        n_lines = max(1, self.sentences.total() - self.sentences[0])
        shares = {"one": self.sentences[1] / n_lines, "two": self.sentences[2] / n_lines}
        shares["more"] = sum(n for sentences, n in self.sentences.items() if sentences > 2) / n_lines
        return ", ".join(f"{name} {share:.1%}" for name, share in shares.items())

    def usual(self) -> dict[str, int]:
        """Return the fields ``sentences`` and ``tokens`` of a profile."""
        return {"sentences": max(1, _least(self.sentences, 0.5)), "tokens": _greatest(self.tokens, 0.99)}


def _least(counts: Counter[int], share: float) -> int:
    """Return the greatest number that at least this share of the lines reach."""
    n_more = 0
    for number in sorted(counts, reverse=True):
        n_more += counts[number]
        if n_more >= share * counts.total():
            return number
    return 0


def _greatest(counts: Counter[int], share: float) -> int:
    """Return the least number that at least this share of the lines do not exceed."""
    return -_least(Counter({-number: count for number, count in counts.items()}), share)


def profile_of(manifest: Mapping[str, Any], run: Mapping[str, Any]) -> TextProfile:
    """Return the profile of prepared data, and of the languages in ``run``, the content of ``run.json``.

    Data that an earlier version has prepared has lines of one sentence.
    """
    targets = tuple(dict.fromkeys(as_object(run.get("data")).get("tags") or ()))
    source, target = (language_of_run(run, side) for side in ("source", "target"))
    return TextProfile(source, None if targets else target, targets=targets, **manifest.get(USUAL_LINES, {}))
