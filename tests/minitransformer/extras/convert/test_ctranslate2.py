"""Models of CTranslate2, read and written, and its binary files byte by byte; tests/oracles compares the numbers."""

import dataclasses
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ctranslate2_models import (
    SHAPES,
    WORDS,
    change_json,
    change_variables,
    ctranslate2_directory,
    random_parts,
    scores_of,
    subword_parts,
)
from sentencepiece import SentencePieceProcessor

from autograd.packed_weight import nearest_bfloat16
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert.ctranslate2 import ModelFile, dequantised, read_ctranslate2, read_model_file
from minitransformer.extras.convert.ctranslate2_writer import stored_as, write_ctranslate2, write_model_file
from minitransformer.extras.convert.parts import ConversionError, Parts
from minitransformer.system.files import CorruptFileError

SOURCES, TARGETS = [[3, 4, 5, 6, 7], [9]], [[8, 4], [3, 3, 3]]


def scores(parts: Parts, sources: Any = SOURCES, targets: Any = TARGETS) -> list[float]:
    return scores_of(parts, sources, targets, "float64")


def test_nothing_is_lost(tmp_path: Path) -> None:
    """But for what CTranslate2 does not have: settings of training, and the length penalty."""
    for changes in SHAPES.values():
        parts = random_parts(changes)
        back = read_ctranslate2(ctranslate2_directory(tmp_path / "ct2", parts))
        assert back.tokenizer.models == parts.tokenizer.models
        expected = dataclasses.replace(parts.config, normalisation="length", alpha=1.0)
        if expected.positions == "learned":  # the unused first rows are left out
            expected = dataclasses.replace(expected, first_position=0, max_positions=38)
        else:
            expected = dataclasses.replace(expected, max_positions=512)
        assert back.config == expected
        assert back.weights.keys() == parts.weights.keys()
        for name, weight in parts.weights.items():
            cut = weight[2:] if "positions" in name else weight
            np.testing.assert_array_equal(back.weights[name], cut, err_msg=name)


def test_a_directory_has_the_files_that_ctranslate2_and_its_users_read(tmp_path: Path) -> None:
    joint = ctranslate2_directory(tmp_path / "joint", subword_parts({"source_end": False, "start": "end"}))
    assert files_of(joint) == ["config.json", "model.bin", "shared_vocabulary.json", "tokenizer.model"]
    flags = {"add_source_bos": False, "add_source_eos": False, "multi_query_attention": False}
    symbols = {"bos_token": "<s>", "decoder_start_token": "</s>", "eos_token": "</s>", "unk_token": "<unk>"}
    assert json.loads((joint / "config.json").read_text()) == flags | symbols | {"layer_norm_epsilon": 1e-6}
    tokenizer = SentencePieceProcessor(model_file=str(joint / "tokenizer.model"))
    assert vocabulary(joint) == [tokenizer.id_to_piece(i) for i in range(16)]
    separate = ctranslate2_directory(tmp_path / "separate", subword_parts({"tied": "target"}, joint=False))
    sides = [f"{side}{ending}" for side in ("source", "target") for ending in (".spm", "_vocabulary.json")]
    assert files_of(separate) == ["config.json", "model.bin", *sides]
    words = ctranslate2_directory(tmp_path / "words", random_parts({}))  # which lie between blanks
    assert files_of(words) == ["config.json", "model.bin", "shared_vocabulary.json"]
    assert vocabulary(words) == WORDS


def vocabulary(directory: Path) -> list[str]:
    return list(json.loads((directory / "shared_vocabulary.json").read_text()))


