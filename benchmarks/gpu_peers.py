"""Our code, alone and compared with PyTorch: updates, beam search, and the recipe of Multi30k.

python benchmarks/gpu_peers.py "ours" base 25000 --device cuda      (a contestant; started by the stages)
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import importlib.util
import itertools
import tempfile
import time
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from contest import Contestant, serve
from gpu_card import ROOT, Card, Name, die_with_parent, synchronize
from workload import IdPairs, Workload

from minitransformer import ModelConfig

SECONDS = {"cuda": 60, "cpu": 20}  # that must be left when a contest begins, compilation included
SECONDS_TO_END = 5  # that must be left after a round
LEAST_ROUNDS = 3  # of a contest; fewer give no result
LARGE, SMALL = 0, 1  # indices in ``Sizes.tokens``
CONTESTS = (  # the strongest peers first
    ("base", LARGE, "PyTorch, compiled"), ("base", LARGE, "PyTorch, packed, compiled, in graphs"),
    ("big", LARGE, "PyTorch, compiled"), ("base", SMALL, "PyTorch, eager"), ("base", LARGE, "PyTorch, eager"),
    ("base", SMALL, "PyTorch, packed, compiled, in graphs"), ("big", LARGE, "PyTorch, eager"),
    ("base", LARGE, "PyTorch, packed, compiled"),
)  # fmt: skip
RECIPE = ROOT / "recipes" / "multi30k-en-de.toml"
DRY_RUN = {
    "device": "cpu",
    "model": {"n_layers": 1, "d_model": 128, "d_ff": 32, "n_heads": 2, "d_k": 16, "d_v": 16},
    "training": {
        "max_updates": 2, "batch_tokens": 100, "checkpoint_every": 1, "validate_every": 2, "average_checkpoints": 2,
        "precision": "float32",
    },
}  # fmt: skip


CONTESTANTS: dict[str, dict[str, Any]] = {  # options of torch.compile; empty if it is not used
    "ours": {},
    "ours, without graphs": {},
    "PyTorch, eager": {},
    "PyTorch, compiled": {"dynamic": True},
    "PyTorch, packed, compiled": {"dynamic": False},
    "PyTorch, packed, compiled, in graphs": {"dynamic": False, "mode": "reduce-overhead"},
}


def training_of(name: str, card: Card, config: ModelConfig, batches: list[IdPairs], tokens: int) -> Any:
    """Return a contestant's training; import only what it needs, so that ours does not have PyTorch in memory.

    Ours uses our kernels in bfloat16.  PyTorch's is written as most would write it (padded batches, fused Adam,
    scaled_dot_product_attention, autocast); "packed" is the fastest that we can write.  On a CPU only the tracing is
    tried, because compilation takes minutes.
    """
    if name.startswith("ours"):
        from gpu_ours import OurTraining  # noqa: PLC0415

        return OurTraining(config, batches, tokens, in_graphs=name == "ours")
    compilation = CONTESTANTS[name] or None
    if card.name == "cpu" and compilation:
        compilation = {"dynamic": compilation["dynamic"], "backend": "aot_eager"}
    how: dict[str, Any] = {"bf16": True, "device": card.name, "compilation": compilation}
    if "packed" in name:
        from torch_packed import packed_training  # noqa: PLC0415

        return packed_training(config, batches, **how)
    from torch_peer import TorchTraining, TorchTransformer, count, tensors  # noqa: PLC0415

    return TorchTraining(TorchTransformer(config), [tensors(pairs) for pairs in batches], count(batches), **how)


def ours(card: Card) -> bool:
    """Measure our training alone; this also chooses the algorithms of products while nothing else computes."""
    items = itertools.product(card.sizes.models, card.sizes.tokens, ("ours", "ours, without graphs"))
    return card.attempt_each(
        (
            (name, {"model": model, "batch tokens": tokens}, partial(measured, card, model, tokens, name))
            for model, tokens, name in items
        ),
        seconds=SECONDS[card.name],
    )


def contests(card: Card) -> bool:
    """Measure ours with one peer at a time, because a GPU's memory holds no more; PyTorch must be installed."""
    importlib.import_module("torch")
    items = [(model, card.sizes.tokens[size], peer) for model, size, peer in CONTESTS if model in card.sizes.models]
    return card.attempt_each(
        (
            (
                "contest",
                {"model": model, "batch tokens": tokens, "peer": peer},
                partial(measured, card, model, tokens, "ours", peer),
            )
            for model, tokens, peer in items
        ),
        seconds=SECONDS[card.name],
    )


