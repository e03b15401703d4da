"""What must be the same to the last bit: two runs, random numbers here and there, an update and its graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gpu_card import Card
from gpu_contestants import batches_of
from gpu_ours import OurTraining

from autograd.array import namespace_of_device, to_host
from autograd.random import StreamId, random_words
from minitransformer.training.graph import CapturedStep

STREAM_ID = StreamId(2**64 - 1, 7, 2**40, 3)
COUNTS = (1, 3, 4, 5, 1_023, 1_024, 1_025, 100_003)
N_UPDATES = 4  # launched and captured, then replayed three times


def run(card: Card) -> bool:
    """All of them."""
    return all(
        [
            card.attempt("random words are NumPy's", random_words_of_both),
            card.attempt("two runs end with the same bits", lambda: two_runs(card)),
            card.attempt("a graph leaves the bits of its launches", lambda: graph_and_launches(card)),
        ]
    )


def random_words_of_both() -> dict[str, Any]:
    """The kernel's and ``numpy.random.Philox``'s."""
    like = namespace_of_device("cuda").empty(0)
    for count in COUNTS:
        expected = random_words(np.empty(0), stream_id=STREAM_ID, count=count)
        assert (to_host(random_words(like, stream_id=STREAM_ID, count=count)) == expected).all(), f"{count} words"
    return {"counts": COUNTS}


def two_runs(card: Card) -> dict[str, Any]:
    """A few updates with dropout, from the same seed, as graphs; the first of all chooses algorithms of products."""
    training = of_first_model(card)
    training().updates(N_UPDATES)
    return compared(trained(training()), trained(training()))


def graph_and_launches(card: Card) -> dict[str, Any]:
    """The same updates, as graphs and by launches one after the other."""
    training = of_first_model(card)
    launched = training()
    launched.trainer.training_step = LaunchedStep(launched.trainer.training_step.step)
    graphed = training()
    facts = compared(trained(graphed), trained(launched))
    step = graphed.trainer.training_step
    assert step.n_graphs, "nothing was captured"
    return {**facts, "capacities": step.n_capacities, "graphs": step.n_graphs}


class LaunchedStep(CapturedStep):
    """The same work, never captured."""

    def enqueue(self, buffers: Any) -> Any:
        """Launch everything again."""
        return buffers.compute(self.step)


def of_first_model(card: Card) -> Callable[[], OurTraining]:
    """What makes a training of it, always the same."""
    tokens = card.sizes.tokens[-1]
    config, batches = batches_of(card, next(iter(card.sizes.models)), tokens)
    return lambda: OurTraining(config, batches[:1], tokens, in_graphs=True)


def trained(training: OurTraining) -> np.ndarray[Any, Any]:
    """All parameters after a few updates."""
    training.updates(N_UPDATES)
    return to_host(training.model.parameters.values)


def compared(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Raises: AssertionError if they are not the same bits."""
    assert np.isfinite(first).all()
    n_different = int((first.view(np.uint32) != second.view(np.uint32)).sum())
    assert n_different == 0, f"{n_different} of {first.size} parameters differ"
    return {"updates": N_UPDATES, "parameters": first.size}