def files_of(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_positions_are_stored_unless_ctranslate2_computes_them(tmp_path: Path) -> None:
    name = "encoder/position_encodings/encodings"
    variables = read_model_file(ctranslate2_directory(tmp_path / "a", random_parts({})) / "model.bin").variables
    assert variables[name].shape == (2_048, 12)
    assert variables[name][7, [0, 1, 4]] == pytest.approx([np.sin(7), np.cos(7), np.sin(7 / 10_000 ** (4 / 12))])
    computed = random_parts({"positions": "halves", "first_position": 1})
    assert name not in read_model_file(ctranslate2_directory(tmp_path / "b", computed) / "model.bin").variables


def test_what_ctranslate2_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="neighbourhood: CTranslate2 has no self-attention that is limited"):
        write_ctranslate2(random_parts({"neighbourhood": 3}), tmp_path)
    with pytest.raises(ConversionError, match="d_k is 3, model.d_v 6"):
        write_ctranslate2(random_parts({"d_k": 3}), tmp_path)
    pairs = [("one two two one", "(S XX XX )S")] * 4
    words = Tokenizer.train(pairs, vocabulary_size=17, kind="word", joint=False, symbols=True)
    with pytest.raises(ConversionError, match="no classes of rare words"):
        write_ctranslate2(dataclasses.replace(random_parts({}), tokenizer=words), tmp_path)
    assert list(tmp_path.iterdir()) == []


LAYER = "decoder/layer_1/self_attention"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({f"{LAYER}/relative_position_keys": np.ones((3, 6), np.float32)}, "the model has relative positions"),
        ({f"{LAYER}/rotary_dim": np.array(4, np.int32)}, "the model has rotary positions"),
        ({f"{LAYER}/num_heads_kv": np.array(1, np.int32)}, "the model has multi-query attention"),
        ({"encoder/multi_query_attention": np.array(1, np.int8)}, "the model has multi-query attention"),
        ({"encoder/layer_0/ffn/linear_0_noact/weight": np.ones((2, 2), np.float32)}, "gated feed-forward"),
        ({"encoder/layernorm_embedding/gamma": np.ones(12, np.float32)}, "a layer norm after the embeddings"),
        ({"encoder/embeddings_1/weight": np.ones((2, 2), np.float32)}, "source features"),
        ({f"{LAYER}/queries_scale": np.array(1, np.float32)}, "another factor of the queries"),
        ({"decoder/alibi": np.array(1, np.int8)}, r"linear biases \(ALiBi\)"),
        ({"decoder/mystery": np.ones(2, np.float32)}, "1 arrays that .* does not have: decoder/mystery"),
        ({"encoder/activation": np.array(3, np.int8)}, "activation is 3 in the encoder and 0 in the decoder"),
        ({"decoder/layer_norm/gamma": None}, "norms before its sublayers has none at its end"),
        ({"encoder/layer_0/ffn/layer_norm/beta": None}, "layer norms have no bias"),
        ({f"{LAYER}/linear_0/weight": np.ones((24, 12), np.float32)}, r"expected shape \(36, 12\), got shape"),
        ({f"{LAYER}/linear_1/weight": None}, r"linear_1/weight: expected shape \(12, 12\), got no such array"),
        ({"encoder/num_heads": np.array(5, np.int16), "decoder/num_heads": np.array(5, np.int16)}, "5 heads of .2. "),
        ({"encoder/num_heads": np.array(np.nan, np.float32)}, "num_heads: expected a whole number, got nan"),
        ({"encoder/num_heads": np.array(1.5, np.float32)}, "num_heads: expected a whole number, got 1.5"),
        ({"encoder/num_heads": np.array([2, 2], np.int16)}, "num_heads: expected a number, got an array"),
        ({"encoder/embeddings_0/weight": np.ones((14, 12), np.float32)}, r"expected shape \(13, 12\), got"),
    ],
)  # fmt: skip
def test_what_ours_has_not_is_refused_by_name(changes: Any, message: str, tmp_path: Path) -> None:
    change_variables(ctranslate2_directory(tmp_path / "ct2", random_parts({"norm": "pre"})), changes)
    with pytest.raises(ConversionError, match=message):
        read_ctranslate2(tmp_path / "ct2")


def test_other_kinds_of_models_are_refused(tmp_path: Path) -> None:
    for model, revision, message in [
        ("WhisperSpec", 3, "expected a model of kind TransformerSpec or .*; got 'WhisperSpec'"),
        ("TransformerSpec", 8, "expected revision 2 to 7 of TransformerSpec, got 8"),
    ]:
        write_model_file(tmp_path / "model.bin", ModelFile(model, revision, {}), {})
        with pytest.raises(ConversionError, match=message):
            read_ctranslate2(tmp_path)


