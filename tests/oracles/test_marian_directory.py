"""MarianMT directories: transformers and our model compute the same from one directory, and split text the same."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from against_torch import torch
from ctranslate2_models import model_of, write_parts
from marian_models import LINES, TARGETS, converted_by_ctranslate2, log_probabilities, transformers, write_directory
from safetensors.numpy import load_file, save_file
from scripts import SCRIPTS, tokenizer_of
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from autograd.packed_weight import nearest_bfloat16
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.config import TextNormalisation
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert.certificate import OtherModel, certify, other_side
from minitransformer.extras.convert.formats import read_parts, recognise
from minitransformer.extras.convert.marian_directory import POSITIONS
from minitransformer.extras.convert.parts import ConversionError, Parts
from minitransformer.extras.convert.vocabulary import words_of
from minitransformer.inference.beam import beam_search
from minitransformer.inference.search import SearchConfig
from minitransformer.model.symbols import END

IMPOSSIBLE = -100.0  # log p, in float32; all less are the same
SHAPES: dict[str, dict[str, Any]] = {
    "relu, decoder of one layer": {"activation_function": "relu", "decoder_layers": 1},
    "gelu, deep decoder": {"activation_function": "gelu", "encoder_layers": 1, "decoder_layers": 3},
    "gelu_new, four heads": {"activation_function": "gelu_new"}
    | dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    "separate vocabularies": {"separate": True},
    "untied": {"separate": True, "tie_word_embeddings": False},
    "untied, one vocabulary": {"tie_word_embeddings": False},
    "unscaled embeddings": {"scale_embedding": False},
    "start with an embedding": {"zero_start": False},
    "byte pairs, pieces outside the vocabulary": {"kind": "bpe", "lacking": 5},
    "languages": {"codes": (">>deu<<", ">>cmn_Hans<<")},
}


def vocabularies_of(path: Path) -> list[dict[str, int]]:
    """The id of each word of source and target, in the directory."""
    names = "vocab.json", "target_vocab.json" if (path / "target_vocab.json").exists() else "vocab.json"
    return [json.loads((path / name).read_text("utf-8")) for name in names]


def compare(parts: Parts, model: Any, path: Path, beams: tuple[int, ...] = (1, 4)) -> None:
    """Compare ids, log-probabilities under teacher forcing, and translations of parts with those of transformers."""
    tokenizer, ours, read = transformers.MarianTokenizer.from_pretrained(path), model_of(parts), read_parts(path)
    assert read.vocabularies is not None
    source_ids, target_ids = (side.foreign_ids for side in read.vocabularies)
    known = [i for i, row in enumerate(read.vocabularies[1].rows) if row is not None]
    columns, other = [target_ids[i] for i in known], other_side("marian", OtherModel(path, read))
    sources, targets = parts.tokenizer.encode_source(LINES), parts.tokenizer.encode_target(TARGETS)
    for (theirs, labels), source, target in zip(tokens_of(tokenizer), sources, targets, strict=True):
        assert ([source_ids[i] for i in source], [target_ids[i] for i in target]) == (theirs, labels)
        expected = np.maximum(log_probabilities(model, theirs, labels), IMPOSSIBLE)
        values = np.maximum(ours.log_probabilities(Batch.from_token_ids([source], [target])), IMPOSSIBLE)
        np.testing.assert_allclose(values[:, known], expected[:, columns], atol=1e-5)
        np.testing.assert_allclose(np.exp(values[:, known]).sum(axis=1), 1, atol=1e-6)
        for beam in beams:
            config = SearchConfig(beam=beam, alpha=1, normalisation="length", max_extra_tokens=12)
            ids = list(beam_search(ours, [source], config)[0][0].ids)
            best = other.translate(theirs, config)
            # Of 2k candidates in a step, transformers ends only those among the best k, and may miss the best.
            assert ids == best or (beam > 1 and score(ours, source, ids) > score(ours, source, best))
            text = text_of(tokenizer, [target_ids[i] for i in ids])
            assert parts.tokenizer.decode_target([ids])[0].strip() == text


def tokens_of(tokenizer: Any) -> list[tuple[list[int], list[int]]]:
    """The ids of lines and targets in transformers, without ends."""
    return [
        (tokenizer(line)["input_ids"][:-1], tokenizer(text_target=target)["input_ids"][:-1])
        for line, target in zip(LINES, TARGETS, strict=True)
    ]


def score(model: Transformer, source: list[int], target: list[int]) -> float:
    """log p of a translation, divided by its length with the end."""
    table = model.log_probabilities(Batch.from_token_ids([source], [target]))
    return float(table[range(len(table)), [*target, END]].mean())


def text_of(tokenizer: Any, ids: list[int]) -> str:
    """The text of a translation by transformers; without words of the source alone, if the subwords are byte pairs."""
    model = tokenizer.spm_target
    spec = sentencepiece_model_pb2.ModelProto.FromString(model.serialized_model_proto()).trainer_spec
    if spec.model_type == spec.BPE:
        ids = [i for i in ids if model.piece_to_id(tokenizer.decoder[i]) != model.unk_id()]
    return str(tokenizer.decode(ids)).strip()


@pytest.mark.parametrize("name", SHAPES)
def test_a_directory_is_read_and_written_again_for_transformers(name: str, tmp_path: Path) -> None:
    before = write_directory(tmp_path, **SHAPES[name])
    assert recognise(tmp_path) == "marian"
    parts = read_parts(tmp_path)
    assert (parts.config.normalisation, parts.config.alpha) == ("length", 1)
    compare(parts, before, tmp_path)
    write_parts(parts, tmp_path / "written", "marian")
    after = loaded(tmp_path / "written")
    compare(read_parts(tmp_path / "written"), after, tmp_path / "written", beams=())
    ids, new_ids = vocabularies_of(tmp_path), vocabularies_of(tmp_path / "written")
    words = [{number: word for word, number in side.items()} for side in ids]
    for sides in tokens_of(transformers.MarianTokenizer.from_pretrained(tmp_path)):
        new_sides = [[new_ids[side][words[side][i]] for i in sequence] for side, sequence in enumerate(sides)]
        expected, values = log_probabilities(before, *sides), log_probabilities(after, *new_sides)
        for word, number in ids[1].items():
            is_start = word == "<pad>" and "<s>" in new_ids[1]
            column = new_ids[1]["<s>" if is_start else word]
            np.testing.assert_allclose(values[:, column], expected[:, number], atol=1e-5)


def loaded(path: Path) -> Any:
    """The model that transformers loads; every weight must be there, and no other."""
    model, info = transformers.MarianMTModel.from_pretrained(path, output_loading_info=True)
    assert {name: found for name, found in info.items() if found} == {}
    return model.eval()


CONFIGS: dict[str, dict[str, Any]] = {
    "default": {},
    "sines first": {"positions": "halves", "start": "zero", "softmax_bias": True, "attention_bias": True},
    "zero start, epsilon of PyTorch": {"start": "zero", "layer_norm_eps": 1e-5, "activation": "gelu"},
    "target tied": {"tied": "target", "activation": "gelu_tanh", "n_decoder_layers": 1},
    "untied, zero start": {"tied": "none", "start": "zero", "activation": "swish"},
}


def our_parts(joint: bool = True, **settings: Any) -> Parts:
    """A model of ours with random weights, and its own tokenizer."""
    pairs = [(" ".join(random.Random(i).sample(LINES, 2)), TARGETS[i % 4]) for i in range(20)]
    tokenizer = Tokenizer.train(pairs, vocabulary_size=40, joint=joint)
    config = ModelConfig(
        vocabulary_size=tokenizer.n_target_words, n_layers=2, d_model=16, d_ff=24, n_heads=2, d_k=8, d_v=8, **settings
    )
    model, noise = Transformer(config, seed=1), np.random.default_rng(2)
    weights = {name: w + (0.2 * noise.standard_normal(w.shape)).astype("f") for name, w in model.weights().items()}
    return Parts(config, weights, tokenizer)


@pytest.mark.parametrize("name", CONFIGS)
def test_ours_is_written_for_transformers(name: str, tmp_path: Path) -> None:
    settings = CONFIGS[name]
    parts = our_parts(joint="tied" not in settings, **settings)
    write_parts(parts, tmp_path / "written", "marian")
    parts = as_transformers_has_it(parts)
    compare(parts, loaded(tmp_path / "written"), tmp_path / "written")
    again = read_parts(tmp_path / "written")
    assert again.tokenizer.encode_source(LINES) == parts.tokenizer.encode_source(LINES)
    batch = Batch.from_token_ids(parts.tokenizer.encode_source(LINES), parts.tokenizer.encode_target(TARGETS))
    expected = model_of(parts).log_probabilities(batch)
    np.testing.assert_allclose(model_of(again).log_probabilities(batch)[:, 2:], expected[:, 2:], atol=1e-5)


def as_transformers_has_it(parts: Parts) -> Parts:
    """The model with the layer norm of transformers; a zero start has no probability, unless it is untied."""
    config, weights = dataclasses.replace(parts.config, layer_norm_eps=1e-5), dict(parts.weights)
    if config.start == "zero" and config.tied != "none":
        config = dataclasses.replace(config, softmax_bias=True)
        weights["softmax_bias"] = weights.get("softmax_bias", np.zeros(config.vocabulary_size, "f")).copy()
        weights["softmax_bias"][1] = -np.inf
    return Parts(config, weights, parts.tokenizer)


@pytest.mark.parametrize("stored", [np.float16, nearest_bfloat16])
def test_tables_of_positions_in_the_file_are_recognised(stored: Any, tmp_path: Path) -> None:
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
        tables = dict.fromkeys(POSITIONS, stored(table))
        save_file(weights | tables, tmp_path / "model.safetensors", metadata={"format": "pt"})
        parts = read_parts(tmp_path)
        assert parts.config.positions == ("halves" if halves else "interleaved")
        compare(parts, model, tmp_path, beams=())


@pytest.mark.parametrize("which", [[0], [1], [0, 1]])
def test_trained_positions_are_refused(tmp_path: Path, which: list[int]) -> None:
    write_directory(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights |= {POSITIONS[i]: np.full((80, 16), 0.5, np.float32) for i in which}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConversionError, match="no table of sinusoids; trained positions are not supported"):
        read_parts(tmp_path)


@pytest.mark.parametrize(("positions", "start"), [("interleaved", "zero"), ("halves", "symbol")])
def test_the_written_directory_is_converted_by_ctranslate2(positions: Any, start: Any, tmp_path: Path) -> None:
    """Its decoder starts with a zero vector, whatever the model's own starts with."""
    parts = as_transformers_has_it(our_parts(start=start, positions=positions, softmax_bias=True, attention_bias=True))
    write_parts(parts, tmp_path / "marian", "marian")
    converted = converted_by_ctranslate2(tmp_path / "marian", tmp_path / "converted")
    other = other_side("ctranslate2", OtherModel(converted, read_parts(converted)))
    certificate = certify(parts, other, LINES)
    assert certificate.largest_difference_in_nats < 1e-5
    assert (certificate.equal_sources, certificate.equal_greedy) == (1, 1)


