"""Where does the time of an update go?  Ours by class of kernel, and everybody's by kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpu_card import Card, synchronize
from gpu_contestants import CONTESTANTS, batches_of
from gpu_ours import OurTraining

from autograd.array import namespace_of_device
from autograd.kernels.cuda import cublaslt, driver

N_UPDATES = 3
MOST_KERNELS = 25  # that are named


def run(card: Card) -> bool:
    """Of all models and sizes of batch ours; of the first of each also PyTorch's."""
    works = []
    for model in card.sizes.models:
        for tokens in card.sizes.tokens:
            facts = {"model": model, "batch tokens": tokens}
            works.append(card.attempt("ours by class", lambda of=(model, tokens): by_class(card, *of), **facts))
    model, tokens = next(iter(card.sizes.models)), card.sizes.tokens[0]
    for name in ("ours", "ours, without graphs", "PyTorch, eager", "PyTorch, packed, compiled"):
        facts = {"model": model, "batch tokens": tokens, "name": name}
        works.append(card.attempt("by kernel", lambda name=name: by_kernel(card, name, model, tokens), **facts))
    return all(works)


def by_class(card: Card, model: str, tokens: int) -> dict[str, Any]:
    """Milliseconds of an update in products and in our kernels, by source; the rest is CuPy's, and waiting."""
    config, batches = batches_of(card, model, tokens)
    training = OurTraining(config, batches, tokens, in_graphs=False)
    training.updates(len(batches))
    cuda = namespace_of_device("cuda").cuda
    start, end, stream = cuda.Event(), cuda.Event(), cuda.get_current_stream()
    with timed_launches() as launches:
        start.record(stream)
        training.updates(N_UPDATES)
        end.record(stream)
        end.synchronize()
    spent: dict[str, float] = defaultdict(float)
    for name, before, after in launches:
        spent[name] += cuda.get_elapsed_time(before, after) / N_UPDATES
    total = cuda.get_elapsed_time(start, end) / N_UPDATES
    of_classes = dict(sorted(spent.items(), key=lambda item: -item[1]))
    return {"ms": total, "launches": len(launches) / N_UPDATES, "classes": of_classes,
            "rest": total - sum(spent.values())}  # fmt: skip


@contextmanager
def timed_launches() -> Iterator[list[tuple[str, Any, Any]]]:
    """Within this context everything that we launch stands between two events, which are kept with its class."""
    cuda, found = namespace_of_device("cuda").cuda, []
    function_of, run_product = driver._function, cublaslt.Product.run

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def between_events(*arguments: Any, **how: Any) -> Any:
            before, after, stream = cuda.Event(), cuda.Event(), cuda.get_current_stream()
            before.record(stream)
            result = work(*arguments, **how)
            after.record(stream)
            found.append((name, before, after))
            return result

        return between_events

    driver._function = lambda source, *of: timed(source.partition(".")[0], function_of(source, *of))
    cublaslt.Product.run = timed("products", run_product)
    try:
        yield found
    finally:
        driver._function, cublaslt.Product.run = function_of, run_product


def by_kernel(card: Card, name: str, model: str, tokens: int) -> dict[str, Any]:
    """Milliseconds of an update by kernel, of the longest ones, as NVIDIA's tracing has them."""
    config, batches = batches_of(card, model, tokens)
    training = CONTESTANTS[name](card, config, batches, tokens)
    training.updates(2 * len(batches))
    found = traced(card, lambda: training.updates(N_UPDATES))
    longest = sorted(found.items(), key=lambda item: -item[1])[:MOST_KERNELS]
    return {"ms in kernels": sum(found.values()) / N_UPDATES, "kernels": len(found),
            "longest": {kernel[:90]: round(ms / N_UPDATES, 3) for kernel, ms in longest}}  # fmt: skip


def traced(card: Card, work: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds on the card by name of kernel, whoever launched it; without a card, what PyTorch itself ran."""
    import torch  # noqa: PLC0415 (only where its profiler is wanted)
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    on_card = card.name == "cuda"
    if on_card:
        torch.cuda.init()
    with profile(activities=[ProfilerActivity.CUDA if on_card else ProfilerActivity.CPU]) as profiler:
        work()
        synchronize()
        if on_card:
            torch.cuda.synchronize()
    times = ((e.key, e.self_device_time_total if on_card else e.self_cpu_time_total) for e in profiler.key_averages())
    return {kernel: microseconds / 1e3 for kernel, microseconds in times if microseconds}
