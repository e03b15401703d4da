"""Our models in ONNX, run by onnxruntime, beside ourselves."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason='onnx is not installed: pip install -e ".[oracles]"')
import onnx
from ctranslate2_models import model_of, random_parts
from number_words import sentences, trained_parts

from minitransformer import Batch, ModelConfig, Translator
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert import onnx_writer
from minitransformer.extras.convert.certificate import OtherModel, other_side
from minitransformer.extras.convert.onnx_writer import N_POSITIONS, write_onnx
from minitransformer.extras.convert.parts import ConversionError
from minitransformer.inference.beam import beam_search
from minitransformer.inference.search import SearchConfig
from minitransformer.model.symbols import END, START

onnxruntime = pytest.importorskip("onnxruntime", reason='onnxruntime is not installed: pip install -e ".[oracles]"')
GUIDE = Path(__file__).resolve().parents[2] / "docs/guide/onnx.md"
VARIATIONS: dict[str, dict[str, Any]] = {
    **{f"{norm}, {positions}, {tied}": {"norm": norm, "positions": positions, "tied": tied}
       for norm, positions in (("post", "interleaved"), ("pre", "halves"), ("pre", "learned"))
       for tied in ("all", "target", "none")},
    "biases and epsilon": {"attention_bias": True, "softmax_bias": True, "layer_norm_eps": 1e-2},
    "first_position": {"first_position": 3},
    "learned, first_position": {"first_position": 3, "positions": "learned"},
    "start zero": {"start": "zero"},
    "start zero, not tied": {"start": "zero", "tied": "none"},
    "start end": {"start": "end"},
    "swish": {"activation": "swish"},
    "gelu": {"activation": "gelu"},
    "gelu_tanh": {"activation": "gelu_tanh"},
    "one decoder layer": {"n_decoder_layers": 1},
    "three decoder layers": {"n_decoder_layers": 3, "norm": "pre"},
    "neighbourhood": {"neighbourhood": 2},
    "sources without an end": {"source_end": False},
    "two vocabularies": {"tied": "target", "source_vocabulary_size": 31},
}  # fmt: skip
SOURCES = [[5, 6, 7, 8, 9, 10, 11, 12, 3, 4, 5, 5], [], [4], [12, 11], [3, 3, 3, 7, 9]]
TARGETS = [[7], [4, 5, 6, 7, 8, 9, 10, 11, 12, 3, 3], [3, 8, 4], [], [6, 6]]
PADDING = 3  # any id will do: nobody may look at it


def padded(sentences: Sequence[Sequence[int]], extra: int = 0) -> Any:
    longest = max(map(len, sentences)) + extra
    return np.array([[*sentence, *[PADDING] * (longest - len(sentence))] for sentence in sentences], np.int64)


class OnnxModel:
    """The two graphs of a directory."""

    def __init__(self, directory: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(directory / name, options) for name in ("encoder.onnx", "decoder_step.onnx")
        )
        self.metadata = self.decoder.get_modelmeta().custom_metadata_map

    def encode(self, sources: Sequence[Sequence[int]], extra_padding: int = 0) -> dict[str, Any]:
        """Return the inputs of every call of the decoder."""
        with_end = [[*source, *[END] * int(self.metadata["source_end"])] for source in sources]
        lengths = np.array(list(map(len, with_end)), np.int64)
        inputs = {"source_ids": padded(with_end, extra_padding), "source_lengths": lengths}
        names = [output.name for output in self.encoder.get_outputs()]
        return {"source_lengths": lengths, **dict(zip(names, self.encoder.run(None, inputs), strict=True))}

    def log_probabilities(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        steps: Sequence[int] = (),
        extra_padding: int = 0,
    ) -> Any:
        """Return the log-probabilities of all target tokens; each call has as many columns as ``steps`` says."""
        encoded, ids, results = self.encode(sources, extra_padding), padded([[START, *each] for each in targets]), []
        caches = [each for each in self.decoder.get_inputs() if each.name.startswith("past_")]
        past = {each.name: np.zeros((len(ids), each.shape[1], 0, each.shape[3]), np.float32) for each in caches}
        names = [f"past_{output.name}" for output in self.decoder.get_outputs()]
        for columns in np.split(ids, np.cumsum(steps), axis=1) if steps else [ids]:
            past = dict(zip(names, self.decoder.run(None, {"ids": columns, **past, **encoded}), strict=True))
            results.append(past.pop("past_log_probabilities"))
        together = np.concatenate(results, axis=1)
        return np.concatenate([row[: len(target) + 1] for row, target in zip(together, targets, strict=True)])


@pytest.mark.parametrize("changes", VARIATIONS.values(), ids=VARIATIONS)
def test_log_probabilities_and_greedy_outputs_are_ours(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Log-probabilities: columns all at once, one by one, and some of each, with more padding than needed."""
    parts = random_parts({"d_v": 5, **changes})
    has_end = parts.config.source_end
    sources = SOURCES if has_end else [source or [7] for source in SOURCES]
    write_onnx(parts, tmp_path)
    theirs = OnnxModel(tmp_path)
    ours = model_of(parts).log_probabilities(Batch.from_token_ids(sources, TARGETS, source_end=has_end))
    for steps, extra_padding in (((), 0), ([1] * 11, 0), ([1, 4, 2], 3)):
        found = theirs.log_probabilities(sources, TARGETS, steps, extra_padding)
        np.testing.assert_allclose(found, ours, rtol=0, atol=1e-5)
    config, side = SearchConfig(beam=1, max_extra_tokens=6), other_side("onnx", OtherModel(tmp_path, parts))
    expected = [list(best[0].ids) for best in beam_search(model_of(parts), sources, config)]
    assert [side.translate(source, config) for source in sources] == expected


