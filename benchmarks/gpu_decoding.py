"""How many tokens a second does beam search find on the card, in turns with PyTorch's search and the same weights?"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from gpu_card import Card, synchronize
from translation import BEAM, SOURCE_WORDS, IdsAsText, model_without_end
from translation_peers import TorchSearch
from workload import Workload

from minitransformer import Transformer, Translator
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.beam import SearchConfig

Search = Callable[[int], list[list[str]]]  # of how many words → the best translations of each sentence


def run(card: Card) -> bool:
    """An item for every number of sentences at once, with the first model."""
    config = next(iter(card.sizes.models.values()))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        model_without_end(config).save(directory)
        works = [
            card.attempt(f"{n} sentences at once", lambda n=n: in_turns(card, directory, n), seconds=20)
            for n in card.sizes.sentences
        ]
    return all(works)


def in_turns(card: Card, directory: Path, n: int) -> dict[str, Any]:
    """Return milliseconds (medians) and tokens a second of both; a sentence has as many tokens as there are steps.

    Our last step is the end symbol's; PyTorch's search makes a word more instead.
    """
    steps, lines = card.sizes.steps, IdsAsText().decode_target(sources_of(card, n))
    searches = {"ours": (ours(directory, lines), steps - 1), "PyTorch, eager": (theirs(card, directory, lines), steps)}
    found = [search(steps - 1) for search, _ in searches.values()]
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    for _ in range(card.sizes.rounds + 1):
        for name, (search, n_words) in searches.items():
            start = time.perf_counter()
            search(n_words)
            synchronize()
            seconds[name].append(time.perf_counter() - start)
    middle = {name: float(np.median(times[1:])) for name, times in seconds.items()}
    return {
        "beam": BEAM, "steps": steps, "ms": {name: 1e3 * time for name, time in middle.items()},
        "tokens/s": {name: n * steps / time for name, time in middle.items()},
        "ours_is_times_as_fast": middle["PyTorch, eager"] / middle["ours"],
        "same translations": sum(set(a) == set(b) for a, b in zip(*found, strict=True)),
    }  # fmt: skip


def sources_of(card: Card, n: int) -> list[list[int]]:
    """Return the words of the workload's sentences, cut into sources of one length."""
    config = next(iter(card.sizes.models.values()))
    pairs = Workload(config, max(card.sizes.tokens), 1, zipf=True).pairs()
    words = np.array([word for source, target in pairs for word in (*source, *target)])
    return [list(row) for row in np.resize(words, (n, SOURCE_WORDS)).tolist()]


def ours(directory: Path, lines: list[str]) -> Search:
    """Search as minitransformer-translate does."""
    translator = Translator(Transformer.load(directory, device="cuda"), cast(Tokenizer, IdsAsText()))

    def search(n_words: int) -> list[list[str]]:
        config = SearchConfig(beam=BEAM, n_best=BEAM, max_extra_tokens=n_words + 1 - SOURCE_WORDS)
        return [[translation.text for translation in best] for best in translator.n_best(lines, config)]

    return search


def theirs(card: Card, directory: Path, lines: list[str]) -> Search:
    """Search by PyTorch, with keys and values kept, in float32."""
    search = TorchSearch(directory, beam=BEAM, device=card.name)
    sources = IdsAsText().encode_source(lines)
    return lambda n_words: [IdsAsText().decode_target(best) for best in search(sources, n_words)]
