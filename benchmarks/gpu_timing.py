"""How many target tokens a second, on identical sentences, in turns with PyTorch?

A contest for every model and size of batch.  Its contestants get ready side by side, because some compile for a minute;
then they compute in turns, each a few updates that end with the last loss on the host, in the other order in every
second round.  The unit is real target tokens: what fills batches up counts nothing.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from contest import Contestant
from gpu_card import Card
from gpu_contestants import CONTESTANTS

PROGRAM = str(Path(__file__).with_name("gpu_contestants.py"))
SECONDS_TO_END = 5  # are left over when the last round begins


def run(card: Card) -> bool:
    """All contests; whoever cannot start, or fails, is recorded, and the others go on."""
    return all([contest(card, model, tokens) for model in card.sizes.models for tokens in card.sizes.tokens])


def names(card: Card, tokens: int) -> list[str]:
    """Who takes part: what graphs save is the host's time, which counts where batches are small."""
    return [name for name in CONTESTANTS if name != "ours, without graphs" or tokens == min(card.sizes.tokens)]


def contest(card: Card, model: str, tokens: int) -> bool:
    """One of them; returns whether all contestants came to its end."""
    facts = {"stage": "timing", "model": model, "batch tokens": tokens}
    all_of_them = [
        Contestant(name, [PROGRAM, name, model, str(tokens), "--device", card.name]) for name in names(card, tokens)
    ]
    for contestant in all_of_them:
        contestant.begin()
    ready = [c for c in all_of_them if comes_through(card, c.name, c.wait_until_ready, facts)]
    longest = 0.0
    for number in range(card.sizes.rounds):
        if time.time() + longest + SECONDS_TO_END > card.ends:
            break
        start = time.time()
        in_order = ready if number % 2 else ready[::-1]
        ready = [c for c in in_order if comes_through(card, c.name, c.run, facts)][:: 1 if number % 2 else -1]
        longest = max(longest, time.time() - start)
    held = memory_by_process()
    for contestant in ready:
        contestant.stop()
    results = [
        {**result(contestant, card.sizes.updates), "MB held": held.get(contestant.pid)}
        for contestant in ready if contestant.seconds
    ]  # fmt: skip
    ours = next((facts_of_one["tokens/s"] for facts_of_one in results if facts_of_one["name"] == "ours"), float("nan"))
    for facts_of_one in results:
        card.record(**facts, **facts_of_one, ours_is_times_as_fast=ours / facts_of_one["tokens/s"])
    return len(ready) == len(all_of_them)


def comes_through(card: Card, name: str, work: Any, facts: dict[str, Any]) -> bool:
    """Whether ``work`` raises nothing; what it raises is recorded."""
    try:
        work()
    except (RuntimeError, OSError, ValueError) as error:
        card.record(**facts, name=name, error=str(error))
        return False
    return True


def memory_by_process() -> dict[int, float]:
    """MB that every process holds on the card, all libraries' included, by its number; as far as the driver says."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
        return {int(pid): float(held) for pid, held in (line.split(",") for line in lines)}
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}


def result(contestant: Contestant, n_updates: int) -> dict[str, Any]:
    """Median, and quartiles, of an update."""
    low, middle, high = 1e3 * np.quantile(contestant.seconds, [0.25, 0.5, 0.75]) / n_updates
    return {
        "name": contestant.name, "ms": middle, "quartiles": [low, high], "rounds": len(contestant.seconds),
        "tokens/s": contestant.tokens / (middle * n_updates / 1e3), "peak MB": contestant.peak_mb,
    }  # fmt: skip
