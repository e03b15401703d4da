"""The lengths of translations: why a search finds shorter ones than the references.

    python benchmarks/translation_lengths.py RUN SOURCE REFERENCE

prints mean lengths in tokens, end symbol included: of the references, of translations sampled from the model, and of
translations found by greedy and beam search.  If the samples are as long as the references, the model knows the right
lengths, and the search prefers short translations: Stahlberg & Byrne 2019, "On NMT Search Errors and Model Errors: Cat
Got Your Tongue?".
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.data.corpus import read_pairs
from minitransformer.inference.bleu import bleu
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator, load_with_tokenizer
from minitransformer.model.batch import Batch
from minitransformer.model.symbols import END, START, UNKNOWN
from minitransformer.model.transformer import Transformer

AT_ONCE = 100
LONGEST = 60
SEARCHES = [(1, 0.0), (4, 0.0), (4, 0.6), (4, 1.0), (4, 1.4)]
Sentences = Sequence[list[int]]


def last_log_probabilities(model: Transformer, sources: Sentences, prefixes: Sentences) -> Any:
    """Return log p of the next token after each prefix.  Shapes: returns (sentences, W)."""
    batch = Batch.from_token_ids(sources, prefixes)
    return model.log_probabilities(batch)[np.cumsum(batch.target.lengths) - 1]


def sampled(model: Transformer, sources: Sentences, random: np.random.Generator) -> list[list[int]]:
    """Draw a translation of each source from the model, token by token."""
    prefixes: list[list[int]] = [[] for _ in sources]
    live = list(range(len(sources)))
    for _ in range(LONGEST):
        log_p = last_log_probabilities(model, [sources[i] for i in live], [prefixes[i] for i in live])
        p = np.exp(log_p.astype(np.float64))
        p[:, [UNKNOWN, START]] = 0
        tokens = [int(random.choice(p.shape[1], p=row / row.sum())) for row in p]
        for i, token in zip(live, tokens, strict=True):
            prefixes[i] += [token] if token != END else []
        live = [i for i, token in zip(live, tokens, strict=True) if token != END]
        if not live:
            break
    return prefixes


def ends(model: Transformer, sources: Sentences, targets: Sentences) -> Iterator[float]:
    """Yield the sum of p(end symbol) over all positions of each reference; 1 is perfect on average."""
    batch = Batch.from_token_ids(sources, targets)
    p = np.exp(model.log_probabilities(batch)[:, END])
    yield from np.add.reduceat(p, batch.target.starts).tolist()


def mean_length(sentences: Sentences) -> float:
    """Return the mean number of tokens, end symbol included."""
    return float(np.mean([len(ids) + 1 for ids in sentences]))


def main(run: str, source: str, reference: str) -> None:
    """Print the table."""
    model, tokenizer = load_with_tokenizer(Path(run))
    lines, references = map(list, zip(*read_pairs(Path(source), Path(reference)), strict=True))
    sources, targets, random = (
        tokenizer.encode_source(lines),
        tokenizer.encode_target(references),
        np.random.default_rng(1),
    )
    found_ends, samples = list[float](), list[list[int]]()
    for start in range(0, len(sources), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        found_ends += ends(model, sources[some], targets[some])
        samples += sampled(model, sources[some], random)
    print(f"references: {mean_length(targets):.2f} tokens; p(end) summed over a reference: {np.mean(found_ends):.3f}")
    print(f"sampled: {mean_length(samples):.2f}")
    translator = Translator(model, tokenizer)
    for beam, alpha in SEARCHES:
        texts = [best[0].text for best in translator.n_best(lines, SearchConfig(beam=beam, alpha=alpha))]
        length = mean_length(tokenizer.encode_target(texts))
        print(f"beam {beam}, alpha {alpha}: {length:.2f}; {bleu(texts, [references]).detail}")


if __name__ == "__main__":
    main(*sys.argv[1:])
