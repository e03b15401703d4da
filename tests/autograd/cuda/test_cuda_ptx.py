"""Faults planted in the CUDA sources are found where their PTX runs in an interpreter."""

import functools
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cuda_kernels import MODULES
from nvrtc_versions import installed, launch_ptx, needs_interpreter, ptx_of, write_ptx

from autograd import Segments
from autograd.kernels.cuda import (
    attention,
    beam,
    check_child,
    clip,
    cross_entropy,
    embedding,
    layer_norm,
    linear,
    nvrtc,
    top_k,
)
from autograd.precision import rounded
from autograd.random import StreamId
from minitransformer.model.masks import cached_mask, causal_mask

pytestmark = [
    pytest.mark.slow,
    needs_interpreter,
    pytest.mark.skipif(not installed(), reason="NVRTC is not installed (pip install nvidia-cuda-nvrtc)"),
]
DROPOUT = {"rate": 0.3, "stream_id": StreamId(5, 1, 3, 2)}


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def run_attention() -> None:
    """Run with short and long segments, in one pass and in two."""
    mask = causal_mask(Segments.of_lengths([70, 3, 20]))
    *qkv, dy = (rounded(x).view(np.uint16) for x in draw(4, 93, 1, 16))
    attention.attention_in_tiles(*qkv, mask=mask, **DROPOUT)[1](dy)


def run_cached_attention() -> None:
    """Run with one sentence, whose cache is full."""
    mask = cached_mask(np.zeros((1, 2, 33), np.int64), np.array([33]), 2, 33)
    attention.attention_to_cached_keys(draw(2, 1, 40), *draw(2, 66, 1, 40), mask=mask)


def run_embedding() -> None:
    table, ids = draw(7, 40), np.arange(70) % 7
    embedding.embedding_with_positions_in_one_pass(table, ids, table, ids, scale=3.0, **DROPOUT)


def run_layer_norm() -> None:
    x, y, dy = draw(3, 45, 128)
    layer_norm.add_norm_in_registers(x, y, *draw(2, 128), **DROPOUT)[1](dy)


def run_cross_entropy() -> None:
    logits, targets, losses = draw(2, 1025), np.array([1, 1024]), np.zeros(2, np.float32)
    numbers = np.int64(1025), np.float32(1e-4), np.float32(0.9), np.int32(0)
    cross_entropy.launch(
        cross_entropy.SOURCE, cross_entropy.kernel_name("float32"), 2, 512, logits, targets, losses, *numbers
    )


def run_beam() -> None:
    """Run with the most hypotheses, of which many end with few probable tokens, so that all warps have some."""
    arrays, static = next(check_child._beams(check_child.Draw("float64")))
    arrays[4][:], arrays[12][:, 1:] = -100, static["end"]
    beam.extend_beams_in_place(*arrays, **static)
    beam.append_to_cache_in_one_pass(*draw(2, 1, 3, 2, 1, 140), *draw(2, 2, 1, 140), np.array([3]))


def run_top_k() -> None:
    top_k.top_in_one_block(draw(2, 1025), n=3)
    top_k.log_softmax_top_in_one_block(draw(2, 1025), np.zeros((2, 1025), np.bool_), np.array([True]), n=3)


RUNS: dict[str, Callable[[], object]] = {
    "attention": run_attention,
    "beam": run_beam,
    "cached_attention": run_cached_attention,
    "clip": lambda: clip.sum_squares_by_blocks(draw(1000)),
    "cross_entropy": run_cross_entropy,
    "embedding": run_embedding,
    "layer_norm": run_layer_norm,
    "linear": lambda: linear.sum_of_rows(draw(300, 65)),
    "top_k": run_top_k,
}
USERS = {"attention_long": "attention", "mma": "attention", "common": "cross_entropy"}  # a source that has this header
WAIT = re.compile(r"\b(?:__syncthreads|__syncwarp|finish_copies)\(\);")
WAITS = [
    (path.name, match[0], text.count(match[0], 0, match.start()), ";")
    for path in sorted(nvrtc.SOURCES.glob("*.cu*"))
    for text in [path.read_text()]
    for match in WAIT.finditer(text)
]
INDICES = [  # off by one
    ("attention.cuh", "row < end ?", 0, "row <= end ?"),
    ("attention.cuh", "words[row][threadIdx.x % 2 * 4 + i]", 0, "words[row][threadIdx.x % 2 * 4 + i + 1]"),
    ("mma.cuh", "row + r < end", 0, "row + r <= end"),
    ("cached_attention.cu", "step < n;", 0, "step <= n;"),
    ("beam.cu", "i < key_width;", 0, "i <= key_width;"),
    ("clip.cu", "i < n &&", 0, "i <= n &&"),
    ("cross_entropy.cu", "i < n_words - n_in_vectors", 0, "i <= n_words - n_in_vectors"),
    ("layer_norm.cu", "words[32 * j + lane()]", 0, "words[32 * j + lane() + 1]"),
    ("linear.cu", "of_warps[other][lane]", 0, "of_warps[other][lane + 1]"),
]

REPORT = r" pc \d+ |copies"  # of the interpreter: the instruction that a fault or a race has, or copies not waited for


def run(source: str, sources: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run kernels of a source, which is compiled from these files; the others are as they are."""
    shutil.copytree(ptx_of(installed()[0]), directory / "ptx")
    write_ptx(installed()[0], sources, directory / "ptx", source)
    for module in MODULES:
        monkeypatch.setattr(module, "launch", functools.partial(launch_ptx, directory / "ptx"))
    RUNS[source]()


@pytest.mark.parametrize("source", RUNS)
def test_sources_without_a_fault_run(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(source, nvrtc.SOURCES, tmp_path, monkeypatch)


@pytest.mark.parametrize(("file", "right", "n_before", "wrong"), [*WAITS, *INDICES])
def test_a_missing_wait_and_an_index_off_by_one_are_found(
    file: str, right: str, n_before: int, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(nvrtc.SOURCES, tmp_path / "sources")
    pieces = (nvrtc.SOURCES / file).read_text().split(right)
    texts = right.join(pieces[: n_before + 1]), right.join(pieces[n_before + 1 :])
    assert texts[1]
    (tmp_path / "sources" / file).write_text(wrong.join(texts))
    stem = Path(file).stem
    with pytest.raises(AssertionError, match=REPORT):
        run(USERS.get(stem, stem), tmp_path / "sources", tmp_path, monkeypatch)
