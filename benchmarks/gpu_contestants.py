"""Those that train in turns on the same sentences, each in a process of its own: ours, and PyTorch in several ways.

python benchmarks/gpu_contestants.py "ours" base 25000 --device cuda      (started by the stage "timing")
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from contest import serve
from gpu_card import Card, die_with_parent
from workload import IdPairs, Workload

from minitransformer import ModelConfig

N_BATCHES = 3
IN_GRAPHS = {"dynamic": False, "mode": "reduce-overhead"}


def ours(card: Card, config: ModelConfig, batches: list[IdPairs], tokens: int, *, in_graphs: bool = True) -> Any:
    """With our kernels, in bfloat16."""
    from gpu_ours import OurTraining  # noqa: PLC0415 (PyTorch's contestants shall not have it in memory)

    return OurTraining(config, batches, tokens, in_graphs=in_graphs)


def padded(card: Card, config: ModelConfig, batches: list[IdPairs], tokens: int, **how: bool) -> Any:
    """PyTorch as most would write it: padded batches, scaled_dot_product_attention, autocast, fused Adam."""
    from torch_peer import TorchTraining, TorchTransformer, count, tensors  # noqa: PLC0415 (ours shall not have it)

    compilation = compiled(card, {"dynamic": True}) if how.get("compiled") else None
    tensors_of = [tensors(pairs) for pairs in batches]
    return TorchTraining(
        TorchTransformer(config), tensors_of, count(batches), bf16=True, device=card.name, compilation=compilation
    )


def packed(card: Card, config: ModelConfig, batches: list[IdPairs], tokens: int, **options: Any) -> Any:
    """PyTorch as fast as we can write it."""
    from torch_packed import packed_training  # noqa: PLC0415 (ours shall not have PyTorch in memory)

    compilation = compiled(card, options)
    return packed_training(config, batches, bf16=True, device=card.name, compilation=compilation)


def compiled(card: Card, options: dict[str, Any]) -> dict[str, Any]:
    """On a CPU only what traces the program, and its gradient, is tried; the compiler takes minutes."""
    return options if card.name == "cuda" else {"dynamic": options["dynamic"], "backend": "aot_eager"}


CONTESTANTS: dict[str, Callable[..., Any]] = {
    "ours": ours,
    "ours, without graphs": lambda *of: ours(*of, in_graphs=False),
    "PyTorch, eager": padded,
    "PyTorch, compiled": lambda *of: padded(*of, compiled=True),
    "PyTorch, packed, compiled": lambda *of: packed(*of, dynamic=False),
    "PyTorch, packed, compiled, in graphs": lambda *of: packed(*of, **IN_GRAPHS),
}


def batches_of(card: Card, model: str, tokens: int) -> tuple[ModelConfig, list[IdPairs]]:
    """Return the sentences that all of them train on, and that parity, classes and kernels are measured with."""
    config = card.sizes.models[model]
    return config, Workload(config, tokens, N_BATCHES, zipf=True).batches()


def main() -> None:
    """Be one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=CONTESTANTS)
    parser.add_argument("model")
    parser.add_argument("tokens", type=int)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    options = parser.parse_args()
    die_with_parent()
    card = Card(options.device)
    if options.name.startswith("ours"):
        card.open()
    config, batches = batches_of(card, options.model, options.tokens)
    training = CONTESTANTS[options.name](card, config, batches, options.tokens)
    serve(lambda: training.updates(card.sizes.updates), memory=training.peak_mb)


if __name__ == "__main__":
    main()
