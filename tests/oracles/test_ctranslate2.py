"""CTranslate2 beside ourselves: it runs the models that we write, and we run those that its converters write."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ctranslate2_models import (
    SHAPES,
    WORDS,
    change_json,
    ctranslate2_directory,
    model_of,
    random_parts,
    scores_of,
    write_parts,
)
from marian_npz_files import SOURCE, TARGET, write_marian
from number_words import sentences, trained_parts
from shared_data import DATA, needs

from minitransformer import Batch, Translator
from minitransformer.extras.convert.certificate import OtherModel, other_side
from minitransformer.extras.convert.ctranslate2 import read_ctranslate2
from minitransformer.extras.convert.formats import read_parts, recognise
from minitransformer.extras.paper.compatibility import CONVENTIONS
from minitransformer.inference.beam import beam_search
from minitransformer.inference.search import SearchConfig
from minitransformer.model.symbols import START

ctranslate2 = pytest.importorskip("ctranslate2", reason='CTranslate2 is not installed: pip install -e ".[oracles]"')
TOLERANCE = 1e-4  # of log p of a sentence, float32
GUIDE = Path(__file__).resolve().parents[2] / "docs/guide/convert.md"
TRAINED = DATA / "ct2-aren-transliteration" / "aren-transliteration"

RANDOM = np.random.default_rng(5)
SOURCES = [[int(i) for i in RANDOM.integers(3, 13, n)] for n in (1, 2, 4, 7, 11, 20)]
TARGETS = [[int(i) for i in RANDOM.integers(3, 13, n)] for n in (3, 1, 0, 12, 9, 6)]
SOURCE_WORDS, TARGET_WORDS = ([[WORDS[i] for i in ids] for ids in side] for side in (SOURCES, TARGETS))


def their_scores(directory: Path) -> list[float]:
    translator = ctranslate2.Translator(str(directory), compute_type="float32", intra_threads=1)
    return [sum(result.log_probs) for result in translator.score_batch(SOURCE_WORDS, TARGET_WORDS)]


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_ctranslate2_computes_our_probabilities_and_finds_our_greedy_translations(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    parts = random_parts(changes)
    directory = ctranslate2_directory(tmp_path / "ct2", parts)
    assert their_scores(directory) == pytest.approx(scores_of(parts, SOURCES, TARGETS), abs=TOLERANCE)
    config = SearchConfig(beam=1, alpha=0, max_extra_tokens=8, max_length_factor=None)
    ours = [list(best.ids) for best, *_ in beam_search(model_of(parts), SOURCES, config)]
    side = other_side("ctranslate2", OtherModel(directory, read_ctranslate2(directory)))
    assert [side.translate(source, config) for source in SOURCE_WORDS] == ours
    assert len(set(map(tuple, ours))) > 1


def test_the_program_of_the_guide_translates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts, lines = trained_parts(), sentences(20, seed=2)
    search = SearchConfig(beam=4, alpha=1, normalisation="length", n_best=2)
    found = Translator(model_of(parts), parts.tokenizer).n_best(lines, search)
    # int8 changes every score a little: take the sentence whose best translation leads by most
    line, (best, _) = max(zip(lines, found, strict=True), key=lambda pair: pair[1][0].score - pair[1][1].score)
    section = GUIDE.read_text(encoding="utf-8").split("\n## CTranslate2\n")[1].split("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    ctranslate2_directory(tmp_path / "models" / "ct2", parts, "int8")
    exec(program.replace("the small dog sees three red houses", line), {})
    assert capsys.readouterr().out == best.text + "\n"


@pytest.mark.parametrize(("storage", "most"), [("float16", 0.03), ("int8", 0.5)])
def test_ctranslate2_reads_smaller_numbers_as_we_do(storage: Any, most: float, tmp_path: Path) -> None:
    """What it stores differs from our model by rounding; read back, it is the same model as CTranslate2's."""
    for changes in SHAPES["the paper's"], SHAPES["gelu_tanh, positions of CTranslate2"]:
        parts = random_parts(changes)
        directory = ctranslate2_directory(tmp_path / "ct2", parts, storage)
        theirs = their_scores(directory)
        assert theirs == pytest.approx(scores_of(parts, SOURCES, TARGETS), abs=most)
        assert scores_of(read_ctranslate2(directory), SOURCES, TARGETS) == pytest.approx(
            theirs, abs=5e-3 if storage == "float16" else 1e-4
        )


