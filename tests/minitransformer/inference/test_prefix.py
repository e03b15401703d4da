"""Translations whose beginning is given: exhaustive search among those that begin so, and the text of the beginning."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import SEEDS, SOURCES, VARIANTS, exhaustive, ids_of, plain_beam, random_model
from small_sentences import LINES, small_tokenizer

from minitransformer import Transformer, Translator, presets
from minitransformer.extras.files.stream import PrefixError, Prefixes
from minitransformer.inference.beam import beam_search
from minitransformer.inference.prefix import Prefix, PrefixConstraint, Prefixer
from minitransformer.inference.search import Hypothesis, SearchConfig
from minitransformer.text.road import STEPS

PIECES = ["", "", "", "▁a", "▁ab", "b"]  # of the six ids of the tiny models
PREFIXES = st.lists(st.integers(3, 5), max_size=2).map(lambda ids: Prefix("", "", tuple(ids)))


def found_with(
    model: Transformer, sources: list[list[int]], prefixes: list[Prefix], config: SearchConfig
) -> list[list[Hypothesis]]:
    constraint = PrefixConstraint(prefixes, PIECES)
    return beam_search(model, sources, config, constraint, n_given=[prefix.n_tokens for prefix in prefixes])


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@given(seed=SEEDS, alpha=st.sampled_from([0.0, 0.6]), source=SOURCES, prefix=PREFIXES)
@settings(max_examples=3)
def test_a_wide_beam_finds_the_best_of_all_translations_that_begin_with_the_given_tokens(
    variant: int, seed: int, alpha: float, source: Any, prefix: Prefix
) -> None:
    model, source = random_model(seed, **VARIANTS[variant]), source[0][:2]
    n_longest = max(len(source), len(prefix.ids))
    config = SearchConfig(27, alpha, 3, 4 - n_longest)
    best = [h for h in exhaustive([model], source, 4, config) if h.ids[: len(prefix.ids)] == prefix.ids][:3]
    (found,) = found_with(model, [source], [prefix], config)
    assert ids_of(found) == ids_of(best)
    np.testing.assert_allclose([h.log_probability for h in found], [h.log_probability for h in best], rtol=1e-10)


@pytest.mark.parametrize("rest", ["▁", "▁a", "▁ab", "▁abb", "▁ab▁a", "b"])
@pytest.mark.parametrize("ids", [(), (4,)])
@given(seed=SEEDS, source=SOURCES)
@settings(max_examples=2)
def test_and_of_all_that_spell_the_rest_or_more(rest: str, ids: tuple[int, ...], seed: int, source: Any) -> None:
    """A rest "▁" says that a word is complete: the translation ends, or a word follows."""
    model, source, prefix = random_model(seed), source[0][:2], Prefix("", "", ids, rest)
    config = SearchConfig(81, 0.6, 4, max_extra_tokens=5 - len(source))
    every = exhaustive([model], source, 5, config)
    texts = {h.ids: "".join(PIECES[i] for i in h.ids[len(ids) :]) for h in every if h.ids[: len(ids)] == ids}
    if rest == "▁":
        texts = {ids: text or rest for ids, text in texts.items()}
    best = [h for h in every if texts.get(h.ids, "").startswith(rest)][:4]
    (found,) = beam_search(model, [source], config, PrefixConstraint([prefix], PIECES))
    assert ids_of(found) == ids_of(best)


@given(seed=SEEDS, sources=SOURCES, beam=st.integers(1, 4), data=st.data())
@settings(max_examples=15)
def test_sentences_of_a_batch_have_their_own_beginnings(seed: int, sources: Any, beam: int, data: Any) -> None:
    model, config = random_model(seed), SearchConfig(beam, max_extra_tokens=4)
    rests = st.builds(Prefix, st.just(""), st.just(""), st.just((3,)), st.sampled_from(["", "▁", "▁a"]))
    prefixes = data.draw(st.lists(PREFIXES | rests, min_size=len(sources), max_size=len(sources)))
    together = found_with(model, sources, prefixes, config)
    alone = [found_with(model, [s], [prefix], config)[0] for s, prefix in zip(sources, prefixes, strict=True)]
    assert [ids_of(found) for found in together] == [ids_of(found) for found in alone]


def test_a_beginning_longer_than_any_translation_is_kept_and_a_rest_that_no_token_spells_is_given_up() -> None:
    prefix = Prefix("", "", (3, 4, 5, 3, 4, 5, 3))
    ((found,),) = found_with(random_model(1), [[3]], [prefix], SearchConfig(2, max_extra_tokens=1))
    assert found.ids == prefix.ids
    config = SearchConfig(4, max_extra_tokens=3)
    ((found,),) = found_with(random_model(1), [[3]], [Prefix("", "", (), "x")], config)
    assert found.ids == plain_beam(random_model(1), [3], config)[0].ids


def spelt(prefixer: Prefixer, prefix: Prefix) -> str:
    """The text of the given tokens, and after "|" the rest."""
    return f"{''.join(prefixer.pieces[i] for i in prefix.ids)}|{prefix.rest}"


@pytest.mark.parametrize(("text", "expected"), [
    ("", "|"), ("  \t", "|"), ("ein Hun", "▁ein|▁Hun"), ("  ein   Hun", "▁ein|▁Hun"), ("ein Hund ", "▁ein▁Hund|▁"),
    ("ein Hund\t", "▁ein▁Hund|▁"), ("Hä", "|▁Hä"),
    ("漢字 ein Hü", "▁▁ein|▁H"),  # neither sign is in the text from which the pieces were learnt, nor is "ü"
    ("ein 漢", "▁ein▁|▁"), ("漢", "▁|▁"),
])  # fmt: skip
def test_the_last_word_is_the_models_unless_a_blank_follows(translator: Translator, text: str, expected: str) -> None:
    assert spelt(translator.prefixer, translator.prefixer(text)) == expected


def test_bytes_of_a_character_are_given_as_they_are() -> None:
    """A byte has no text of its own that could be compared."""
    prefixer, ids = Prefixer(small_tokenizer(), 100), small_tokenizer().encode_target(["ein 7"])[0]
    prefixer.pieces[ids[-1]] = ""  # as if it were a byte
    assert prefixer("ein 7") == Prefix("ein 7", "ein 7", ids)


@pytest.mark.parametrize("beam", [1, 4])
@given(prefix=st.text(st.sampled_from("einHudäR ü漢"), max_size=12))
@settings(max_examples=5)
def test_a_translation_begins_with_the_text_that_is_given(translator: Translator, beam: int, prefix: str) -> None:
    """Also with characters that the tokenizer does not know; blanks between words become one."""
    (text,) = translator.translate(["a dog sees 3 red houses"], beam=beam, prefixes=[prefix])
    words = prefix.split()
    assert text.startswith(" ".join(words))
    if words and prefix[-1].isspace():
        assert text.split()[: len(words)] == words


def test_the_beginning_of_the_best_translation_changes_nothing(translator: Translator) -> None:
    """In greedy search; a wider beam has room for others if it need not keep other beginnings."""
    lines = LINES[:5]
    free = translator.translate(lines, beam=1, skip=STEPS)
    assert translator.translate(lines, beam=1, prefixes=[text[:3] for text in free]) == free
    assert translator.translate(lines, prefixes=[""] * 5) == translator.translate(lines, skip=STEPS)
    assert translator.translate(["", "a dog"], prefixes=["ein", "ein"])[0] == ""
    with pytest.raises(ValueError, match="prefixes: expected one for each of 5 lines; got 1"):
        translator.translate(lines, prefixes=["ein"])


def test_only_a_beginning_that_is_too_long_is_cut(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last word of one that just fits is spelt by its own pieces: one for each character would not fit."""
    monkeypatch.setattr("minitransformer.inference.translator.MAX_SOURCE_TOKENS", 4)
    short = Translator(Transformer(presets.tiny(70)), translator.tokenizer)
    assert short.prefixer.is_cut("ein Hund sieht rote Häuser")
    assert not short.prefixer.is_cut("ein Hund")
    ids = translator.tokenizer.encode_target(["ein Hund sieht rote Häuser"])[0][:4]
    (text,) = short.translate(["a dog"], prefixes=["ein Hund sieht rote Häuser"])
    assert text.startswith(translator.tokenizer.decode_target([ids])[0])
    fitting = "ein  жHund"
    n_tokens = len(translator.prefixer.ids_of(fitting))
    prefixer = Prefixer(translator.tokenizer, longest=n_tokens)
    prefix = prefixer(fitting)
    assert not prefixer.is_cut(fitting)
    assert (prefix.text, prefix.rest, len(prefix.ids)) == ("ein жHund", "", n_tokens)


def test_there_is_a_beginning_for_each_line() -> None:
    each, one = Prefixes(["a", "", "c"], Path("pre.de")), Prefixes(["x"])
    assert (each.of_lines(1, 2), one.of_lines(5, 2)) == (["", "c"], ["x", "x"])
    with pytest.raises(PrefixError, match=r"pre\.de: has 3 lines, fewer than the input; give one line for each line"):
        each.of_lines(2, 2)
    with pytest.raises(PrefixError, match=r"pre\.de: has 3 lines, more than the input"):
        each.require_lines(2)
    each.require_lines(3)
    one.require_lines(7)
    assert len({each.checksum(2), one.checksum(2), Prefixes(["x"], Path("p")).checksum(2)}) == 3
    longer, other = (Prefixes(["a", *more], Path("pre.de")) for more in (["", "d", "e"], ["b", "c"]))
    assert longer.checksum(2) == each.checksum(2) != other.checksum(2)
    assert longer.checksum(3) != each.checksum(3)
