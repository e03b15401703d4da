"""The steps of a beam search, which keep its state on the models' device.

A step consists of array operations of known shape.  So on a GPU the host enqueues a step by one call, as a CUDA graph,
and nothing waits within the step.  A search with a constraint has no graph and waits in each step, because the
constraint computes on the host.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, cast

import numpy as np

from autograd import Tensor, namespace, to_device, to_host
from autograd.array import Array, BoolArray, IntArray, ReadLater, namespace_of_device
from autograd.graphs import GraphStream, ShapedGraphs
from autograd.ops.top_k import top
from minitransformer.inference.cache import axis_length, newest_step
from minitransformer.inference.search import Hypothesis, Request, Search, forbidden_tokens
from minitransformer.model.symbols import END, START
from minitransformer.system.threads import require_wanted

STEPS_BEHIND = {"cpu": 0, "cuda": 1}  # steps that the host enqueues before it reads the outcome of a step
REMOVED_AT_ONCE = {"cpu": (1, 0.0), "cuda": (1, 0.25), "graph": (64, 0.5)}
"""The least number and share of finished sentences to remove from a batch; then a graph must be captured again."""


class State(NamedTuple):
    """The state of a search: k live and n finished hypotheses of each of S sentences, best first.

    At first a sentence has one hypothesis: k is 1, or all other hypotheses have log p −∞.

    Shapes: ``log_p`` (S, k) float64, −∞ for hypotheses that do not exist; ``newest`` (S, k) int64; ``ids`` (S, k, L)
    int64, END after the last token; ``cache_index`` (S, k, L) int64, see ``cached_mask``.  L is the ``axis_length`` of
    the greatest length.
    ``finished_scores`` and ``finished_log_p`` (S, n) float64, −∞ for hypotheses that do not exist yet;
    ``finished_ids`` (S, n, L) int64, with END after the last token.
    ``done`` (S,) bool marks sentences whose search has ended.  Steps that the host enqueues before it reads ``done``
    do not change the finished hypotheses of these sentences.  ``limits`` and ``greatest_penalties`` (S,) never change.
    """

    log_p: Array
    newest: Array
    ids: Array
    cache_index: Array
    finished_scores: Array
    finished_log_p: Array
    finished_ids: Array
    done: Array
    limits: Array
    greatest_penalties: Array

    def select(self, rows: Array) -> State:
        """Return the state of the sentences with the indices ``rows``."""
        return State(*(x[rows] for x in self))


class BeamSearch(Search):
    """A beam search of several sources at once; see ``beam_search``.

    The number of steps, ``n_steps``, is an array (1,) on a GPU.  So a CUDA graph of one step computes any later step of
    the same shapes.

    Args:
        stream: the current stream, if it can be captured; without it, every step is launched kernel by kernel.
    """

    def __init__(self, request: Request, n_finished: int, stream: GraphStream | None = None) -> None:
        self.n_finished, self.device = n_finished, request.models[0].device
        self.xp = namespace_of_device(self.device)
        self.graphs: ShapedGraphs | None = None
        if (
            stream is not None and request.constraint is None and top.may_run("cuda")
        ):  # its reference may copy from the host
            self.graphs = ShapedGraphs(stream, "a step of the search")
        super().__init__(request)
        self.never_generated = to_device(self.never(), self.device)
        self.n_candidates = 2 * self.config.beam if self.config.beam > 1 else 1
        """Number of continuations of a sentence, and of each of its hypotheses, that are ranked."""

    def begin(self, request: Request) -> None:
        """Set all attributes that depend on the sources of ``request``: of the host, and the first state."""
        super().begin(request)
        self.state, self.penalties = self._first_state()
        self.n_steps: int | Array = 1 if self.device == "cpu" else self.xp.ones(1, np.int64)
        self.removed: list[tuple[IntArray, State]] = []

    def _first_state(self) -> tuple[State, Array]:
        """Return the state before the first step, and the length penalties (L,) of 1, 2, … tokens."""
        xp, config, n, n_finished = self.xp, self.config, len(self.sentences), self.n_finished
        k = 1 if self.graphs is None else config.beam  # a graph computes only steps of the same shapes
        longest = axis_length(int(self.max_lengths.max()), n, self.device)
        log_p = xp.full((n, k), -np.inf, np.float64)
        log_p[:, 0] = 0
        state = State(
            log_p,
            xp.full((n, k), START, np.int64),
            xp.full((n, k, longest), END, np.int64),
            xp.zeros((n, k, longest), np.int64),
            xp.full((n, n_finished), -np.inf, np.float64),
            xp.full((n, n_finished), -np.inf, np.float64),
            xp.full((n, n_finished, longest), END, np.int64),
            xp.zeros(n, np.bool_),
            to_device(self.max_lengths, self.device),
            to_device(config.length_penalty(self.max_lengths), self.device),
        )
        penalties = np.array([config.length_penalty(length) for length in range(1, longest + 1)], np.float64)
        return state, to_device(penalties, self.device)

    def run(self) -> list[list[Hypothesis]]:
        """Step until all sentences are done; return their hypotheses.  On a GPU, ``done`` is read one step later."""
        is_done: BoolArray = np.zeros(len(self.sentences), np.bool_)
        pending: deque[tuple[IntArray, ReadLater]] = deque()
        for length in range(1, int(self.max_lengths.max()) + 1):
            require_wanted()
            self._enqueue(length)
            n_before = is_done.sum()
            pending.append((self.sentences, ReadLater(self.state.done)))
            if len(pending) > STEPS_BEHIND[self.device]:
                sentences, done = pending.popleft()
                is_done[sentences] |= done.read()
            self.update_wanted()
            is_done |= (self.max_lengths <= length) | ~self.is_wanted
            if is_done.sum() > n_before:
                self.advance(int(is_done.sum() - n_before))
            rows_done = is_done[self.sentences]
            if rows_done.all():
                break
            has_graph = self.graphs is not None and self.graphs.has_launched
            fewest, share = REMOVED_AT_ONCE["graph" if has_graph else self.device]
            if rows_done.sum() >= max(fewest, share * len(rows_done)):
                self._remove(rows_done)
        self.removed.append((self.sentences, self.state))
        return self.results(self._hypotheses(len(is_done)))

    def _enqueue(self, length: int) -> None:
        """Enqueue step ``length``: launch the graph of a step of the same shapes, or the kernels of the step."""
        capacity = self.predictor.reserve(length)
        if self.graphs is None or not self.graphs.launch((*self.state.log_p.shape, capacity), self._step_in_place):
            self.state = self._step(self.state)

    def _step_in_place(self) -> None:
        """Enqueue a step that overwrites the state."""
        for x, new in zip(self.state, self._step(self.state), strict=True):
            if new is not x:
                x[...] = new

    def _step(self, state: State) -> State:
        """Enqueue the kernels of a step; return the state after it."""
        index = newest_step(self.n_steps)
        state.cache_index[:, :, index] = self.xp.arange(state.log_p.shape[1])[:, None]
        decoded = self.predictor.decode(state.newest.reshape(-1), state.cache_index, self.n_steps)
        state = self._branch(state, decoded, index)
        self.n_steps += 1
        return state

    def _forbidden(self, state: State) -> Array:
        """Return booleans, True for tokens that may not come next: (S·k, W), or (1, W) if equal for all hypotheses."""
        is_last = state.limits <= self.n_steps
        if self.device == "cpu" and not is_last.any():  # on a GPU, reading this would wait
            return forbidden_tokens(self.never_generated, self.constraint, None)
        rows = self.xp.repeat(is_last, state.log_p.shape[1])
        return forbidden_tokens(self.never_generated, self.constraint, rows)

    def _branch(self, state: State, decoded: list[Tensor], index: slice | Array) -> State:
        """Rank the best 2k continuations: finish those that end, and keep the best k of the rest as live hypotheses.

        Greedy search takes only the best continuation: if it ends, no hypothesis is live.
        """
        n_sentences, k = state.log_p.shape
        token_log_p, token = self.predictor.top_k(decoded, n=self.n_candidates, forbidden=self._forbidden(state))
        n_tokens = token.shape[1]
        token_log_p = token_log_p.reshape(n_sentences, k, n_tokens) + state.log_p[:, :, None]
        log_p, choice = _best(token_log_p.reshape(n_sentences, k * n_tokens), self.n_candidates)
        token, parent = _take(token.reshape(n_sentences, k * n_tokens), choice), choice // n_tokens
        ends, exists = token == END, log_p > -np.inf  # False for log p NaN
        ended_log_p = self.xp.where(ends & exists & ~state.done[:, None], log_p, -np.inf)
        finished = self._finish(state, ended_log_p, parent, index)
        log_p, best = _best(self.xp.where(exists & ~ends, log_p, -np.inf), self.config.beam)
        parent, token = _take(parent, best), _take(token, best)
        ids, cache_index = _take(state.ids, parent), _take(state.cache_index, parent)
        ids[:, :, index] = token[:, :, None]
        if self.constraint is not None:
            rows = np.arange(n_sentences)[:, None] * k + to_host(parent)
            self.constraint.follow(rows.ravel(), to_host(token).ravel())
        bound, last_score = log_p.max(axis=1) / state.greatest_penalties, finished[0][:, -1]
        done = state.done | ~((bound > last_score) & (state.limits > self.n_steps))  # no better one can be found
        return State(log_p, token, ids, cache_index, *finished, done, state.limits, state.greatest_penalties)

    def _finish(self, state: State, log_p: Array, parent: Array, index: slice | Array) -> tuple[Array, Array, Array]:
        """Return the n best of the old and new finished hypotheses; of equal scores, the older hypothesis comes first.

        Shapes: log_p (S, candidates), −∞ for a candidate that does not end; parent (S, candidates), the hypothesis that
        the candidate continues.  Returns scores, log p and ids; see ``State``.
        """
        xp, n_best, old_scores = self.xp, self.n_finished, state.finished_scores
        if self.device == "cpu" and not (log_p > -np.inf).any():  # on a GPU, reading this would wait
            return old_scores, state.finished_log_p, state.finished_ids
        scores, choice = _best(xp.concatenate([old_scores, log_p / self.penalties[index]], axis=1), n_best)
        old_rows = xp.broadcast_to(xp.arange(n_best), old_scores.shape)
        rows = _take(xp.concatenate([old_rows, n_best + parent], axis=1), choice)
        finished_log_p = _take(xp.concatenate([state.finished_log_p, log_p], axis=1), choice)
        return scores, finished_log_p, _take(xp.concatenate([state.finished_ids, state.ids], axis=1), rows)

    def _remove(self, done: BoolArray) -> None:
        """Remove the sentences that are done; their finished hypotheses stay on the device until the end."""
        unfinished, done_on_device = np.flatnonzero(~done), to_device(np.flatnonzero(done), self.device)
        self.removed.append((self.sentences[done], self.state.select(done_on_device)))
        if self.constraint is not None:
            k = self.state.log_p.shape[1]
            self.constraint.select((unfinished[:, None] * k + np.arange(k)).ravel())
        self.sentences = self.sentences[unfinished]
        self.state = self.state.select(self.predictor.select(unfinished))

    def _hypotheses(self, n_sentences: int) -> list[list[Hypothesis]]:
        """Return the finished hypotheses of every sentence, best first, on the host."""
        found: list[list[Hypothesis]] = [[] for _ in range(n_sentences)]
        for sentences, state in self.removed:
            finished = state.finished_scores, state.finished_log_p, state.finished_ids
            arrays = zip(sentences, *map(to_host, finished), strict=True)
            for sentence, scores, log_p, ids in arrays:
                found[sentence] = [
                    self.hypothesis(sentence, float(score), float(p), _until_end(row))
                    for score, p, row in zip(scores, log_p, ids, strict=True)
                    if score > -np.inf
                ]
        return found


def _best(x: Array, n: int) -> tuple[Array, Array]:
    """Return the n greatest numbers of each row and their columns, greatest first, ties by column, NaN last."""
    if namespace(x) is not np:
        return cast(tuple[Array, Array], top(x, n=n))  # does not wait, unlike CuPy's sorts
    columns = np.argsort(-x, axis=1, kind="stable")[:, :n]
    return _take(x, columns), columns


def _take(x: Array, index: Array) -> Array:
    """Return x[s, index[s, i]] for every sentence s.  Shapes: x (S, m, …), index (S, n); returns (S, n, …)."""
    n_sentences, m = x.shape[:2]
    rows = index + namespace(x).arange(0, n_sentences * m, m)[:, None]
    return x.reshape(n_sentences * m, *x.shape[2:])[rows]


def _until_end(ids: Any) -> tuple[int, ...]:
    """Return the ids before the first END."""
    return tuple(ids[: int(np.argmax(ids == END))].tolist())