@needs("ct2-aren-transliteration")
def test_a_model_of_version_2_is_written_in_version_6_without_a_change(tmp_path: Path) -> None:
    """Its names, 73 in all, are those of the file beside it."""
    cases = json.loads(TRAINED.with_name("aren-transliteration.expected.json").read_text(encoding="utf-8"))["cases"]
    directory = ctranslate2_directory(tmp_path / "ct2", read_ctranslate2(TRAINED))
    translator = ctranslate2.Translator(str(directory), compute_type="float32", intra_threads=1)
    sources = [list(case["source"]) for case in cases]
    found = translator.translate_batch(sources, beam_size=4, length_penalty=0, return_scores=True)
    for case, result in zip(cases, found, strict=True):
        assert result.hypotheses[0] == case["beam4"][0]["tokens"]
        assert result.scores[0] == pytest.approx(case["beam4"][0]["score"], abs=1e-4)


def random_spec(*, biases: bool, table: np.ndarray | None, n_layers: tuple[int, int], **settings: Any) -> Any:
    """A Transformer of CTranslate2's own Python package, with random weights; D = 16, 2 heads."""
    spec = ctranslate2.specs.TransformerSpec.from_config(n_layers, 2, **settings)
    random, d, hidden = np.random.default_rng(1), 16, 24

    def fill(layer: Any, name: str, value: Any) -> None:
        _, last = name.rsplit("/", 1) if "/" in name else ("", name)
        if last == "encodings" and table is not None:
            layer.encodings = table
        elif value is None or (last == "bias" and ("ffn" in name or biases)):
            rows = {
                "self_attention/linear_0": 3 * d, "self_attention/linear_1": d, "attention/linear_0": d,
                "attention/linear_1": 2 * d, "attention/linear_2": d, "ffn/linear_0": hidden, "ffn/linear_1": d,
            }  # fmt: skip
            n_rows = next((n for part, n in rows.items() if part in name), len(WORDS))
            n_columns = hidden if "ffn/linear_1" in name else d
            shapes = {"weight": (n_rows, n_columns), "bias": (n_rows,), "gamma": (d,), "beta": (d,)}
            values = random.standard_normal(shapes[last]) * (0.6 if last == "weight" else 0.3) + (last == "gamma")
            setattr(layer, last, values.astype(np.float32))

    ctranslate2.specs.model_spec.visit_spec(spec, fill)
    spec.register_source_vocabulary(WORDS)
    spec.register_target_vocabulary(WORDS)
    return spec


def opennmt_py(biases: bool) -> Any:
    angles = np.arange(60)[:, None] * np.exp(np.arange(0, 16, 2) * -(np.log(10_000.0) / 16))
    table = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(60, 16).astype(np.float32)
    return random_spec(biases=biases, table=table, n_layers=(2, 3), activation=ctranslate2.specs.Activation.GELUTanh)


def fairseq(biases: bool) -> Any:
    angles = np.arange(2, 60)[:, None] * np.exp(np.arange(8) * -(np.log(10_000.0) / 7))
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    spec = random_spec(biases=biases, table=table, n_layers=(2, 2), pre_norm=False)
    spec.config.decoder_start_token, spec.config.add_source_eos = "</s>", True
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = 4.0
    return spec


def opennmt_tf(biases: bool) -> Any:
    return random_spec(biases=biases, table=None, n_layers=(1, 2), activation=ctranslate2.specs.Activation.SWISH)


def learned(biases: bool) -> Any:
    table = np.random.default_rng(2).standard_normal((60, 16)).astype(np.float32)
    spec = random_spec(biases=biases, table=table, n_layers=(2, 1), activation=ctranslate2.specs.Activation.GELU)
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = False
    spec.config.layer_norm_epsilon = 1e-3
    return spec


QUANTIZATIONS = (None, "int8", "int16", "float16", "int8_float16", "bfloat16")


@pytest.mark.parametrize(("kind", "quantization", "biases"), [
    (kind, quantization, (i + j) % 2 == 0)  # in attention
    for i, kind in enumerate([opennmt_py, fairseq, opennmt_tf, learned]) for j, quantization in enumerate(QUANTIZATIONS)
])  # fmt: skip
def test_ctranslate2s_models_are_ours(kind: Any, quantization: str | None, biases: bool, tmp_path: Path) -> None:
    spec = kind(biases)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(tmp_path))
    parts = read_ctranslate2(tmp_path)
    rounding = {"bfloat16": 0.1, "float16": 2e-2, "int8_float16": 2e-2}  # tables of sinusoids are rounded, too
    tolerance = rounding.get(str(quantization), TOLERANCE)
    assert scores_of(parts, SOURCES, TARGETS) == pytest.approx(their_scores(tmp_path), abs=tolerance)


