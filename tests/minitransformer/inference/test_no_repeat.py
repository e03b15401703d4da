"""The constraint against repetitions: no n tokens occur twice, and what else is forbidden stays so."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import random_model
from small_sentences import LINES

from minitransformer import Translator
from minitransformer.inference.beam import beam_search
from minitransformer.inference.no_repeat import NoRepeat
from minitransformer.inference.search import SearchConfig


@given(seed=st.integers(0, 99), n=st.integers(1, 3), beam=st.integers(1, 3))
@settings(max_examples=30)
def test_no_tokens_of_a_translation_repeat(seed: int, n: int, beam: int) -> None:
    model = random_model(seed)
    config = SearchConfig(beam, max_extra_tokens=9)
    constraint = NoRepeat(n, 2, model.config.vocabulary_size)
    for (found,) in beam_search(model, [[3, 4], [5]], config, constraint):
        runs = [found.ids[i : i + n] for i in range(len(found.ids) - n + 1)]
        assert len(set(runs)) == len(runs)


class Only:
    """Allows one token."""

    def forbidden(self) -> np.ndarray:
        return np.arange(6)[None, :] != 4

    def follow(self, rows: np.ndarray, tokens: np.ndarray) -> None:
        pass

    select = follow


def test_a_token_that_another_constraint_demands_is_allowed() -> None:
    constraint = NoRepeat(1, 1, 6, Only())
    assert np.flatnonzero(~constraint.forbidden()[0]).tolist() == [4]
    constraint.follow(np.array([0]), np.array([4]))
    assert np.flatnonzero(~constraint.forbidden()[0]).tolist() == [4]


def test_rows_keep_their_own_tokens() -> None:
    constraint = NoRepeat(2, 2, 6)
    for tokens in ([3, 4], [4, 3], [3, 5]):
        constraint.follow(np.array([0, 1]), np.array(tokens))
    assert [np.flatnonzero(row).tolist() for row in constraint.forbidden()] == [[4], []]
    constraint.select(np.array([1, 0, 0]))
    assert [np.flatnonzero(row).tolist() for row in constraint.forbidden()] == [[], [4], [4]]


def test_a_translator_searches_with_the_setting(translator: Translator) -> None:
    sources = translator.tokenizer.encode_source(LINES[:4])
    config = SearchConfig(beam=2, no_repeat=2, max_extra_tokens=9)
    constraints = (NoRepeat(2, 1, translator.model.config.vocabulary_size) for _ in sources)
    expected = [
        translator.tokenizer.decode_target([beam_search(translator.models, [source], config, each)[0][0].ids])[0]
        for source, each in zip(sources, constraints, strict=True)
    ]
    assert [best[0].text for best in translator.n_best(LINES[:4], config)] == expected
    free = translator.n_best(LINES[:4], SearchConfig(beam=2, max_extra_tokens=9))
    assert [best[0].text for best in free] != expected
