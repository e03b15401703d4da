"""The settings of a CTranslate2 model that are no weights: symbols, the end of sources, and the ε of layer norms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minitransformer.convert.ctranslate2_variables import Variables
from minitransformer.convert.ctranslate2_vocabulary import Symbols
from minitransformer.convert.parts import ConversionError
from minitransformer.convert.vocabulary import Vocabulary
from minitransformer.model.symbols import END, START
from minitransformer.system.files import CorruptFileError, read_json

SETTINGS_FILE = "config.json"
_EPSILON = 1e-5  # of layer norms, if config.json has none


@dataclass(frozen=True)
class Settings:
    """The model's symbols, what its decoder starts from, whether its sources end with a symbol, and ε of its norms."""

    symbols: Symbols
    starts_from_zero: bool
    source_end: bool
    layer_norm_eps: float


def read_settings(directory: Path, variables: Variables) -> Settings:
    """Read ``config.json``; older models have flags among their variables instead.

    Models whose decoder starts from zeros are Marian's.  They were trained with an end symbol after every source, which
    the setting does not say if they were converted from Hugging Face's transformers, whose tokenizers append it.
    Raises: ConversionError if the file is corrupt, or has a setting that our model has not.
    """
    has_source_bos = variables.integer(0, "with_source_bos")
    has_source_eos = variables.integer(0, "with_source_eos")
    has_target_bos = variables.integer(1, "with_target_bos")
    starts_from_zero = bool(variables.integer(0, "decoder/start_from_zero_embedding"))
    path = directory / SETTINGS_FILE
    found = _read_object(path) if path.exists() else {}
    unknown, end = _word(path, found, "unk_token", "<unk>"), _word(path, found, "eos_token", "</s>")
    if "decoder_start_token" in found and found["decoder_start_token"] is None:
        raise ConversionError(
            f"{path}: decoder_start_token is null: users give the first symbol of each translation, as in models of"
            " many languages, which ours cannot do; write one symbol there to convert the model for one language"
        )
    start = _word(path, found, "decoder_start_token", "<s>" if has_target_bos else end)
    if found.get("add_source_bos", has_source_bos):
        raise ConversionError(f"{path}: sources begin with a start symbol (add_source_bos), which ours do not")
    epsilon = found.get("layer_norm_epsilon")
    if epsilon is not None and not isinstance(epsilon, float | int):
        raise ConversionError(f"{path}: layer_norm_epsilon: expected a number, got {epsilon!r:.80}")
    return Settings(
        Symbols(unknown, end, start),
        starts_from_zero,
        bool(found.get("add_source_eos", has_source_eos)) or starts_from_zero,
        _EPSILON if epsilon is None else float(epsilon),
    )


def _read_object(path: Path) -> Mapping[str, Any]:
    try:
        found = read_json(path)
    except CorruptFileError as error:
        raise ConversionError(str(error)) from error
    if not isinstance(found, dict):
        raise ConversionError(f"{path}: expected an object of settings; the file is corrupt, or of another kind")
    return found


def _word(path: Path, found: Mapping[str, Any], name: str, default: str) -> str:
    word = found.get(name, default)
    if not isinstance(word, str):
        raise ConversionError(f"{path}: {name}: expected a word, got {word!r:.80}")
    return word


def require_symbols(directory: Path, settings: Settings, source: Vocabulary, target: Vocabulary) -> None:
    """Raise ConversionError if a vocabulary lacks a symbol that the model reads or writes."""
    symbols = settings.symbols
    if symbols.unknown in (symbols.start, symbols.end):
        raise ConversionError(f"{directory}: {symbols.unknown!r} is the unknown word and another symbol, too")
    needed = [(target, END), (source, END)] if settings.source_end else [(target, END)]
    if symbols.start != symbols.end:
        needed.append((target, START))
    for vocabulary, i in needed:
        if vocabulary.rows[i] is None:
            raise ConversionError(
                f"{directory}: the vocabulary lacks the symbol {vocabulary.words[i]!r}; name the model's own symbols"
                f" in {SETTINGS_FILE} (eos_token, decoder_start_token)"
            )