MARIANS: dict[str, dict[str, Any]] = {
    "one embedding": {},
    "gelu": {"transformer-ffn-activation": "gelu", "tied-embeddings-all": False, "tied-embeddings": True},
    "relu, untied": {"transformer-ffn-activation": "relu", "tied-embeddings-all": False, "dec-depth": 3},
}


def marians_positions(n: int, d: int) -> Any:
    """Marian's sinusoids, of which CTranslate2 has others: from sinusoidalPositionEmbeddings of marian-dev."""
    angles = np.arange(n)[:, None] * np.exp(-np.arange(d // 2) * np.log(10_000) / (d / 2 - 1))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("f")


def marian_in_ctranslate2(npz: Path, vocabularies: list[Path], output: Path) -> Any:
    """Return a translator of a model of Marian, which CTranslate2's converter reads."""
    with np.load(npz) as arrays:
        (d,) = {array.shape[1] for name, array in arrays.items() if name.endswith("_ln_scale")}
        np.savez(output.with_suffix(".npz"), **arrays, Wpos=marians_positions(50, d))
    files = [str(path) for path in vocabularies]
    converter = ctranslate2.converters.MarianConverter(str(output.with_suffix(".npz")), files)
    directory = converter.convert(str(output))
    change_json(Path(directory) / "config.json", layer_norm_epsilon=1e-6)  # Marian's; without it CTranslate2 takes 1e-5
    return ctranslate2.Translator(directory)


WRITTEN: dict[str, tuple[dict[str, Any], bool]] = {  # settings, and whether both languages have one vocabulary
    "one embedding": ({"activation": "swish"}, True),
    "untied": ({"tied": "none", "n_decoder_layers": 1}, False),
    "without biases": ({"tied": "target", "softmax_bias": False, "attention_bias": False}, False),
}


@pytest.mark.parametrize(("changes", "joint"), WRITTEN.values(), ids=WRITTEN)
def test_ctranslate2_reads_our_probabilities_from_a_file_that_we_write_for_marian(
    changes: dict[str, Any], joint: bool, tmp_path: Path
) -> None:
    parts = random_parts(CONVENTIONS["marian"] | changes, joint=joint)
    bias = parts.weights.get("softmax_bias", np.zeros(len(WORDS), np.float32)).copy()
    bias[START] = -1e4  # Marian has no start symbol
    config = dataclasses.replace(parts.config, softmax_bias=True)
    parts = dataclasses.replace(parts, config=config, weights={**parts.weights, "softmax_bias": bias})
    write_parts(parts, tmp_path / "marian", "marian-npz")
    vocabularies = sorted((tmp_path / "marian").glob("vocab*.yml"))
    translator = marian_in_ctranslate2(tmp_path / "marian" / "model.npz", vocabularies, tmp_path / "ct2")
    lines = [[" ".join(words) for words in side] for side in (SOURCE_WORDS, TARGET_WORDS)]
    ids = parts.tokenizer.encode_source(lines[0]), parts.tokenizer.encode_target(lines[1])
    scored = translator.score_batch(SOURCE_WORDS, TARGET_WORDS)
    assert [sum(each.log_probs) for each in scored] == pytest.approx(scores_of(parts, *ids), abs=TOLERANCE)


@pytest.mark.parametrize("changes", MARIANS.values(), ids=MARIANS)
def test_ctranslate2_reads_the_same_numbers_from_a_file_of_marian(changes: dict[str, Any], tmp_path: Path) -> None:
    top = {"transformer-postprocess-top": ""} | changes
    write_marian(tmp_path / "marian", **top)
    vocabularies = sorted((tmp_path / "marian").glob("*.yml"))
    translator = marian_in_ctranslate2(tmp_path / "marian" / "model.npz", vocabularies, tmp_path / "ct2")
    assert recognise(tmp_path / "marian") == "marian-npz"
    parts = read_parts(tmp_path / "marian")
    ours = model_of(parts)
    source_words = SOURCE if parts.config.source_vocabulary_size else TARGET
    for source, target in ((source_words[2:], TARGET[:1:-1]), (source_words[3:4], TARGET[2:4])):
        ids = parts.tokenizer.encode_source([" ".join(source)]), parts.tokenizer.encode_target([" ".join(target)])
        assert [len(side[0]) for side in ids] == [len(source), len(target)]
        table = ours.log_probabilities(Batch.from_token_ids(*ids))
        expected = translator.score_batch([source], [target])[0].log_probs
        np.testing.assert_allclose(table[range(len(table)), [*ids[1][0], 2]], expected, atol=1e-5)
        np.testing.assert_allclose(np.exp(table).sum(axis=1), 1, atol=1e-6)
        assert (table[:, 1] < -1000).all()
