"""How fast is it on one GPU: our kernels against their references, and training against PyTorch?

    python benchmarks/gpu.py [--tokens 25000] [--rounds 5]

First the card's ceilings, then matrix products and every kernel at the model's shapes, then updates of the base model
in turns.
Results are printed as they come.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from contest import Contestant, compete, describe_machine, report, serve
from workload import Workload

from autograd import Blocks
from autograd.array import namespace_of_device
from autograd.ops.add_norm import add_norm
from autograd.ops.attention import attention
from autograd.ops.cross_entropy import linear_cross_entropy
from autograd.ops.dropout import dropout
from autograd.ops.linear import embedding
from autograd.ops.normalisation import layer_norm
from autograd.optim import adam_update
from autograd.precision import rounded
from autograd.random import Site
from autograd.tensor import written
from minitransformer import ModelConfig, Transformer
from minitransformer.config import Precision, TrainingConfig
from minitransformer.data.store import TokenStore, write_store
from minitransformer.model.spans import causal_spans
from minitransformer.training.trainer import Trainer
from parallel.communicator import SerialCommunicator

CONFIG = ModelConfig(37_000)
N_BATCHES = 3
SITE = Site(seed=1, site=1)
ADAM = {"step_size": 1e-4, "beta1": 0.9, "beta2": 0.98, "variance_correction": 0.5, "eps": 1e-9}

PEERS = {
    "PyTorch, eager, float32": ["torch"],
    "PyTorch, eager, bfloat16 autocast": ["torch", "--bf16"],
    "PyTorch, eager, packed, bfloat16 autocast": ["torch", "--bf16", "--packed"],
    "PyTorch, torch.compile, bfloat16 autocast": ["torch", "--bf16", "--compiled"],
}


def milliseconds(work: Callable[[], Any], repeats: int = 10) -> float:
    """Median time on the card."""
    from cupyx.profiler import benchmark  # noqa: PLC0415 (so that --help needs no CuPy)

    return float(1e3 * np.median(benchmark(work, n_repeat=repeats, n_warmup=2).gpu_times))


def ceilings() -> None:
    """What memory and products can do."""
    xp = namespace_of_device("cuda")
    properties = xp.cuda.runtime.getDeviceProperties(0)
    print(f"{properties['name'].decode()}, {xp.cuda.runtime.memGetInfo()[1] / 2**30:.0f} GiB; CuPy {xp.__version__}")
    x, y = xp.ones((2, 2**28), np.float32)
    print(f"copy: {2 * x.nbytes / 1e6 / milliseconds(lambda: xp.copyto(y, x)):,.0f} GB/s")
    for dtype in ("float16", "float32"):
        a, b = xp.random.standard_normal((2, 8192, 8192), np.float32).astype(dtype)
        print(f"product of 8192³ in {dtype}: {2 * 8192**3 / 1e9 / milliseconds(lambda a=a, b=b: a @ b):,.0f} TFLOP/s")


class Case(NamedTuple):
    """A kernel and its reference on the same arguments, and the bytes that must be read or written at least."""

    name: str
    kernel: Callable[[], Any]
    reference: Callable[[], Any]
    n_bytes: int


def both_ways(run: Callable[..., Any], *arguments: Any, **static: Any) -> Callable[[], None]:
    """Forward, and backward along the value itself."""

    def work() -> None:
        value, backward = run(*arguments, **static)
        for gradient in backward(value):
            written(gradient)

    return work


def cases(n_tokens: int) -> Iterator[Case]:
    """Every kernel at the base model's shapes; made one after the other, because memory is finite."""
    from autograd.kernels.cuda import adam as of_adam  # noqa: PLC0415 (importing registers)
    from autograd.kernels.cuda import attention as of_attention  # noqa: PLC0415
    from autograd.kernels.cuda import cross_entropy as of_loss  # noqa: PLC0415
    from autograd.kernels.cuda import dropout as of_dropout  # noqa: PLC0415
    from autograd.kernels.cuda import embedding as of_embedding  # noqa: PLC0415
    from autograd.kernels.cuda import layer_norm as of_norm  # noqa: PLC0415

    xp, d, words = namespace_of_device("cuda"), CONFIG.d_model, CONFIG.vocabulary_size

    def draw(*shape: int) -> Any:
        return xp.random.standard_normal(shape, np.float32)

    def case(name: str, kernel: Any, reference: Any, n_bytes: int, *arguments: Any, **static: Any) -> Case:
        return Case(name, both_ways(kernel, *arguments, **static), both_ways(reference, *arguments, **static), n_bytes)

    x, one = draw(n_tokens, d), 4 * n_tokens * d
    ids = xp.random.randint(0, words, n_tokens)
    yield case("layer norm", of_norm.layer_norm_in_registers, layer_norm.reference, 5 * one, x, draw(d), draw(d))
    for name, stored in (("float32", (x, draw(n_tokens, d))), ("bfloat16", rounded(draw(2, n_tokens, d)))):
        yield case(
            f"dropout, residual and layer norm, {name}", of_norm.add_norm_in_registers, add_norm.reference,
            8 * stored[0].nbytes, *stored, draw(d), draw(d), rate=0.1, site=SITE,
        )  # fmt: skip
    yield case("dropout", of_dropout.dropout_in_one_pass, dropout.reference, 4 * one, x, rate=0.1, site=SITE)
    table = draw(words, d)
    yield case(
        "embedding", of_embedding.embedding_with_sorted_gradient, embedding.reference, 3 * one + table.nbytes,
        table, ids,
    )  # fmt: skip
    yield case(
        "projection and cross-entropy", of_loss.linear_cross_entropy_in_place, linear_cross_entropy.reference,
        4 * 4 * n_tokens * words, x, table, None, ids, smoothing=0.1,
    )  # fmt: skip
    lengths = np.clip(np.exp(np.random.default_rng(1).normal(3.0, 0.5, n_tokens // 23)), 1, 100).astype(int)
    spans = causal_spans(Blocks.of_lengths(lengths))
    qkv = draw(3, lengths.sum(), CONFIG.n_heads, CONFIG.d_k)
    halves = rounded(qkv)
    yield Case(
        "attention, bfloat16 against float32",
        both_ways(of_attention.attention_in_tiles, *halves, spans=spans),
        both_ways(attention.reference, *qkv, spans=spans), 12 * halves[0].nbytes,
    )  # fmt: skip
    state = draw(4, 65_000_000) ** 2
    yield Case(
        "Adam, 65 million", lambda: of_adam.adam_update_in_one_pass(*state, **ADAM),
        lambda: adam_update.reference(*state, **ADAM), 7 * state[0].nbytes,
    )  # fmt: skip


def kernels(n_tokens: int) -> None:
    """A table of times, forward and backward together."""
    print(f"\n| {n_tokens:,} tokens | kernel, ms | its reads and writes, GB/s | reference, ms |\n|-|-|-|-|")
    for case in cases(n_tokens):
        ours, reference = milliseconds(case.kernel), milliseconds(case.reference)
        print(f"| {case.name} | {ours:.2f} | {case.n_bytes / 1e6 / ours:,.0f} | {reference:.2f} |", flush=True)


def ours(workload: Workload, *, with_kernels: bool, precision: Precision = "float32") -> Callable[[], int]:
    """Updates on the card, the last of which is waited for."""
    if with_kernels:
        importlib.import_module("autograd.kernels.cuda")
    xp, batches = namespace_of_device("cuda"), workload.batches()
    directory = Path(tempfile.mkdtemp())
    write_store(directory, "train", (pair for batch in batches for pair in batch), CONFIG.vocabulary_size)
    ends = np.cumsum([0, *map(len, batches)])
    config = TrainingConfig(batch_tokens=workload.batch_tokens, n_shards=1, warmup_steps=100, precision=precision)
    trainer = Trainer(
        Transformer(CONFIG, dtype=precision, device="cuda"), TokenStore(directory, "train"), None, config, directory,
        SerialCommunicator(), n_threads=1,
    )  # fmt: skip

    def work() -> int:
        for a, b in pairwise(ends):
            trainer._advance(step=trainer.state.step + 1)
            trainer._update(np.arange(a, b))
        xp.cuda.Device().synchronize()
        return sum(len(target) + 1 for batch in batches for _, target in batch)

    return work


def torch(workload: Workload, **how: bool) -> Callable[[], int]:
    """The same batches through PyTorch; every update ends with its loss on the host."""
    from torch_peer import TorchTraining  # noqa: PLC0415 (of the contestants only these have PyTorch in memory)

    training = TorchTraining(CONFIG, workload.batches(), device="cuda", **how)
    return lambda: sum(training.update() for _ in training.batches)


def main() -> None:
    """Measure everything, or be a contestant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=25_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=["references", "kernels", "torch"])
    for flag in ("packed", "compiled", "bf16"):
        parser.add_argument(f"--{flag}", action="store_true")
    options = parser.parse_args()
    workload = Workload(CONFIG, options.tokens, N_BATCHES)
    if options.serve == "torch":
        serve(torch(workload, packed=options.packed, compiled=options.compiled, bf16=options.bf16), warm_up=2)
    elif options.serve:
        precision: Precision = "bfloat16" if options.bf16 else "float32"
        serve(ours(workload, with_kernels=options.serve == "kernels", precision=precision), warm_up=2)
    else:
        describe_machine()
        ceilings()
        from gpu_products import products  # noqa: PLC0415 (registers kernels, which not every contestant has)

        products(options.tokens)
        kernels(options.tokens)
        rows = {
            "ours, kernels": ["kernels"],
            "ours, kernels, bfloat16": ["kernels", "--bf16"],
            "ours, references": ["references"],
        }
        rows |= PEERS if importlib.util.find_spec("torch") else {}
        command = [__file__, "--tokens", str(options.tokens), "--serve"]
        contestants = [Contestant(name, [*command, *words]) for name, words in rows.items()]
        compete(contestants, options.rounds)
        report(f"training on a GPU, base, {options.tokens:,} tokens a side", contestants)


if __name__ == "__main__":
    main()
