"""Say which functions of a file are right: python docs/learn/exercises/check.py [FILE …]

The right values are those of minitransformer itself.  The exit status is 1 if a function is wrong.
"""

from __future__ import annotations

import copy
import functools
import itertools
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minitransformer.autograd import KeyRanges, Segments, Tensor, backward, ops
from minitransformer.autograd.optim import adam_update
from minitransformer.config import TrainingConfig
from minitransformer.inference.search import SearchConfig
from minitransformer.model.masks import causal_mask, self_attention_mask
from minitransformer.model.positions import sinusoids
from minitransformer.training.update import learning_rate

HERE = Path(__file__).parent


class Case(NamedTuple):
    """A call of the student's ``function``, and its right result: an array, or a tuple of arrays."""

    function: str
    arguments: tuple[Any, ...]
    right: Any


def cases() -> Iterator[Case]:
    """Yield calls of all functions, in the order of ``functions.py``, with small arrays of random numbers."""
    yield from _cases_of_the_model(np.random.default_rng(1).standard_normal)
    yield from _cases_of_the_loss_and_gradients(np.random.default_rng(2).standard_normal)
    yield from _cases_of_training_and_search(np.random.default_rng(3).standard_normal)


def _cases_of_the_model(normal: Callable[..., Any]) -> Iterator[Case]:
    for x in (normal((3, 4)), normal((2, 3, 5)), np.array([[1000.0, 999.0, -1000.0]])):
        yield Case("softmax", (x,), ops.softmax(Tensor(x)).value)
    for n in (1, 4):
        yield Case("causal_mask", (n,), causal_mask(Segments.of_lengths([n])).matrix())
    q, k, v = normal((4, 6)), normal((5, 6)), normal((5, 3))
    for mask in (_mask_of_source(4, 5), _mask_of_source(4, 2, unused=3)):
        yield Case("attention", (q, k, v, mask.matrix()), _attention(q, k, v, mask).value)
    x, w_q, w_k, w_v, w_o = normal((4, 6)), normal((6, 6)), normal((6, 6)), normal((6, 6)), normal((6, 6))
    for mask_of in (self_attention_mask, causal_mask):
        mask, (heads, columns) = mask_of(Segments.of_lengths([4])), (3, 2)
        q, k, v = (Tensor((x @ w).reshape(4, heads, columns)) for w in (w_q, w_k, w_v))
        right = ops.attention(q, k, v, mask=mask).value.reshape(4, 6) @ w_o
        yield Case("multi_head_attention", (x, w_q, w_k, w_v, w_o, heads, mask.matrix()), right)
    x, gain, bias = 3 * normal((4, 6)) + 2, normal(6), normal(6)
    yield Case("layer_norm", (x, gain, bias), ops.layer_norm(x, gain, bias).value)
    arguments = normal((3, 4)), normal((4, 7)), normal(7), normal((7, 4)), normal(4)
    yield Case("feed_forward", arguments, ops.feed_forward(*map(Tensor, arguments)).value)
    for n, d_model in ((1, 2), (5, 6)):
        yield Case("positions", (n, d_model), sinusoids(n, d_model))


def _cases_of_the_loss_and_gradients(normal: Callable[..., Any]) -> Iterator[Case]:
    yield Case("smoothed_target", (2, 5, 0.1), np.array([0.025, 0.025, 0.9, 0.025, 0.025]))
    for logits in (normal(5), np.array([1000.0, 998.0, 0.0, -3.0, 990.0])):
        target = np.full(5, 0.025) + 0.875 * (np.arange(5) == 2)
        yield Case("cross_entropy", (logits, target), _smoothed_loss(logits).value)
    x, dy = normal((3, 5)), normal((3, 5))
    yield Case("softmax_gradient", (dy, ops.softmax(Tensor(x)).value), *_gradients(ops.softmax, dy, x))
    x, w, bias, dy = normal((3, 4)), normal((4, 2)), normal(2), normal((3, 2))
    yield Case("linear_gradients", (dy, x, w), _gradients(ops.linear, dy, x, w, bias))
    for logits in (normal(5), np.array([1000.0, 998.0, 0.0, -3.0, 990.0])):
        yield Case("cross_entropy_gradient", (logits, target), *_gradients(_smoothed_loss, np.array(1.0), logits))
    x, gain, dy = 3 * normal((4, 6)) + 2, normal(6), normal((4, 6))
    yield Case("layer_norm_gradient", (dy, x, gain), _gradients(ops.layer_norm, dy, x, gain, np.zeros(6))[0])
    q, k, v, dy = normal((4, 6)), normal((4, 6)), normal((4, 3)), normal((4, 3))
    mask = causal_mask(Segments.of_lengths([4]))
    right = _gradients(functools.partial(_attention, mask=mask), dy, q, k, v)
    yield Case("attention_gradients", (dy, q, k, v, mask.matrix()), right)


