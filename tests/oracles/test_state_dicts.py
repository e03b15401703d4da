"""Checkpoints of fairseq and JoeyNMT, read as models of ours: the logits are theirs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from against_torch import torch
from ctranslate2_models import model_of
from safetensors.torch import load_file, save_file
from small_run import output_of

from cli.convert import convert
from minitransformer import Batch, Translator
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert.fairseq import is_fairseq, read_fairseq
from minitransformer.extras.convert.joeynmt import is_joeynmt, read_joeynmt
from minitransformer.extras.convert.parts import ConversionError, Parts

WORDS = tuple(["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"])
MORE_WORDS = (*WORDS, "iota", "kappa")
SYMBOLS = {"fairseq": ["<s>", "<pad>", "</s>", "<unk>"], "joeynmt": ["<unk>", "<pad>", "<s>", "</s>"]}
PAIRS = [("alpha beta theta", "gamma"), ("", "eta eta delta zeta alpha"), ("zeta what", ""), ("beta", "unheard beta")]


# The Transformers of both programs in plain PyTorch, from their papers' equations and the names of their weights.

functional, nn = torch.nn.functional, torch.nn
ACTIVATIONS = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_fast": lambda x: functional.gelu(x, approximate="tanh"),
    "swish": functional.silu,
}


@dataclasses.dataclass(frozen=True)
class Shape:
    """The settings that both programs have."""

    n_words: tuple[int, int]
    d_model: int = 8
    d_ff: int = 12
    n_heads: int = 2
    depths: tuple[int, int] = (2, 2)
    pre: bool = False
    activation: str = "relu"
    tied: str = "all"
    learned: bool = False
    scale: bool = True


class Attention(nn.Module):  # type: ignore[misc, name-defined]
    """Attention of one sentence, with biases.  Shapes: (T, D), (S, D) → (T, D)."""

    def __init__(self, shape: Shape, query: str, key: str, value: str, output: str) -> None:
        super().__init__()
        self.names, self.n_heads = (query, key, value, output), shape.n_heads
        for name in self.names:
            setattr(self, name, nn.Linear(shape.d_model, shape.d_model))

    def forward(self, x: Any, memory: Any, *, causal: bool = False) -> Any:
        query, key, value, output = (getattr(self, name) for name in self.names)
        q, k, v = (y.unflatten(-1, (self.n_heads, -1)).transpose(0, 1) for y in (query(x), key(memory), value(memory)))
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        if causal:
            scores = scores.masked_fill(torch.ones(len(x), len(memory)).triu(1).bool(), -math.inf)
        return output((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))


class FairseqLayer(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, shape: Shape, *, is_decoder: bool) -> None:
        super().__init__()
        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        self.shape, self.is_decoder = shape, is_decoder
        self.self_attn, self.self_attn_layer_norm = Attention(shape, *names), nn.LayerNorm(shape.d_model)
        if is_decoder:
            self.encoder_attn, self.encoder_attn_layer_norm = Attention(shape, *names), nn.LayerNorm(shape.d_model)
        self.fc1, self.fc2 = nn.Linear(shape.d_model, shape.d_ff), nn.Linear(shape.d_ff, shape.d_model)
        self.final_layer_norm = nn.LayerNorm(shape.d_model)

    def forward(self, x: Any, memory: Any = None) -> Any:
        pre = self.shape.pre
        x = residual(x, self.self_attn_layer_norm, lambda y: self.self_attn(y, y, causal=self.is_decoder), pre=pre)
        if self.is_decoder:
            x = residual(x, self.encoder_attn_layer_norm, lambda y: self.encoder_attn(y, memory), pre=pre)
        activation = ACTIVATIONS[self.shape.activation]
        return residual(x, self.final_layer_norm, lambda y: self.fc2(activation(self.fc1(y))), pre=pre)


class JoeyFeedForward(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.layer_norm = shape, nn.LayerNorm(shape.d_model, eps=1e-6)
        first, last = nn.Linear(shape.d_model, shape.d_ff), nn.Linear(shape.d_ff, shape.d_model)
        self.pwff_layer = nn.ModuleDict({"0": first, "3": last})  # between them an activation and dropout

    def forward(self, x: Any) -> Any:
        first, last = self.pwff_layer.values()
        activation = ACTIVATIONS[self.shape.activation]
        return residual(x, self.layer_norm, lambda y: last(activation(first(y))), pre=self.shape.pre)


class JoeyLayer(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, shape: Shape, *, is_decoder: bool) -> None:
        super().__init__()
        names = ("q_layer", "k_layer", "v_layer", "output_layer")
        self.shape, self.is_decoder = shape, is_decoder
        if is_decoder:
            self.trg_trg_att, self.x_layer_norm = Attention(shape, *names), nn.LayerNorm(shape.d_model, eps=1e-6)
            self.src_trg_att, self.dec_layer_norm = Attention(shape, *names), nn.LayerNorm(shape.d_model, eps=1e-6)
        else:
            self.src_src_att, self.layer_norm = Attention(shape, *names), nn.LayerNorm(shape.d_model, eps=1e-6)
        self.feed_forward = JoeyFeedForward(shape)

    def forward(self, x: Any, memory: Any = None) -> Any:
        pre = self.shape.pre
        if not self.is_decoder:
            return self.feed_forward(residual(x, self.layer_norm, lambda y: self.src_src_att(y, y), pre=pre))
        x = residual(x, self.x_layer_norm, lambda y: self.trg_trg_att(y, y, causal=True), pre=pre)
        return self.feed_forward(residual(x, self.dec_layer_norm, lambda y: self.src_trg_att(y, memory), pre=pre))


def residual(x: Any, norm: Any, sublayer: Any, *, pre: bool) -> Any:
    return x + sublayer(norm(x)) if pre else norm(x + sublayer(x))


class Stack(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, shape: Shape, side: int, layer: type[Any], eps: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer(shape, is_decoder=side == 1) for _ in range(shape.depths[side]))
        self.layer_norm = nn.LayerNorm(shape.d_model, eps=eps) if shape.pre else None

    def forward(self, x: Any, *memory: Any) -> Any:
        for layer in self.layers:
            x = layer(x, *memory)
        return x if self.layer_norm is None else self.layer_norm(x)


class Fairseq(nn.Module):  # type: ignore[misc, name-defined]
    """Ids: <s> 0, <pad> 1, </s> 2, <unk> 3; the decoder starts with </s>; positions start with 2."""

    max_positions = 30

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.encoder, self.decoder = (Stack(shape, side, FairseqLayer, 1e-5) for side in (0, 1))
        for stack, n_words in zip((self.encoder, self.decoder), shape.n_words, strict=True):
            stack.embed_tokens = nn.Embedding(n_words, shape.d_model, padding_idx=1)
            if shape.learned:
                stack.embed_positions = nn.Embedding(self.max_positions + 2, shape.d_model, padding_idx=1)
            else:
                stack.embed_positions = nn.Module()
                stack.embed_positions.register_buffer("_float_tensor", torch.zeros(1))
            stack.register_buffer("version", torch.tensor([3.0]))
        self.decoder.output_projection = nn.Linear(shape.d_model, shape.n_words[1], bias=False)
        if shape.tied == "all":
            self.decoder.embed_tokens = self.encoder.embed_tokens
        if shape.tied != "none":
            self.decoder.output_projection.weight = self.decoder.embed_tokens.weight
        randomise(self)

    def forward(self, source: Sequence[int], target: Sequence[int]) -> Any:
        encoded = self.encoder(self.embed(self.encoder, [*source, 2]))
        return self.decoder.output_projection(self.decoder(self.embed(self.decoder, [2, *target]), encoded))

    def embed(self, stack: Any, ids: list[int]) -> Any:
        positions = torch.arange(2, len(ids) + 2)
        if self.shape.learned:
            encodings = stack.embed_positions(positions)
        else:
            half = self.shape.d_model // 2
            angles = positions[:, None] * torch.exp(torch.arange(half) * -math.log(10_000) / (half - 1))
            encodings = torch.cat([angles.sin(), angles.cos()], dim=1)
        return stack.embed_tokens(torch.tensor(ids)) * math.sqrt(self.shape.d_model) + encodings

    def settings(self) -> dict[str, Any]:
        shape = self.shape
        return {
            "arch": "transformer_wmt_en_de",
            "encoder_attention_heads": shape.n_heads,
            "decoder_attention_heads": shape.n_heads,
            "encoder_normalize_before": shape.pre,
            "decoder_normalize_before": shape.pre,
            "activation_fn": shape.activation,
            "no_scale_embedding": False,
        }


class Joey(nn.Module):  # type: ignore[misc, name-defined]
    """Ids: <unk> 0, <pad> 1, <s> 2, </s> 3."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.encoder, self.decoder = (Stack(shape, side, JoeyLayer, 1e-6) for side in (0, 1))
        for stack in (self.encoder, self.decoder):
            stack.pe = nn.Module()
            stack.pe.register_buffer("pe", torch.zeros(1, 5_000, shape.d_model))
        self.src_embed, self.trg_embed = nn.Module(), nn.Module()
        for embed, n_words in zip((self.src_embed, self.trg_embed), shape.n_words, strict=True):
            embed.lut = nn.Embedding(n_words, shape.d_model, padding_idx=1)
        self.decoder.output_layer = nn.Linear(shape.d_model, shape.n_words[1], bias=False)
        if shape.tied == "all":
            self.trg_embed.lut = self.src_embed.lut
        if shape.tied != "none":
            self.decoder.output_layer.weight = self.trg_embed.lut.weight
        randomise(self)

    def forward(self, source: Sequence[int], target: Sequence[int]) -> Any:
        encoded = self.encoder(self.embed(self.src_embed, [*source, 3]))
        return self.decoder.output_layer(self.decoder(self.embed(self.trg_embed, [2, *target]), encoded))

    def embed(self, embed: Any, ids: list[int]) -> Any:
        d_model = self.shape.d_model
        frequencies = torch.exp(torch.arange(0, d_model, 2) * -math.log(10_000) / d_model)
        angles = torch.arange(len(ids))[:, None] * frequencies
        encodings = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
        return embed.lut(torch.tensor(ids)) * (math.sqrt(d_model) if self.shape.scale else 1) + encodings

    def settings(self) -> dict[str, Any]:
        shape = self.shape
        stack = {
            "type": "transformer", "num_heads": shape.n_heads, "layer_norm": "pre" if shape.pre else "post",
            "activation": shape.activation, "embeddings": {"embedding_dim": shape.d_model, "scale": shape.scale},
        }  # fmt: skip
        return {"model": {"encoder": stack, "decoder": stack}, "testing": {"beam_alpha": 0.7}}


