"""The tokenizer of a CTranslate2 model: sentencepiece models beside it, or its words separated by blanks."""

from __future__ import annotations

from pathlib import Path

from minitransformer.convert.parts import ConversionError
from minitransformer.convert.vocabulary import Vocabulary, with_tokenizer
from minitransformer.data.tokenizer import JOINT_FILE, Tokenizer

SOURCE_FILE, TARGET_FILE = "source.spm", "target.spm"


def sentencepiece_models(
    directory: Path, source_model: Path | None, target_model: Path | None
) -> tuple[bytes | None, bytes | None]:
    """Return the sentencepiece models of source and target; None if there are none.

    They are the files that are given; one file serves both sides.  Else they are the directory's ``tokenizer.model``,
    or its ``source.spm`` and ``target.spm``.
    Raises: ConversionError if a file cannot be read.
    """
    given = [path for path in (source_model, target_model) if path is not None]
    if not given:
        joint, separate = directory / JOINT_FILE, [directory / SOURCE_FILE, directory / TARGET_FILE]
        given = [joint] if joint.exists() else [path for path in separate if path.exists()]
    if not given:
        return None, None
    try:
        return given[0].read_bytes(), given[-1].read_bytes()
    except OSError as error:
        raise ConversionError(f"{given[0]}: no sentencepiece model can be read ({error})") from error


def with_tokenizer_of(
    models: tuple[bytes | None, bytes | None], source: Vocabulary, target: Vocabulary
) -> tuple[Vocabulary, Vocabulary, Tokenizer]:
    """Return the vocabularies with all pieces of the models, and the tokenizer; see ``with_tokenizer``.

    Raises: ConversionError if the words are pieces of sentencepiece, but there are no models, or if sentencepiece
    refuses words.
    """
    try:
        return with_tokenizer(source, target, models)
    except RuntimeError as error:
        raise ConversionError(
            f"vocabulary: sentencepiece cannot have these words ({error}); is the file of the vocabulary complete?"
        ) from error