def _cases_of_training_and_search(normal: Callable[..., Any]) -> Iterator[Case]:
    for step in (1, 399, 400, 10_000):
        yield Case("learning_rate", (step, 64, 400), learning_rate(step, 64, TrainingConfig(warmup_steps=400)))
    for step in (1, 7):
        weight, gradient, m, v = normal(5), normal(5), normal(5), normal(5) ** 2
        if step == 1:
            m, v = np.zeros(5), np.zeros(5)
        right = weight.copy(), m.copy(), v.copy()
        scalars = np.array([1.0, 0.01 / (1 - 0.9**step), 1 - 0.98**step])
        adam_update(right[0], gradient, *right[1:], None, scalars, np.array(1.0), beta1=0.9, beta2=0.98, eps=1e-9)
        yield Case("adam", (weight, gradient, m, v, step, 0.01), right)
    for length, alpha in ((1, 0.6), (20, 0.6), (20, 0.0)):
        yield Case("length_penalty", (length, alpha), SearchConfig(alpha=alpha).length_penalty(length))
    for longest, right in ((10, [3, 4, 0]), (2, [3, 4]), (0, [])):
        yield Case("greedy", (_log_probabilities, 2, longest), np.array(right))


def _mask_of_source(n_queries: int, n_keys: int, unused: int = 0) -> KeyRanges:
    """Return a mask of queries that all see the first ``n_keys`` keys, and not the ``unused`` ones after them."""
    keys = Segments.of_lengths([n_keys + unused])
    return KeyRanges(np.zeros(n_queries, int), np.full(n_queries, n_keys), Segments.of_lengths([n_queries]), keys)


def _attention(q: Any, k: Any, v: Any, mask: KeyRanges) -> Tensor:
    q, k, v = (x if isinstance(x, Tensor) else Tensor(x) for x in (q, k, v))
    return ops.attention(*(x.reshape(len(x), 1, -1) for x in (q, k, v)), mask=mask).reshape(len(q), -1)


def _smoothed_loss(logits: Any) -> Tensor:
    logits = logits if isinstance(logits, Tensor) else Tensor(logits)
    return ops.cross_entropy(logits.reshape(1, -1), np.array([2]), smoothing=0.1)


def _gradients(operation: Callable[..., Tensor], dy: Any, *inputs: Any) -> tuple[Any, ...]:
    """Return the gradient by each input, given that of the result, ``dy``."""
    leaves = [Tensor(x) for x in inputs]
    backward(operation(*leaves), dy)
    return tuple(leaf.grad for leaf in leaves)


def _log_probabilities(tokens: list[int]) -> Any:
    """Return the logarithms of the probabilities of token 0 to 4 after ``tokens``: the best ones are 3, 4, 0 and 2."""
    following = {(): 3, (3,): 4, (3, 4): 0, (3, 4, 0): 2}
    return np.log(np.full(5, 0.1) + 0.5 * (np.arange(5) == following[tuple(tokens)]))


def first_difference(result: Any, right: Any) -> str | None:
    """Return the first fault of ``result``, as text; None if it equals ``right`` up to rounding."""
    if isinstance(right, tuple):
        if not isinstance(result, tuple | list) or len(result) != len(right):
            return f"expected {len(right)} arrays, got {type(result).__name__}"
        wrongs = [first_difference(*pair) for pair in zip(result, right, strict=True)]
        return next((f"result {i + 1}: {wrong}" for i, wrong in enumerate(wrongs) if wrong), None)
    if result is None:
        return "returns nothing"
    result, right = np.asarray(result), np.asarray(right)
    if result.shape != right.shape:
        return f"expected shape {right.shape}, got {result.shape}"
    wrong = np.argwhere(~np.isclose(result.astype(float), right.astype(float), rtol=1e-6, atol=1e-9))
    if not len(wrong):
        return None
    index = tuple(map(int, wrong[0]))
    return f"{f'number {list(index)}' if index else 'the number'} is {result[index]:.6g}, expected {right[index]:.6g}"


def outcome(function: Callable[..., Any] | None, calls: list[Case], path: str) -> str:
    """Return "right", "not yet written", or "wrong: …" with the first fault, for a student's function in ``path``."""
    if function is None:
        return "wrong: there is no function of this name"
    for case in calls:
        try:
            wrong = first_difference(function(*copy.deepcopy(case.arguments)), case.right)
        except NotImplementedError:
            return "not yet written"
        except Exception as error:  # whatever the student's code raises
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
            wrong = f"line {lines[-1] if lines else '?'}: {type(error).__name__}: {error}"
        if wrong:
            return f"wrong: {wrong}"
    return "right"


def check(path: str) -> bool:
    """Print the outcome of each function of a file.  Return whether none is wrong."""
    functions = runpy.run_path(path)
    calls = [(name, list(group)) for name, group in itertools.groupby(cases(), lambda case: case.function)]
    with np.errstate(all="ignore"):
        outcomes = {name: outcome(functions.get(name), group, path) for name, group in calls}
    for name, found in outcomes.items():
        print(f"{name:22} {found}")
    print(f"{path}: {list(outcomes.values()).count('right')} of {len(outcomes)} are right")
    return not any(found.startswith("wrong") for found in outcomes.values())


if __name__ == "__main__":
    files = sys.argv[1:] or [str(HERE / "functions.py")]
    sys.exit(not all([check(file) for file in files]))
