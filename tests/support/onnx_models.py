"""A model of ours in ONNX, run by onnxruntime: teacher-forced log-probabilities, and greedy search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minitransformer.model.symbols import END, START, UNKNOWN

onnxruntime = pytest.importorskip("onnxruntime", reason='onnxruntime is not installed: pip install -e ".[oracles]"')
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
        """What every call of the decoder gets."""
        with_end = [[*source, *[END] * int(self.metadata["source_end"])] for source in sources]
        lengths = np.array(list(map(len, with_end)), np.int64)
        inputs = {"source_ids": padded(with_end, extra_padding), "source_lengths": lengths}
        names = [output.name for output in self.encoder.get_outputs()]
        return {"source_lengths": lengths, **dict(zip(names, self.encoder.run(None, inputs), strict=True))}

    def nothing_yet(self, batch: int) -> dict[str, Any]:
        """The caches before the first step."""
        return {
            each.name: np.zeros((batch, each.shape[1], 0, each.shape[3]), np.float32)
            for each in self.decoder.get_inputs()
            if each.name.startswith("past_")
        }

    def step(self, ids: Any, past: dict[str, Any], encoded: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Log-probabilities and the new caches."""
        names = [f"past_{output.name}" for output in self.decoder.get_outputs()]
        outputs = dict(zip(names, self.decoder.run(None, {"ids": ids, **past, **encoded}), strict=True))
        return outputs.pop("past_log_probabilities"), outputs

    def log_probabilities(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        steps: Sequence[int] = (),
        extra_padding: int = 0,
    ) -> Any:
        """Of all target tokens, sentence after sentence; columns are given in calls of these sizes, then the rest."""
        encoded, past = self.encode(sources, extra_padding), self.nothing_yet(len(sources))
        ids, results = padded([[START, *target] for target in targets]), []
        for columns in np.split(ids, np.cumsum(steps), axis=1) if steps else [ids]:
            log_p, past = self.step(columns, past, encoded)
            results.append(log_p)
        together = np.concatenate(results, axis=1)
        return np.concatenate([row[: len(target) + 1] for row, target in zip(together, targets, strict=True)])

    def greedy(self, sources: Sequence[Sequence[int]], max_extra_tokens: int) -> list[list[int]]:
        """Translations of the most probable token at every step, as our search limits them."""
        encoded, past = self.encode(sources), self.nothing_yet(len(sources))
        newest, found = np.full((len(sources), 1), START), np.zeros((len(sources), 0), np.int64)
        longest = int(self.metadata["longest_sentence"])
        limits = np.array([min(len(source) + max_extra_tokens, longest) for source in sources])
        while found.shape[1] < limits.max():
            log_p, past = self.step(newest, past, encoded)
            log_p[:, :, [UNKNOWN, START]] = -np.inf
            newest = log_p.argmax(axis=2)
            newest[found.shape[1] + 1 >= limits] = END
            found = np.concatenate([found, newest], axis=1)
        return [row[: row.index(END)] for row in found.tolist()]
