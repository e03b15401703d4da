"""The model on the stand-in for CuPy, with the CUDA kernels run on the CPU: their arguments and results."""

import dataclasses
import inspect
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import fake_streams
import numpy as np
import pytest
from cublaslt_on_cpu import Recorder

from autograd import RandomStream, backward, to_device, to_host
from autograd.array import device_of
from autograd.optim import Adam
from autograd.precision import rounded, upcast
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.config.model import NormPlacement
from minitransformer.inference.beam import beam_search
from minitransformer.inference.search import SearchConfig

CONFIG = ModelConfig(vocabulary_size=19, n_layers=1, d_model=128, d_ff=16, n_heads=2, d_k=4, d_v=4)
BATCH = Batch.from_token_ids([[5, 6, 7, 8], [], [4]], [[7], [4, 5, 6], []])


def test_a_step_of_a_search_is_computed_by_kernels(launched: list[str]) -> None:
    here, there = (Transformer(CONFIG, seed=3, device=device) for device in ("cpu", "cuda"))
    search = SearchConfig(beam=3, n_best=2, max_extra_tokens=4)
    expected, found = (beam_search(model, [[5, 6, 7], [], [4]], search) for model in (here, there))
    assert [[h.ids for h in best] for best in found] == [[h.ids for h in best] for best in expected]
    count = Counter(launched)
    assert count["extend_beams"] == count["log_softmax_top"] == count["append_32_bits_to_cache"] > 0
    assert not [name for name in count if name.startswith("top_k")]


def count_array_operations(monkeypatch: pytest.MonkeyPatch, least: int) -> Counter[str]:
    """Count CuPy's own operations that write at least so many elements, by the file of autograd that asks for them.

    Kernels, products, views and unwritten arrays are not counted.
    """
    made, do, counts = fake_streams.made, fake_streams.do, Counter[str]()

    def count() -> None:
        frame: Any = sys._getframe(2)
        while "/autograd/" not in (name := frame.f_code.co_filename) or "/tests/" in name:
            frame = frame.f_back
        counts[Path(name).stem] += 1

    def count_made(compute: Any, sources: list[Any], wrap: Any) -> Any:
        result = made(compute, sources, wrap)
        if result.size >= least and not any(np.may_share_memory(result._values, source) for source in sources):
            count()
        return result

    def count_done(work: Any, address: int | None = None) -> None:
        values = inspect.getclosurevars(work).nonlocals.get("values") if inspect.isfunction(work) else None
        if isinstance(values, np.ndarray) and values.size >= least and "poison" not in work.__code__.co_names:
            count()
        do(work, address)

    monkeypatch.setattr(fake_streams, "made", count_made)
    monkeypatch.setattr(fake_streams, "do", count_done)
    return counts


