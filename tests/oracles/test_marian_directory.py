"""MarianMT directories: transformers and our model compute the same from one directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from against_torch import torch
from marian_models import (
    LINES,
    TARGETS,
    log_probabilities,
    transformers,
    translation,
    write_directory,
)
from safetensors.numpy import load_file, save_file
from sentencepiece import sentencepiece_model_pb2

from minitransformer import Batch, Transformer
from minitransformer.convert.formats import read_parts, recognise
from minitransformer.convert.marian_directory import POSITIONS
from minitransformer.convert.parts import ConversionError, Parts
from minitransformer.convert.pieces import words_of
from minitransformer.inference.beam import SearchConfig, beam_search

SHAPES: dict[str, dict[str, Any]] = {
    "swish": {},
    "relu, decoder of one layer": {"activation_function": "relu", "decoder_layers": 1},
    "gelu, deep decoder": {"activation_function": "gelu", "encoder_layers": 1, "decoder_layers": 3},
    "gelu_new, four heads": {
        "activation_function": "gelu_new",
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
    },
    "separate vocabularies": {"separate": True},
    "untied": {"separate": True, "tie_word_embeddings": False},
    "unscaled embeddings": {"scale_embedding": False},
    "start with an embedding": {"zero_start": False},
    "byte pairs": {"kind": "bpe"},
    "pieces outside the vocabulary": {"kind": "bpe", "lacking": 5},
    "languages": {"codes": (">>deu<<", ">>cmn_Hans<<")},
}


@pytest.fixture(params=SHAPES)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any]:
    return tmp_path, write_directory(tmp_path, **SHAPES[request.param])


def vocabularies_of(path: Path) -> list[dict[str, int]]:
    """The id of each word of source and target, in the directory."""
    names = "vocab.json", "target_vocab.json" if (path / "target_vocab.json").exists() else "vocab.json"
    return [json.loads((path / name).read_text("utf-8")) for name in names]


def foreign_ids(parts: Parts, path: Path) -> list[list[int]]:
    """The directory's id of each of our ids, of source and of target; unknown for words that it lacks."""
    models = parts.tokenizer.models[0], parts.tokenizer.models[-1]
    vocabularies = vocabularies_of(path)
    return [
        [ids.get(w, ids["<unk>"]) for w in words_of(model)] for model, ids in zip(models, vocabularies, strict=True)
    ]


def model_of(parts: Parts) -> Transformer:
    model = Transformer(parts.config, seed=None)
    model.set_weights(parts.weights)
    return model


def compare(parts: Parts, model: Any, path: Path) -> None:
    """Compare ids, log-probabilities under teacher forcing, and translations of parts with those of transformers."""
    of_source, of_target = foreign_ids(parts, path)
    tokenizer, ours = transformers.MarianTokenizer.from_pretrained(path), model_of(parts)
    vocabulary = vocabularies_of(path)[1]
    known = [i for i, word in enumerate(words_of(parts.tokenizer.models[-1])) if word in vocabulary]
    columns = [of_target[i] for i in known]
    never = [vocabulary["<unk>"], model.config.pad_token_id]
    sources, targets = parts.tokenizer.encode_source(LINES), parts.tokenizer.encode_target(TARGETS)
    for line, target_line, source, target in zip(LINES, TARGETS, sources, targets, strict=True):
        theirs, labels = tokenizer(line)["input_ids"][:-1], tokenizer(text_target=target_line)["input_ids"][:-1]
        assert ([of_source[i] for i in source], [of_target[i] for i in target]) == (theirs, labels)
        expected = log_probabilities(model, theirs, labels)
        values = ours.log_probabilities(Batch.from_token_ids([source], [target]))
        np.testing.assert_allclose(values[:, known], expected[:, columns], atol=1e-5)
        np.testing.assert_allclose(np.exp(values[:, known]).sum(axis=1), 1, atol=1e-6)
        for beam in (1, 4):
            found = beam_search(ours, [source], SearchConfig(beam=beam, max_extra_tokens=12))[0][0]
            ids = [of_target[i] for i in found.ids]
            best = translation(model, theirs, beam=beam, longest=len(source) + 12, never=never)
            # Of 2k candidates in a step, transformers ends only those among the best k, and may miss the best.
            assert ids == best or (beam > 1 and score(model, theirs, ids) > score(model, theirs, best))
            assert parts.tokenizer.decode_target([found.ids])[0].strip() == text_of(tokenizer, ids)


def score(model: Any, source: list[int], target: list[int]) -> float:
    """log p of a translation, divided by its length with the end, by transformers."""
    table, labels = log_probabilities(model, source, target), [*target, 0]
    return float(table[range(len(labels)), labels].mean())


def text_of(tokenizer: Any, ids: list[int]) -> str:
    """The text of a translation by transformers; without words of the source alone, if the subwords are byte pairs."""
    model = tokenizer.spm_target
    spec = sentencepiece_model_pb2.ModelProto.FromString(model.serialized_model_proto()).trainer_spec
    if spec.model_type == spec.BPE:
        ids = [i for i in ids if model.piece_to_id(tokenizer.decoder[i]) != model.unk_id()]
    return str(tokenizer.decode(ids)).strip()


def test_a_directory_is_read(directory: tuple[Path, Any]) -> None:
    path, model = directory
    assert recognise(path) == "marian"
    compare(read_parts(path), model, path)


def test_languages_are_chosen_as_in_transformers(tmp_path: Path) -> None:
    write_directory(tmp_path, codes=(">>deu<<", ">>cmn_Hans<<"))
    parts, tokenizer = read_parts(tmp_path), transformers.MarianTokenizer.from_pretrained(tmp_path)
    lines = [f"{code} {line}" for code in (">>deu<<", ">>cmn_Hans<<") for line in LINES]
    of_source = foreign_ids(parts, tmp_path)[0]
    for line, ids in zip(lines, parts.tokenizer.encode_source(lines), strict=True):
        assert [of_source[i] for i in ids] == tokenizer(line)["input_ids"][:-1]
        assert parts.tokenizer.source_pieces(line)[0] == f"▁{line.split()[0]}"


def test_tables_of_positions_in_the_file_are_recognised(tmp_path: Path) -> None:
    """Older versions of transformers stored them, often in float16; those of Marian are read, too."""
    model = write_directory(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    for halves in (False, True):
        if halves:
            angles = np.arange(80)[:, None] / 10_000 ** (np.arange(8) / 7)
            table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
            for stack in (model.model.encoder, model.model.decoder):
                stack.embed_positions.weight.data[:] = torch.from_numpy(table)
        table = model.model.encoder.embed_positions.weight.detach().numpy()
        tables = dict.fromkeys(POSITIONS, table.astype(np.float16))
        save_file(weights | tables, tmp_path / "model.safetensors", metadata={"format": "pt"})
        parts = read_parts(tmp_path)
        assert parts.config.positions == ("halves" if halves else "interleaved")
        compare(parts, model, tmp_path)


@pytest.mark.parametrize("which", [[0], [1], [0, 1]])
def test_trained_positions_are_refused(tmp_path: Path, which: list[int]) -> None:
    write_directory(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights |= {POSITIONS[i]: np.full((80, 16), 0.5, np.float32) for i in which}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConversionError, match="no table of sinusoids; trained positions are not supported"):
        read_parts(tmp_path)