def measured(card: Card, model: str, tokens: int, *names: str) -> dict[str, Any]:
    """Measure all contestants in each round, in reverse order in every other round.

    Each is a process; they start one after the other.
    Raises: RuntimeError if one fails; TimeoutError after too few rounds.
    """
    program = [str(Path(__file__)), model, str(tokens), "--device", card.name]
    contestants = [Contestant(name, [*program, "--name", name]) for name in names]
    longest, n_rounds = 0.0, 0
    with contextlib.ExitStack() as running:
        for contestant in contestants:
            contestant.begin()
            running.callback(contestant.stop)
            contestant.wait_until_ready()
        while n_rounds < card.sizes.rounds and time.time() + longest + SECONDS_TO_END < card.ends:
            start = time.time()
            for contestant in contestants if n_rounds % 2 else contestants[::-1]:
                contestant.run()
            longest, n_rounds = max(longest, time.time() - start), n_rounds + 1
    if n_rounds < min(LEAST_ROUNDS, card.sizes.rounds):
        raise TimeoutError(f"there was time for {n_rounds} rounds only")
    rows = []
    for one in contestants:
        low, middle, high = 1e3 * np.quantile(one.seconds, [0.25, 0.5, 0.75]) / card.sizes.updates
        rows.append(
            {
                "name": one.name,
                "ms": middle,
                "quartiles": [low, high],
                "rounds": n_rounds,
                "peak MB": one.peak_mb,
                "tokens/s": one.tokens / (middle * card.sizes.updates / 1e3),
                "ours_is_times_as_fast": one.median / contestants[0].median if len(contestants) > 1 else None,
            }
        )
    return {"contestants": rows}


Search = Callable[[int], list[list[str]]]  # number of words → the best translations of each sentence
EAGER = "PyTorch, eager"
CTRANSLATE2_TYPES = {"cuda": ("float32", "float16", "bfloat16", "int8_float16"), "cpu": ("float32",)}
CTRANSLATE2_BATCH = 64  # sentences
OUR_WEIGHTS = {"eager": "float32", "float32": "automatic", "int8_float16": "float16"}  # by the peer's type, if another


def decoding(card: Card) -> bool:
    """Measure our search in turns with one peer at a time, for each number of sentences at once."""
    from translation import model_without_end  # noqa: PLC0415 (needs PyTorch)
    from translation_peers import convert_to_ctranslate2  # noqa: PLC0415

    peers = [EAGER]
    if importlib.util.find_spec("ctranslate2") is None:
        card.record(what="CTranslate2", left_out="ctranslate2 is not installed: pip install ctranslate2")
    else:
        peers += [f"CTranslate2, {kind}" for kind in CTRANSLATE2_TYPES[card.name]]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        model_without_end(card.sizes.models["base"]).save(directory / "ours")
        if len(peers) > 1:
            convert_to_ctranslate2(directory / "ours", directory / "ctranslate2")
        return card.attempt_each(
            (
                (f"{n} sentences at once", {"peer": peer}, partial(searched, card, directory, n, peer))
                for peer, n in itertools.product(peers, card.sizes.sentences)
            ),
            seconds=20,
        )


def searched(card: Card, directory: Path, n: int, peer: str) -> dict[str, Any]:
    """Return median milliseconds and tokens per second of our search and of a peer's.

    A sentence has one token for each step.  Our last step generates the end symbol; the peers generate one more word
    instead.
    """
    from translation import BEAM, SOURCE_WORDS, IdsAsText  # noqa: PLC0415 (needs PyTorch)

    pairs = Workload(card.sizes.models["base"], max(card.sizes.tokens), 1, zipf=True).pairs()
    words = np.array([word for source, target in pairs for word in (*source, *target)])
    lines, steps = IdsAsText().decode_target(np.resize(words, (n, SOURCE_WORDS)).tolist()), card.sizes.steps
    their_search, kind = torch_search if peer == EAGER else ctranslate2_search, peer.split(", ")[1]
    searches: dict[str, tuple[Search, int]] = {
        "ours": (our_search(directory, lines, OUR_WEIGHTS.get(kind, kind)), steps - 1),
        peer: (their_search(directory, lines, card.name, peer), steps),
    }
    found = [run(steps - 1) for run, _ in searches.values()]
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    for _ in range(card.sizes.rounds + 1):
        for name, (run, n_words) in searches.items():
            start = time.perf_counter()
            run(n_words)
            synchronize()
            seconds[name].append(time.perf_counter() - start)
    middle = {name: float(np.median(times[1:])) for name, times in seconds.items()}
    return {
        "beam": BEAM,
        "steps": steps,
        "ms": {name: 1e3 * time for name, time in middle.items()},
        "tokens/s": {name: n * steps / time for name, time in middle.items()},
        "ours_is_times_as_fast": middle[peer] / middle["ours"],
        "same translations": sum(set(a) == set(b) for a, b in zip(*found, strict=True)),
    }