@pytest.mark.parametrize(("changes", "message"), [
    ({"decoder_start_token": None}, "decoder_start_token is null: users give the first symbol"),
    ({"add_source_bos": True}, "sources begin with a start symbol"),
    ({"layer_norm_epsilon": "small"}, "the setting layer_norm_epsilon, of type float; got 'small'"),
    ({"eos_token": 2}, "expected the setting eos_token, of type str; got 2"),
    ({"eos_token": "<eos>"}, "the vocabulary lacks the symbol '<eos>'"),
    ({"decoder_start_token": "<go>"}, "the vocabulary lacks the symbol '<go>'"),
    ({"unk_token": "</s>"}, "'</s>' is the unknown word and another symbol"),
])  # fmt: skip
def test_settings_that_ours_has_not_are_refused(changes: Any, message: str, tmp_path: Path) -> None:
    change_json(ctranslate2_directory(tmp_path / "ct2", random_parts({})) / "config.json", **changes)
    with pytest.raises(ConversionError, match=message):
        read_ctranslate2(tmp_path / "ct2")


def change_embeddings(directory: Path, rows: np.ndarray) -> None:
    names = ("decoder/embeddings/weight", "decoder/projection/weight", "encoder/embeddings_0/weight")
    change_variables(directory, dict.fromkeys(names, rows))


def without_tokenizer(directory: Path, words: list[str], ending: str = "\n") -> None:
    (directory / "shared_vocabulary.json").unlink()
    text = json.dumps(words) if ending == ".json" else "".join(word + ending for word in words)
    suffix = ".json" if ending == ".json" else ".txt"
    (directory / f"shared_vocabulary{suffix}").write_bytes(text.encode())


def test_rows_are_put_in_our_order(tmp_path: Path) -> None:
    """The directory has them in another order, and its start symbol is the word "x"."""
    parts, directory = random_parts({}), tmp_path / "ct2"
    ctranslate2_directory(directory, parts)
    order = [5, 4, 3, 2, 1, 0, 6, 7, 8, 9, 10, 11, 12]
    change_embeddings(directory, parts.weights["source_embedding.weight"][order])
    change_json(directory / "config.json", decoder_start_token="x")
    without_tokenizer(directory, ["x" if i == 1 else WORDS[i] for i in order])
    back = read_ctranslate2(directory)
    words = [back.tokenizer.source.id_to_piece(i).removeprefix("▁") for i in range(13)]
    assert words == ["<unk>", "x", "</s>", "c", "b", "a", *WORDS[6:]]
    ours = [0, 1, 2, 5, 4, 3, *range(6, 13)]
    np.testing.assert_array_equal(
        back.weights["source_embedding.weight"], parts.weights["source_embedding.weight"][ours]
    )
    assert scores(back, [[5, 4, 3, 6, 7], [9]], [[8, 4], [5, 5, 5]]) == pytest.approx(scores(parts), abs=1e-9)


@pytest.mark.parametrize("ending", ["\n", "\r\n", ".json"])
def test_an_unknown_word_that_the_file_lacks_is_the_last_row_whatever_ends_lines(ending: str, tmp_path: Path) -> None:
    parts = random_parts({})
    directory = ctranslate2_directory(tmp_path / "ct2", parts)
    change_embeddings(directory, np.roll(parts.weights["source_embedding.weight"], -1, axis=0))
    without_tokenizer(directory, [*WORDS[1:12], "a\u2028b"], ending)
    back = read_ctranslate2(directory)
    assert back.tokenizer.source.id_to_piece(12) == "▁a\u2028b"
    np.testing.assert_array_equal(back.weights["source_embedding.weight"], parts.weights["source_embedding.weight"])


@pytest.mark.parametrize(("content", "message"), [
    (b"[1, 2]", "expected a list of words"), (b'{"a": 1}', "expected a list of words"),
    (b'["a"', "shared_vocabulary.json: cannot be read"), (b'["a", "b", "a"]', "the word 'a' occurs twice"),
])  # fmt: skip
def test_vocabularies_that_are_none_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    directory = ctranslate2_directory(tmp_path / "ct2", random_parts({}))
    (directory / "shared_vocabulary.json").write_bytes(content)
    with pytest.raises((ConversionError, CorruptFileError), match=message):
        read_ctranslate2(directory)
    (directory / "shared_vocabulary.json").unlink()
    with pytest.raises(ConversionError, match="expected shared_vocabulary.json"):
        read_ctranslate2(directory)


