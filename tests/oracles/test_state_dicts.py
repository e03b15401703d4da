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
from ctranslate2_models import change_json, model_of
from state_dict_files import SYMBOLS, random_model, settings_of, state_dict, tables, write_vocabularies
from torch_transformer import Padded, TorchTransformer, torch_weights

from minitransformer import Batch
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert.formats import read_parts, recognise
from minitransformer.extras.convert.parts import ConversionError, Parts
from minitransformer.system.files import read_arrays, write_arrays

WORDS = tuple(["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"])
MORE_WORDS = (*WORDS, "iota", "kappa")
PAIRS = [("alpha beta theta", "gamma"), ("", "eta eta delta zeta alpha"), ("zeta what", ""), ("beta", "unheard beta")]
SETTINGS = {"fairseq": "args.json", "joeynmt": "config.json"}


def positions_of_joeynmt(n: int, d: int) -> Any:
    """Its table, in float32 as it computes them: at late positions, sines are off by a ten-thousandth."""
    angles = torch.arange(n)[:, None] * torch.exp(torch.arange(0, d, 2) * -math.log(10_000) / d)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1).numpy()


class Theirs:
    """A program's model in PyTorch, by the paper's equations: each use of an embedding has a matrix of its own."""

    def __init__(self, program: str, parts: Parts, *, scale: bool) -> None:
        self.program, self.arrays = program, state_dict(program, parts.weights)
        uses = tables(parts.weights)
        if not scale:  # as the twin multiplies these by √D
            for side in ("source_embedding.weight", "target_embedding.weight"):
                uses[side] = uses[side] / parts.config.d_model**0.5
        config = dataclasses.replace(parts.config, tied="none")
        self.twin = TorchTransformer(config, torch_weights({**parts.weights, **uses}))

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Any:
        """The decoder of fairseq starts with </s>, that of JoeyNMT with <s>: both have the id 2."""
        sentence = Padded.of([[*source, SYMBOLS[self.program].index("</s>")]])
        return self.twin.decode(Padded.of([[2, *target]]), self.twin.encode(sentence), sentence)[0].detach().numpy()


def write(
    directory: Path, program: str, words: Sequence[Sequence[str]] = (WORDS, WORDS), scale: bool = True, **changes: Any
) -> Theirs:
    """The files that a user has after the conversion of a checkpoint.  The vocabularies are not in our order."""
    parts = random_model(program, words, **changes)
    model = Theirs(program, parts, scale=scale)
    for stack in ("encoder", "decoder"):  # what else is in the files: positions, or what stands in their place
        if program == "joeynmt":
            model.arrays[f"{stack}.pe.pe"] = positions_of_joeynmt(5_000, parts.config.d_model)[None]
        else:
            model.arrays[f"{stack}.version"] = np.array([3.0])
            if parts.config.positions != "learned":
                model.arrays[f"{stack}.embed_positions._float_tensor"] = np.zeros(1)
    write_arrays(directory / "model.safetensors", model.arrays)
    settings = settings_of(program, parts.config, scale=scale)
    (directory / SETTINGS[program]).write_text(json.dumps(settings), encoding="utf-8")
    write_vocabularies(program, directory, words)
    return model


def ids_of(words: Sequence[str], program: str, line: str) -> list[int]:
    known = [*SYMBOLS[program], *words]
    return [known.index(word if word in known else "<unk>") for word in line.split()]


def largest_difference(theirs: Theirs, parts: Parts, words: Sequence[Sequence[str]]) -> float:
    """Return the greatest difference of any logit of the pairs."""
    assert parts.vocabularies is not None
    model, (_, vocabulary), differences = model_of(parts), parts.vocabularies, []
    columns = [vocabulary.ids_of_foreign[i] for i in range(4 + len(words[1]))]
    for source, target in PAIRS:
        batch = Batch.from_token_ids(parts.tokenizer.encode_source([source]), parts.tokenizer.encode_target([target]))
        expected = theirs.logits(ids_of(words[0], theirs.program, source), ids_of(words[1], theirs.program, target))
        differences.append(np.abs(model.logits(batch).value[:, columns] - expected).max())
    return float(max(differences))


