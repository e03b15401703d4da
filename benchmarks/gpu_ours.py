"""Stages with our code alone: preflight, check of kernels, reproducibility of bits, and time by class of kernel."""

from __future__ import annotations

import importlib
import math
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import cycle, pairwise
from itertools import product as product_of
from pathlib import Path
from typing import Any

import numpy as np
from gpu_card import FULL, ROOT, Card, draw, synchronize
from workload import IdPairs, Workload

from autograd.array import namespace_of_device, to_device, to_host
from autograd.kernels.cuda import cublaslt, nvrtc
from autograd.kernels.cuda.check import CHILD, check_results
from autograd.kernels.cuda.cublaslt import SPLIT_TERMS
from autograd.kernels.cuda.linear import sum_of_rows
from autograd.kernels.cuda.products import mask_shape, product
from autograd.precision import dtype_named, lack_of_bfloat16, rounded, upcast
from minitransformer import ModelConfig, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import plan_epoch, read_micro_batches
from minitransformer.data.store import TokenStore, write_store
from minitransformer.model.fixed_batch import Capacity
from minitransformer.training.graph import STEPS, CapturedStep, PaddedBatches
from minitransformer.training.loop import Trainer
from minitransformer.training.memory import try_largest_batch
from minitransformer.training.new_trainer import reducer_for
from parallel.communicator import Communicator, SerialCommunicator, SumOrder

N_UPDATES = 4  # launched and captured, then replayed three times
CHILD_ON_CPU = (sys.executable, str(ROOT / "tests" / "support" / "checking_child.py"), "{}")


class OurTraining:
    """A training of the model in bfloat16; each update is one CUDA graph, or is launched kernel by kernel."""

    def __init__(
        self,
        config: ModelConfig,
        batches: list[IdPairs],
        batch_tokens: int,
        *,
        in_graphs: bool,
        world: Communicator | None = None,
        n_micro_batches: int = 1,
        order: SumOrder = "exact",
    ) -> None:
        self._data = tempfile.TemporaryDirectory()  # is removed with this object
        data = Path(self._data.name)
        write_store(data, "train", (pair for pairs in batches for pair in pairs), config.vocabulary_size)
        store = TokenStore(data, "train")
        training = TrainingConfig(
            batch_tokens=batch_tokens,
            n_micro_batches=n_micro_batches,
            warmup_steps=100,
            precision="bfloat16",
            sum=order,
        )
        world = world or SerialCommunicator()
        reducer = reducer_for(training, world, "cuda", 1)
        self.model = Transformer(config, seed=1, dtype="bfloat16", device="cuda", allocate=reducer.allocate)
        self.trainer = Trainer(self.model, store, None, training, data, world, reducer, n_threads=1)
        step = self.trainer.training_step
        if isinstance(step, CapturedStep) and not in_graphs:
            self.trainer.training_step = step.step
        try_largest_batch(self.trainer)
        self._batches = cycle([np.arange(a, b) for a, b in pairwise(np.cumsum([0, *map(len, batches)]))])
        self._next = next(self._batches)

    def updates(self, n: int) -> int:
        """Make ``n`` updates, and check that all are finite; return their number of target tokens."""
        results = []
        for _ in range(n):
            batch, self._next = self._next, next(self._batches)
            results.append(self.trainer.step(batch, self._next))
            assert all(result.is_finite for result in results[-2:-1]), "a loss or a gradient is not finite"
        assert results[-1].is_finite, "a loss or a gradient is not finite"
        synchronize()
        return sum(result.n_tokens for result in results)

    def peak_mb(self) -> float:
        """Return the MB that CuPy's pools have allocated; they never free memory, so this is the peak."""
        pools = [namespace_of_device("cuda").get_default_memory_pool()]
        if isinstance(self.trainer.training_step, CapturedStep):
            pools.append(self.trainer.training_step.pool)
        return sum(pool.total_bytes() for pool in pools) / 1e6


def preflight(card: Card) -> bool:
    """Try once what all other stages need; this takes seconds."""
    tried: dict[str, Callable[[], Any]] = {
        "every source compiles": compile_sources,
        "a kernel runs": launch,
        "bfloat16 arrays of CuPy, NumPy and ml_dtypes are the same": share_bfloat16,
        "a product is captured, and launched again on other numbers": capture,
        "products have the epilogues of a feed-forward network": fuse,
    }
    return card.attempt_each((what, {}, lambda work=work: work() or {}) for what, work in tried.items())


