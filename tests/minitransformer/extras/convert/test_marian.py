"""Models of Marian and MarianMT: which files are read, and what is refused; tests/oracles compares the numbers."""

import dataclasses
import json
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ctranslate2_models import change_json, model_of, random_parts, subword_parts, write_parts
from marian_npz_files import SETTINGS, TARGET, vocabulary_in_yaml, write_marian, write_npz
from safetensors.numpy import load_file, save_file
from state_dict_files import tables

from autograd.packed_weight import nearest_bfloat16
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert.formats import read_parts, recognise
from minitransformer.extras.convert.layers import sines_first
from minitransformer.extras.convert.marian_directory import EMBEDDINGS, POSITIONS
from minitransformer.extras.convert.marian_npz import read_settings, read_vocabulary
from minitransformer.extras.convert.parts import ConversionError, Parts
from minitransformer.extras.paper.compatibility import CONVENTIONS
from minitransformer.model.positions import sinusoids
from minitransformer.model.symbols import START
from minitransformer.model.transformer import WeightsError
from minitransformer.system.files import CorruptFileError

PAIRS = [("the small dog sees the house", "der kleine Hund sieht das Haus"), ("a dog sees a cat", "ein Hund sieht")] * 3
TOKENIZER = Tokenizer.train(PAIRS, vocabulary_size=40)


def parts_of(**settings: Any) -> Parts:
    sizes = {"n_layers": 1, "d_model": 8, "d_ff": 12, "n_heads": 2, "d_k": 4, "d_v": 4, "vocabulary_size": 40}
    config = ModelConfig(**{**sizes, "layer_norm_eps": 1e-5, **settings})
    return Parts(config, Transformer(config, seed=1).weights(), TOKENIZER)


@pytest.fixture
def directory(tmp_path: Path, logged: list[str]) -> Path:
    write_parts(parts_of(), tmp_path / "marian", "marian")
    logged.clear()
    return tmp_path / "marian"


def test_a_model_that_was_written_is_read_with_the_same_probabilities(directory: Path) -> None:
    before, after = parts_of(), read_parts(directory)
    batch = Batch.from_token_ids(TOKENIZER.encode_source([PAIRS[0][0]]), TOKENIZER.encode_target([PAIRS[0][1]]))
    expected = model_of(before).log_probabilities(batch)
    np.testing.assert_allclose(model_of(after).log_probabilities(batch), expected, atol=1e-6)
    assert after.tokenizer.encode_source([PAIRS[1][0]]) == TOKENIZER.encode_source([PAIRS[1][0]])
    changes = {"attention_bias": True, "label_smoothing_over": "V", "normalisation": "length", "alpha": 0.6}
    assert after.config == dataclasses.replace(before.config, **changes)
    for name, weight in before.weights.items():
        np.testing.assert_array_equal(after.weights[name], weight)


SHARED, SOURCE, TARGET_TABLE, SOFTMAX = EMBEDDINGS
USES = (SOURCE, TARGET_TABLE, SOFTMAX)
UNTIED, OWN = {"tie_word_embeddings": False}, {"share_encoder_decoder_embeddings": False}