def test_shards_give_the_weights_of_one_file(tmp_path: Path) -> None:
    model = write_directory(tmp_path)
    expected = read_parts(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 2
    found = read_parts(tmp_path)
    assert found.config == expected.config
    assert found.weights.keys() == expected.weights.keys()
    assert all(array.tobytes() == expected.weights[name].tobytes() for name, array in found.weights.items())


RULES = pytest.mark.parametrize("rule", get_args(TextNormalisation))


def lines_of(rule: TextNormalisation) -> list[str]:
    """Lines that the tokenizer knows; sentencepiece's own rule keeps soft hyphens, which are unknown to it."""
    return [*SCRIPTS.values(), *([] if rule == "nmt_nfkc" else ["the\vfox\u2028jum", "th\u00ade \ufefffox"])]


def written(path: Path, rule: TextNormalisation, to: Any) -> Parts:
    tokenizer = tokenizer_of(rule)
    config = ModelConfig(tokenizer.n_target_words, n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8)
    parts = Parts(config, Transformer(config).weights(), tokenizer)
    write_parts(parts, path, to)
    return parts


@RULES
def test_transformers_reads_and_writes_letters_as_we_do(rule: TextNormalisation, tmp_path: Path) -> None:
    parts = written(tmp_path / "model", rule, "marian")
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path / "model")
    words = words_of(parts.tokenizer.models[0])
    lines = lines_of(rule)
    for line, ids in zip(lines, parts.tokenizer.encode_target(lines), strict=True):
        assert theirs.tokenize(line) == [words[i] for i in ids]
        found = theirs(text_target=line)["input_ids"]
        # transformers strips translations, also of the wide blank at the beginning of a Japanese paragraph
        assert theirs.decode(found, skip_special_tokens=True) == parts.tokenizer.decode_target([ids])[0].strip()


@RULES
def test_the_model_beside_ctranslate2s_has_letters_as_ours(rule: TextNormalisation, tmp_path: Path) -> None:
    ours = written(tmp_path / "model", rule, "ctranslate2").tokenizer
    theirs = SentencePieceProcessor(model_file=str(tmp_path / "model" / "tokenizer.model"))
    lines = lines_of(rule)
    pieces = theirs.encode(lines, out_type=str)
    assert pieces == [ours.target_pieces(line) for line in lines]
    assert theirs.decode(pieces) == ours.decode_target(ours.encode_target(lines))
