"""Checkpoints of fairseq and JoeyNMT, read as models of ours: the logits are theirs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
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


functional = torch.nn.functional
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_fast": lambda x: functional.gelu(x, approximate="tanh"),
    "swish": functional.silu,
}
MAX_POSITIONS = 30


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


@dataclasses.dataclass(frozen=True)
class Names:
    """Names of a program's weights.  Those of attention and of the feed-forward network stand beside their norms'."""

    embeddings: tuple[str, str]
    output: str
    projections: tuple[str, str, str, str]
    attentions: dict[str, list[tuple[str, str]]]
    feed_forward: tuple[str, str, str]
    eps: float


NAMES = {
    "fairseq": Names(
        ("encoder.embed_tokens", "decoder.embed_tokens"), "decoder.output_projection",
        ("q_proj", "k_proj", "v_proj", "out_proj"),
        {"encoder": [("self_attn", "self_attn_layer_norm")],
         "decoder": [("self_attn", "self_attn_layer_norm"), ("encoder_attn", "encoder_attn_layer_norm")]},
        ("fc1", "fc2", "final_layer_norm"), eps=1e-5,
    ),
    "joeynmt": Names(
        ("src_embed.lut", "trg_embed.lut"), "decoder.output_layer",
        ("q_layer", "k_layer", "v_layer", "output_layer"),
        {"encoder": [("src_src_att", "layer_norm")],
         "decoder": [("trg_trg_att", "x_layer_norm"), ("src_trg_att", "dec_layer_norm")]},
        ("feed_forward.pwff_layer.0", "feed_forward.pwff_layer.3", "feed_forward.layer_norm"), eps=1e-6,
    ),
}  # fmt: skip


def positions_of_joeynmt(n: int, d: int) -> Any:
    angles = torch.arange(n)[:, None] * torch.exp(torch.arange(0, d, 2) * -math.log(10_000) / d)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


class Theirs:
    """The Transformer of a program in plain PyTorch, from its paper's equations and the names of its weights.

    All weights count: gains are away from 1, biases away from 0.  The row of padding is 0.
    """

    def __init__(self, program: str, shape: Shape) -> None:
        self.program, self.shape, self.names, self.weights = program, shape, NAMES[program], dict[str, Any]()
        self.random, d = torch.Generator().manual_seed(7), shape.d_model
        source, target, output = (f"{name}.weight" for name in (*self.names.embeddings, self.names.output))
        for name, n_words in ((source, shape.n_words[0]), (target, shape.n_words[1]), (output, shape.n_words[1])):
            self.weights[name] = 0.5 * torch.randn(n_words, d, generator=self.random)
            self.weights[name][1] = 0
        if shape.tied == "all":
            self.weights[target] = self.weights[source]
        if shape.tied != "none":
            self.weights[output] = self.weights[target]
        hidden, contracted, last_norm = self.names.feed_forward
        for side, (stack, attentions) in enumerate(self.names.attentions.items()):
            for i in range(shape.depths[side]):
                layer = f"{stack}.layers.{i}"
                for attention, norm in attentions:
                    for part in self.names.projections:
                        self.add(f"{layer}.{attention}.{part}", d, d)
                    self.add(f"{layer}.{norm}", d)
                self.add(f"{layer}.{hidden}", shape.d_ff, d)
                self.add(f"{layer}.{contracted}", d, shape.d_ff)
                self.add(f"{layer}.{last_norm}", d)
            if shape.pre:
                self.add(f"{stack}.layer_norm", d)
            self.weights |= self.others(stack)

    def add(self, name: str, *size: int) -> None:
        centre = 1 if len(size) == 1 else 0
        self.weights[f"{name}.weight"] = centre + 0.3 * torch.randn(size, generator=self.random)
        self.weights[f"{name}.bias"] = 0.3 * torch.randn(size[0], generator=self.random)

    def others(self, stack: str) -> dict[str, Any]:
        """What is in the file besides: positions, or what stands in their place, and a version."""
        if self.program == "joeynmt":
            return {f"{stack}.pe.pe": positions_of_joeynmt(5_000, self.shape.d_model)[None]}
        table = 0.5 * torch.randn(MAX_POSITIONS + 2, self.shape.d_model, generator=self.random)
        positions = {"weight": table} if self.shape.learned else {"_float_tensor": torch.zeros(1)}
        named = {f"{stack}.embed_positions.{name}": value for name, value in positions.items()}
        return {f"{stack}.version": torch.tensor([3.0])} | named

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Any:
        """The decoder of fairseq starts with </s>, that of JoeyNMT with <s>: both have the id 2."""
        encoded = self.stack("encoder", self.embed(0, [*source, SYMBOLS[self.program].index("</s>")]))
        decoded = self.stack("decoder", self.embed(1, [2, *target]), encoded)
        return functional.linear(decoded, self.weights[f"{self.names.output}.weight"]).numpy()

    def embed(self, side: int, ids: list[int]) -> Any:
        d = self.shape.d_model
        if self.program == "joeynmt":
            encodings = positions_of_joeynmt(len(ids), d)
        elif self.shape.learned:
            stack = ("encoder", "decoder")[side]
            encodings = self.weights[f"{stack}.embed_positions.weight"][2 : len(ids) + 2]
        else:
            frequencies = torch.exp(torch.arange(d // 2) * -math.log(10_000) / (d // 2 - 1))
            angles = torch.arange(2, len(ids) + 2)[:, None] * frequencies
            encodings = torch.cat([angles.sin(), angles.cos()], dim=1)
        rows = self.weights[f"{self.names.embeddings[side]}.weight"][ids]
        return rows * (math.sqrt(d) if self.shape.scale else 1) + encodings

    def stack(self, stack: str, x: Any, encoded: Any = None) -> Any:
        last_norm = self.names.feed_forward[2]
        for i in range(self.shape.depths[stack == "decoder"]):
            layer = f"{stack}.layers.{i}."
            for memory, (attention, norm) in zip((None, encoded), self.names.attentions[stack], strict=False):
                x = self.residual(layer + norm, x, partial(self.attention, layer + attention, memory))
            x = self.residual(layer + last_norm, x, partial(self.feed_forward, layer))
        return self.norm(f"{stack}.layer_norm", x) if self.shape.pre else x

    def residual(self, norm: str, x: Any, sublayer: Callable[[Any], Any]) -> Any:
        return x + sublayer(self.norm(norm, x)) if self.shape.pre else self.norm(norm, x + sublayer(x))

    def norm(self, name: str, x: Any) -> Any:
        gain, bias = (self.weights[f"{name}.{kind}"] for kind in ("weight", "bias"))
        return functional.layer_norm(x, x.shape[-1:], gain, bias, eps=self.names.eps)

    def linear(self, name: str, x: Any) -> Any:
        return functional.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def feed_forward(self, layer: str, x: Any) -> Any:
        hidden, output, _ = self.names.feed_forward
        return self.linear(layer + output, ACTIVATIONS[self.shape.activation](self.linear(layer + hidden, x)))

    def attention(self, name: str, memory: Any, x: Any) -> Any:
        """Attend within one sentence; without a memory it is self-attention.  Shapes: (S, D), (T, D) → (T, D)."""
        query, key, value, output = (f"{name}.{part}" for part in self.names.projections)
        inputs = {query: x, key: x if memory is None else memory, value: x if memory is None else memory}
        q, k, v = (
            self.linear(part, y).unflatten(-1, (self.shape.n_heads, -1)).transpose(0, 1) for part, y in inputs.items()
        )
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        if memory is None and name.startswith("decoder"):
            scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -math.inf)
        return self.linear(output, (scores.softmax(-1) @ v).transpose(0, 1).flatten(1))

    def settings(self) -> dict[str, Any]:
        shape = self.shape
        if self.program == "fairseq":
            heads = {f"{stack}_attention_heads": shape.n_heads for stack in self.names.attentions}
            norms = {f"{stack}_normalize_before": shape.pre for stack in self.names.attentions}
            languages = {"source_lang": "en", "target_lang": "de"}
            others = {"arch": "transformer_wmt_en_de", "activation_fn": shape.activation, "no_scale_embedding": False}
            return heads | norms | languages | others
        stack = {
            "type": "transformer", "num_heads": shape.n_heads, "layer_norm": "pre" if shape.pre else "post",
            "activation": shape.activation, "embeddings": {"embedding_dim": shape.d_model, "scale": shape.scale},
        }  # fmt: skip
        return {"model": dict.fromkeys(self.names.attentions, stack), "testing": {"beam_alpha": 0.7}}


SETTINGS = {"fairseq": "args.json", "joeynmt": "config.json"}


def write(directory: Path, program: str, words: Sequence[Sequence[str]] = (WORDS, WORDS), **changes: Any) -> Theirs:
    """The files that a user has after the conversion of a checkpoint.  The vocabularies are not in our order."""
    model = Theirs(program, Shape(n_words=(4 + len(words[0]), 4 + len(words[1])), **changes))
    save_file({name: value.clone() for name, value in model.weights.items()}, directory / "model.safetensors")
    (directory / SETTINGS[program]).write_text(json.dumps(model.settings()), encoding="utf-8")
    for i, some in enumerate(words):
        if program == "fairseq":
            text = "".join(f"{word} {100 - count}\n" for count, word in enumerate(some))
            (directory / f"dict.{('en', 'de')[i]}.txt").write_text(text)
        else:
            text = "".join(f"{word}\n" for word in (*SYMBOLS[program], *some))
            (directory / f"{('src', 'trg')[i]}_vocab.txt").write_text(text)
    return model


def change_settings(path: Path, **changes: Any) -> None:
    """Settings that become None are left out."""
    settings = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in settings.items() if value is not None}))


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
    columns = [symbols[word] for word in SYMBOLS[program]] + [ids[0] for ids in of_words]
    assert sorted(columns) == list(range(parts.config.vocabulary_size))
    return columns


def largest_difference(theirs: Theirs, parts: Parts, words: Sequence[Sequence[str]]) -> float:
    """Return the greatest difference of any logit of the pairs."""
    model, columns, differences = model_of(parts), our_columns(parts, words[1], theirs.program), []
    for source, target in PAIRS:
        batch = Batch.from_token_ids(parts.tokenizer.encode_source([source]), parts.tokenizer.encode_target([target]))
        expected = theirs.logits(ids_of(words[0], theirs.program, source), ids_of(words[1], theirs.program, target))
        differences.append(np.abs(model.logits(batch).value[:, columns] - expected).max())
    return float(max(differences))


def compare(
    directory: Path, program: str, words: Sequence[Sequence[str]] = (WORDS, WORDS), read_as: Any = None, **changes: Any
) -> Parts:
    theirs = write(directory, program, words, **changes)
    if read_as:
        read_as(directory)
    parts = read(directory, program)
    assert largest_difference(theirs, parts, words) < 1e-5
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


@pytest.mark.parametrize(("pre", "tied"), [(False, "all"), (True, "none")])
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
        change_settings(directory / "args.json", activation_fn=None)

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
        stack = json.loads((directory / "config.json").read_text())["model"]["encoder"]
        del stack["layer_norm"]
        change_settings(directory / "config.json", model={"encoder": stack, "decoder": stack})

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
    ("fairseq", {"no_scale_embedding": True}, "no_scale_embedding = True is not supported; only False"),
    ("fairseq", {"cross_self_attention": True}, "cross_self_attention = True is not supported"),
    ("fairseq", {"source_lang": "fr"}, r"dict.fr.txt: cannot be read as a file of the model \(No such"),
    ("joeynmt", {"model": {}}, "model.encoder.type = 'recurrent' is not supported; only 'transformer'"),
    ("joeynmt", {"data": {"special_symbols": {"bos_token": 3}}}, "special_symbols.bos_token, of type str; got 3"),
    ("joeynmt", {"layers": {"alpha": 1.2}}, "model.encoder.alpha = 1.2 is not supported; only 1.0"),
    ("joeynmt", {"layers": {"activation": "tanh"}}, "activation = 'tanh' is not supported; only 'relu', 'gelu', 'swi"),
    ("joeynmt", {"layers": {"num_heads": None}}, "expected the setting model.encoder.num_heads, of type int"),
]


@pytest.mark.parametrize(("program", "changes", "message"), REFUSED)
def test_settings_that_are_missing_or_not_ours_are_named(
    tmp_path: Path, program: str, changes: dict[str, Any], message: str
) -> None:
    write(tmp_path, program)
    path = tmp_path / SETTINGS[program]
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
    wrong = dataclasses.replace(parts, config=dataclasses.replace(parts.config, layer_norm_eps=1e-3))
    assert largest_difference(theirs, wrong, (WORDS, WORDS)) > 1e-4


KINDS: dict[str, Any] = {
    "fairseq, args": lambda settings: {"args": argparse.Namespace(**settings), "cfg": None},
    "fairseq, objects": lambda settings: {"args": None, "cfg": {"model": argparse.Namespace(**settings)}},
    "fairseq, dictionaries": lambda settings: {"cfg": {"model": settings}},
    "joeynmt": None,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_of_pytorch_gives_the_model_of_safetensors(tmp_path: Path, kind: str) -> None:
    program = kind.partition(",")[0]
    model = write(tmp_path, program)
    expected = read(tmp_path, program)
    (tmp_path / "model.safetensors").unlink()
    parameters = [torch.nn.Parameter(value) for value in model.weights.values()]
    optimizer = torch.optim.Adam(parameters, lr=0)
    sum(parameter.sum() for parameter in parameters).backward()
    optimizer.step()
    if program == "fairseq":
        (tmp_path / "args.json").unlink()
        more = {"extra_state": {"epoch": 3, "best": 4.5}, "last_optimizer_state": optimizer.state_dict()}
        file, checkpoint = "checkpoint_best.pt", {**KINDS[kind](model.settings()), "model": model.weights, **more}
    else:
        state = {"steps": 3, "optimizer_state": optimizer.state_dict()}
        file, checkpoint = "best.ckpt", {**state, "model_state": model.weights}
    torch.save(checkpoint, tmp_path / file, _use_new_zipfile_serialization=kind != "fairseq, args")
    found = read(tmp_path, program)
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
