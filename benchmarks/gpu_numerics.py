"""Is every kernel right?  Forward and backward, on odd sizes, in memory full of NaN, against float64 on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gpu_card import Card

from autograd import Segments
from autograd.array import namespace_of_device, to_device, to_host
from autograd.kernels.cuda import attention as of_attention
from autograd.kernels.cuda import layer_norm as of_norm
from autograd.op import operations
from autograd.optim import adam_update, clip, sum_squares
from autograd.precision import rounded, upcast
from autograd.random import StreamId
from autograd.tensor import written
from minitransformer.model.masks import causal_mask, encoder_decoder_mask, self_attention_mask

MOST_OFF = {"float32": 1e-5, "bfloat16": 1e-2}  # by the Euclidean norm
STREAM_ID = StreamId(2**64 - 1, 5, 2**33, 3)
ADAM = {"beta1": 0.9, "beta2": 0.98, "eps": 1e-9}


class Case(NamedTuple):
    """An operation on arrays as they are stored (integers, float32, bfloat16)."""

    op: str
    arguments: tuple[Any, ...]
    static: dict[str, Any]
    name: str


def run(card: Card) -> bool:
    """All of them; the worst of each operation is recorded, and every one that is too far off."""
    card.poison_new_arrays()
    worst: dict[tuple[str, str], tuple[float, str]] = {}
    works = []
    for dtype in MOST_OFF:
        for case in cases(card, dtype):
            work = lambda case=case, dtype=dtype: error_of(case, dtype)  # noqa: E731
            works.append(attempt(card, case, dtype, work, worst))
    works.append(card.attempt("Adam", lambda: adam(card), stage="numerics"))
    for (op, dtype), (error, name) in worst.items():
        card.record(stage="numerics", what=op, dtype=dtype, most_off=error, of=name)
    return all(works)


def attempt(
    card: Card, case: Case, dtype: str, work: Callable[[], float], worst: dict[tuple[str, str], tuple[float, str]]
) -> bool:
    """Compare; keep the worst."""
    try:
        error = work()
    except Exception as failure:  # the next kernel may be right
        card.record(stage="numerics", what=case.op, dtype=dtype, of=case.name, error=f"{failure!r}"[:1_000])
        return False
    worst[case.op, dtype] = max(worst.get((case.op, dtype), (-1.0, "")), (error, case.name))
    return True


def cases(card: Card, dtype: str) -> Iterator[Case]:
    """Of every operation that has a kernel for numbers stored like this."""
    random = np.random.default_rng(1)

    def draw(*shape: int, dtype: str = dtype) -> Any:
        values = random.standard_normal(shape).astype(np.float32)
        return rounded(values) if dtype == "bfloat16" else values

    lengths = card.sizes.lengths
    for n in (*lengths, sum(lengths)):
        for width in of_norm.WIDTHS:
            of_parameters = draw(width, dtype="float32"), draw(width, dtype="float32")
            yield Case("layer_norm", (draw(n, width), *of_parameters), {}, f"{n} × {width}")
            terms = draw(n, width), draw(n, width)
            yield Case("add_norm", (*terms, *of_parameters), {"rate": 0.1, "stream_id": STREAM_ID}, f"{n} × {width}")
        yield Case("dropout", (draw(n, 63),), {"rate": 0.3, "stream_id": STREAM_ID}, f"{n} × 63")
        yield Case("embedding", (draw(37, 65), random.integers(0, 37, n)), {}, f"{n} of 37 × 65")
        for d_in, d_out in ((64, 128), (33, 65)):
            x, weight, bias = draw(n, d_in), draw(d_in, d_out), draw(d_out, dtype="float32")
            yield Case("linear", (x, weight, bias), {}, f"{n} × {d_in} × {d_out}")
            yield Case("linear_relu", (x, weight, bias), {}, f"{n} × {d_in} × {d_out}")
            yield Case("linear_transposed", (x, draw(d_out, d_in)), {}, f"{n} × {d_in} × {d_out}")
    for n_words in card.sizes.vocabularies:
        for n in (1, sum(lengths)):
            arguments = draw(n, 64), draw(n_words, 64), None, random.integers(0, n_words, n)
            yield Case("linear_cross_entropy", arguments, {"smoothing": 0.1}, f"{n} × {n_words}")
    if dtype == "bfloat16":
        yield from attention_cases(lengths, draw)


def attention_cases(lengths: tuple[int, ...], draw: Callable[..., Any]) -> Iterator[Case]:
    """Sentences of these lengths, one behind the other."""
    here, there = Segments.of_lengths(lengths), Segments.of_lengths(lengths[::-1])
    masks = {"encoder": self_attention_mask(here), "decoder": causal_mask(here),
             "source": encoder_decoder_mask(here, there)}  # fmt: skip
    for width in of_attention.WIDTHS:
        for name, of in masks.items():
            sizes = of.queries.n_tokens, of.keys.n_tokens, of.keys.n_tokens
            heads = tuple(draw(n, 3, width) for n in sizes)
            yield Case("attention", heads, {"mask": of}, f"{name}, heads of {width}")


def error_of(case: Case, dtype: str) -> float:
    """The greatest relative error of the value and of all gradients.  Raises: AssertionError if it is too great."""
    op = operations[case.op]
    arguments = tuple(None if x is None else to_device(x, "cuda") for x in case.arguments)
    kernel = op.choose(arguments, case.static)
    assert kernel in {of_card.run for of_card in op.kernels if of_card.device == "cuda"}, "no kernel takes this"
    value, backward = kernel(*arguments, **case.static)
    exact = tuple(x if x is None or x.dtype.kind == "i" else upcast(x).astype(np.float64) for x in case.arguments)
    expected, exact_backward = op.reference(*exact, **case.static)
    direction = np.random.default_rng(2).standard_normal(value.shape).astype(np.float32)
    dy = rounded(direction) if str(value.dtype) == "bfloat16" else direction
    gradients = backward(to_device(np.asarray(dy), "cuda"))
    exact_gradients = exact_backward(upcast(dy).astype(np.float64))
    errors = [relative_error(value, expected)]
    for got, of_reference in zip(gradients, exact_gradients, strict=True):
        if got is not None:
            errors.append(relative_error(written(got), written(of_reference)))
    assert max(errors) <= MOST_OFF[dtype], f"value and gradients are off by {errors}"
    return max(errors)


def relative_error(got: Any, expected: Any) -> float:
    """‖got − expected‖ / ‖expected‖.  Raises: AssertionError if anything is not finite, or of another shape."""
    got, expected = upcast(to_host(got)).astype(np.float64), np.asarray(expected, np.float64)
    assert got.shape == expected.shape, f"{got.shape} where {expected.shape} was expected"
    assert np.isfinite(got).all(), "not finite, or not written"
    return float(np.linalg.norm(got - expected) / max(np.linalg.norm(expected), 1e-30))


def adam(card: Card) -> dict[str, Any]:
    """The norm of a gradient of an odd number of elements, its clipping, and the update, copies included."""
    random, n = np.random.default_rng(1), sum(card.sizes.lengths)
    values, gradients, m = random.standard_normal((3, n)).astype(np.float32)
    v, scalars = np.square(random.standard_normal(n).astype(np.float32)), np.array([0.01, 1e-3, 0.5])
    loss, exact = np.array(7.0), [x.astype(np.float64) for x in (values, gradients, m, v)]
    expected = clip.reference(sum_squares.reference(exact[1]), loss, scalars, max_norm=0.01)
    adam_update.reference(*exact, None, scalars, expected[2], **ADAM)
    on_card = [to_device(x, "cuda") for x in (values, gradients, m, v)]
    scalars, loss = to_device(scalars, "cuda"), to_device(loss, "cuda")
    low_precision = namespace_of_device("cuda").empty(n, rounded(values).dtype)
    outcome = clip(sum_squares(on_card[1]), loss, scalars, max_norm=0.01)
    adam_update(*on_card, low_precision, scalars, outcome[2], **ADAM)
    results = zip((*on_card, outcome), (*exact, expected), strict=True)
    errors = [relative_error(got, of_reference) for got, of_reference in results]
    assert max(errors) <= MOST_OFF["float32"], errors
    assert (to_host(low_precision) == rounded(to_host(on_card[0]))).all(), "copies are not the rounded values"
    return {"n": n, "most_off": max(errors)}
