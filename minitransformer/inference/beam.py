"""Beam search with a length penalty; it stops only when no better translation can be found.

On a GPU, a search of one sentence is kept for the next sentence.

Source: Wu et al. 2016, equation 14 (length penalty).  The order of steps is that of tensor2tensor, which decoded the
paper's models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autograd import no_tape
from autograd.array import Array
from autograd.graphs import graph_stream
from autograd.ops.top_k import top
from minitransformer.inference.beam_steps import BeamSearch
from minitransformer.inference.search import Advance, Constraint, Hypothesis, Request, SearchConfig, Wanted
from minitransformer.model.batch import Ids
from minitransformer.model.transformer import Transformer


def beam_search(
    models: Transformer | Sequence[Transformer],
    sources: Sequence[Ids],
    config: SearchConfig | None = None,
    constraint: Constraint | None = None,
    advance: Advance = lambda n: None,
    n_given: Sequence[int] | None = None,
    wanted: Wanted | None = None,
    n_finished: int | None = None,
) -> list[list[Hypothesis]]:
    """Return the ``config.n_best`` highest-scoring translations that the beam finds for each source, best first.

    The search of a sentence ends when no live hypothesis can still beat the sentence's n-th best finished hypothesis:
    log p only falls, and the penalty is largest at the greatest length.  At this length only the end symbol may come
    next, so every hypothesis becomes finished.  The start symbol and the unknown word are never generated.

    Args:
        models: one model, or an ensemble, whose probabilities of each token are averaged.  An ensemble has the length
            penalty of its first model.
        sources: ids without start and end symbols.
        config: None takes ``SearchConfig()``.
        constraint: forbids tokens, except the end symbol at the greatest length; it does not change the log p of
            allowed tokens.
        advance: a function that is called with the number of sources that were finished since the last call.
        n_given: the number of tokens of each translation that the constraint prescribes.  A translation may exceed the
            source or the prescribed tokens, whichever are more, by ``max_extra_tokens``.
        wanted: a function that returns for each source whether its translation is still wanted; called after each
            step.  The search of an unwanted source ends, and the source has no hypothesis.
        n_finished: the number of translations of each source to return, if not ``n_best``; it may exceed the beam.

    Raises: SearchError if the models' outputs are not finite, or the constraint allows no translation.
    """
    if not sources:
        return []
    models = [models] if isinstance(models, Transformer) else models
    config = (config or SearchConfig()).for_model(models[0].config)
    n_finished = n_finished or config.n_best
    request = Request(models, sources, config, constraint, advance, n_given, wanted)
    with no_tape(), graph_stream(models[0].device) as stream:
        if stream is None:
            return BeamSearch(request, n_finished).run()
        kept = next((kept for kept in stream.kept if kept.restart(request, n_finished)), None)
        search = kept.search if kept else BeamSearch(request, n_finished, stream)
        found: list[list[Hypothesis]] = search.run()
        if kept := kept or _kept_search(search):
            kept.search.release_callbacks()
            stream.kept[:] = [kept]
        return found


@dataclass(frozen=True)
class KeptSearch:
    """A search of one sentence on a GPU that is kept for the next sentence, because captures take longer than a search.

    Its graphs write to the arrays of the search, so these arrays must stay.  ``encoding`` is the graph of the encoder.
    """

    search: BeamSearch
    encoding: Any

    def restart(self, request: Request, n_finished: int) -> bool:
        """Begin the search of another sentence with the same arrays and graphs; return False if this is impossible."""
        search = self.search
        if len(request.sources) > 1 or request.constraint is not None or not top.may_run("cuda"):
            return False
        if (request.config.beam, n_finished) != (search.config.beam, search.n_finished):
            return False
        if not search.predictor.take(request.models, request.sources[0]):
            return False
        state, penalties, n_steps = search.state, search.penalties, search.n_steps
        search.begin(request)
        arrays: list[Array] = [*state, penalties, n_steps]
        values: list[Array] = [*search.state, search.penalties, search.n_steps]
        search.state, search.penalties, search.n_steps = state, penalties, n_steps
        if [array.shape for array in arrays] != [new.shape for new in values]:
            return False
        for array, new in zip(arrays, values, strict=True):
            array[...] = new
        self.encoding.launch()
        return True


def _kept_search(search: BeamSearch) -> KeptSearch | None:
    """Return a search that can be restarted, with a graph of its encoder; None if it has not ended with a graph."""
    if search.graphs is None or not (search.predictor.is_padded and search.graphs.has_launched):
        return None
    encoding = search.graphs.stream.try_capture(search.predictor.encode, "the encoder")
    return KeptSearch(search, encoding) if encoding is not None else None
