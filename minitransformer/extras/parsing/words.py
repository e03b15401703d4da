"""Splitting of raw sentences into words, by the rules of treebanks."""

from __future__ import annotations

import re
from typing import Literal, get_args

from minitransformer.extras.parsing.penn import BRACKETS

Splitting = Literal["penn", "ontonotes", "blanks"]

_PENN = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r'^"|(?<=[\s(\[{<])"', " `` "),
        (r'"', " '' "),
        (r"[“‘]", " `` "),
        (r"”", " '' "),
        (r"’", "'"),
        (r"\.\.\.|…", " ... "),
        (r"--|[–—]", " -- "),
        (r"[;@#$%&?!()\[\]{}<>]", r" \g<0> "),
        (r"[,:](?!\d)|(?<!\d)[,:](?=\d)", r" \g<0> "),
        (r"(?<=[^\s.])\.(?=[\s)\]}>']*$)", " . "),  # other points may belong to abbreviations
        (r"(?<=[^\s'])(?='\s|'$)", " "),
        (r"(?i)(?<=[^\s'])(?='(?:s|m|d|ll|re|ve)\b)", " "),
        (r"(?i)(?<=\w)(?=n't\b)", " "),
        (r"(?i)\b(?:can(?=not\b)|g(?:im(?=me\b)|on(?=na\b)|ot(?=ta\b))|lem(?=me\b)|wan(?=na\b))", r"\g<0> "),
        (r"(?i)\b(?:d'(?=ye\b)|more(?='n\b))|(?<!\w)'t(?=(?:is|was)\b)", r"\g<0> "),
    )
)
_HYPHENS = re.compile(r"(?<=[^\W_])[-/](?=[^\W_])")
_BETWEEN_BLANKS = re.compile(r"[^ \t\r\n]+")


def split_words(sentence: str, splitting: Splitting = "penn") -> list[str]:
    """Split a sentence into words; round brackets become -LRB- and -RRB-.

    Args:
        splitting: "penn" separates punctuation, quotes, possessives, contractions and the last point of the line.
            "ontonotes" also separates hyphens and slashes within words, as in OntoNotes, CRAFT and GUM.  "blanks"
            splits at blanks, tabs and line ends only; other spaces, as in "10\u00a0mg", stay inside a word.

    Source: the Penn Treebank's rules (MacIntyre 1995); "ontonotes": Warner et al. 2004.

    Raises: ValueError for another splitting.
    """
    if splitting not in get_args(Splitting):
        raise ValueError(f"split_words: expected one of {get_args(Splitting)}; got {splitting!r}")
    if splitting == "blanks":
        return [word.translate(BRACKETS) for word in _BETWEEN_BLANKS.findall(sentence)]
    for pattern, replacement in _PENN:
        sentence = pattern.sub(replacement, sentence)
    if splitting == "ontonotes":
        sentence = _HYPHENS.sub(r" \g<0> ", sentence)
    return [word.translate(BRACKETS) for word in sentence.split()]
