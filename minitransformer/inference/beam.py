"""Beam search with a length penalty; it stops only when no better translation can be found.

On a GPU, a search of few sentences is kept for the next sentences, because captures take longer than such a search.

Source: Wu et al. 2016, equation 14 (length penalty).  The order of steps is that of tensor2tensor, which decoded the
paper's models.
"""

from __future__ import annotations

from collections.abc import Sequence

from autograd import no_tape
from autograd.graphs import graph_stream
from autograd.precision import tf32_products
from minitransformer.inference.beam_steps import BeamSearch, may_be_graphs
from minitransformer.inference.cache import FEW_SLOTS
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
    n_at_once: int | None = None,
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
        n_at_once: the most sources at work together on a GPU without a constraint; others wait for them to end.

    Raises: SearchError if the models' outputs are not finite, or the constraint allows no translation.
    """
    if not sources:
        return []
    models = [models] if isinstance(models, Transformer) else models
    config = (config or SearchConfig()).for_model(models[0].config)
    n_finished = n_finished or config.n_best
    request = Request(models, sources, config, constraint, advance, n_given, wanted)
    with no_tape(), tf32_products(models[0].rounds_to_tf32), graph_stream(models[0].device) as stream:
        n_slots = _count_slots(request, n_at_once)
        kept = [] if stream is None else [one for one in stream.kept if one.restart(request, n_finished, n_slots)]
        search = kept[0] if kept else BeamSearch(request, n_finished, n_slots, stream)
        found = search.run()
        if stream is not None and n_slots <= FEW_SLOTS and search.graphs is not None and search.graphs.has_launched:
            search.release_callbacks()
            stream.kept[:] = [search]
        return found


def _count_slots(request: Request, n_at_once: int | None) -> int:
    """Return the number of sources to search together: all of them, unless slots can be filled again.

    Few are rounded up if steps may be graphs, so that many searches have the same shapes.
    """
    n_sources = len(request.sources)
    if request.models[0].device == "cpu" or request.constraint is not None:
        return n_sources
    is_rounded = n_sources <= FEW_SLOTS and may_be_graphs(request)
    n_slots = 1 << (n_sources - 1).bit_length() if is_rounded else n_sources
    return min(n_slots, n_at_once or n_slots)