def compile_sources() -> dict[str, Any]:
    """Compile all CUDA sources in parallel; then load each result from the cache, or raise the compiler's error.

    Raises: RuntimeError on a GPU without bfloat16, in which all stages compute.
    """
    if lack := lack_of_bfloat16():
        raise RuntimeError(lack)
    device = namespace_of_device("cuda").cuda.Device()
    architecture = f"sm_{device.compute_capability}"
    nvrtc.compile_all(architecture)
    for path in nvrtc.SOURCES.glob("*.cu"):
        nvrtc.machine_code(path.name, architecture)
    return {"NVRTC": nvrtc.version(), "cuBLASLt": cublaslt.version(), "architecture": architecture}


def launch() -> None:
    """Compare one kernel with NumPy."""
    x = np.random.default_rng(1).standard_normal((300, 65)).astype(np.float32)
    np.testing.assert_allclose(to_host(sum_of_rows(to_device(x, "cuda"))), x.sum(0), rtol=1e-4, atol=1e-4)


def share_bfloat16() -> None:
    """Check that host and GPU round float32 numbers to the same bfloat16 numbers."""
    on_host = np.float32([*np.random.default_rng(1).standard_normal(100_000), 0, -0.0, np.inf, 3e38, 1e-40])
    on_card = rounded(to_device(on_host, "cuda"))
    assert to_host(on_card).dtype == dtype_named("bfloat16")
    assert (to_host(on_card).view(np.uint16) == rounded(on_host).view(np.uint16)).all()
    assert (to_host(upcast(on_card)) == upcast(rounded(on_host))).all()


def capture() -> None:
    """Capture a product whose result is allocated in the graph's own pool; launch it on other numbers."""
    xp = namespace_of_device("cuda")
    before, pool = xp.cuda.get_current_stream().record(), xp.cuda.MemoryPool()
    stream = xp.cuda.Stream(non_blocking=True)
    with stream, xp.cuda.using_allocator(pool.malloc):
        stream.wait_event(before)
        x, weight = draw(300, 64), draw(64, 128)

        def compute() -> Any:
            y = xp.empty((300, 128), x.dtype)
            product(x, weight, y)
            return y

        compute()  # the algorithm is chosen, the workspace allocated
        stream.begin_capture()
        y = compute()
        graph = stream.end_capture()
        x[...] = rounded(2 * upcast(x))
        expected = to_host(compute())
        graph.launch(stream)
        stream.synchronize()
        assert (to_host(y) == expected).all(), "the graph's result is not that of the same product outside of it"


def fuse() -> None:
    """Call the products that cuBLASLt may refuse: with ReLU and its mask, and with ReLU's derivative."""
    x, weight, bias = draw(64, 32), draw(32, 128), draw(128)
    xp = namespace_of_device("cuda")
    hidden, mask = xp.empty((64, 128), x.dtype), xp.empty(mask_shape(64, 128), "uint8")
    product(x, weight, hidden, epilogue="relu_mask_bias", bias=bias, mask=mask)
    product(x, weight, hidden, epilogue="relu_bias_backward", bias=bias, mask=mask)
    synchronize()


def numerics(card: Card) -> bool:
    """Check the kernels as the first model on a GPU does; record all errors."""
    return card.attempt("check of the kernels", lambda: check(card))


def check(card: Card) -> dict[str, Any]:
    """Return relative errors.  A kernel with a fault makes the item fail, and is not used by later stages."""
    results = check_results(CHILD if card.name == "cuda" else CHILD_ON_CPU)
    faults = {name: fault for name, fault in results.faults.items() if fault}
    return {"errors": results.errors, **({"error": f"not used: {faults}"} if faults else {})}