def our_search(directory: Path, lines: list[str], weights: Any) -> Search:
    """Return our search of these lines, as ``minitransformer-translate`` searches with these weights."""
    from translation import BEAM, SOURCE_WORDS, IdsAsText  # noqa: PLC0415 (needs PyTorch)

    from minitransformer import Transformer, Translator  # noqa: PLC0415
    from minitransformer.data.tokenizer import Tokenizer  # noqa: PLC0415
    from minitransformer.inference.search import SearchConfig  # noqa: PLC0415

    model = Transformer.load(directory / "ours", device="cuda")
    translator = Translator(model, cast(Tokenizer, IdsAsText()), weights=weights)

    def search(n_words: int) -> list[list[str]]:
        config = SearchConfig(
            beam=BEAM, n_best=BEAM, max_extra_tokens=n_words + 1 - SOURCE_WORDS, max_length_factor=None
        )
        return [[translation.text for translation in best] for best in translator.n_best(lines, config)]

    return search


def torch_search(directory: Path, lines: list[str], device: Name, peer: str) -> Search:
    """Return PyTorch's search: all lines in one batch."""
    from translation import BEAM, IdsAsText  # noqa: PLC0415 (needs PyTorch)
    from translation_peers import TorchSearch  # noqa: PLC0415

    del peer
    search, sources = TorchSearch(directory / "ours", beam=BEAM, device=device), IdsAsText().encode_source(lines)
    return lambda n_words: [IdsAsText().decode_target(best) for best in search(sources, n_words)]


def ctranslate2_search(directory: Path, lines: list[str], device: Name, peer: str) -> Search:
    """Return CTranslate2's search in the type that the name of ``peer`` ends with."""
    from ctranslate2 import Translator as CTranslate2  # noqa: PLC0415
    from translation import BEAM  # noqa: PLC0415 (needs PyTorch)

    translator = CTranslate2(str(directory / "ctranslate2"), device=device, compute_type=peer.split(", ")[1])
    sources = [[*line.split(), "</s>"] for line in lines]

    def search(n_words: int) -> list[list[str]]:
        results = translator.translate_batch(
            sources,
            beam_size=BEAM,
            num_hypotheses=BEAM,
            max_batch_size=CTRANSLATE2_BATCH,
            length_penalty=0.6,
            min_decoding_length=n_words,
            max_decoding_length=n_words,
        )
        return [[" ".join(words) for words in result.hypotheses] for result in results]

    return search


def multi30k(card: Card) -> bool:
    """Train the recipe once; it needs enough time to finish, because its checkpoints are lost with the machine."""
    return card.attempt("recipe", lambda: train_recipe(card), seconds=120 if card.name == "cuda" else 20)


def train_recipe(card: Card) -> dict[str, Any]:
    """Train the recipe; return the minutes, the updates and the content of ``results.json``.

    The recipe runs in bfloat16 and without micro-batches, so that an update is one graph.  A dry run makes few updates
    of a small model with the CPU's own kernels: emulated GPU kernels would take too long.
    """
    from minitransformer.config import RunConfig  # noqa: PLC0415 (contestants need none of these)
    from minitransformer.config.checks import with_changes  # noqa: PLC0415
    from minitransformer.training.run import train  # noqa: PLC0415

    start, changes = time.time(), tomllib.loads(RECIPE.read_text(encoding="utf-8"))
    config = with_changes(RunConfig.of_preset(changes.pop("preset")), changes)
    config = with_changes(config, {"device": "cuda", "training": {"precision": "bfloat16", "n_micro_batches": 1}})
    if card.name == "cpu":
        config = with_changes(config, DRY_RUN)
    with tempfile.TemporaryDirectory() as name:
        data = dataclasses.replace(config.data, directory=card.multi30k)
        result = train(dataclasses.replace(config, run=Path(name), data=data))
        return {"minutes": (time.time() - start) / 60, "updates": result.updates, "results": result.results}


def main() -> None:
    """Run as a contestant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("tokens", type=int)
    parser.add_argument("--name", choices=CONTESTANTS, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    options = parser.parse_args()
    die_with_parent()
    card = Card(options.device)
    if options.name.startswith("ours"):
        card.open()
    config, batches = card.batches(options.model, options.tokens)
    training = training_of(options.name, card, config, batches, options.tokens)
    serve(lambda: training.updates(card.sizes.updates), memory=training.peak_mb)


if __name__ == "__main__":
    main()
