"""An existing tokenizer, of a trained model or another program, for new text; missing characters can be appended."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import sentencepiece

from minitransformer.config import ConfigError, DataConfig
from minitransformer.config.checks import imported, imported_function, require, unexpected_settings
from minitransformer.data.corpus import Corpus
from minitransformer.data.normalisation import named
from minitransformer.data.protobuf import bytes_field, float_field, integer_field
from minitransformer.data.survey import CorpusError, Pair, groups_of
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.symbols import BLANK, END, LANGUAGE_CODE, UNKNOWN, language_code
from minitransformer.system.extensions import EXTENSIONS

_log = logging.getLogger(__name__)
TOKENIZER_SETTINGS = ("tokenizer", "vocabulary_size", "joint_vocabulary", "normalisation")  # of data
_LINES_AT_ONCE = 10_000
_FIRST_LINES = 100  # of a text, in which tags are looked for


@dataclass(frozen=True)
class GivenTokenizer:
    """An existing tokenizer for new text; if ``extends``, missing characters of the text are appended to it."""

    tokenizer: Tokenizer
    extends: bool = False

    def check(self, config: DataConfig, directory: Path) -> None:
        """Raise ConfigError if ``config`` does not fit this tokenizer; the message names the model's ``directory``."""
        if different := unexpected_settings("data", config, settings_of(self.tokenizer)):
            raise ConfigError(
                f"the run begins from the model in {directory}, which keeps its tokenizer. {'; '.join(different)}."
                " Set what was expected, or leave these settings out"
            )
        if self.extends and config.train_trees:
            raise ConfigError("init_extend_vocabulary is for text: set it to false for a treebank")

    def is_of(self, tokenizer: Tokenizer, added: str | None) -> bool:
        """Return whether ``for_text`` of this tokenizer can return ``tokenizer`` and the characters ``added``."""
        if not self.extends:
            return tokenizer.equals(self.tokenizer)
        if added is None or len(tokenizer.models) != len(self.tokenizer.models):
            return False
        return all(map(bytes.startswith, tokenizer.models, self.tokenizer.models))

    def for_text(self, corpus: Corpus) -> tuple[Tokenizer, str | None]:
        """Return the tokenizer for the training text of a corpus, and the characters that were appended to it.

        The characters are None if ``extends`` is false; then a warning names the characters that the tokenizer lacks.
        Raises: CorpusError if characters cannot be appended to this tokenizer, for example because it has whole words.
        """
        models = (self.tokenizer.source, self.tokenizer.target)
        missing = [_count_missing(model, (pair[side] for pair in corpus.train())) for side, model in enumerate(models)]
        all_missing = missing[0] + missing[1]
        if not self.extends:
            if all_missing:
                _log.warning(
                    f"the tokenizer lacks characters of the training text: {named(all_missing)}. They are read as"
                    " unknown, and no translation has them, unless init_extend_vocabulary is set"
                )
            return self.tokenizer, None
        added = [all_missing] if self.tokenizer.is_joint else missing
        extended = Tokenizer(*map(with_pieces, self.tokenizer.models, map(sorted, added)))
        for model, characters in zip((extended.source, extended.target), missing, strict=True):
            if any(UNKNOWN in model.encode(character) for character in characters):
                raise CorpusError(
                    "init_extend_vocabulary: the tokenizer of init_from cannot be extended by characters, because it"
                    " splits text into whole words, or shares its ids with another one; set it to false"
                )
        _log.info(f"characters appended to the tokenizer: {named(all_missing) or 'none, it has all of the text'}")
        return extended, "".join(sorted(all_missing))


def read_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer in another program's file; an extra module reads the file, and is imported by name."""
    found: Tokenizer = imported("data.tokenizer", EXTENSIONS["tokenizer:file"])(path)
    return found


def made_by(name: str, pairs: Iterable[Pair], config: DataConfig) -> Tokenizer:
    """Return the tokenizer that the function "package.module:name" makes of pairs of lines and settings of data.

    Raises: ConfigError if the name cannot be imported, the result is no ``Tokenizer``, or it contradicts the settings.
    """
    found = imported_function("data.tokenizer", name)(pairs, config)
    require(isinstance(found, Tokenizer), f"the result of data.tokenizer {name}", "a Tokenizer", found)
    tokenizer: Tokenizer = found
    require(
        tokenizer.is_joint == config.joint_vocabulary,
        f"the tokenizer of {name}",
        "one for both languages" if config.joint_vocabulary else "two, one for each language",
        f"{len(tokenizer.models)} sentencepiece models, with data.joint_vocabulary = {config.joint_vocabulary}",
    )
    return tokenizer


def require_tags(tokenizer: Tokenizer, config: DataConfig, corpus: Corpus) -> None:
    """Raise ConfigError if a tokenizer, which is not trained here, lacks a piece for one of ``data.tags``.

    Warn if the tokenizer has tags, but the text has none.
    """
    if missing := [tag for tag in (*config.tags, *config.validation_tags) if tag not in tokenizer.languages]:
        raise ConfigError(
            f"data.tags: the tokenizer has no piece {language_code(missing[0])}; it has"
            f" {', '.join(map(language_code, tokenizer.languages)) or 'no tag'}. Train a new tokenizer: leave init_from"
            " and data.tokenizer out, and give each of data.validation_tags in data.tags, too"
        )
    if config.tags or not tokenizer.languages:
        return
    if not any(LANGUAGE_CODE.match(source) for source, _ in islice(corpus.train(), _FIRST_LINES)):
        _log.warning(
            f"sources of the given tokenizer begin with a tag, such as {language_code(tokenizer.languages[0])}, but"
            " this text has none: set data.tags to the target language of each file"
        )


def settings_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the settings of data that a tokenizer determines."""
    values = tokenizer.kind, tokenizer.n_source_words, tokenizer.is_joint, tokenizer.normalisation
    return dict(zip(TOKENIZER_SETTINGS, values, strict=True))


def _count_missing(model: sentencepiece.SentencePieceProcessor, lines: Iterable[str]) -> Counter[str]:
    """Count the characters for which a model has no piece, after the model's normalisation."""
    counts = Counter[str]()
    for batch in groups_of(lines, _LINES_AT_ONCE):
        for line, ids in zip(batch, model.encode(batch), strict=True):
            if UNKNOWN in ids:
                pieces = model.encode(line, out_type=str)
                counts.update("".join(piece for piece, i in zip(pieces, ids, strict=True) if i == UNKNOWN))
    del counts[BLANK]
    return counts


def with_pieces(model: bytes, pieces: Sequence[str]) -> bytes:
    """Append pieces to a sentencepiece model; they get the next ids, and no other id changes.

    The new pieces get the lowest score of all, so that other text is segmented as before.  Pieces that the model
    already has are not appended.
    Source: sentencepiece_model.proto of sentencepiece has the numbers of the fields.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    n_pieces = int(processor.get_piece_size())
    new = [piece for piece in pieces if processor.piece_to_id(piece) == UNKNOWN]
    least = min(processor.get_score(i) for i in range(END + 1, n_pieces))
    if not new:
        return model
    appended = b"".join(bytes_field(1, bytes_field(1, piece.encode()) + float_field(2, least)) for piece in new)
    return model + appended + bytes_field(2, integer_field(4, n_pieces + len(new)))  # trainer_spec.vocab_size
