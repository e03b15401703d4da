"""The steps of a beam search, which keep its state on the models' device.

A step consists of array operations of known shape.  So on a GPU the host enqueues a step by one call, as a CUDA graph,
and nothing waits within the step.  A search with a constraint has no graph and waits in each step, because the
constraint computes on the host.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from autograd import to_device, to_host
from autograd.array import Array, BoolArray, IntArray, ReadLater, namespace_of_device
from autograd.graphs import GraphStream, ShapedGraphs
from autograd.ops.beam import extend_beams
from autograd.ops.top_k import top
from minitransformer.inference.cache import axis_length
from minitransformer.inference.search import Hypothesis, Request, Search, forbidden_tokens
from minitransformer.model.symbols import END, START
from minitransformer.system.threads import require_wanted

STEPS_BEHIND = {"cpu": 0, "cuda": 1}  # steps that the host enqueues before it reads the outcome of a step
REMOVED_AT_ONCE = {"cpu": 0.0, "cuda": 0.25}
"""The least share of finished sentences to remove from a search whose steps are no graphs."""
REFILLED_AT_ONCE = 1 / 16
"""The least share of slots with finished sentences that get other sentences, by kernels outside of the graph."""
NO_SENTENCE = -1


class State(NamedTuple):
    """The state of a search: k live and n finished hypotheses of the sentence in each of S slots, best first.

    At first a sentence has one hypothesis: k is 1, or all other hypotheses have log p −∞.

    Shapes: ``log_p`` (S, k) float64, −∞ for hypotheses that do not exist; ``newest`` (S, k) int64; ``ids`` (S, k, L)
    int64, END after the last token; ``cache_index`` (S, k, L) int64, see ``cached_mask``.  L is the ``axis_length`` of
    the greatest length.
    ``finished_scores`` and ``finished_log_p`` (S, n) float64, −∞ for hypotheses that do not exist yet;
    ``finished_ids`` (S, n, L) int64, with END after the last token.
    ``done`` (S,) bool marks sentences whose search has ended.  Steps that the host enqueues before it reads ``done``
    do not change the finished hypotheses of these sentences.  ``n_steps`` (S,) int64 is the number of the next step of
    each sentence.  ``limits`` and ``greatest_penalties`` (S,) do not change while a sentence is in a slot.
    """

    log_p: Array
    newest: Array
    ids: Array
    cache_index: Array
    finished_scores: Array
    finished_log_p: Array
    finished_ids: Array
    done: Array
    n_steps: Array
    limits: Array
    greatest_penalties: Array

    def select(self, rows: Array) -> State:
        """Return the state of the sentences with the indices ``rows``."""
        return State(*(x[rows] for x in self))


class BeamSearch(Search):
    """A beam search of several sources; see ``beam_search``.

    Each slot holds a sentence at work.  On a GPU, slots whose sentences have ended get the next sources, so sentences
    at different steps are computed together, and all steps have the same shapes: one CUDA graph computes each of them.
    On a CPU, and with a constraint, all sources begin together, and are removed when they have ended.

    Args:
        n_slots: the number of sources that are searched together: all of them on a CPU, or with a constraint.
        stream: the current stream, if it can be captured; without it, every step is launched kernel by kernel.
    """

    def __init__(self, request: Request, n_finished: int, n_slots: int, stream: GraphStream | None = None) -> None:
        self.n_finished, self.n_slots, self.device = n_finished, n_slots, request.models[0].device
        self.xp = namespace_of_device(self.device)
        self.graphs: ShapedGraphs | None = None
        if stream is not None and may_be_graphs(request):
            self.graphs = ShapedGraphs(stream, "a step of the search")
        super().__init__(request, n_slots, stream if self.graphs else None)
        only_end = np.arange(self.n_target_words)[None] != END
        self.rules = to_device(np.concatenate([self.never(), only_end]), self.device)
        """Booleans (2, W), True for tokens that are never generated, and for tokens other than END."""
        self.n_candidates = 2 * self.config.beam if self.config.beam > 1 else 1
        """Number of continuations of a sentence, and of each of its hypotheses, that are ranked."""
        self.longest = self._axis_length()
        self.state = self._empty_state()
        self.penalties = self._penalties()

    def begin(self, request: Request) -> None:
        """Set all attributes of the host that depend on the sources of ``request``."""
        super().begin(request)
        self.sentences = np.full(self.n_slots, NO_SENTENCE)
        self.started = np.zeros(self.n_slots, np.int64)
        """The number of steps that were enqueued before a slot's sentence."""
        self.n_encoded = self.n_begun = 0
        self.removed: list[tuple[IntArray, Array, Array, Array]] = []

    def restart(self, request: Request, n_finished: int, n_slots: int) -> bool:
        """Begin the search of other sources with the same arrays and graphs; return False if this is impossible."""
        if (request.config.beam, n_finished, n_slots) != (self.config.beam, self.n_finished, self.n_slots):
            return False
        if not (may_be_graphs(request) and self.predictor.fits(request.models, request.longest_source)):
            return False
        self.begin(request)
        if self._axis_length() != self.longest:
            return False
        self.state.done[...] = True
        self.penalties[...] = self._penalties()
        return True

    def _axis_length(self) -> int:
        return axis_length(int(self.max_lengths.max()), self.n_slots, self.device)

    def _empty_state(self) -> State:
        """Return a state without sentences."""
        xp, n, n_finished, longest = self.xp, self.n_slots, self.n_finished, self.longest
        k = 1 if self.device == "cpu" or self.constraint is not None else self.config.beam
        return State(
            xp.zeros((n, k), np.float64),
            xp.zeros((n, k), np.int64),
            xp.zeros((n, k, longest), np.int64),
            xp.zeros((n, k, longest), np.int64),
            xp.zeros((n, n_finished), np.float64),
            xp.zeros((n, n_finished), np.float64),
            xp.zeros((n, n_finished, longest), np.int64),
            xp.ones(n, np.bool_),
            xp.ones(n, np.int64),
            xp.ones(n, np.int64),
            xp.ones(n, np.float64),
        )

    def _penalties(self) -> Array:
        """Return the length penalties (L,) of 1, 2, … tokens."""
        penalties = [self.config.length_penalty(length) for length in range(1, self.longest + 1)]
        return to_device(np.array(penalties, np.float64), self.device)

    def _fill(self, slots: IntArray, n_steps: int) -> None:
        """Begin the search of the next sources in these slots, after ``n_steps`` steps; sources may be fewer."""
        if self.n_begun == self.n_encoded:
            some = self.sources[self.n_encoded :][: self.n_slots]
            self.predictor.encode(some)
            self.n_encoded += len(some)
        slots = slots[: self.n_encoded - self.n_begun]
        rows = to_device(slots, self.device)
        self._collect(slots)
        self.sentences[slots] = sentences = np.arange(self.n_begun, self.n_begun + len(slots))
        self.started[slots] = n_steps
        self.n_begun += len(slots)
        self.predictor.load(slots)
        limits = self.max_lengths[sentences]
        by_sentence = ~self.is_wanted[sentences], np.ones_like(limits), limits, self.config.length_penalty(limits)
        own_key = self.xp.arange(self.state.log_p.shape[1])[:, None]  # of the first step
        first = -np.inf, START, END, own_key, -np.inf, -np.inf, END, *(to_device(x, self.device) for x in by_sentence)
        for x, value in zip(self.state, first, strict=True):
            x[rows] = value
        self.state.log_p[rows, 0] = 0

    def _collect(self, slots: IntArray) -> None:
        """Note the finished hypotheses of the sentences in these slots; they stay on the device until the end."""
        slots = slots[self.sentences[slots] != NO_SENTENCE]
        if len(slots):
            rows, state = to_device(slots, self.device), self.state
            finished = state.finished_scores[rows], state.finished_log_p[rows], state.finished_ids[rows]
            self.removed.append((self.sentences[slots], *finished))

    def run(self) -> list[list[Hypothesis]]:
        """Step until all sentences are done; return their hypotheses.  On a GPU, ``done`` is read one step later."""
        n_sources = len(self.max_lengths)
        is_done: BoolArray = np.zeros(n_sources + 1, np.bool_)
        is_done[NO_SENTENCE] = True
        pending: deque[tuple[IntArray, ReadLater]] = deque()
        self._fill(np.arange(self.n_slots), 0)
        for n_steps in itertools.count(1):
            require_wanted()
            lengths = n_steps - self.started
            self._enqueue(int(lengths[~is_done[self.sentences]].max(initial=1)))
            n_before = is_done.sum()
            pending.append((self.sentences.copy(), ReadLater(self.state.done)))
            if len(pending) > STEPS_BEHIND[self.device]:
                sentences, done = pending.popleft()
                is_done[sentences] |= done.read()
            is_done[self.sentences] |= self.max_lengths[self.sentences] <= lengths
            self._stop_unwanted(is_done)
            if is_done.sum() > n_before:
                self.advance(int(is_done.sum() - n_before))
            if is_done.all():
                break
            self._replace(is_done[self.sentences], n_steps)
        self._collect(np.arange(len(self.sentences)))
        return self.results(self._hypotheses(n_sources))

    def _stop_unwanted(self, is_done: BoolArray) -> None:
        """End the search of sentences that are no longer wanted."""
        self.update_wanted()
        stopped = ~(is_done[:-1] | self.is_wanted)
        if stopped.any():
            is_done[:-1] |= stopped
            slots = np.flatnonzero(np.isin(self.sentences, np.flatnonzero(stopped)))
            self.state.done[to_device(slots, self.device)] = True

    def _replace(self, is_done: BoolArray, n_steps: int) -> None:
        """Begin other sentences in the slots of those that are done, or remove these slots if no source is left."""
        if self.n_begun < len(self.sources):
            if is_done.sum() >= REFILLED_AT_ONCE * len(is_done):
                self._fill(np.flatnonzero(is_done), n_steps)
        elif self.graphs is None and is_done.sum() >= max(1, REMOVED_AT_ONCE[self.device] * len(is_done)):
            self._remove(is_done)

    def _enqueue(self, length: int) -> None:
        """Enqueue a step, at most step ``length`` of a sentence: launch the graph of its shapes, or its kernels."""
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
        n_steps = int(state.n_steps.max()) if self.device == "cpu" else state.n_steps
        decoded = self.predictor.decode(state.newest.reshape(-1), state.cache_index, n_steps)
        forbidden, rule = self._forbidden(state)
        token_log_p, token = self.predictor.top_k(decoded, n=self.n_candidates, forbidden=forbidden, rule=rule)
        sizes = {"beam": self.config.beam, "n_ranked": self.n_candidates, "end": END}
        *arrays, parent = extend_beams(*state, token_log_p, token, self.penalties, **sizes)
        state = State(*arrays)
        if self.constraint is not None:
            rows = np.arange(len(parent))[:, None] * (len(decoded[0]) // len(parent)) + to_host(parent)
            self.constraint.follow(rows.ravel(), to_host(state.newest).ravel())
        return state

    def _forbidden(self, state: State) -> tuple[Array, Array | None]:
        """Return ``forbidden`` and ``rule`` of ``log_softmax_top``; at the greatest length only END may come next."""
        is_last = state.limits <= state.n_steps
        if self.constraint is None:
            return self.rules, is_last
        if self.device == "cpu" and not is_last.any():  # on a GPU, reading this would wait
            return forbidden_tokens(self.rules[:1], self.constraint, None), None
        rows = self.xp.repeat(is_last, state.log_p.shape[1])
        return forbidden_tokens(self.rules[:1], self.constraint, rows), None

    def _remove(self, done: BoolArray) -> None:
        """Remove the sentences that are done; their finished hypotheses stay on the device until the end."""
        unfinished, slots = np.flatnonzero(~done), np.flatnonzero(done)
        self._collect(slots)
        if self.constraint is not None:
            k = self.state.log_p.shape[1]
            self.constraint.select((unfinished[:, None] * k + np.arange(k)).ravel())
        self.sentences, self.started = self.sentences[unfinished], self.started[unfinished]
        self.state = self.state.select(self.predictor.select(unfinished))

    def _hypotheses(self, n_sentences: int) -> list[list[Hypothesis]]:
        """Return the finished hypotheses of every sentence, best first, on the host."""
        found: list[list[Hypothesis]] = [[] for _ in range(n_sentences)]
        for sentences, *finished in self.removed:
            arrays = zip(sentences, *map(to_host, finished), strict=True)
            for sentence, scores, log_p, ids in arrays:
                found[sentence] = [
                    self.hypothesis(sentence, float(score), float(p), _until_end(row))
                    for score, p, row in zip(scores, log_p, ids, strict=True)
                    if score > -np.inf
                ]
        return found


def may_be_graphs(request: Request) -> bool:
    """Return whether the steps of a search may be CUDA graphs: without a constraint and the reference of ``top``.

    That reference may copy from the host.
    """
    return request.constraint is None and top.may_run("cuda", "float32", "float64")


def _until_end(ids: Any) -> tuple[int, ...]:
    """Return the ids before the first END."""
    return tuple(ids[: int(np.argmax(ids == END))].tolist())
