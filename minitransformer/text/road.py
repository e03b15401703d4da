"""The road of a text through a model: into sentences that the model can translate, and from their translations to text.

A ``Road`` has two functions.  ``sentences`` cuts a text into sentences and takes out what the model should not read:
codes, unknown characters, capitals.  ``joined`` puts the codes back into the translations, and joins them with the
whitespace of the text.  ``steps`` leads texts through both, and has sentences translated again if their translations
lose a placeholder or repeat themselves.  The road knows no file format, no server and no model.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from minitransformer.config import ConfigError
from minitransformer.data.languages import without_region
from minitransformer.data.numbers import changed_numbers
from minitransformer.data.profile import TextProfile, splitter_for
from minitransformer.data.sentences import LINE, SentenceSplitter, needs_blank
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.symbols import LANGUAGE_CODE, language_code
from minitransformer.text.casing import form_of, in_sentence_case
from minitransformer.text.codes import Parts, cut_parts, has_letters, plain_text, text_of, with_textual_codes
from minitransformer.text.sentence import Sentence
from minitransformer.text.terms import Terms
from minitransformer.text.translation import Note, Translation
from minitransformer.text.unknown import KnownCharacters

Step: TypeAlias = Literal["sentences", "codes", "unknown", "capitals", "loops"]
STEPS: tuple[Step, ...] = get_args(Step)
ENGLISH_RULES = ", by the rules of English: the language of the source is not known"


class Sentences(NamedTuple):
    """Sentences for a model to translate.

    ``aligned`` says for each line whether its words must be aligned.  ``places`` has the index of its text, and its
    index within the text.  With ``no_repeat``, no translation may repeat its tokens.
    """

    lines: list[str]
    aligned: list[bool]
    places: list[tuple[int, int]]
    no_repeat: bool


RoadSteps: TypeAlias = Generator[Sentences, Sequence[Sequence[Translation]], list[list[Translation]]]
"""A generator that yields sentences, receives their translations by ``send``, and returns those of each text."""


@dataclass(frozen=True, eq=False)
class Road:
    """The steps between a text and the sentences that a model translates.

    Args:
        profile: languages, and the usual lines of the model's training text.
        skip: steps that are left out.  Lines are always separate, and terms are a step of their own.
        terms: translations that are given.
        to_language: the target language, for a model of several.  Without it, such a model is refused if it was trained
            with tags; a text for another model may begin with the code of its language, such as ">>fra<<".
    """

    tokenizer: Tokenizer
    profile: TextProfile = field(default_factory=TextProfile)
    skip: Collection[Step] = ()
    terms: Terms | None = None
    to_language: str | None = None

    def __post_init__(self) -> None:
        self._check_language()
        if unknown := [step for step in self.skip if step not in STEPS]:
            raise ConfigError(f"skip: expected steps among {', '.join(STEPS)}; got {unknown[0]!r}")

    def _check_language(self) -> None:
        """Raise ConfigError if the model does not translate to ``to_language``, or was trained with tags and has none.

        A model of one language may be given this language.
        """
        if self.to_language is None and not self.profile.targets:
            return
        known = self.profile.targets or self.tokenizer.languages or tuple(filter(None, [self.profile.target]))
        listed = ", ".join(known) or "one language, which its files do not name: leave to_language out"
        if self.to_language is None:
            raise ConfigError(f"the model translates to {listed}: set to_language to one of them")
        if self.to_language not in known:
            raise ConfigError(
                f"to_language: the model does not translate to {self.to_language}; it translates to {listed}"
            )

    @property
    def target(self) -> str | None:
        """The code of the target language; None if it is not known."""
        return self.to_language or self.profile.target

    def facts(self) -> dict[str, Any]:
        """Return the settings on which translations depend; all are None if every step is left out."""
        steps, profile, splits = list(filter(self._takes, STEPS)), self.profile, self._takes("sentences")
        return {
            "steps": steps or None,
            "terms": self.terms and self.terms.checksum(),
            "split_sentences": profile.source if splits else None,
            "sentences_per_line": [profile.sentences, profile.tokens] if splits else None,
            "languages_of_capitals": [profile.source, self.target] if self._takes("capitals") else None,
            **({} if self.to_language is None else {"to_language": self.to_language}),
        }

    def steps(self, texts: Sequence[str | Parts]) -> RoadSteps:
        """Yield the sentences of texts, and some of them again; return the translations of each text, best first."""
        whole: list[Parts] = [[text] if isinstance(text, str) else text for text in texts]
        cut = [self.sentences(parts, i) for i, parts in enumerate(whole)]
        self._take_unknown_out([sentence for sentence in itertools.chain(*cut) if not sentence.found])
        left = [sentence for sentence in itertools.chain(*cut) if not sentence.found]
        while left:
            again = list[Sentence]()
            groups = [[one for one in left if one.no_repeat == no_repeat] for no_repeat in (False, True)]
            for some in filter(None, groups):
                aligned = [bool(sentence.flat.codes) for sentence in some]
                lines, places = [sentence.line for sentence in some], [sentence.place for sentence in some]
                found = yield Sentences(lines, aligned, places, some[0].no_repeat)
                again += [one for one, its in zip(some, found, strict=True) if its and not one.take(its)]
            left = again
        return [self.joined(parts, sentences) for parts, sentences in zip(whole, cut, strict=True)]

    def sentences(self, parts: Parts, text: int = 0) -> list[Sentence]:
        """Cut a text into sentences, each in the form that the model reads, but with its unknown characters."""
        code, parts = self._code_and_text(parts)
        if self._takes("codes"):
            parts = with_textual_codes(parts)
        pieces = self._pieces("".join(map(text_of, parts)))
        before = f"{code} " if code else ""
        return [self._sentence(piece, (text, i), before) for i, piece in enumerate(cut_parts(parts, pieces))]

    def _code_and_text(self, parts: Parts) -> tuple[str, Parts]:
        """Return the code of the target language before each sentence, or "", and a text without this code.

        If ``to_language`` is given, codes in the text are text like any other.
        """
        if self.to_language is not None:
            return language_code(self.to_language) if self.to_language in self.tokenizer.languages else "", parts
        code = LANGUAGE_CODE.match(parts[0]) if parts and isinstance(parts[0], str) else None
        return (code[0], [str(parts[0])[code.end() :].lstrip(), *parts[1:]]) if code else ("", parts)

    def joined(self, source: Parts, sentences: Sequence[Sentence]) -> list[Translation]:
        """Join the translations of a text's sentences: the k-th of the text has the k-th of each sentence.

        [] if a sentence has no translation, because it was no longer wanted.
        """
        if not all(sentence.found for sentence in sentences):
            return []
        n = max((len(sentence.found) for sentence in sentences), default=1)
        notes = self._notes(sentences)
        return [self._joined(source, sentences, k, notes) for k in range(n)]

    def _takes(self, step: Step) -> bool:
        return step not in self.skip

    @cached_property
    def _known(self) -> KnownCharacters:
        return KnownCharacters(self.tokenizer)

    @cached_property
    def _split(self) -> SentenceSplitter:
        return splitter_for(self.profile.source)

    def _pieces(self, text: str) -> list[str]:
        """Cut a text into lines, and lines into as many sentences as lines of the training text have."""
        if not self._takes("sentences"):
            return LINE.findall(text)
        sentences, most = self._split(text), self.profile.sentences
        if most == 1 or len(sentences) == 1:
            return sentences
        lengths = map(len, self.tokenizer.encode_source(sentences))
        pieces, n, n_tokens = list[str](), 0, 0
        for sentence, length in zip(sentences, lengths, strict=True):
            fits = n < most and n_tokens + length <= (self.profile.tokens or 0)
            if n and fits and not pieces[-1].endswith("\n"):
                pieces[-1] += sentence
                n, n_tokens = n + 1, n_tokens + length
            else:
                pieces.append(sentence)
                n, n_tokens = 1, length
        return pieces

    def _sentence(self, parts: Parts, place: tuple[int, int], code: str) -> Sentence:
        sentence = Sentence(
            parts,
            parts,
            place,
            code,
            target_language=self.target,
            forbids_loops=self._takes("loops"),
            copies_numbers=self._takes("codes"),
        )
        if self._takes("codes") and not has_letters(parts):
            sentence.copy()
        elif self._takes("capitals"):
            self._write_in_sentence_case(sentence)
        if self.terms and not sentence.found:
            sentence.read = self.terms.with_codes(sentence.read)
        return sentence

    def _write_in_sentence_case(self, sentence: Sentence) -> None:
        texts = [part for part in sentence.parts if isinstance(part, str)]
        form = form_of("".join(texts))
        if form == "sentence":
            return
        lowered = in_sentence_case(texts, self.profile.source, self.tokenizer)
        if form == "title" and lowered == texts:  # names
            return
        remaining = iter(lowered)
        sentence.read = [next(remaining) if isinstance(part, str) else part for part in sentence.parts]
        sentence.form = form
        written = "in capitals" if form == "capitals" else "in title case"
        sentence.notes.append(Note("capitals", f"translated as a sentence, and written {written}"))

    def _take_unknown_out(self, sentences: Sequence[Sentence]) -> None:
        for sentence, is_lacking in zip(
            sentences, self._known.lacking([sentence.flat.text for sentence in sentences]), strict=True
        ):
            if not is_lacking:
                continue
            unknown = self._known.unknown_in(sentence.flat.text)
            if not self._takes("unknown"):
                message = "characters that the vocabulary lacks were read as unknown words"
                sentence.notes.append(Note("unknown", message, unknown, True))
                continue
            sentence.notes.append(Note("unknown", "characters that the vocabulary lacks were copied", unknown))
            sentence.read = self._known.with_codes(sentence.read)
            if self._takes("codes") and not any(map(str.isalpha, sentence.flat.text)):
                sentence.copy()

    def _notes(self, sentences: Sequence[Sentence]) -> list[Note]:
        worded = [sentence for sentence in sentences if any(map(str.isalnum, plain_text(sentence.parts)))]
        n_lines = 1 + sum("\n" in plain_text(sentence.parts) for sentence in worded[:-1])
        notes = []
        codes = [] if self.to_language else [f"{language_code(language)} " for language in self.tokenizer.languages]
        read = [sentence for sentence in sentences if has_letters(sentence.parts)]
        if codes and read and read[0].code not in codes:
            message = "the model translates to several languages, and the text begins with the code of none"
            notes.append(Note("language", message, f"{codes[0]}…", True))
        if len(worded) > n_lines:
            is_guess = without_region(self.profile.source or "") != self._split.language
            message = "translated sentence by sentence" + (ENGLISH_RULES if is_guess else "")
            notes.append(Note("sentences", message, str(len(worded)), is_guess))
        return [*notes, *itertools.chain.from_iterable(sentence.notes for sentence in sentences)]

    def _joined(self, source: Parts, sentences: Sequence[Sentence], k: int, notes: Sequence[Note]) -> Translation:
        parts, chosen = Parts(), [sentence.found[min(k, len(sentence.found) - 1)] for sentence in sentences]
        for i, (sentence, one) in enumerate(zip(sentences, chosen, strict=True)):
            parts += one.parts
            text = plain_text(sentence.parts)
            if i + 1 < len(sentences) and not text[-1:].isspace() and needs_blank(text, plain_text(one.parts)):
                parts.append(" ")
        text, found = plain_text(parts), [*notes, *itertools.chain.from_iterable(one.notes for one in chosen)]
        if changed := changed_numbers(plain_text(source), text):
            found.append(Note("numbers", "the translation lacks numbers of its source", ", ".join(changed), True))
        alignment = chosen[0].alignment if len(chosen) == 1 else ()
        if self.to_language is not None and sentences and sentences[0].code:  # the code is no word of the text
            alignment = tuple((i - 1, j) for i, j in alignment if i)
        return Translation(
            text,
            sum(one.log_probability for one in chosen),
            sum(one.score for one in chosen),
            alignment=alignment,
            is_cut=any(one.is_cut for one in chosen),
            parts=parts,
            notes=tuple(dict.fromkeys(found)),
        )


def translated(
    steps: RoadSteps, translate: Callable[[Sentences], Sequence[Sequence[Translation]]]
) -> list[list[Translation]]:
    """Have ``translate`` translate all sentences of a road; return the translations of each text."""
    try:
        sentences = next(steps)
        while True:
            sentences = steps.send(translate(sentences))
    except StopIteration as end:
        return list(end.value)
