"""Raw sentences become the words of treebanks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.extras.parsing.words import Splitting, split_words

SENTENCES = [
    ("The dog barks.", "The dog barks ."),
    ("They weren't fed; \"why?\" he'd say...", "They were n't fed ; `` why ? '' he 'd say ..."),
    ("Mr. Smith's $5,000 can't go -- ok.", "Mr. Smith 's $ 5,000 ca n't go -- ok ."),
    ("(See Fig. 1A, p<0.05.)", "-LRB- See Fig. 1A , p < 0.05 . -RRB-"),
    ("The dogs' bowl: ratio 1:2,000, etc.", "The dogs ' bowl : ratio 1:2,000 , etc ."),
    ("“It’s 3.5%”, I cannot [1].", "`` It 's 3.5 % '' , I can not [ 1 ] ."),
    ("I've ‘seen’ it: they're here, I'll go", "I 've `` seen ' it : they 're here , I 'll go"),
    ("'Twas d'ye gonna, more'n 'tis wanna", "'T was d' ye gon na , more 'n 't is wan na"),
    ("Gimme and lemme, gotta it's 'this' isn't", "Gim me and lem me , got ta it 's 'this ' is n't"),
    ("cannots gonnas wannabe twas atis", "cannots gonnas wannabe twas atis"),
    ("TNF-α and/or IL-2", "TNF-α and/or IL-2"),
    ("", ""),
]


@pytest.mark.parametrize(("sentence", "words"), SENTENCES)
def test_sentences_are_split_as_in_the_penn_treebank(sentence: str, words: str) -> None:
    assert split_words(sentence) == words.split()
    assert split_words(f"{sentence}\n") == words.split()


def test_words_that_are_split_already_stay_but_for_brackets_and_hyphens_stand_apart_in_ontonotes() -> None:
    words = split_words("TNF-α and/or IL-2 -- well-", "ontonotes")
    assert " ".join(words) == "TNF - α and / or IL - 2 -- well-"
    assert split_words("the U.S. 's ( dog. )", "blanks") == ["the", "U.S.", "'s", "-LRB-", "dog.", "-RRB-"]
    assert split_words(" 10\u00a0mg\tof  it\r\n", "blanks") == ["10\u00a0mg", "of", "it"]
    with pytest.raises(ValueError, match="expected one of"):
        split_words("a", "moses")  # type: ignore[arg-type]


@given(st.text(), st.sampled_from(["penn", "ontonotes", "blanks"]))
def test_every_line_has_words_without_blanks(line: str, splitting: Splitting) -> None:
    assert all(word and not set(word) & set(" ()\n") for word in split_words(line, splitting))