def compare(
    directory: Path, program: str, words: Sequence[Sequence[str]] = (WORDS, WORDS), change: Any = None, **changes: Any
) -> Parts:
    theirs = write(directory, program, words, **changes)
    if change:
        change(directory)
    assert recognise(directory) == program
    parts = read_parts(directory)
    assert largest_difference(theirs, parts, words) < 1e-5
    return parts


LEARNED = {"positions": "learned"}
SHAPES = [
    *({"norm": norm, "tied": tied} for norm, tied in product(["post", "pre"], ["all", "target", "none"])),
    *({"activation": activation} for activation in ("gelu", "swish")),
    {"n_layers": 3, "n_decoder_layers": 1}, {"n_heads": 3, "d_k": 4, "d_v": 4},
]  # fmt: skip


@pytest.mark.parametrize(("program", "changes"), [
    *product(SYMBOLS, SHAPES),
    *product(["fairseq"], [LEARNED, LEARNED | {"norm": "pre"}, {"activation": "gelu_tanh"}]),
])  # fmt: skip
def test_logits_are_those_of_the_other_program(tmp_path: Path, program: str, changes: dict[str, Any]) -> None:
    config = compare(tmp_path, program, **changes).config
    assert {name: getattr(config, name) for name in changes} == changes
    assert (config.normalisation, config.alpha) == (("length", 1.0) if program == "fairseq" else ("gnmt", 0.7))


@pytest.mark.parametrize("program", SYMBOLS)
@pytest.mark.parametrize("tied", ["target", "none"])
def test_two_vocabularies_are_read(tmp_path: Path, program: str, tied: str) -> None:
    parts = compare(tmp_path, program, (MORE_WORDS, WORDS), tied=tied)
    assert (parts.config.n_source_words, parts.config.vocabulary_size) == (14, 12)
    assert not parts.tokenizer.is_joint