def sameness(card: Card) -> bool:
    """Compare parameters bit by bit after the same updates with dropout; a first run chooses algorithms of products."""
    tokens = card.sizes.tokens[1]
    config, batches = card.batches("base", tokens)

    def trained(*, is_captured: bool = True) -> np.ndarray[Any, Any]:
        training = OurTraining(config, batches[:1], tokens, in_graphs=True)
        step = training.trainer.training_step
        assert isinstance(step, CapturedStep), training.trainer.why_not_captured
        if not is_captured:
            training.trainer.training_step = LaunchedStep(step.step)
        training.updates(N_UPDATES)
        assert not is_captured or step.n_graphs, "nothing was captured"
        return to_host(training.model.parameters.values)

    def compared(*, is_captured: bool = True) -> dict[str, Any]:
        trained()
        first, second = trained(), trained(is_captured=is_captured)
        n_different = int((first.view(np.uint32) != second.view(np.uint32)).sum())
        assert n_different == 0, f"{n_different} of {first.size} parameters differ"
        return {"updates": N_UPDATES, "parameters": first.size}

    launched = partial(compared, is_captured=False)
    return card.attempt_each(
        [("two runs end with the same bits", {}, compared), ("a graph leaves the bits of its launches", {}, launched)]
    )


class LaunchedStep(CapturedStep):
    """A ``CapturedStep`` with the same fixed capacities that never captures a graph."""

    def enqueue(self, buffers: Any) -> Any:
        """Launch the kernels one by one."""
        return buffers.compute(self.step)


def host(card: Card) -> bool:
    """Measure the work on one core that prepares a batch; a GPU is not needed."""
    return card.attempt_each(
        ("a batch is read and padded", {"batch tokens": tokens}, partial(prepare_batches, tokens))
        for tokens in FULL.tokens
    )


def prepare_batches(tokens: int) -> dict[str, Any]:
    """Return the median milliseconds of a core that one batch takes: to read it, and to pad it to a capacity."""
    workload = Workload(FULL.models["base"], tokens, 8, zipf=True)
    unit = -(-tokens // (STEPS * SPLIT_TERMS)) * SPLIT_TERMS  # as in ``CapturedStep``
    seconds = []
    with tempfile.TemporaryDirectory() as name:
        write_store(Path(name), "train", workload.pairs(), workload.config.vocabulary_size)
        pairs = TokenStore(Path(name), "train").read()
        for batch in plan_epoch(pairs.lengths, tokens, seed=1, epoch=0) * 3:
            times = [time.thread_time()]
            micro_batches, lengths = read_micro_batches(pairs, batch, 1, [0])
            times.append(time.thread_time())
            PaddedBatches(Capacity.of(lengths, unit), [one for one in micro_batches if one], None)
            seconds.append(np.diff([*times, time.thread_time()]))
    read, padded = np.median(seconds, axis=0).tolist()
    return {"read ms": 1e3 * read, "pad ms": 1e3 * padded}


def classes(card: Card) -> bool:
    """Measure an update of every model and size of batch; PyTorch must be installed for its profiler."""
    importlib.import_module("torch")
    return card.attempt_each(
        ("ours by class", {"model": model, "batch tokens": tokens}, partial(by_class, card, model, tokens))
        for tokens, model in product_of(card.sizes.tokens, card.sizes.models)
    )


def by_class(card: Card, model: str, tokens: int) -> dict[str, Any]:
    """Return the milliseconds of an update: in all, with at least one kernel running, and for each class of kernels.

    PyTorch's profiler reads them from CUPTI, which sees the kernels of all libraries, also in graphs.  Kernels of two
    streams run in parallel, so their sum may be more than the time of an update.
    """
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415 (our other stages do not need PyTorch)

    config, batches = card.batches(model, tokens)
    training = OurTraining(config, batches, tokens, in_graphs=True)
    training.updates(2 * len(batches))
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        training.updates(N_UPDATES)
    ran = sorted(
        (event.time_range.start, event.time_range.end, event.name)
        for event in profiled.events()
        if event.device_type.name == "CUDA"
    )
    spent, launches = defaultdict[str, float](float), len(ran) / N_UPDATES
    busy, free_from = 0.0, -math.inf
    for start, end, name in ran:
        spent[class_of(name)] += (end - start) / 1e3 / N_UPDATES
        busy, free_from = busy + max(0, end - max(start, free_from)), max(free_from, end)
    total = (free_from - ran[0][0]) / 1e3 / N_UPDATES if ran else 0
    return {
        "ms": total,
        "busy": busy / 1e3 / N_UPDATES,
        "launches": launches,
        "classes": dict(sorted(spent.items(), key=lambda item: -item[1])),
    }


def class_of(kernel: str) -> str:
    """Return "products" for kernels of cuBLASLt, else the kernel's name without its template arguments."""
    if re.search("nvjet|gemm|cutlass|splitK|cublas", kernel):
        return "products"
    return re.split(r"[<(]", kernel.removeprefix("void "))[0][:80]
