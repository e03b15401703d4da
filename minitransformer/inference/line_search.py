"""The search of many lines: in batches of similar length, on threads, and again for lines that need a longer search."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from autograd.array import Device, IntArray, free_gpu_memory, gpu_module
from minitransformer.data.normalisation import BETWEEN_WORDS
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.beam import beam_search
from minitransformer.inference.no_repeat import NoRepeat
from minitransformer.inference.prefix import Prefix, PrefixConstraint, Prefixer
from minitransformer.inference.search import Advance, Constraint, Hypothesis, Sampler, SearchConfig, Wanted
from minitransformer.model.transformer import Transformer
from minitransformer.system.threads import map_in_threads

BATCHES_AT_ONCE = 2  # on a CPU
HYPOTHESES_AT_ONCE = {"cpu": 512, "cuda": 1_024}  # live hypotheses of one batch: enough for fast matrix products
SHORT = 127  # tokens: lines up to this length may be in one batch on a GPU
SCORES_AT_ONCE = 512 * 128**2  # of queries and keys in a batch, for each head: bounds the memory for very long lines
MOST_FINISHED = 16  # times n_best: the most finished hypotheses that are searched for different texts
FIRST_EXTRA_TOKENS = 50  # in the first search, which ends earlier; lines that reach this limit are searched again
FEW = 8  # sentences: fewer are faster in one batch, with BLAS on all cores
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class LineSearch:
    """A search of the translations of lines.

    ``sources`` are the ids of lines, and ``beginnings`` the given beginnings of their translations.  For the other
    attributes see ``Translator.n_best``.
    """

    models: Sequence[Transformer]
    prefixer: Prefixer
    sources: Sequence[Sequence[int]]
    beginnings: Sequence[Prefix]
    constraint_of: Callable[[IntArray], Constraint | None] | None
    sampling: Sampler | None
    numbers: Sequence[int] | None
    wanted: Wanted | None
    most_at_once: int | None = None
    """The most lines that are searched at once, after memory did not suffice for a batch; None before."""

    def run(self, config: SearchConfig, n_threads: int, advance: Advance) -> list[list[Hypothesis]]:
        """Search all lines; then search lines again that have too few different texts or a translation that was cut."""
        if self.sampling:
            config = dataclasses.replace(config, beam=config.n_best)
        found: list[list[Hypothesis]] = [[Hypothesis(0.0, 0.0, ())] for _ in self.sources]
        left = [i for i, source in enumerate(self.sources) if source]
        advance(len(found) - len(left))  # empty lines, which are not searched
        for settings, n_finished in _attempts(config):
            batches = batches_by_length(self.sources, left, config.beam, self.models[0].device)
            search = partial(self._search, config=settings, n_finished=n_finished, advance=advance)
            searches = map_in_threads(search, batches, n_threads)
            left, may_be_cut = [], settings.max_extra_tokens < config.max_extra_tokens
            for i, hypotheses in zip(itertools.chain(*batches), itertools.chain.from_iterable(searches), strict=True):
                found[i] = self._distinct(hypotheses, int(i))[: config.n_best]
                is_cut = may_be_cut and any(each.is_cut for each in found[i])
                if is_cut or (len(found[i]) < config.n_best and len(hypotheses) == n_finished):
                    left.append(int(i))
            advance = _ignore  # these lines were counted
            if not left:
                break
        return found

    def _search(
        self, batch: IntArray, config: SearchConfig, n_finished: int, advance: Advance
    ) -> list[list[Hypothesis]]:
        """Search the lines with the indices ``batch``, longest first; if memory does not suffice, half as many at once.

        On a GPU one search takes all lines, and has a part of them at work, unless all its lines must begin together.
        """
        found: list[list[Hypothesis]] = []
        counted = _CountedLines(advance)
        begin_together = self.models[0].device == "cpu" or self.sampling or self._is_constrained(config)
        while len(found) < len(batch):
            left = batch[len(found) :]
            n_at_once = self._most_lines(len(self.sources[left[0]]), config)
            some = left[:n_at_once] if begin_together else left
            try:
                found += self._search_at_once(some, config, n_finished, counted, n_at_once)
            except MemoryError as error:
                n_lines = min(n_at_once, len(some))
                if n_lines == 1:
                    raise
                traceback.clear_frames(error.__traceback__)  # the frames hold the arrays that filled the memory
                self._search_fewer(n_lines)
                counted.restart(len(found))
        return found

    def _most_lines(self, longest: int, config: SearchConfig) -> int:
        """Return the most lines to search at once, of which the longest has ``longest`` tokens.

        Half of a GPU's free memory stays free, because only the largest arrays are counted.
        """
        n_lines = lines_at_once(longest, config.beam, self.models[0].device)
        if self.models[0].device == "cuda":
            n_bytes = sum(bytes_of_search(model, longest, config) for model in self.models)
            n_lines = max(1, min(n_lines, free_gpu_memory() // 2 // n_bytes))
        return min(n_lines, self.most_at_once or n_lines)

    def _search_fewer(self, n_lines: int) -> None:
        """Halve the number of lines that are searched at once, because ``n_lines`` did not fit; free unused memory."""
        if self.most_at_once is None:
            _log.info(f"out of memory with {n_lines} lines at once: fewer lines are searched at once")
        self.most_at_once = min(n_lines // 2, self.most_at_once or n_lines)
        cupy = gpu_module(self.models[0].device)
        if cupy is not None:
            cupy.get_default_memory_pool().free_all_blocks()

    def _search_at_once(
        self, batch: IntArray, config: SearchConfig, n_finished: int, advance: Advance, n_at_once: int
    ) -> list[list[Hypothesis]]:
        some, n_given = [self.sources[i] for i in batch], [self.beginnings[i].n_tokens for i in batch]
        wanted, constraint = self.wanted, self._constraint(batch, config)
        some_wanted = None if wanted is None else (lambda: list(np.array(wanted())[batch]))
        if self.sampling:
            numbers = [int(i) if self.numbers is None else self.numbers[i] for i in batch]
            return self.sampling.sample(self.models, some, config, numbers, advance, constraint, n_given, some_wanted)
        return beam_search(self.models, some, config, constraint, advance, n_given, some_wanted, n_finished, n_at_once)

    def _is_constrained(self, config: SearchConfig) -> bool:
        return bool(self.constraint_of or config.no_repeat or any(each.n_tokens for each in self.beginnings))

    def _constraint(self, batch: IntArray, config: SearchConfig) -> Constraint | None:
        constraint = self.constraint_of(batch) if self.constraint_of else None
        if any(self.beginnings[i].n_tokens for i in batch):
            constraint = PrefixConstraint([self.beginnings[i] for i in batch], self.prefixer.pieces)
        if not config.no_repeat:
            return constraint
        return NoRepeat(config.no_repeat, len(batch), self.models[0].config.vocabulary_size, constraint)

    def _distinct(self, hypotheses: list[Hypothesis], i: int) -> list[Hypothesis]:
        """Return the best hypothesis of each text: several sequences of pieces may spell the same text."""
        if self.sampling or len(hypotheses) == 1:
            return hypotheses
        texts = decoded_texts(self.prefixer.tokenizer, hypotheses, self.beginnings[i])
        return [hypothesis for k, hypothesis in enumerate(hypotheses) if texts[k] not in texts[:k]]


class _CountedLines:
    """The count of a batch's finished lines; a line that is searched again is counted once."""

    def __init__(self, advance: Advance) -> None:
        self.advance, self.n_finished, self.n_counted = advance, 0, 0

    def restart(self, n_finished: int) -> None:
        """Note that only ``n_finished`` lines are finished, because other lines are searched again."""
        self.n_finished = n_finished

    def __call__(self, n: int) -> None:
        self.n_finished += n
        if self.n_finished > self.n_counted:
            self.advance(self.n_finished - self.n_counted)
            self.n_counted = self.n_finished


