"""A treebank of a toy grammar, with what a real one has: functional tags, traces, an outermost bracket."""

import random
from pathlib import Path

NOUNS, VERBS, PLACES = ("dog", "cat", "house", "man"), ("sees", "likes", "finds"), ("in", "near", "behind")


def _noun_phrase(draw: random.Random, tag: str = "", depth: int = 0) -> str:
    phrase = f"(NP{'' if depth else tag} (DT {draw.choice(('the', 'a'))}) (NN {draw.choice(NOUNS)}))"
    if depth < 1 and draw.random() < 0.4:
        inner = _noun_phrase(draw, depth=depth + 1)
        phrase = f"(NP{tag} {phrase.replace(f'(NP{tag}', '(NP', 1)} (PP-LOC (IN {draw.choice(PLACES)}) {inner}))"
    return phrase


def toy_tree(draw: random.Random) -> str:
    """A sentence with a subject and a verb, perhaps an object, and a trace."""
    rest = _noun_phrase(draw) if draw.random() < 0.7 else "(NP (-NONE- *T*-1))"
    return f"( (S {_noun_phrase(draw, '-SBJ')} (VP (VBZ {draw.choice(VERBS)}) {rest}) (. .)) )"


def write_toy_treebank(path: Path, n: int, seed: int) -> Path:
    """A file of so many trees, one a line."""
    draw = random.Random(seed)
    path.write_text("".join(f"{toy_tree(draw)}\n" for _ in range(n)), encoding="utf-8")
    return path
