"""Marian's own models: which files are read, and what is refused; the numbers are compared in tests/oracles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from marian_npz_files import SETTINGS, TARGET, vocabulary_in_yaml, write_marian, write_npz

from minitransformer.extras.convert.formats import read_parts
from minitransformer.extras.convert.marian_npz import read_settings, read_vocabulary
from minitransformer.extras.convert.parts import ConversionError


def test_a_file_is_read_with_the_vocabularies_beside_it(tmp_path: Path) -> None:
    arrays = write_marian(tmp_path)
    parts = read_parts(tmp_path / "model.npz")
    assert (parts.config.norm, parts.config.start, parts.config.positions, parts.config.layer_norm_eps) == (
        "post",
        "zero",
        "halves",
        1e-6,
    )
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
    write_marian(tmp_path, **{"transformer-preprocess": "n"})
    with pytest.raises(ConversionError, match=r"postprocess-top\) = \('n', 'an', ''\) is not supported; only "):
        read_parts(tmp_path)
    write_npz(tmp_path / "model.npz", SETTINGS, write_marian(tmp_path) | {"Wtype": np.zeros((2, 8), "f")})
    with pytest.raises(ConversionError, match="1 arrays that this Transformer does not have: Wtype$"):
        read_parts(tmp_path)


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
    assert read_parts(tmp_path).config.alpha == 0.6


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    write_marian(tmp_path)
    np.savez(tmp_path / "model.npz", x=np.zeros(3))
    with pytest.raises(ConversionError, match="it has no special:model.yml; is it a model of Marian"):
        read_parts(tmp_path)
    np.savez(tmp_path / "model.npz", x=np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ConversionError, match="cannot be read as .* x.npy has .* dtype object"):
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