@pytest.mark.parametrize("factor", [np.array(0, np.int8), np.array(1, np.float32), np.array(5, np.float32)])
def test_another_factor_of_the_embeddings_is_multiplied_into_them(factor: np.ndarray, tmp_path: Path) -> None:
    parts = random_parts({})
    directory = ctranslate2_directory(tmp_path / "ct2", parts)
    change_variables(directory, {"encoder/scale_embeddings": factor, "decoder/scale_embeddings": factor})
    back, real = read_ctranslate2(directory), float(factor) or 1.0
    assert back.config.tied == "none"
    for name in ("source_embedding.weight", "target_embedding.weight"):
        expected = parts.weights["source_embedding.weight"] * (real / 12**0.5)
        np.testing.assert_allclose(back.weights[name], expected, rtol=1e-6)
    np.testing.assert_array_equal(back.weights["projection.weight"], parts.weights["source_embedding.weight"])
    ours = np.array(12**0.5, np.float32)  # but for rounding: the matrices stay tied
    change_variables(directory, {"encoder/scale_embeddings": ours, "decoder/scale_embeddings": ours})
    assert read_ctranslate2(directory).config.tied == "all"


TABLES = ("encoder/position_encodings/encodings", "decoder/position_encodings/encodings")


def sinusoid_table(first: int, n: int, *, sines_first: bool, half: float) -> np.ndarray:
    """D = 12; ``half`` divides the exponents: 6 is the paper's, 5 is tensor2tensor's."""
    angles = np.arange(first, first + n)[:, None] / 10_000 ** (np.arange(6) / half)
    halves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return halves if sines_first else halves.reshape(n, 2, 6).transpose(0, 2, 1).reshape(n, 12)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("table", "layout", "first"), [
    (sinusoid_table(0, 3_000, sines_first=False, half=6), "interleaved", 0),  # OpenNMT-py
    (sinusoid_table(2, 1_024, sines_first=True, half=5), "halves", 2),  # fairseq
    (sinusoid_table(1, 20, sines_first=True, half=5), "halves", 1),
])  # fmt: skip
def test_stored_sinusoids_are_known(table: np.ndarray, layout: str, first: int, dtype: str, tmp_path: Path) -> None:
    directory = ctranslate2_directory(tmp_path / "ct2", random_parts({"positions": "learned"}))
    stored = nearest_bfloat16(table) if dtype == "bfloat16" else table.astype(dtype)
    change_variables(directory, dict.fromkeys(TABLES, stored))
    config = read_ctranslate2(directory).config
    assert (config.positions, config.first_position) == (layout, first)


def test_the_papers_frequencies_with_sines_first_are_another_order_of_the_residual_stream(tmp_path: Path) -> None:
    """Marian models from Hugging Face's transformers; a learned table with the same values gives the same model."""
    for changes in SHAPES.values():
        parts = random_parts(changes | {"positions": "learned", "first_position": 0})
        table = sinusoid_table(0, 40, sines_first=True, half=6).astype(np.float32)
        names = ("source_positions.weight", "target_positions.weight")
        parts = dataclasses.replace(parts, weights={**parts.weights, **dict.fromkeys(names, table)})
        back = read_ctranslate2(ctranslate2_directory(tmp_path / "ct2", parts))
        assert (back.config.positions, back.config.first_position) == ("interleaved", 0)
        assert scores(back) == pytest.approx(scores(parts), abs=1e-5)


def test_tables_that_differ_are_learned(tmp_path: Path) -> None:
    """One is near to sinusoids, the decoder's is computed by CTranslate2: sines first, from position 1."""
    directory = ctranslate2_directory(tmp_path / "ct2", random_parts({}))
    table = sinusoid_table(0, 30, sines_first=False, half=6).astype(np.float32)
    table[3, 4] += 0.01
    change_variables(directory, dict(zip(TABLES, (table, None), strict=True)))
    back = read_ctranslate2(directory)
    assert (back.config.positions, back.config.max_positions) == ("learned", 30)
    np.testing.assert_array_equal(back.weights["source_positions.weight"], table)
    expected = sinusoid_table(1, 30, sines_first=True, half=5)
    np.testing.assert_allclose(back.weights["target_positions.weight"], expected, atol=1e-6)


