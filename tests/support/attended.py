"""Pairs with words that no page must trip over, and weights to draw between them."""

import numpy as np

from minitransformer.extras.report.attended import END_MARK, START_MARK, AttendedPair
from minitransformer.inference.attention import AttentionWeights

ODD_WORDS = [
    "<script>alert(1)</script>", "</script>", "<!--", "]]>", "\"'&amp;", "\u2028\u2029", "שלום", "عربي", "\u202eabc",
    "<EOS>", "$title", "$x^2$", "漢字", "🙂", "\x01", "<img src=x onerror=alert(2)>", "__proto__", "the", "the",
    "e\u0301", "Z" + "\u0351\u036b\u0343\u0321" * 9, "x" * 99,
]  # fmt: skip


def random_weights(random: np.random.Generator, *shape: int, causal: bool = False) -> np.ndarray:
    scores = 3 * random.standard_normal(shape)
    if causal:
        scores = np.where(np.tri(shape[-2], dtype=bool), scores, -np.inf)
    weights = np.exp(scores)
    return weights / weights.sum(-1, keepdims=True)


def pair_of(
    source: list[str], target: list[str], n_layers: int = 2, n_heads: int = 3, n_decoder_layers: int | None = None
) -> AttendedPair:
    """A pair with random weights; a dot "·" at the beginning of a token continues the word before it."""
    random, s, t, shape = np.random.default_rng(1), len(source) + 1, len(target) + 1, (n_layers, n_heads)
    decoder_shape = (n_decoder_layers or n_layers, n_heads)
    weights = AttentionWeights(
        encoder=random_weights(random, *shape, s, s),
        decoder=random_weights(random, *decoder_shape, t, t, causal=True),
        encoder_decoder=random_weights(random, *decoder_shape, t, s),
    )
    return AttendedPair(
        source=[*source, END_MARK],
        inputs=[START_MARK, *target],
        outputs=[*target, END_MARK],
        source_starts=[*starts_of(source), len(source)],
        target_starts=starts_of(target),
        weights=weights,
        sentence=" ".join(source).replace(" ·", ""),
        translation=" ".join(target).replace(" ·", ""),
        origin="<b>model</b>",
    )


def starts_of(tokens: list[str]) -> list[int]:
    return [i for i, token in enumerate(tokens) if not token.startswith("·")]


ODD_PAIR = pair_of(ODD_WORDS, ODD_WORDS[::-1][:7])
