"""How fast is every kernel at the models' shapes, beside its reference on the same card?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gpu_card import Card, draw
from gpu_contestants import batches_of

from autograd import Segments
from autograd.array import namespace_of_device
from autograd.op import Operation
from autograd.ops.add_norm import add_norm
from autograd.ops.attention import attention
from autograd.ops.cross_entropy import linear_cross_entropy
from autograd.ops.dropout import dropout
from autograd.ops.embedding import embedding, order_of
from autograd.ops.layer_norm import layer_norm
from autograd.precision import upcast
from autograd.random import StreamId
from autograd.tensor import written
from minitransformer import ModelConfig
from minitransformer.model.masks import causal_mask
from minitransformer.model.symbols import END

STREAM_ID = StreamId(seed=1, stream=1)


class Case(NamedTuple):
    """An operation, its arguments, and the bytes that must be read or written at least, forward and backward."""

    op: Operation
    arguments: tuple[Any, ...]
    static: dict[str, Any]
    n_bytes: int


def run(card: Card) -> bool:
    """A line for every kernel and model."""
    works = []
    for model, config in card.sizes.models.items():
        pairs = batches_of(card, model, card.sizes.tokens[0])[1][0]
        for case in cases(config, [[*target, END] for _, target in pairs]):
            work = lambda case=case: times(card, case)  # noqa: E731 (a case at a time: memory is finite)
            works.append(card.attempt(case.op.__name__, work, model=model))
    return all(works)


def cases(config: ModelConfig, sentences: list[list[int]]) -> Iterator[Case]:
    """Yield one after the other, because memory is finite."""
    segments = Segments.of_lengths([len(sentence) for sentence in sentences])
    n_tokens, d, words = segments.n_tokens, config.d_model, config.vocabulary_size
    one = 2 * n_tokens * d
    of_norm = draw(d, dtype="float32"), draw(d, dtype="float32")
    yield Case(layer_norm, (draw(n_tokens, d), *of_norm), {}, 5 * one)
    yield Case(
        add_norm, (draw(n_tokens, d), draw(n_tokens, d), *of_norm), {"rate": 0.1, "stream_id": STREAM_ID}, 8 * one
    )
    yield Case(dropout, (draw(n_tokens, d),), {"rate": 0.1, "stream_id": STREAM_ID}, 4 * one)
    on_host, asarray = np.concatenate(sentences), namespace_of_device("cuda").asarray
    ids = asarray(on_host)
    yield Case(embedding, (draw(words, d), ids), {"order": asarray(order_of(on_host))}, 3 * one + 4 * words * d)
    yield Case(
        linear_cross_entropy, (draw(n_tokens, d), draw(words, d), None, ids), {"smoothing": 0.1}, 8 * n_tokens * words
    )
    heads = tuple(draw(n_tokens, config.n_heads, config.d_k) for _ in range(3))
    yield Case(attention, heads, {"mask": causal_mask(segments)}, 12 * heads[0].nbytes)


def times(card: Card, case: Case) -> dict[str, Any]:
    """Forward and backward together; the reference has the same numbers in float32."""
    ours = card.milliseconds(both_ways(case.op.of_arrays, case))
    wide = case._replace(arguments=tuple(upcast(x) for x in case.arguments))
    reference = card.milliseconds(both_ways(case.op.reference, wide))
    return {"ms": ours, "gb_per_s": case.n_bytes / 1e6 / ours, "reference ms": reference}


def both_ways(run: Callable[..., Any], case: Case) -> Callable[[], None]:
    """Forward, and backward along the value itself."""

    def work() -> None:
        value, backward = run(*case.arguments, **case.static)
        for gradient in backward(value):
            if gradient is not None:
                written(gradient)

    return work