def test_a_start_symbol_that_the_model_lacks_changes_no_probability(tmp_path: Path) -> None:
    """Marian has none: its decoder starts from zeros.  Ours needs a row, whose probability is 0."""
    parts = random_parts({"start": "zero"})
    directory = ctranslate2_directory(tmp_path / "ct2", parts)
    change_embeddings(directory, np.delete(parts.weights["source_embedding.weight"], 1, axis=0))
    change_json(directory / "config.json", add_source_eos=False, decoder_start_token="</s>")
    without_tokenizer(directory, [word for word in WORDS if word != "<s>"])
    back = read_ctranslate2(directory)
    assert (back.config.start, back.config.source_end, back.config.softmax_bias) == ("zero", True, True)
    impossible = dataclasses.replace(parts.config, softmax_bias=True)
    bias = np.where(np.arange(13) == 1, -np.inf, 0)
    assert scores(back) == pytest.approx(
        scores(Parts(impossible, {**parts.weights, "softmax_bias": bias}, parts.tokenizer))
    )


def test_older_files_have_their_settings_among_the_variables(tmp_path: Path) -> None:
    directory = ctranslate2_directory(tmp_path / "ct2", random_parts({"norm": "pre", "layer_norm_eps": 1e-5}))
    (directory / "config.json").unlink()
    numbers = ("num_heads", "pre_norm", "activation", "alignment_layer", "alignment_heads")
    change_variables(
        directory,
        {f"{stack}/{name}": None for stack in ("encoder", "decoder") for name in numbers}
        | {"num_heads": np.array(2, np.int16), "activation": np.array(2, np.int8)}
        | {"with_source_eos": np.array(1, np.int8), "with_target_bos": np.array(0, np.int8)},
    )
    config = read_ctranslate2(directory).config
    assert (config.n_heads, config.activation, config.norm, config.layer_norm_eps) == (2, "swish", "pre", 1e-5)
    assert (config.source_end, config.start) == (True, "end")


LINES = ["low lower lowest", "new newer newest", "wide wider widest"] * 3


def test_sentencepiece_models_may_be_given(tmp_path: Path) -> None:
    """Pieces that the vocabulary lacks are read as the unknown word, and never written."""
    spm = Tokenizer.train([(line, line) for line in LINES], vocabulary_size=24)
    parts = random_parts({"vocabulary_size": 24, "softmax_bias": True})
    directory = ctranslate2_directory(tmp_path / "ct2", dataclasses.replace(parts, tokenizer=spm))
    (directory / "tokenizer.model").rename(tmp_path / "some.model")
    words = json.loads((directory / "shared_vocabulary.json").read_text())
    with pytest.raises(ConversionError, match="pieces of sentencepiece"):
        read_ctranslate2(directory)
    (directory / "shared_vocabulary.json").write_text(
        json.dumps(["<blank>" if i == 9 else w for i, w in enumerate(words)])
    )
    back = read_ctranslate2(directory, source_spm=tmp_path / "some.model")
    assert back.config.vocabulary_size == 25
    assert back.tokenizer.source.id_to_piece(24) == words[9]
    assert back.tokenizer.encode_source(LINES) == [
        [24 if i == 9 else i for i in ids] for ids in spm.encode_source(LINES)
    ]
    embedding = back.weights["source_embedding.weight"]
    np.testing.assert_array_equal(embedding[24], embedding[0])
    assert back.weights["softmax_bias"][24] == -1e4
    with pytest.raises(ConversionError, match="none.model: cannot be read"):
        read_ctranslate2(directory, source_spm=tmp_path / "none.model")


HALF = b"\x00\x38\x00\xc0"  # 0.5 and −2 in float16


def string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def variable(name: str, shape: tuple[int, ...], kind: int, size: int, values: bytes) -> bytes:
    """``kind``, ``size``: number of the type, number of bytes; before version 4, bytes of a value, number of values."""
    return (
        string(name)
        + bytes([len(shape)])
        + struct.pack(f"<{len(shape)}I", *shape)
        + struct.pack("<BI", kind, size)
        + values
    )


