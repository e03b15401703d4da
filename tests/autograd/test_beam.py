"""The step of a beam search beside the same step in loops, and the cache beside the same writes one by one."""

import numpy as np
import pytest

from autograd.ops.beam import append_to_cache, extend_beams
from tests.autograd.cuda.test_cuda_beam import END, state_of


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("k", "n_ranked", "n_finished", "n_tokens"), [(1, 1, 1, 1), (2, 4, 1, 4), (4, 8, 4, 8)])
def test_a_step_ranks_the_continuations_as_loops_do(
    k: int, n_ranked: int, n_finished: int, n_tokens: int, seed: int
) -> None:
    arrays = state_of(6, k, n_finished, n_tokens, 9, np.random.default_rng(seed))
    log_p, _, ids, _, scores, finished_log_p, finished_ids, done, n_steps, limits, greatest, token_log_p, token, lp = (
        x.copy() for x in arrays
    )
    found = extend_beams.reference(*arrays, beam=k, n_ranked=n_ranked, end=END)
    for s in range(6):
        step = n_steps[s] - 1
        continuations = [
            (log_p[s, h] + token_log_p[s * k + h, j], h, int(token[s * k + h, j]))
            for h in range(k) for j in range(n_tokens)
        ]  # fmt: skip
        ranked = sorted((c for c in continuations if c[0] > -np.inf), key=lambda c: -c[0])[:n_ranked]
        finished = [x for x in zip(scores[s], finished_log_p[s], finished_ids[s].tolist(), strict=True)]
        if not done[s]:
            finished += [(p / lp[step], p, ids[s, h].tolist()) for p, h, token_id in ranked if token_id == END]
        finished = sorted(finished, key=lambda x: -x[0])[:n_finished]
        live = [c for c in ranked if c[2] != END][:k]
        histories = [[*ids[s, h, :step], token_id, *ids[s, h, step + 1 :]] for _, h, token_id in live]
        n = len(live)
        assert (found[0][s, :n].tolist(), set(found[0][s, n:])) == ([c[0] for c in live], {-np.inf} if n < k else set())
        assert found[1][s, :n].tolist() == [c[2] for c in live]
        assert found[2][s, :n].tolist() == histories
        assert found[-1][s, :n].tolist() == [c[1] for c in live]
        exists = [x for x in finished if x[0] > -np.inf]
        assert found[4][s].tolist() == [x[0] for x in finished]
        assert [x[s, : len(exists)].tolist() for x in found[5:7]] == [[x[1] for x in exists], [x[2] for x in exists]]
        best = live[0][0] / greatest[s] if live else -np.inf
        is_done = done[s] or n_steps[s] >= limits[s] or not best > found[4][s, -1]
        assert (found[7][s], found[8][s]) == (is_done, n_steps[s] + (not is_done))


@pytest.mark.parametrize("per_sentence", [False, True])
def test_the_newest_keys_and_values_are_written_at_their_step(per_sentence: bool) -> None:
    random = np.random.default_rng(1)
    n_steps = np.array([3, 1]) if per_sentence else 2
    caches = [random.random((2, 4, 3, 2, width)) for width in (5, 6)]
    new = [random.random((2 * 2, 2, width)) for width in (5, 6)]
    expected = [cache.copy() for cache in caches]
    for cache, rows in zip(expected, new, strict=True):
        for i in range(4):
            cache[i // 2, np.broadcast_to(n_steps, 2)[i // 2] - 1, i % 2] = rows[i]
    append_to_cache.reference(*caches, *new, n_steps)
    for cache, right in zip(caches, expected, strict=True):
        np.testing.assert_array_equal(cache, right)
