"""Models in other programs, for certificates: MarianMT of transformers, CTranslate2, and onnxruntime.

Each is given our tokenizer: its pieces are the words of the other program's vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.convert.certificate import BEAM, GREEDY, OtherSide, Sentence
from minitransformer.convert.ctranslate2_vocabulary import Symbols, read_vocabularies
from minitransformer.convert.parts import ConversionError
from minitransformer.convert.pieces import words_of
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.beam import SearchConfig
from minitransformer.model.symbols import BLANK, END, START, UNKNOWN
from minitransformer.system.files import read_json


class MarianSide:
    """MarianMT in the package transformers; needs PyTorch."""

    package = "transformers"
    beams = (GREEDY, BEAM)

    def __init__(self, directory: Path, tokenizer: Tokenizer) -> None:
        transformers = import_module("transformers")

        self._model = transformers.MarianMTModel.from_pretrained(directory).eval()
        self._tokenizer = transformers.MarianTokenizer.from_pretrained(directory)
        vocabulary = read_json(directory / "vocab.json")
        path_of_target = directory / "target_vocab.json"
        of_target = read_json(path_of_target) if path_of_target.exists() else vocabulary
        models = tokenizer.models
        self._source_ids = [vocabulary.get(word, vocabulary["<unk>"]) for word in words_of(models[0])]
        self._target_ids = [of_target.get(word, of_target["<unk>"]) for word in words_of(models[-1])]

    def has_same_ids(self, line: str, source: Sentence) -> bool:
        """Implement ``OtherSide``.  The ids compared are MarianMT's: words that it lacks are its unknown word."""
        theirs = self._tokenizer(line, add_special_tokens=False)["input_ids"]
        return bool(theirs == [self._source_ids[i] for i in source])

    def log_probabilities(self, source: Sentence, target: Sentence) -> list[float]:
        """Implement ``OtherSide``."""
        torch = import_module("torch")

        labels = [self._target_ids[i] for i in (*target, END)]
        inputs = torch.tensor([[self._model.config.decoder_start_token_id, *labels[:-1]]])
        with torch.no_grad():
            logits = self._model(input_ids=self._source(source), decoder_input_ids=inputs).logits[0]
        return [row[i].item() for row, i in zip(logits.double().log_softmax(-1), labels, strict=True)]

    def translate(self, source: Sentence, config: SearchConfig) -> list[int]:
        """Implement ``OtherSide``."""
        input_ids = self._source(source)
        found = self._model.generate(
            input_ids=input_ids, attention_mask=input_ids.new_ones(input_ids.shape), do_sample=False,
            num_beams=config.beam, length_penalty=config.alpha if config.beam > 1 else None,
            early_stopping="never" if config.beam > 1 else None,
            max_new_tokens=len(source) + config.max_extra_tokens, max_length=None, renormalize_logits=False,
            bad_words_ids=[[self._target_ids[UNKNOWN]], [self._target_ids[START]]],
        )  # fmt: skip
        ours = {theirs: i for i, theirs in reversed(list(enumerate(self._target_ids)))}
        return _before_end([ours[i] for i in found[0, 1:].tolist()])

    def _source(self, source: Sentence) -> Any:
        torch = import_module("torch")

        return torch.tensor([[self._source_ids[i] for i in (*source, END)]])


class CTranslate2Side:
    """CTranslate2, with the weights' own numbers."""

    package = "ctranslate2"
    beams = (GREEDY, BEAM)

    def __init__(self, directory: Path, tokenizer: Tokenizer) -> None:
        ctranslate2 = import_module("ctranslate2")

        self._translator = ctranslate2.Translator(str(directory), intra_threads=1)
        known = {word for side in read_vocabularies(directory, Symbols()) for word in side.words}
        self._source_words, self._target_words = (
            [word if word in known else BLANK + word for word in words_of(model)]  # language codes have both spellings
            for model in (tokenizer.models[0], tokenizer.models[-1])
        )

    def has_same_ids(self, line: str, source: Sentence) -> None:
        """Implement ``OtherSide``: CTranslate2 reads tokens."""

    def log_probabilities(self, source: Sentence, target: Sentence) -> list[float]:
        """Implement ``OtherSide``."""
        words = [self._target_words[i] for i in target]
        return list(self._translator.score_batch([self._source(source)], [words], max_input_length=0)[0].log_probs)

    def translate(self, source: Sentence, config: SearchConfig) -> list[int]:
        """Implement ``OtherSide``."""
        (result,) = self._translator.translate_batch(
            [self._source(source)],
            beam_size=config.beam,
            patience=2,  # search on after the first finished translations, as we do
            length_penalty=config.alpha,
            disable_unk=True,
            suppress_sequences=[[self._target_words[START]]],
            min_decoding_length=0,  # a translation may be empty, as ours
            max_decoding_length=len(source) + config.max_extra_tokens - 1,  # without the end symbol
            max_input_length=0,
        )
        ids = {word: i for i, word in enumerate(self._target_words)}
        return [ids[word] for word in result.hypotheses[0]]

    def _source(self, source: Sentence) -> list[str]:
        return [self._source_words[i] for i in source]