def randomise(model: Any) -> None:
    """Weights that all count: gains away from 1, biases away from 0.  The row of padding stays 0."""
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=random))
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                module.weight *= 0.5
                module.weight[1] = 0


def save(model: Any, directory: Path, settings_file: str) -> None:
    """Write the files that a user has after the conversion of the checkpoint."""
    arrays = {name: value.clone().contiguous() for name, value in model.state_dict().items()}
    save_file(arrays, directory / "model.safetensors")
    (directory / settings_file).write_text(json.dumps(model.settings()), encoding="utf-8")


def write(directory: Path, program: str, words: Sequence[Sequence[str]] = (WORDS, WORDS), **changes: Any) -> Any:
    """A checkpoint with these vocabularies, whose words are not in our order."""
    shape = Shape(n_words=(4 + len(words[0]), 4 + len(words[1])), **changes)
    model = Fairseq(shape) if program == "fairseq" else Joey(shape)
    save(model, directory, "args.json" if program == "fairseq" else "config.json")
    if program == "fairseq":
        for language, some in zip(("en", "de"), words, strict=True):
            text = "".join(f"{word} {100 - i}\n" for i, word in enumerate(some))
            (directory / f"dict.{language}.txt").write_text(text)
        change_settings(directory / "args.json", source_lang="en", target_lang="de")
    else:
        for side, some in zip(("src", "trg"), words, strict=True):
            (directory / f"{side}_vocab.txt").write_text("".join(f"{word}\n" for word in (*SYMBOLS[program], *some)))
    return model