def model(version: int, *variables: bytes, aliases: bytes = b"\0\0\0\0") -> bytes:
    head = struct.pack("<I", version) + string("TransformerSpec") + struct.pack("<II", 7, len(variables))
    return head + b"".join(variables) + (aliases if version >= 3 else b"")


def written(directory: Path, content: bytes) -> Path:
    path = directory / "model.bin"
    path.write_bytes(content)
    return path


def values(arrays: dict[str, np.ndarray]) -> dict[str, tuple[str, Any]]:
    return {name: (array.dtype.name, array.tolist()) for name, array in arrays.items()}


@pytest.mark.parametrize("version", [2, 3])
def test_old_versions_know_the_size_of_values_only(version: int, tmp_path: Path) -> None:
    content = model(
        version,
        variable("a", (2,), 4, 2, struct.pack("<2f", 1.5, -2.0)),
        variable("b", (1, 2), 2, 2, struct.pack("<2h", 300, -4)),
        variable("c", (), 1, 1, b"\x07"),
    )
    file = read_model_file(written(tmp_path, content))
    assert (file.model, file.revision) == ("TransformerSpec", 7)
    assert values(file.variables) == {"a": ("float32", [1.5, -2.0]), "b": ("int16", [[300, -4]]), "c": ("int8", 7)}


@pytest.mark.parametrize("version", [4, 5, 6])
def test_new_versions_know_types_and_aliases(version: int, tmp_path: Path) -> None:
    content = model(
        version,
        variable("w", (2, 1), 1, 2, b"\x7f\x81"),
        variable("w_scale", (2,), 0, 8, struct.pack("<2f", 127.0, 254.0)),
        variable("h", (2,), 4, 4, HALF),
        variable("b", (2,), 5, 4, b"\x80\x3f\x40\xc0"),
        variable("i", (), 3, 4, struct.pack("<i", -70_000)),
        aliases=struct.pack("<I", 1) + string("also") + string("w"),
    )
    path = written(tmp_path, content)
    file = read_model_file(path)
    assert values(file.variables) == {
        "w": ("int8", [[127], [-127]]),
        "also": ("int8", [[127], [-127]]),
        "w_scale": ("float32", [127.0, 254.0]),
        "also_scale": ("float32", [127.0, 254.0]),
        "h": ("float16", [0.5, -2.0]),
        "b": ("float32", [1.0, -3.0]),  # bfloat16
        "i": ("int32", -70_000),
    }
    assert values(dequantised(path, file.variables)) == {
        "w": ("float32", [[1.0], [-0.5]]),
        "also": ("float32", [[1.0], [-0.5]]),
        "h": ("float32", [0.5, -2.0]),
        "b": ("float32", [1.0, -3.0]),
        "i": ("int32", -70_000),
    }


def test_two_arrays_of_one_name_must_be_equal(tmp_path: Path) -> None:
    """Versions of CTranslate2 take the first or the last of them."""
    one, two, other = (variable(name, (2,), 4, 4, HALF) for name in ("w", "v", "w"))
    alias = struct.pack("<I", 1) + string("v") + string("w")
    assert read_model_file(written(tmp_path, model(6, one, two, other, aliases=alias))).variables.keys() == {"w", "v"}
    changed = variable("v", (2,), 4, 4, HALF[::-1])
    for content in (model(6, one, changed, aliases=alias), model(6, two, changed)):
        with pytest.raises(ConversionError, match="v is the name of two different arrays.*corrupt or"):
            read_model_file(written(tmp_path, content))


def test_int16_has_one_scale_and_without_it_1000(tmp_path: Path) -> None:
    weights = np.array([[500, -250], [1, 0]], np.int16)
    assert dequantised(tmp_path, {"w": weights})["w"].tolist() == [[0.5, -0.25], [np.float32(0.001), 0]]
    scaled = dequantised(tmp_path, {"w": weights, "w_scale": np.array(250, np.float32)})
    assert {name: array.tolist() for name, array in scaled.items()} == {"w": [[2, -1], [np.float32(0.004), 0]]}


SCALES = r"w is quantised \(int8\): expected positive scales, .* its 2 rows"


