"""The kernels of a search's steps against their references, on the CPU, from their PTX, and on a GPU."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autograd.kernels.cuda import beam, top_k
from autograd.ops.beam import append_to_cache, extend_beams
from autograd.ops.top_k import log_softmax_top

END = 2
pytestmark = pytest.mark.usefixtures("launch")


def state_of(n: int, k: int, n_finished: int, n_tokens: int, longest: int, random: Any) -> list[Any]:
    """Return the arguments of ``extend_beams``, with equal numbers, −∞ and NaN; histories end at the newest step."""

    def draw(*shape: int, absent: float) -> Any:
        return np.where(random.random(shape) < absent, -np.inf, -random.integers(1, 6, shape) / 2)

    n_steps = random.integers(1, longest, n)
    exists = np.arange(longest) < n_steps[:, None, None] - 1
    histories = [np.where(exists, random.integers(0, 9, (n, m, longest)), END) for m in (k, k, n_finished)]
    scores = -np.sort(-draw(n, n_finished, absent=0.3))
    token_log_p = draw(n * k, n_tokens, absent=0.1)
    token_log_p[0, 0] = np.nan
    token = random.integers(END, END + 3, (n * k, n_tokens))
    done = random.random(n) < 0.2
    finished = scores, 2 * scores, histories[2]
    limits, penalties = n_steps + random.integers(0, 3, n), 1 + random.random(longest)
    numbers = n_steps, limits, 1 + random.random(n), token_log_p, token, penalties
    return [draw(n, k, absent=0.3), random.integers(0, 9, (n, k)), *histories[:2], *finished, done, *numbers]


@pytest.mark.parametrize(
    ("k", "n_ranked", "n_finished", "n_tokens", "longest"),
    [(1, 1, 1, 1, 4), (1, 1, 1, 1, 130), (2, 4, 1, 4, 5), (4, 8, 4, 8, 140), (16, 32, 16, 32, 9), (5, 10, 16, 3, 7)],
)
def test_a_step_of_a_beam_search(k: int, n_ranked: int, n_finished: int, n_tokens: int, longest: int) -> None:
    arrays = state_of(7, k, n_finished, n_tokens, longest, np.random.default_rng(k + longest))
    static = {"beam": k, "n_ranked": n_ranked, "end": END}
    expected = extend_beams.reference(*(x.copy() for x in arrays), **static)
    assert beam._is_supported(*arrays, **static)
    found = beam.extend_beams_in_place(*arrays, **static)
    assert all(x is y for x, y in zip(found[:-1], arrays, strict=False))
    log_p, newest, ids, slots, scores, finished_log_p, finished_ids, *_, parent = found
    for i in (0, 4, 7, 8, 9, 10):  # log p, scores, done, numbers of steps, and what stays
        np.testing.assert_array_equal(found[i], expected[i])
    live, finished = log_p > -np.inf, scores > -np.inf
    assert live.any() or k == 1
    assert finished.any()
    past = np.arange(longest) < found[8][:, None, None]  # later steps of a cache index are written when they come
    for got, right in ((newest, expected[1]), (ids, expected[2]), (parent, expected[-1])):
        np.testing.assert_array_equal(got[live], right[live])
    np.testing.assert_array_equal((slots * past)[live], (expected[3] * past)[live])
    for got, right in ((finished_log_p, expected[5]), (finished_ids, expected[6])):
        np.testing.assert_array_equal(got[finished], right[finished])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("n", "k", "n_slots", "widths"), [(3, 1, 4, (8, 6)), (2, 4, 4, (300, 7))])
def test_keys_and_values_of_the_newest_tokens(
    n: int, k: int, n_slots: int, widths: tuple[int, int], dtype: str
) -> None:
    random = np.random.default_rng(1)
    keys, values = (random.random((n, 5, n_slots, 2, width)).astype(dtype) for width in widths)
    new = [random.random((n * k, 2, width)).astype(dtype) for width in widths]
    n_steps, expected = random.integers(1, 6, n), (keys.copy(), values.copy())
    append_to_cache.reference(*expected, *new, n_steps)
    beam.append_to_cache_in_one_pass(keys, values, *new, n_steps)
    np.testing.assert_array_equal(keys, expected[0])
    np.testing.assert_array_equal(values, expected[1])


RULES: dict[str, Callable[[Any], tuple[int, Any]]] = {  # rows of ``forbidden``, and the rule of 6 rows
    "one for all": lambda random: (1, None),
    "one for each": lambda random: (6, None),
    "one of two": lambda random: (2, np.array([True, False, True])),
}


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize(("width", "n"), [(7, 9), (33, 3), (1_025, 8)])
def test_the_greatest_allowed_log_probabilities(width: int, n: int, kind: str) -> None:
    random = np.random.default_rng(width)
    logits = random.integers(-40, 40, (6, width)).astype(np.float32) / 4
    logits[1, :3] = -np.inf
    n_rules, rule = RULES[kind](random)
    forbidden = random.random((n_rules, width)) < 0.4
    expected = log_softmax_top.reference(logits.astype(np.float64), forbidden, rule, n=n)
    log_p, columns = top_k.log_softmax_top_in_one_block(logits, forbidden, rule, n=n)
    assert (log_p.dtype, columns.dtype) == (np.float64, np.int64)
    np.testing.assert_allclose(log_p, expected[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(columns[log_p > -np.inf], expected[1][log_p > -np.inf])


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_logits_without_a_softmax_have_no_log_probability(wrong: float) -> None:
    logits = np.zeros((2, 40), np.float32)
    logits[0, :] = wrong
    log_p, columns = top_k.log_softmax_top_in_one_block(logits, np.zeros((1, 40), np.bool_), n=2)
    assert not (log_p[0] > -np.inf).any()
    np.testing.assert_allclose(log_p[1], -np.log(40), rtol=1e-6)
    assert ((columns >= 0) & (columns < 40)).all()
