"""The settings of a CTranslate2 model that are no weights: symbols, the end of sources, and the ε of layer norms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from minitransformer.convert.ctranslate2_variables import Variables
from minitransformer.convert.ctranslate2_vocabulary import Symbols
from minitransformer.convert.foreign_files import SettingsFile
from minitransformer.convert.parts import ConversionError, Vocabulary
from minitransformer.model.symbols import END, START

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
    Raises: ConversionError if it has a setting that our model has not; CorruptFileError if it is corrupt.
    """
    has_source_bos = bool(variables.integer(0, "with_source_bos"))
    has_source_eos = bool(variables.integer(0, "with_source_eos"))
    has_target_bos = variables.integer(1, "with_target_bos")
    starts_from_zero = bool(variables.integer(0, "decoder/start_from_zero_embedding"))
    path = directory / SETTINGS_FILE
    file = SettingsFile.load_if_there(path)
    unknown, end = file.of("unk_token", str, "<unk>"), file.of("eos_token", str, "</s>")
    if file.is_null("decoder_start_token"):
        raise ConversionError(
            f"{path}: decoder_start_token is null: users give the first symbol of each translation, as in models of"
            " many languages, which ours cannot do; write one symbol there to convert the model for one language"
        )
    start = file.of("bos_token", str, "<s>")
    first = file.of("decoder_start_token", str, "<s>" if has_target_bos else end)
    if file.of("add_source_bos", bool, has_source_bos):
        raise ConversionError(f"{path}: sources begin with a start symbol (add_source_bos), which ours do not")
    return Settings(
        Symbols(unknown, end, first, start if start not in (unknown, end) else "<s>"),
        starts_from_zero,
        file.of("add_source_eos", bool, has_source_eos) or starts_from_zero,
        file.of("layer_norm_epsilon", float, _EPSILON),
    )


def require_symbols(directory: Path, settings: Settings, source: Vocabulary, target: Vocabulary) -> None:
    """Raise ConversionError if a vocabulary lacks a symbol that the model reads or writes."""
    symbols = settings.symbols
    if symbols.unknown in (symbols.first, symbols.end):
        raise ConversionError(f"{directory}: {symbols.unknown!r} is the unknown word and another symbol, too")
    needed = [(target, END), (source, END)] if settings.source_end else [(target, END)]
    if symbols.first != symbols.end:
        needed.append((target, START))
    for vocabulary, i in needed:
        if vocabulary.rows[i] is None:
            raise ConversionError(
                f"{directory}: the vocabulary lacks the symbol {vocabulary.words[i]!r}; name the model's own symbols"
                f" in {SETTINGS_FILE} (eos_token, decoder_start_token)"
            )