def _ignore(n: int) -> None:
    """Do nothing with the number of lines finished."""


def _attempts(config: SearchConfig) -> Iterator[tuple[SearchConfig, int]]:
    """Yield the settings, and the number of finished hypotheses, of the first search of a line and of later ones.

    The first search allows only FIRST_EXTRA_TOKENS, so longer translations are found only in the second search.
    Without ``max_length_factor``, as for trees, translations are long, so the first search has the final limit.
    A search for more finished hypotheses first finds the hypotheses of the search before it, in the same order.
    """
    extra, n_finished = config.max_extra_tokens, config.n_best
    if config.max_length_factor is not None:
        extra = min(extra, FIRST_EXTRA_TOKENS)
    yield dataclasses.replace(config, max_extra_tokens=extra), n_finished
    while (n_finished := n_finished * min(2, config.n_best)) <= MOST_FINISHED * config.n_best:
        yield config, n_finished


def bytes_of_search(model: Transformer, n_source: int, config: SearchConfig) -> int:
    """Count the bytes of the largest arrays of a line's search: keys and values of all steps, and a step's logits.

    A source is counted twice: on a GPU another one is encoded before it gets the slot.
    """
    sizes, item_size = model.config, 4 if model.parameters.low_precision is None else 2
    n_steps = int(config.greatest_lengths(np.array(n_source)))
    keys_values = item_size * sizes.decoder_depth * sizes.n_heads * (sizes.d_k + sizes.d_v)
    return (2 * n_source + config.beam * n_steps) * keys_values + 4 * config.beam * sizes.vocabulary_size


def decoded_texts(tokenizer: Tokenizer, hypotheses: Sequence[Hypothesis], prefix: Prefix) -> list[str]:
    """Return the text of each hypothesis, one line each; all begin with ``prefix``."""
    decoded = tokenizer.decode_target([hypothesis.ids for hypothesis in hypotheses])
    return [BETWEEN_WORDS.sub(" ", prefix.completed(text)).strip(" ") for text in decoded]


def lines_at_once(longest: int, beam: int, device: Device) -> int:
    """Return the most lines of at most ``longest`` tokens to search at once: a bounded number of hypotheses.

    Very long lines are fewer, because attention scores grow with the square of the length.
    """
    longest += 1  # the end symbol
    return max(1, min(HYPOTHESES_AT_ONCE[device] // beam, SCORES_AT_ONCE // longest**2))


def batches_by_length(sources: Sequence[Sequence[int]], rows: list[int], beam: int, device: Device) -> list[IntArray]:
    """Return batches of rows of ``sources``, longest first.

    On a CPU a batch has ``lines_at_once``, and batches that are formed at once take sources in turns.  Batches, and so
    the bits of results, do not depend on the threads.
    On a GPU a search has only a part of a batch at work.  No line of a batch is much shorter than its longest line, so
    that few very long lines do not limit the others.
    """
    by_length = np.array(sorted(rows, key=lambda i: -len(sources[i])), np.int64)
    if device == "cuda":
        doublings = [max(SHORT, len(sources[i])).bit_length() for i in by_length]
        return [batch for batch in np.split(by_length, np.flatnonzero(np.diff(doublings)) + 1) if len(batch)]
    n, batches, start = BATCHES_AT_ONCE, list[IntArray](), 0
    while start < len(by_length):
        at_once = n * lines_at_once(len(sources[by_length[start]]), beam, device)
        dealt = by_length[start : start + at_once]
        batches += [dealt] if len(dealt) < FEW else [dealt[i::n] for i in range(n)]
        start += at_once
    return batches