def test_the_comparison_notices_a_wrong_weight(tmp_path: Path) -> None:
    parts = random_parts({})
    name = "decoder.layers.1.self_attention.key.weight"
    wrong = {**parts.weights, name: 1.01 * parts.weights[name]}
    write_onnx(dataclasses.replace(parts, weights=wrong), tmp_path)
    ours = model_of(parts).log_probabilities(Batch.from_token_ids(SOURCES, TARGETS))
    found = OnnxModel(tmp_path).log_probabilities(SOURCES, TARGETS)
    assert np.abs(found - ours).max() > 1e-4


def test_a_directory_says_what_a_reader_must_know(tmp_path: Path) -> None:
    parts = random_parts({})
    write_onnx(parts, tmp_path)
    metadata = OnnxModel(tmp_path).metadata
    assert ModelConfig.from_mapping(json.loads(metadata.pop("configuration"))) == parts.config
    expected = {"unknown_id": "0", "start_id": "1", "end_id": "2", "source_end": "1"}
    assert metadata == {**expected, "longest_sentence": str(N_POSITIONS)}
    assert Tokenizer.load(tmp_path).equals(parts.tokenizer)


def test_graphs_name_their_axes_and_their_opset(tmp_path: Path) -> None:
    write_onnx(random_parts({"d_v": 5, "positions": "learned"}), tmp_path)
    encoder, decoder = (onnx.load(tmp_path / name) for name in ("encoder.onnx", "decoder_step.onnx"))
    assert [(each.domain, each.version) for each in decoder.opset_import] == [("", 17)]
    assert described(encoder.graph.input) == {"source_ids": ["batch", "source"], "source_lengths": ["batch"]}
    assert described(encoder.graph.output)["cross_values.1"] == ["batch", 2, "source", 5]
    assert described(decoder.graph.input)["past_keys.0"] == ["batch", 2, "past", 6]
    assert described(decoder.graph.output)["log_probabilities"] == ["batch", "target", 13]
    assert OnnxModel(tmp_path).metadata["longest_sentence"] == "40"


def described(values: Any) -> dict[str, Any]:
    return {
        each.name: [axis.dim_param or axis.dim_value for axis in each.type.tensor_type.shape.dim] for each in values
    }


def test_a_model_that_is_too_large_for_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_writer, "LARGEST", 10_000)
    with pytest.raises(ConversionError, match=r"'encoder' has .* bytes of weights, and a file .* at most 10,000"):
        write_onnx(random_parts({}), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("joint", [True, False])
def test_the_program_in_the_guide_translates_as_we_do(tmp_path: Path, joint: bool) -> None:
    parts, lines = trained_parts(joint), sentences(20, seed=2)
    write_onnx(parts, tmp_path)
    (program,) = (
        block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL) if "ort Inf" in block
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    expected = Translator(model_of(parts), parts.tokenizer).translate(lines, beam=1)
    assert done.stdout.splitlines() == expected
    assert len(set(expected)) > 10