@pytest.mark.parametrize(("others", "message"), [
    ({}, SCALES), ({"w_scale": np.array([1, 0], np.float32)}, SCALES), ({"w_scale": np.ones(2, np.int8)}, SCALES),
    ({"w_scale": np.array([1, np.nan], np.float32)}, SCALES), ({"w_scale": np.ones(3, np.float32)}, SCALES),
])  # fmt: skip
def test_integers_need_a_positive_scale_for_each_row(others: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=message):
        dequantised(tmp_path, {"w": np.ones((2, 2), np.int8)} | others)


GOOD = model(
    6,
    variable("b", (), 1, 1, b"\1"),
    variable("weight", (2, 2), 0, 16, bytes(16)),
    aliases=b"\1\0\0\0" + string("x") + string("b"),
)


def test_a_missing_or_truncated_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"model.bin: cannot be read as .* \(No such file"):
        read_model_file(tmp_path / "model.bin")
    for length in range(len(GOOD)):
        with pytest.raises(ConversionError, match=r"model.bin: cannot be read as .* corrupt or .*; copy it again"):
            read_model_file(written(tmp_path, GOOD[:length]))


@pytest.mark.parametrize(("content", "problem"), [
    *((model(n), f"expected version 2 to 6 of CTranslate2's format, got {n};") for n in (0, 1, 7, 2**32 - 1)),
    (model(6, variable("w", (1,), 9, 2, bytes(2))), "w is of type number 9; expected one of float32, int8"),
    (model(2, variable("w", (1,), 3, 1, bytes(3))), "w is of type of 3 bytes"),
    (GOOD + b"\0", "cannot be read as .*bytes are left over"),
    (model(6, variable("w", (2, 2), 0, 12, bytes(12))), r"cannot be read as .*w has shape \(2, 2\) .* 12 bytes"),
    (model(6, variable("w", (2**31, 2**31), 0, 16, bytes(16))), "cannot be read as .*w has shape .* but 16 bytes"),
    (model(6, variable("w", (0, 7), 0, 0, b"")), "cannot be read as .*w has shape .* but 0 bytes"),
    (model(6, variable("w", (2**30,), 1, 2**30, b"")), "cannot be read as .*buffer is smaller"),
    (model(2, variable("w", (2**32 - 1,), 4, 2**32 - 1, b"")), "cannot be read as .*buffer is smaller"),
    (GOOD.replace(b"weight", b"we\xffght"), "cannot be read as .*UnicodeDecodeError"),
])  # fmt: skip
def test_other_versions_and_types_are_refused_and_counts_not_trusted(
    content: bytes, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConversionError, match=problem):
        read_model_file(written(tmp_path, content))


def test_version_6_is_written(tmp_path: Path) -> None:
    variables = {"weight": np.zeros((2, 2), np.float32), "b": np.array(1, np.int8)}
    write_model_file(tmp_path / "model.bin", ModelFile("TransformerSpec", 7, variables), {"x": "b"})
    assert (tmp_path / "model.bin").read_bytes() == GOOD


def test_weights_are_stored_in_the_types_that_ctranslate2_gives_them() -> None:
    matrix = np.array([[0.5, -1], [0, 0], [3e-39, 0]], np.float32)
    weights = {"a/weight": matrix, "a/bias": np.array([0.25], np.float32)}
    assert stored_as(weights, "float32") == weights
    half = stored_as(weights | {"n": np.array(8, np.int16)}, "float16")
    assert [half[name].dtype.name for name in ("a/weight", "a/bias", "n")] == ["float16", "float16", "int16"]
    eighth = stored_as(weights, "int8")
    assert [array.dtype.name for _, array in sorted(eighth.items())] == ["float32", "int8", "float32"]
    assert eighth["a/weight"].tolist() == [[64, -127], [0, 0], [1, 0]]
    assert eighth["a/weight_scale"].tolist()[:2] == [127, 1]
    assert np.isfinite(eighth["a/weight_scale"]).all()


@pytest.mark.parametrize(("value", "storage"), [(7e4, "float16"), (np.nan, "float32"), (np.inf, "int8")])
def test_values_that_cannot_be_stored_are_refused(value: float, storage: str) -> None:
    with pytest.raises(ConversionError, match=rf"a/weight: expected finite values of at most .*\({storage}\)"):
        stored_as({"a/weight": np.array([[1, value]], np.float32)}, storage)  # type: ignore[arg-type]