def change_settings(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def read(directory: Path, program: str) -> Parts:
    assert (is_fairseq(directory), is_joeynmt(directory)) == (program == "fairseq", program == "joeynmt")
    return read_fairseq(directory) if program == "fairseq" else read_joeynmt(directory)


def ids_of(words: Sequence[str], program: str, line: str) -> list[int]:
    known = [*SYMBOLS[program], *words]
    return [known.index(word if word in known else "<unk>") for word in line.split()]


def our_columns(parts: Parts, words: Sequence[str], program: str) -> list[int]:
    """The id that each word of the other vocabulary has in ours."""
    start, other = ("<pad>", "<s>") if program == "fairseq" else ("<s>", "<pad>")
    symbols = {"<unk>": 0, start: 1, "</s>": 2, other: 3}
    of_words = [parts.tokenizer.encode_target([word])[0] for word in words]
    assert all(len(ids) == 1 for ids in of_words)
    return [symbols[word] for word in SYMBOLS[program]] + [ids[0] for ids in of_words]


def compare(
    directory: Path, program: str, words: Sequence[Sequence[str]] = (WORDS, WORDS), read_as: Any = None, **changes: Any
) -> Parts:
    theirs = write(directory, program, words, **changes)
    if read_as:
        read_as(directory)
    parts = read(directory, program)
    model, columns = model_of(parts), our_columns(parts, words[1], program)
    assert sorted(columns) == list(range(parts.config.vocabulary_size))
    for source, target in PAIRS:
        batch = Batch.from_token_ids(parts.tokenizer.encode_source([source]), parts.tokenizer.encode_target([target]))
        with torch.no_grad():
            expected = theirs(ids_of(words[0], program, source), ids_of(words[1], program, target)).numpy()
        np.testing.assert_allclose(model.logits(batch).value[:, columns], expected, rtol=0, atol=1e-5)
    return parts


@pytest.mark.parametrize(("program", "pre", "tied"), list(product(SYMBOLS, [False, True], ["all", "target", "none"])))
def test_logits_are_those_of_the_other_program(tmp_path: Path, program: str, pre: bool, tied: str) -> None:
    parts = compare(tmp_path, program, pre=pre, tied=tied)
    assert (parts.config.tied, parts.config.norm) == (tied, "pre" if pre else "post")
    penalty = ("length", 1.0) if program == "fairseq" else ("gnmt", 0.7)
    assert (parts.config.normalisation, parts.config.alpha) == penalty


OTHERS: list[tuple[str, dict[str, Any]]] = [
    *product(SYMBOLS, [{"activation": "gelu"}, {"activation": "swish"}, {"depths": (3, 1)}]),
    *product(SYMBOLS, [{"d_model": 12, "n_heads": 3}]),
    *product(["fairseq"], [{"learned": True}, {"learned": True, "pre": True}, {"activation": "gelu_fast"}]),
]  # fmt: skip


@pytest.mark.parametrize(("program", "changes"), OTHERS)
def test_other_layers_are_read(tmp_path: Path, program: str, changes: dict[str, Any]) -> None:
    compare(tmp_path, program, **changes)


@pytest.mark.parametrize("program", SYMBOLS)
@pytest.mark.parametrize("tied", ["target", "none"])
def test_two_vocabularies_are_read(tmp_path: Path, program: str, tied: str) -> None:
    parts = compare(tmp_path, program, (MORE_WORDS, WORDS), tied=tied)
    assert (parts.config.n_source_words, parts.config.vocabulary_size) == (14, 12)
    assert not parts.tokenizer.is_joint


@pytest.mark.parametrize("pre", [False, True])
@pytest.mark.parametrize("tied", ["all", "none"])
def test_names_of_the_first_versions_of_fairseq_are_read(tmp_path: Path, pre: bool, tied: str) -> None:
    """Queries, keys and values in one matrix, norms by number, the output as "embed_out", and no activation."""

    def as_first_version(directory: Path) -> None:
        arrays = load_file(directory / "model.safetensors")
        output = arrays.pop("decoder.output_projection.weight")
        if tied == "none":
            arrays["decoder.embed_out"] = output
        for name in [name for name in arrays if ".q_proj." in name]:
            parts = [arrays.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
            arrays[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        for stack, norms in (("encoder", ("self_attn", "final")), ("decoder", ("self_attn", "encoder_attn", "final"))):
            for i, norm in enumerate(norms):
                for name in [name for name in arrays if name.startswith(stack) and f".{norm}_layer_norm." in name]:
                    arrays[name.replace(f"{norm}_layer_norm", f"layer_norms.{i}")] = arrays.pop(name)
        save_file(arrays, directory / "model.safetensors")
        settings = json.loads((directory / "args.json").read_text())
        del settings["activation_fn"]
        (directory / "args.json").write_text(json.dumps(settings))

    compare(tmp_path, "fairseq", read_as=as_first_version, pre=pre, tied=tied)


def test_one_dictionary_serves_both_languages_of_fairseq(tmp_path: Path) -> None:
    def with_one_dictionary(directory: Path) -> None:
        (directory / "dict.en.txt").rename(directory / "dict.txt")
        (directory / "dict.de.txt").unlink()

    assert compare(tmp_path, "fairseq", read_as=with_one_dictionary).tokenizer.is_joint


@pytest.mark.parametrize("tied", ["all", "none"])
def test_embeddings_that_joeynmt_does_not_scale_are_read(tmp_path: Path, tied: str) -> None:
    """They are then no longer those of the softmax."""
    assert compare(tmp_path, "joeynmt", scale=False, tied=tied).config.tied == "none"


def test_the_first_versions_of_joeynmt_do_not_say_where_norms_are(tmp_path: Path) -> None:
    def without_the_setting(directory: Path) -> None:
        settings = json.loads((directory / "config.json").read_text())
        for stack in settings["model"].values():
            stack.pop("layer_norm", None)
        (directory / "config.json").write_text(json.dumps(settings))

    assert compare(tmp_path, "joeynmt", read_as=without_the_setting, pre=True).config.norm == "pre"


@pytest.mark.parametrize("program", SYMBOLS)
@pytest.mark.parametrize("joint", [True, False])
def test_subwords_are_those_of_sentencepiece_models_beside_weights(tmp_path: Path, program: str, joint: bool) -> None:
    """A piece that the vocabulary lacks is read as the unknown word, and never written."""
    tokenizer = Tokenizer.train([("a bad cab", "cad bed")] * 9, vocabulary_size=16, joint=joint)
    lines = ["a bad cab cad"]
    pieces = [[model.id_to_piece(i) for i in range(3, 16)] for model in (tokenizer.source, tokenizer.target)]
    known = [some[1:][::-1] for some in pieces]
    write(tmp_path, program, known, tied="all" if joint else "none")
    for name, model in zip(
        ("tokenizer.model",) if joint else ("source.spm", "target.spm"), tokenizer.models, strict=True
    ):
        (tmp_path / name).write_bytes(model)
    parts = read(tmp_path, program)
    assert parts.tokenizer.source_pieces(lines[0]) == tokenizer.source_pieces(lines[0])
    assert parts.tokenizer.decode_target(parts.tokenizer.encode_target(lines)) == lines
    (lacking,) = [i for i in range(17) if parts.tokenizer.target.id_to_piece(i) == pieces[1][0]]
    np.testing.assert_array_equal(
        parts.weights["source_embedding.weight"][lacking], parts.weights["source_embedding.weight"][0]
    )
    assert parts.weights["softmax_bias"][lacking] < -1e3
    assert np.count_nonzero(parts.weights["softmax_bias"]) == 1
    model_of(parts)


REFUSED = [
    ("fairseq", {"encoder_attention_heads": None}, r"args.json: expected the setting encoder_attention_heads, of type"),
    ("fairseq", {"decoder_attention_heads": 4}, "encoder_attention_heads and decoder_attention_heads must be equal"),
    ("fairseq", {"encoder_attention_heads": 3, "decoder_attention_heads": 3}, "3 heads do not divide 8 features"),
    ("fairseq", {"decoder_normalize_before": None}, "expected the setting decoder_normalize_before, of type bool"),
    ("fairseq", {"activation_fn": "tanh"}, "activation_fn = 'tanh' is not supported; only 'relu'"),
    ("fairseq", {"no_scale_embedding": True}, "no_scale_embedding = True is not supported; only False"),
    ("fairseq", {"cross_self_attention": True}, "cross_self_attention = True is not supported"),
    ("fairseq", {"source_lang": "fr"}, r"dict.fr.txt: cannot be read as a file of the model \(No such"),
    ("joeynmt", {"model": {}}, "model.encoder.type = 'recurrent' is not supported; only 'transformer'"),
    ("joeynmt", {"data": {"special_symbols": {"bos_token": 3}}}, "special_symbols.bos_token, of type str; got 3"),
]


LAYERS_REFUSED = [
    ({"alpha": 1.2}, "model.encoder.alpha = 1.2 is not supported; only 1.0"),
    ({"layer_norm": "both"}, "model.decoder.layer_norm = 'both' is not supported; only 'pre', 'post'"),
    ({"activation": "tanh"}, "model.decoder.activation = 'tanh' is not supported; only 'relu', 'gelu', 'swish'"),
    ({"num_heads": None}, "expected the setting model.encoder.num_heads, of type int"),
]


@pytest.mark.parametrize(
    ("program", "changes", "message"), [*REFUSED, *(("joeynmt", {"layers": of}, text) for of, text in LAYERS_REFUSED)]
)
def test_settings_that_are_missing_or_not_ours_are_named(
    tmp_path: Path, program: str, changes: dict[str, Any], message: str
) -> None:
    write(tmp_path, program)
    path = tmp_path / ("args.json" if program == "fairseq" else "config.json")
    if "layers" in changes:
        model = json.loads(path.read_text())["model"]
        changes = {"model": {stack: {**model[stack], **changes["layers"]} for stack in model}}
    change_settings(path, **changes)
    with pytest.raises(ConversionError, match=message):
        read(tmp_path, program)


@pytest.mark.parametrize("program", SYMBOLS)
def test_arrays_that_are_missing_or_left_over_are_named(tmp_path: Path, program: str) -> None:
    write(tmp_path, program)
    arrays = load_file(tmp_path / "model.safetensors")
    save_file({**arrays, "encoder.layernorm_embedding.weight": torch.zeros(8)}, tmp_path / "model.safetensors")
    with pytest.raises(ConversionError, match="has 1 arrays that this Transformer does not have: encoder.layernorm"):
        read(tmp_path, program)
    name = next(name for name in arrays if "encoder.layers.1" in name and name.endswith("bias"))
    save_file({each: value for each, value in arrays.items() if each != name}, tmp_path / "model.safetensors")
    with pytest.raises(ConversionError, match=f"it has no {name}; is it complete, and of this kind"):
        read(tmp_path, program)


@pytest.mark.parametrize("program", SYMBOLS)
def test_vocabularies_that_do_not_fit_are_refused(tmp_path: Path, program: str) -> None:
    write(tmp_path, program, (MORE_WORDS, WORDS), tied="none")
    path = tmp_path / ("dict.en.txt" if program == "fairseq" else "src_vocab.txt")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ConversionError, match="vocabulary: it has 13 words, but the model 14"):
        read(tmp_path, program)
    write(tmp_path, program, ((*WORDS, "alpha"), WORDS), tied="none")
    with pytest.raises(ConversionError, match="each word once; it is of another kind"):
        read(tmp_path, program)
    if program == "fairseq":
        write(tmp_path, program, (("▁a", *WORDS), ("▁a", *WORDS)))
        with pytest.raises(ConversionError, match=r"1 words are pieces of sentencepiece, such as '▁a'"):
            read(tmp_path, program)


def test_the_comparison_notices_a_wrong_epsilon(tmp_path: Path) -> None:
    theirs = write(tmp_path, "fairseq")
    parts = read(tmp_path, "fairseq")
    model = model_of(dataclasses.replace(parts, config=dataclasses.replace(parts.config, layer_norm_eps=1e-3)))
    batch = Batch.from_token_ids(parts.tokenizer.encode_source(["alpha"]), parts.tokenizer.encode_target(["beta"]))
    expected = theirs(ids_of(WORDS, "fairseq", "alpha"), ids_of(WORDS, "fairseq", "beta")).detach().numpy()
    found = model.logits(batch).value[:, our_columns(parts, WORDS, "fairseq")]
    assert np.abs(found - expected).max() > 1e-4


KINDS: dict[str, Any] = {
    "fairseq, args": lambda settings: {"args": argparse.Namespace(**settings), "cfg": None},
    "fairseq, objects": lambda settings: {"args": None, "cfg": {"model": argparse.Namespace(**settings)}},
    "fairseq, dictionaries": lambda settings: {"cfg": {"model": settings}},
    "joeynmt": None,
}


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_of_pytorch_gives_the_model_of_safetensors(tmp_path: Path, kind: str, is_zip: bool) -> None:
    program, origin, made = kind.partition(",")[0], tmp_path / "expected", tmp_path / "made"
    for directory in (origin, made):
        directory.mkdir()
    model = write(origin, program)
    optimizer = torch.optim.Adam(model.parameters(), lr=0)
    sum(p.sum() for p in model.parameters()).backward()
    optimizer.step()
    if program == "fairseq":
        settings = KINDS[kind](json.loads((origin / "args.json").read_text()))
        more = {"extra_state": {"epoch": 3, "best": 4.5}, "last_optimizer_state": optimizer.state_dict()}
        file, checkpoint = "checkpoint_best.pt", {**settings, "model": model.state_dict(), **more}
    else:
        (made / "config.json").write_bytes((origin / "config.json").read_bytes())
        state = {"steps": 3, "optimizer_state": optimizer.state_dict()}
        file, checkpoint = "best.ckpt", {**state, "model_state": model.state_dict()}
    torch.save(checkpoint, made / file, _use_new_zipfile_serialization=is_zip)
    for path in origin.glob("*.txt"):
        (made / path.name).write_bytes(path.read_bytes())
    assert_same(read(made, program), read(origin, program))


def assert_same(found: Parts, expected: Parts) -> None:
    assert found.config == expected.config
    assert found.tokenizer.equals(expected.tokenizer)
    assert found.weights.keys() == expected.weights.keys()
    for name, weight in found.weights.items():
        np.testing.assert_array_equal(weight, expected.weights[name])


@pytest.mark.parametrize("program", SYMBOLS)
def test_a_model_is_converted_by_the_command_and_translates(tmp_path: Path, program: str) -> None:
    """A certificate is refused before anything is written."""
    write(tmp_path, program)
    ours, lines = tmp_path / "ours", tmp_path / "lines"
    lines.write_text("alpha")
    with pytest.raises(ConversionError, match=f"certificate: {program} models are not run by another program"):
        convert([str(tmp_path), "--output", str(ours), "--certify", str(lines)])
    assert not ours.exists()
    output = output_of(lambda: convert([str(tmp_path), "--output", str(ours)]))
    assert output == f"wrote {ours} (minitransformer: model.json and model.safetensors)\n"
    assert len(Translator.load(ours).translate(["alpha beta", "theta"], beam=2)) == 2
