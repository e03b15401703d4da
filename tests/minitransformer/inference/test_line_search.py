"""Searches of many lines for which the memory does not suffice at once."""

from typing import Any

import pytest
from searching import random_model

from minitransformer.inference import line_search
from minitransformer.inference.line_search import LineSearch
from minitransformer.inference.prefix import NO_PREFIX
from minitransformer.inference.search import Hypothesis, SearchConfig

SOURCES = [[3, 4], [5], [4, 4, 3], [3], [5, 4], [4]]


def search(most: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[list[Hypothesis]], list[int], list[int]]:
    """Return the hypotheses, the numbers of lines counted, and the numbers of lines searched at once.

    If more than ``most`` lines are searched at once, memory ends when two of them are finished.
    """
    counted, at_once, beam_search = list[int](), list[int](), line_search.beam_search

    def search_a_few(models: Any, sources: Any, config: Any, constraint: Any, advance: Any, *more: Any) -> Any:
        at_once.append(len(sources))
        if len(sources) > most:
            advance(2)
            raise MemoryError("none left")
        return beam_search(models, sources, config, constraint, advance, *more)

    lines = LineSearch([random_model(3)], Any, SOURCES, [NO_PREFIX] * 6, None, None, None, None)
    with monkeypatch.context() as patch:
        patch.setattr(line_search, "beam_search", search_a_few)
        found = lines.run(SearchConfig(max_extra_tokens=4), 1, counted.append)
    return found, counted, at_once


def test_half_as_many_are_searched_at_once_and_each_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _, at_once = search(6, monkeypatch)
    assert at_once == [6]
    for most, expected_at_once in [(3, [6, 3, 3]), (1, [6, 3, 1, 1, 1, 1, 1, 1])]:
        found, counted, at_once = search(most, monkeypatch)
        assert [[each.ids for each in best] for best in found] == [[each.ids for each in best] for best in expected]
        assert sum(counted) == 6
        assert min(counted[1:]) > 0
        assert at_once == expected_at_once


def test_a_line_that_does_not_fit_alone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MemoryError, match="none left"):
        search(0, monkeypatch)