@pytest.mark.parametrize(("norm", "tied"), [("post", "all"), ("pre", "none")])
def test_names_of_the_first_versions_of_fairseq_are_read(tmp_path: Path, norm: str, tied: str) -> None:
    """Queries, keys and values in one matrix, norms by number, the output as "embed_out", and no activation."""

    def as_first_version(directory: Path) -> None:
        arrays = read_arrays(directory / "model.safetensors")
        output = arrays.pop("decoder.output_projection.weight")
        if tied == "none":
            arrays["decoder.embed_out"] = output
        for name in [name for name in arrays if ".q_proj." in name]:
            parts = [arrays.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
            arrays[name.replace("q_proj.", "in_proj_")] = np.concatenate(parts)
        for stack, norms in (("encoder", ("self_attn", "final")), ("decoder", ("self_attn", "encoder_attn", "final"))):
            for i, place in enumerate(norms):
                for name in [name for name in arrays if name.startswith(stack) and f".{place}_layer_norm." in name]:
                    arrays[name.replace(f"{place}_layer_norm", f"layer_norms.{i}")] = arrays.pop(name)
        write_arrays(directory / "model.safetensors", arrays)
        change_json(directory / "args.json", activation_fn=None)

    compare(tmp_path, "fairseq", change=as_first_version, norm=norm, tied=tied)


def test_one_dictionary_serves_both_languages_of_fairseq(tmp_path: Path) -> None:
    def with_one_dictionary(directory: Path) -> None:
        (directory / "dict.en.txt").rename(directory / "dict.txt")
        (directory / "dict.de.txt").unlink()

    assert compare(tmp_path, "fairseq", change=with_one_dictionary).tokenizer.is_joint


@pytest.mark.parametrize("tied", ["all", "none"])
def test_embeddings_that_joeynmt_does_not_scale_are_read(tmp_path: Path, tied: str) -> None:
    """They are then no longer those of the softmax."""
    assert compare(tmp_path, "joeynmt", scale=False, tied=tied).config.tied == "none"


def test_the_first_versions_of_joeynmt_do_not_say_where_norms_are(tmp_path: Path) -> None:
    def without_the_setting(directory: Path) -> None:
        stack = json.loads((directory / "config.json").read_text())["model"]["encoder"]
        del stack["layer_norm"]
        change_json(directory / "config.json", model={"encoder": stack, "decoder": stack})

    assert compare(tmp_path, "joeynmt", change=without_the_setting, norm="pre").config.norm == "pre"


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
    parts = read_parts(tmp_path)
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
    ("fairseq", {"encoder_attention_heads": 5, "decoder_attention_heads": 5}, "5 heads do not divide 12 features"),
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
    change_json(path, **changes)
    with pytest.raises(ConversionError, match=message):
        read_parts(tmp_path)


@pytest.mark.parametrize("program", SYMBOLS)
def test_arrays_that_are_missing_or_left_over_are_named(tmp_path: Path, program: str) -> None:
    write(tmp_path, program)
    arrays = read_arrays(tmp_path / "model.safetensors")
    write_arrays(tmp_path / "model.safetensors", arrays | {"encoder.layernorm_embedding.weight": np.zeros(8)})
    with pytest.raises(ConversionError, match="has 1 arrays that this Transformer does not have: encoder.layernorm"):
        read_parts(tmp_path)
    name = next(name for name in arrays if "encoder.layers.1" in name and name.endswith("bias"))
    write_arrays(tmp_path / "model.safetensors", {each: array for each, array in arrays.items() if each != name})
    with pytest.raises(ConversionError, match=f"it has no {name}; is it complete, and of this kind"):
        read_parts(tmp_path)


@pytest.mark.parametrize("program", SYMBOLS)
def test_vocabularies_that_do_not_fit_are_refused(tmp_path: Path, program: str) -> None:
    write(tmp_path, program, (MORE_WORDS, WORDS), tied="none")
    path = tmp_path / ("dict.en.txt" if program == "fairseq" else "src_vocab.txt")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ConversionError, match="vocabulary: it has 13 words, but the model 14"):
        read_parts(tmp_path)
    write(tmp_path, program, ((*WORDS, "alpha"), WORDS), tied="none")
    with pytest.raises(ConversionError, match="each word once; it is of another kind"):
        read_parts(tmp_path)
    if program == "fairseq":
        write(tmp_path, program, (("▁a", *WORDS), ("▁a", *WORDS)))
        with pytest.raises(ConversionError, match=r"1 words are pieces of sentencepiece, such as '▁a'"):
            read_parts(tmp_path)


def test_the_comparison_notices_a_wrong_epsilon(tmp_path: Path) -> None:
    theirs = write(tmp_path, "fairseq")
    parts = read_parts(tmp_path)
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
    weights = {name: torch.tensor(array) for name, array in write(tmp_path, program).arrays.items()}
    expected = read_parts(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    parameters = [torch.nn.Parameter(value) for value in weights.values()]
    optimizer = torch.optim.Adam(parameters, lr=0)
    sum(parameter.sum() for parameter in parameters).backward()
    optimizer.step()
    if program == "fairseq":
        settings = json.loads((tmp_path / "args.json").read_text())
        (tmp_path / "args.json").unlink()
        more = {"extra_state": {"epoch": 3, "best": 4.5}, "last_optimizer_state": optimizer.state_dict()}
        file, checkpoint = "checkpoint_best.pt", {**KINDS[kind](settings), "model": weights, **more}
    else:
        state = {"steps": 3, "optimizer_state": optimizer.state_dict()}
        file, checkpoint = "best.ckpt", {**state, "model_state": weights}
    torch.save(checkpoint, tmp_path / file, _use_new_zipfile_serialization=kind != "fairseq, args")
    found = read_parts(tmp_path)
    assert found.config == expected.config
    assert found.tokenizer.equals(expected.tokenizer)
    assert found.weights.keys() == expected.weights.keys()
    for name, weight in found.weights.items():
        np.testing.assert_array_equal(weight, expected.weights[name])