def in_our_order(parts: Parts, table: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a stored table with our rows and columns; its last row is the padding symbol's."""
    assert parts.vocabularies is not None
    return np.asarray(parts.vocabularies[0].matrix(table[:-1])[:, np.argsort(sines_first(8))])


def store_tables(directory: Path, factors: dict[str, float], **settings: bool) -> dict[str, np.ndarray[Any, Any]]:
    """Store the shared embeddings times a factor under each name, and return these arrays."""
    path = directory / "model.safetensors"
    arrays = load_file(path)
    shared = arrays.pop(SHARED)
    stored = {name: np.float32(factor) * shared for name, factor in factors.items()}
    save_file(arrays | stored, path)
    change_json(directory / "config.json", **settings)
    return stored


@pytest.mark.parametrize(("factors", "settings", "uses"), [
    ((2, 1, 3), UNTIED, USES), ((2, 1, 3), UNTIED | OWN, USES),
    ((1, 1, 3, 1), UNTIED, USES), ((2, 1, 3, 5), UNTIED, USES),
    ({SHARED: 1, SOFTMAX: 3}, UNTIED, (SHARED, SHARED, SOFTMAX)), ((1, 1, 1, 1), {}, USES),
])  # fmt: skip
def test_tables_are_read_each_for_its_use(
    directory: Path, factors: Any, settings: dict[str, bool], uses: tuple[str, ...], logged: list[str]
) -> None:
    """transformers 5 has three untied tables, and does not use the shared one, whatever it contains.

    Versions before 5 store it and the matrix of the softmax alone.
    """
    factors = factors if isinstance(factors, dict) else dict(zip((*USES, SHARED), factors, strict=False))
    stored = store_tables(directory, factors, **settings)
    parts = read_parts(directory)
    assert parts.config.tied == ("none" if settings else "all")
    for table, theirs in zip(tables(parts.weights).values(), uses, strict=True):
        np.testing.assert_array_equal(table, in_our_order(parts, stored[theirs]))
    is_other = 5 in factors.values()
    assert [f"{SHARED} differs from {SOURCE} or {TARGET_TABLE}" in line for line in logged] == [True] * is_other


def differ(one: str, other: str) -> str:
    return f"{one} and {other} differ, although tie_word_embeddings is true; correct the setting"


@pytest.mark.parametrize(("factors", "settings", "message"), [
    *((dict.fromkeys(set(EMBEDDINGS) - {name}, 1), UNTIED, f"it has no {name}") for name in USES),
    *(({SHARED: 1, name: 2}, {}, differ(SHARED, name)) for name in USES),
    ({SOURCE: 1, SOFTMAX: 2}, {}, differ(SOURCE, SOFTMAX)),
    ({SOURCE: 1, TARGET_TABLE: 1, SOFTMAX: 2}, OWN, differ(TARGET_TABLE, SOFTMAX)),
    (dict.fromkeys(EMBEDDINGS, 1), UNTIED | OWN, f"1 arrays that this Transformer does not have: {SHARED}"),
])  # fmt: skip
def test_tables_that_are_missing_or_differ_although_they_are_tied_are_named(
    directory: Path, factors: dict[str, float], settings: dict[str, bool], message: str
) -> None:
    """transformers 5 warns and does not tie them, versions before 5 do."""
    store_tables(directory, factors, **settings)
    with pytest.raises(ConversionError, match=message):
        read_parts(directory)


def test_a_huge_size_in_the_configuration_is_refused_before_arrays_are_made(directory: Path) -> None:
    change_json(directory / "config.json", d_model=10**9)
    start = time.perf_counter()
    with pytest.raises(
        ConversionError, match=f"config.json: d_model {10**9}, .*: expected positive numbers, and sizes below"
    ):
        read_parts(directory)
    assert time.perf_counter() - start < 3  # an array of that size takes longer


@pytest.mark.parametrize("deviation", [0.0, 0.01])
def test_stored_sinusoids_are_known_in_bfloat16(deviation: float, tmp_path: Path) -> None:
    write_parts(parts_of(), tmp_path, "marian")
    weights, d_model = load_file(tmp_path / "model.safetensors"), parts_of().config.d_model
    table = sinusoids(600, d_model)[:, sines_first(d_model)] + np.float32(deviation)
    stored = dict.fromkeys(POSITIONS, np.ascontiguousarray(nearest_bfloat16(table)))
    save_file(
        {name: nearest_bfloat16(array) for name, array in weights.items()} | stored, tmp_path / "model.safetensors"
    )
    if deviation:
        with pytest.raises(ConversionError, match="no table of sinusoids"):
            read_parts(tmp_path)
    else:
        assert read_parts(tmp_path).config.positions == "interleaved"


def test_weights_in_sixteen_bits_are_read(tmp_path: Path) -> None:
    write_parts(parts_of(), tmp_path / "marian", "marian", "float16")
    assert load_file(tmp_path / "marian" / "model.safetensors")["model.shared.weight"].dtype == np.float16
    weights = read_parts(tmp_path / "marian").weights
    before = parts_of().weights["encoder.layers.0.feed_forward.hidden.bias"]
    np.testing.assert_allclose(weights["encoder.layers.0.feed_forward.hidden.bias"], before, atol=1e-3)
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(("settings", "message"), [
    ({"first_position": 1}, " has no such model: first_position is 1, must be 0"),
    ({"source_end": False}, " has no such model: source_end is False, must be True"),
    ({"neighbourhood": 3}, " has no such model: neighbourhood is 3, must be None"),
    ({"d_k": 3}, " has no such model: n_heads · d_k is 6, must be 8"),
    ({"d_v": 6}, " has no such model: n_heads · d_v is 12, must be 8"),
    ({"layer_norm_eps": 1e-3}, " has no such model: layer_norm_eps is 0.001, must be 1e-05"),
    ({"norm": "pre"}, ": model.norm = 'pre' is not supported; only 'post'"),
    ({"positions": "learned"}, ": model.positions = 'learned' is not supported; only 'interleaved', 'halves'"),
    ({"start": "end"}, ": model.start = 'end' is not supported; only 'symbol', 'zero'"),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")  # fmt: skip
def test_what_marian_lacks_is_named_with_what_it_has(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=f"^MarianMT{message}$"):
        write_parts(parts_of(**settings), tmp_path / "marian", "marian")


def test_what_other_programs_compute_otherwise_is_a_warning(tmp_path: Path, logged: list[str]) -> None:
    write_parts(parts_of(layer_norm_eps=1e-6, positions="halves", tied="target"), tmp_path / "one", "marian", "float16")
    said = " ".join(logged)
    assert len(logged) == 5
    penalty = "length penalty ((5 + length) / 6)^0.6 becomes length^"
    for part in ("layer norm adds 1e-05", "the tables of position", "CTranslate2's converter", "to float16"):
        assert part in said
    assert f"{penalty}0.6" in said
    logged.clear()
    write_parts(parts_of(start="zero", normalisation="length"), tmp_path / "two", "marian")
    write_parts(parts_of(start="zero", alpha=0.0), tmp_path / "three", "marian")
    write_parts(parts_of(normalisation="length", alpha=1.0), tmp_path / "four", "ctranslate2")
    assert logged == []
    write_parts(parts_of(), tmp_path / "five", "ctranslate2")
    (tmp_path / "six").mkdir()  # an empty directory may be there
    words = random_parts({"layer_norm_eps": 1e-5, "start": "zero", "normalisation": "length"})
    write_parts(words, tmp_path / "six", "marian")
    first, second = logged
    assert f"{penalty}1" in first
    assert "one token of several unknown words" in second


@pytest.mark.parametrize(("file", "fields", "message"), [
    ("config.json", {"normalize_before": True}, "normalize_before = True is not supported"),
    ("config.json", {"decoder_layers": 2**62}, r"model\.decoder\.layers\.1\.self_attn\.q_proj\.weight"),
    ("config.json", {"static_position_embeddings": False}, "static_position_embeddings = False is not supported"),
    ("config.json", {"decoder_ffn_dim": 99}, "encoder_ffn_dim and decoder_ffn_dim must be equal in our models"),
    ("config.json", {"decoder_attention_heads": 4}, "decoder_attention_heads must be equal .* got .2, 4"),
    ("config.json", {"d_model": "absent"}, "the setting d_model, of type int; got None"),
    ("config.json", {"dropout": "much"}, "the setting dropout, of type float; got 'much'"),
    ("config.json", {"decoder_start_token_id": 99}, "decoder_start_token_id and eos_token_id must be ids of two"),
    ("vocab.json", {"<unk>": "absent"}, r"vocab\.json: vocabulary: it has no <unk>"),
    ("vocab.json", {"<unk>": 2}, r"vocab\.json: vocabulary: expected the ids 0 to 39, .* no word has id 1"),
    ("vocab.json", {"more": 40}, "it has 41 words, but the model 40"),
    ("vocab.json", {"more": "x"}, "expected a JSON object with the id of each word"),
])  # fmt: skip
def test_other_directories_are_refused(directory: Path, file: str, fields: dict[str, Any], message: str) -> None:
    changed = json.loads((directory / file).read_text("utf-8")) | fields
    content = {name: value for name, value in changed.items() if value != "absent"}
    (directory / file).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ConversionError, match=message):
        read_parts(directory)


def test_missing_files_and_missing_and_unfit_weights_are_named(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    name = "model.decoder.layers.0.encoder_attn.q_proj.weight"
    save_file({**weights, name: np.zeros((8, 7), np.float32)}, directory / "model.safetensors")
    with pytest.raises(WeightsError, match=r"decoder.layers.0.source_attention.query.weight has shape \(7, 8\)"):
        read_parts(directory)
    del weights[name]
    save_file(weights, directory / "model.safetensors")
    with pytest.raises(ConversionError, match=f"model.safetensors: it has no {name}"):
        read_parts(directory)
    for missing in ("vocab.json", "source.spm"):
        (directory / missing).unlink()
        with pytest.raises((ConversionError, CorruptFileError), match=f"{missing}: (cannot be read|not found)"):
            read_parts(directory)


def test_a_file_is_read_with_the_vocabularies_beside_it(tmp_path: Path) -> None:
    arrays = write_marian(tmp_path)
    parts = read_parts(tmp_path / "model.npz")
    expected = {"norm": "post", "start": "zero", "positions": "halves", "layer_norm_eps": 1e-6}
    assert {name: getattr(parts.config, name) for name in expected} == expected
    assert (parts.config.n_layers, parts.config.decoder_depth, parts.config.alpha) == (2, 1, 0)
    assert parts.tokenizer.encode_source(["Hund der Katze ein"]) == [[4, 3, 0, 6]]
    embedding = parts.weights["source_embedding.weight"]
    np.testing.assert_array_equal(embedding[[0, 2, 3, 4]], arrays["Wemb"][[1, 0, 2, 3]])
    bias = arrays["decoder_ff_logit_out_b"][0]
    np.testing.assert_array_equal(parts.weights["softmax_bias"][[0, 1, 2, 3]], [bias[1], -1e4, bias[0], bias[2]])


@pytest.mark.parametrize(("name", "value"), [
    ("type", "s2s"), ("transformer-decoder-autoreg", "average-attention"), ("transformer-decoder-autoreg", "rnn"),
    ("transformer-ffn-depth", 3), ("transformer-postprocess-emb", "nd"), ("transformer-train-positions", True),
    ("transformer-tied-layers", [1, 1]), ("right-left", True),
])  # fmt: skip
def test_a_setting_that_ours_lack_is_refused_by_name(name: str, value: Any, tmp_path: Path) -> None:
    write_marian(tmp_path, **{name: value})
    with pytest.raises(ConversionError, match=f"{name} = .* is not supported; only"):
        read_parts(tmp_path)


def test_another_order_of_layer_norms_and_parameters_that_ours_lack_are_named(tmp_path: Path) -> None:
    write_marian(tmp_path, **{"transformer-preprocess": "n", "transformer-postprocess": "da"})
    with pytest.raises(ConversionError, match=r"postprocess-top\) = \('n', 'a', ''\) is not supported; only "):
        read_parts(tmp_path)
    write_npz(tmp_path / "model.npz", SETTINGS, write_marian(tmp_path) | {"Wtype": np.zeros((2, 8), "f")})
    with pytest.raises(ConversionError, match="1 arrays that this Transformer does not have: Wtype$"):
        read_parts(tmp_path)


MARIANS: dict[str, Any] = CONVENTIONS["marian"] | {"alpha": 0.6}


@pytest.mark.parametrize(("settings", "joint"), [
    ({"activation": "swish", "n_decoder_layers": 1}, True), ({"tied": "none"}, True),
    ({"tied": "target", "softmax_bias": False, "attention_bias": False}, False),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("make", [random_parts, subword_parts], ids=["words", "subwords"])
def test_a_model_that_was_written_for_marian_is_read_again(
    make: Any, settings: dict[str, Any], joint: bool, tmp_path: Path, logged: list[str]
) -> None:
    """Marian has no start symbol, and has biases of 0 for none."""
    before = make(MARIANS | settings, joint=joint)
    write_parts(before, tmp_path / "written", "marian-npz")
    assert recognise(tmp_path / "written") == "marian-npz"
    after = read_parts(tmp_path / "written")
    biases = {"attention_bias": True, "softmax_bias": True}
    assert after.config == dataclasses.replace(before.config, **biases, attention_gain=1.0, max_positions=512)
    line = ["a bad c cab ꙮ"]
    assert after.tokenizer.encode_source(line) == before.tokenizer.encode_source(line)
    assert after.tokenizer.encode_target(line) == before.tokenizer.encode_target(line)
    for name, array in before.weights.items():
        is_of_words = name == "softmax_bias" or "embedding" in name or name == "projection.weight"
        pair = [np.delete(each, START, axis=0) if is_of_words else each for each in (after.weights[name], array)]
        np.testing.assert_array_equal(*pair)
    zeros = [array for name, array in after.weights.items() if name not in before.weights and name != "softmax_bias"]
    assert not np.any(zeros)
    with np.load(tmp_path / "written" / "model.npz") as arrays:
        assert all(array.flags.c_contiguous for array in arrays.values())
    assert logged == []


def test_bergamot_gets_the_same_arrays_at_multiples_of_256_bytes(tmp_path: Path) -> None:
    """Sixteen bytes, 32 for each array, names, shapes, the size of the padding, and the padding precede the values."""
    parts = subword_parts(MARIANS)
    for name in ("marian-npz", "bergamot"):
        write_parts(parts, tmp_path / name, name)
    data = (tmp_path / "bergamot" / "model.bin").read_bytes()
    version, n_arrays = struct.unpack_from("<2Q", data)
    headers = list(struct.iter_unpack("<4Q", data[16 : 16 + 32 * n_arrays]))
    place, found, shapes = 16 + 32 * n_arrays, {}, []
    names = [name.decode() for name in data[place:].split(b"\0")[:n_arrays]]
    place += sum(length for length, *_ in headers)
    for _, _, n_axes, _ in headers:
        shapes.append(struct.unpack_from(f"<{n_axes}i", data, place))
        place += 4 * n_axes
    place += 8 + struct.unpack_from("<Q", data, place)[0]
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        assert place % 256 == 0
        array = np.frombuffer(data[place : place + size], {0x404: "<f4", 0x101: "i1"}[kind])
        found[name] = array[: np.prod(shape)].reshape(shape)
        place += size
    assert (version, place) == (1, len(data))
    with np.load(tmp_path / "marian-npz" / "model.npz") as arrays:
        assert found.keys() == set(arrays.files)
        for name, array in found.items():
            np.testing.assert_array_equal(array, arrays[name], strict=True)
    with pytest.raises(ConversionError, match="bergamot is written, not read; give the model from which this was made"):
        read_parts(tmp_path / "bergamot")
    with pytest.raises(ConversionError, match="tokenizer: Bergamot needs sentencepiece models, and this model splits"):
        write_parts(random_parts(MARIANS), tmp_path / "words", "bergamot")


@pytest.mark.parametrize(("settings", "message"), [
    ({"positions": "interleaved"}, "Marian: model.positions = 'interleaved' is not supported; only 'halves'"),
    ({"start": "symbol"}, "Marian: model.start = 'symbol' is not supported; only 'zero'"),
    ({"activation": "gelu"}, "Marian: model.activation = 'gelu' is not supported; only 'swish', 'relu'"),
    ({"norm": "pre"}, "Marian: model.norm = 'pre' is not supported; only 'post'"),
    ({"first_position": 1}, "Marian has no such model: first_position is 1, must be 0"),
    ({"source_end": False}, "Marian has no such model: source_end is False, must be True"),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")  # fmt: skip
def test_what_marian_itself_lacks_is_named(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=f"^{message}$"):
        write_parts(parts_of(**MARIANS | settings), tmp_path / "marian", "marian-npz")


def test_what_marian_itself_computes_otherwise_is_a_warning(tmp_path: Path, logged: list[str]) -> None:
    write_parts(parts_of(**MARIANS | {"normalisation": "gnmt"}), tmp_path / "marian", "marian-npz")
    epsilon, penalty = logged
    assert "Marian's layer norm adds 1e-06 to the variance, this model 1e-05" in epsilon
    assert "length penalty ((5 + length) / 6)^0.6 becomes length^0.6, because Marian has no other" in penalty


def test_a_choice_between_models_is_left_to_the_user(tmp_path: Path) -> None:
    arrays = write_marian(tmp_path)
    write_npz(tmp_path / "other.npz", SETTINGS, arrays)
    with pytest.raises(ConversionError, match=r"2 .npz files \(model.npz, other.npz\); give one of them"):
        read_parts(tmp_path)
    (tmp_path / "third.vocab.yml").write_text(vocabulary_in_yaml(TARGET))
    with pytest.raises(ConversionError, match=r"3 vocabularies; name those of source and target in decoder.yml"):
        read_parts(tmp_path / "other.npz")
    names = "models: [other.npz]\nvocabs: [third.vocab.yml, third.vocab.yml]\nnormalize: 0.6\n"
    (tmp_path / "decoder.yml").write_text(names)
    config = read_parts(tmp_path).config
    assert (config.normalisation, config.alpha) == ("length", 0.6)


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    write_marian(tmp_path)
    np.savez(tmp_path / "model.npz", x=np.zeros(3))
    with pytest.raises(ConversionError, match="it has no special:model.yml; is it a model of Marian"):
        read_parts(tmp_path)
    (tmp_path / "model.npz").write_bytes(b"PK")
    with pytest.raises(ConversionError, match=r"model.npz: cannot be read as .*BadZipFile.* is missing, corrupt or of"):
        read_parts(tmp_path)
    write_marian(tmp_path)
    (tmp_path / "model.src.vocab.yml").write_text("the: many")
    with pytest.raises(ConversionError, match="model.src.vocab.yml: cannot be read"):
        read_parts(tmp_path)


def test_the_words_of_sentencepiece_need_its_model(tmp_path: Path) -> None:
    write_marian(tmp_path)
    for side in ("src", "trg"):
        words = vocabulary_in_yaml([*TARGET[:2], *(f"▁{word}" for word in TARGET[2:])])
        (tmp_path / f"model.{side}.vocab.yml").write_text(words, encoding="utf-8")
    with pytest.raises(ConversionError, match="put them beside the vocabulary as source.spm and target.spm"):
        read_parts(tmp_path)


def test_words_are_read_with_their_quotes_and_escapes() -> None:
    text = (
        '"</s>": 0\n<unk>: 1\n\'it\'\'s\': 2\n"\\"": 3\n"\\\\": 4\n"\\x85": 5\n"\\u2028\\U0001F600": 6\n'
        '":": 7\nnaïve: 8\n'
        '"a: b": 9\n? "very long"\n: 10\n\ny: 11\r\n'
    )
    words = ["</s>", "<unk>", "it's", '"', "\\", "\x85", "\u2028😀", ":", "naïve", "a: b", "very long"]
    assert read_vocabulary(text) == {w: i for i, w in enumerate([*words, "y"])}


def test_settings_have_types_and_lists() -> None:
    text = (
        '# comment\ntype: transformer\ndim-emb: 512\nlearn-rate: 3e-4\nulr: false\npre: ""\n'
        "dims:\n  - 5\n  - 6\nvocabs: [a.yml, b.yml]\nnone: []\n"
    )
    settings = {"type": "transformer", "dim-emb": 512, "learn-rate": 3e-4, "ulr": False, "pre": ""}
    assert read_settings(text) == settings | {"dims": [5, 6], "vocabs": ["a.yml", "b.yml"], "none": []}


def test_other_text_is_refused() -> None:
    with pytest.raises(ValueError, match="not a setting: 'nothing'"):
        read_settings("nothing")
    with pytest.raises(ValueError, match="invalid literal"):
        read_vocabulary("the: x")