class OnnxSide:
    """The two graphs of ``write_onnx``, in onnxruntime."""

    package = "onnxruntime"
    beams = (GREEDY,)

    def __init__(self, directory: Path, tokenizer: Tokenizer) -> None:
        onnxruntime = import_module("onnxruntime")

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._encoder, self._decoder = (
            onnxruntime.InferenceSession(directory / name, options) for name in ("encoder.onnx", "decoder_step.onnx")
        )

    def has_same_ids(self, line: str, source: Sentence) -> None:
        """Implement ``OtherSide``: the graphs read ids."""

    def log_probabilities(self, source: Sentence, target: Sentence) -> list[float]:
        """Implement ``OtherSide``."""
        log_p = self._step(self._inputs(source), [START, *target])
        return [float(row[i]) for row, i in zip(log_p, (*target, END), strict=True)]

    def translate(self, source: Sentence, config: SearchConfig) -> list[int]:
        """Implement ``OtherSide`` for greedy search."""
        inputs, ids = self._inputs(source), [START]
        longest = int(self._decoder.get_modelmeta().custom_metadata_map["longest_sentence"])
        while len(ids) < min(len(source) + config.max_extra_tokens, longest) and ids[-1] != END:
            log_p = self._step(inputs, ids[-1:])[-1]
            log_p[[UNKNOWN, START]] = -np.inf
            ids.append(int(log_p.argmax()))
        return _before_end(ids[1:])

    def _inputs(self, source: Sentence) -> dict[str, Any]:
        """Return the decoder's inputs before its first step."""
        has_end = int(self._decoder.get_modelmeta().custom_metadata_map["source_end"])
        ids = np.array([[*source, *[END] * has_end]])
        lengths = np.array([ids.shape[1]])
        names = [output.name for output in self._encoder.get_outputs()]
        outputs = self._encoder.run(None, {"source_ids": ids, "source_lengths": lengths})
        past = [each for each in self._decoder.get_inputs() if each.name.startswith("past_")]
        empty = {each.name: np.zeros((1, each.shape[1], 0, each.shape[3]), np.float32) for each in past}
        return {**dict(zip(names, outputs, strict=True)), "source_lengths": lengths, **empty}

    def _step(self, inputs: dict[str, Any], ids: Sentence) -> Any:
        """Return the log-probabilities (T, W) after the newest ids (T,), and replace the caches in ``inputs``."""
        names = [output.name for output in self._decoder.get_outputs()]
        outputs = dict(zip(names, self._decoder.run(None, {**inputs, "ids": np.array([ids])}), strict=True))
        log_p = outputs.pop("log_probabilities")[0]
        inputs.update({f"past_{name}": cache for name, cache in outputs.items()})
        return log_p


SIDES: dict[str, tuple[Callable[[Path, Tokenizer], OtherSide], tuple[str, ...]]] = {
    "marian": (MarianSide, ("transformers", "torch")),
    "ctranslate2": (CTranslate2Side, ("ctranslate2",)),
    "onnx": (OnnxSide, ("onnxruntime",)),
}


def require_side(name: str) -> None:
    """Raise ConversionError if a format has no program to compare with, or if the program is not installed."""
    if name not in SIDES:
        raise ConversionError(
            f"certificate: {name} models are not run by another program; possible: {', '.join(SIDES)}"
        )
    packages = SIDES[name][1]
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise ConversionError(f"certificate: {missing[0]} is not installed: pip install {' '.join(packages)}")


def other_side(name: str, directory: Path, tokenizer: Tokenizer) -> OtherSide:
    """Return the model of a directory in the program of a format.

    Args:
        tokenizer: that of our model, whose pieces are the words of the other vocabulary.

    Raises: ConversionError if there is no such program, or if it is not installed.
    """
    require_side(name)
    return SIDES[name][0](directory, tokenizer)


def _before_end(ids: list[int]) -> list[int]:
    return ids[: ids.index(END)] if END in ids else ids