@pytest.mark.parametrize(("norm", "n_expected", "n_in_all"), [("post", 0, 1), ("pre", 5, 6)])
def test_gradients_of_residual_connections_are_not_copied(
    norm: NormPlacement, n_expected: int, n_in_all: int, launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are 5 connections.  In post-norm a product adds its result to the gradient; in pre-norm CuPy adds two.

    The other writes the zeros of the flat buffer.
    """
    config = dataclasses.replace(CONFIG, d_k=32, d_v=32, p_drop=0.1, norm=norm)
    model = Transformer(config, seed=3, dtype="bfloat16", device="cuda")
    loss = model.loss(BATCH, RandomStream(1, update=2))
    counts = count_array_operations(monkeypatch, min(BATCH.n_source_tokens, BATCH.n_target_tokens) * config.d_model)
    backward(loss)
    counts.pop("algorithms", None)  # writes between timed products, which happens once for all trainings
    assert counts["tensor"] == n_expected
    assert counts.total() <= n_in_all


def test_an_update_is_that_of_the_cpu(launched: list[str]) -> None:
    here, there = (Transformer(CONFIG, seed=3, device=device) for device in ("cpu", "cuda"))
    for model in (here, there):
        backward(model.loss(BATCH, RandomStream(1, update=2)))
        Adam(model.parameters).step(1e-3, 1)
    assert device_of(there.parameters.values) == "cuda"
    gradients = here.parameters.gradients, to_host(there.parameters.gradients)
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-4, atol=1e-4 * np.abs(gradients[0]).max())
    large = np.abs(gradients[0]) > 1e-3 * np.abs(gradients[0]).max()  # Adam divides a gradient by its size
    values = here.parameters.values, to_host(there.parameters.values)
    np.testing.assert_allclose(values[1][large], values[0][large], rtol=1e-4, atol=1e-6)
    assert sorted(set(launched)) == [
        "adam_update_bf16", "add_norm_backward_float_128", "add_norm_forward_float_128", "add_rows_float", "clip",
        "cross_entropy_float", "embed_float", "relu_backward_float", "scaled_float", "sum_of_rows_float",
        "sum_squares",
    ]  # fmt: skip


@pytest.mark.parametrize("changes", [{"start": "end", "positions": "learned"}, {"start": "zero"}], ids=str)
def test_the_gradients_of_embeddings_are_those_of_the_cpu(changes: dict[str, Any], launched: list[str]) -> None:
    """With as many sentences as make the symbols' rows several pieces of a run."""
    config = dataclasses.replace(CONFIG, d_model=16, tied="none", **changes)
    batch = Batch.from_token_ids([[5, 6]] * 40, [[7, 4]] * 40)
    gradients = []
    for device in ("cpu", "cuda"):
        model = Transformer(config, seed=3, device=device)
        backward(model.loss(batch, RandomStream(1, update=2)))
        named = model.parameters.named
        gradients.append({name: to_host(p.grad) for name, p in named.items() if "embedding" in name or "pos" in name})
    here, there = gradients
    assert here.keys() == there.keys()
    for name, expected in here.items():
        assert expected.any()
        np.testing.assert_allclose(there[name], expected, atol=1e-5 * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_outside_attention_are_cublaslts(dtype: str, launched: list[str], products_on_cpu: Recorder) -> None:
    model = Transformer(CONFIG, seed=3, dtype=dtype, device="cuda")
    for _ in range(2):
        products_on_cpu.calls.clear()
        backward(model.loss(BATCH, RandomStream(1, update=2)))
    n_linear = (4 + 2) + (4 + 4 + 2) + 1  # of the encoder's layer, of the decoder's, and the projection
    n_spared = 2 + 2  # queries, keys and values of the same x are one product
    addresses = 2 * (2 + 1 + 2 if dtype == "bfloat16" else 1 + 1)  # of biases and masks of the feed-forward networks
    expected = {"Matmul": 3 * n_linear - n_spared, "MatmulDescSetAttribute": addresses}  # nothing is searched again
    assert Counter(products_on_cpu.names()) == expected


@pytest.mark.parametrize("bias", [False, True])
def test_linear_maps_of_the_same_are_one_product(bias: bool, launched: list[str], products_on_cpu: Recorder) -> None:
    """For queries, keys and values in attention with a kernel, and for keys and values of all layers."""
    n = 2
    config = dataclasses.replace(CONFIG, n_layers=n, d_k=32, d_v=32, attention_bias=bias)
    model = Transformer(config, seed=3, dtype="bfloat16", device="cuda")
    for _ in range(2):
        products_on_cpu.calls.clear()
        loss = model.loss(BATCH)
        n_forward = len(products_on_cpu.of("Matmul"))
        backward(loss)
    others = n * ((1 + 2) + (1 + 2 + 2)) + 1  # outputs, queries of the source, feed-forward; the projection
    assert n_forward == others + n * (1 + 1) + 2
    of_x, of_weights = n * (3 + 3) + 2 * n, n * (1 + 1) + 2 * n
    assert len(products_on_cpu.of("Matmul")) - n_forward == 2 * others + of_x + of_weights


def test_an_update_in_bfloat16_is_that_of_the_cpu_but_for_rounding(launched: list[str]) -> None:
    """Attention rounds its weights, which the CPU does not; a bias keeps both far from the kink of ReLU."""
    config = dataclasses.replace(CONFIG, d_k=32, d_v=32)
    models = here, there, exact = (
        Transformer(config, seed=3, dtype="bfloat16"),
        Transformer(config, seed=3, dtype="bfloat16", device="cuda"),
        Transformer(config, seed=3, dtype="float64"),
    )
    for model in models:
        for name, values in model.parameters.named_values().items():
            if name.endswith("hidden.bias"):
                signs = np.where(np.arange(len(values)) % 2, -6.0, 6.0)
                values[...] = to_device(signs.astype(values.dtype), model.device)
        loss = model.loss(BATCH, RandomStream(1, update=2))
        backward(loss)
        assert loss.dtype == ("float64" if model is exact else "float32")
        Adam(model.parameters).step(1e-3, 1)
    gradients = [to_host(model.parameters.gradients) for model in models]
    sizes = [np.linalg.norm(difference) for difference in (*(x - gradients[2] for x in gradients), gradients[2])]
    assert sizes[0] < 0.02 * sizes[3]
    assert sizes[1] < 2 * sizes[0]
    values, low_precision = to_host(there.parameters.values), to_host(there.parameters.low_precision)
    assert values.dtype == gradients[1].dtype == np.float32
    np.testing.assert_array_equal(upcast(low_precision), upcast(rounded(values)))
    large = np.abs(gradients[2]) > 0.05 * np.abs(gradients[2]).max()
    np.testing.assert_allclose(values[large], here.parameters.values[large], atol=1e-5)
    assert sorted(set(launched)) == [
        "adam_update_bf16", "add_norm_backward_bf16_128", "add_norm_forward_bf16_128", "add_rows_bf16",
        "attention_backward_32", "attention_forward_32", "clip", "cross_entropy_bf16", "embed_bf16", "scaled_bf16",
        "sum_of_rows_bf16", "sum_of_rows_float", "sum_squares",
    ]  # fmt: skip


@pytest.mark.parametrize(("rate", "passes"), [(0.0, 0), (0.1, 2)])
def test_relu_has_a_pass_of_its_own_only_with_dropout_after_it(rate: float, passes: int, launched: list[str]) -> None:
    model = Transformer(dataclasses.replace(CONFIG, p_drop_relu=rate), seed=3, dtype="bfloat16", device="cuda")
    backward(model.loss(BATCH, RandomStream(1, update=2)))
    assert launched.count("relu_backward_bf16") == passes  # one layer on each side
