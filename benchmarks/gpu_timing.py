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
SECONDS = {"cuda": 120, "cpu": 20}  # in which a contest can end, compilation included; with less it does not begin
SECONDS_TO_END = 5  # are left over when the last round begins
LEAST_ROUNDS = 3  # fewer are no result


def run(card: Card) -> bool:
    """All contests; whoever cannot start, or fails, is recorded, and the others go on."""
    return all(
        [
            card.attempt("contest", lambda of=(model, tokens): contest(card, *of), seconds=SECONDS[card.name],
                         **{"model": model, "batch tokens": tokens})
            for model in card.sizes.models for tokens in card.sizes.tokens
        ]
    )  # fmt: skip


def names(card: Card, tokens: int) -> list[str]:
    """Who takes part: what graphs save is the host's time, which counts where batches are small."""
    return [name for name in CONTESTANTS if name != "ours, without graphs" or tokens == min(card.sizes.tokens)]


def contest(card: Card, model: str, tokens: int) -> dict[str, Any]:
    """One of them.  Raises: TimeoutError if too few rounds could be made."""
    failed: dict[str, str] = {}
    all_of_them = [
        Contestant(name, [PROGRAM, name, model, str(tokens), "--device", card.name]) for name in names(card, tokens)
    ]
    for contestant in all_of_them:
        contestant.begin()
    ready = [c for c in all_of_them if comes_through(c.name, c.wait_until_ready, failed)]
    longest, n_rounds = 0.0, 0
    while n_rounds < card.sizes.rounds and time.time() + longest + SECONDS_TO_END < card.ends:
        start = time.time()
        in_order = ready if n_rounds % 2 else ready[::-1]
        ready = [c for c in in_order if comes_through(c.name, c.run, failed)][:: 1 if n_rounds % 2 else -1]
        longest, n_rounds = max(longest, time.time() - start), n_rounds + 1
    held = memory_by_process()
    for contestant in ready:
        contestant.stop()
    if n_rounds < min(LEAST_ROUNDS, card.sizes.rounds):
        raise TimeoutError(f"there was time for {n_rounds} rounds only")
    results = [{**result(c, card.sizes.updates), "MB held": held.get(c.pid)} for c in ready if c.seconds]
    ours = next((one["tokens/s"] for one in results if one["name"] == "ours"), None)
    for one in results:
        one["ours_is_times_as_fast"] = ours / one["tokens/s"] if ours else None
    return {"contestants": results, **({"error": f"{failed}"} if failed else {})}


def comes_through(name: str, work: Any, failed: dict[str, str]) -> bool:
    """Return whether ``work`` raises nothing; note what it raises."""
    try:
        work()
    except (RuntimeError, OSError, ValueError) as error:
        failed[name] = str(error)
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
