"""Does a parser overfit its training trees, and does it lose count of the words?

    python benchmarks/parsing.py MODEL DATA [DEV.mrg DEV.parsed]

MODEL: a run, or an averaged model.  DATA: its prepared data.  Prints two figures for the held-out trees, and for every
8th training tree: the mean loss per token, without smoothing and dropout, and the share of source tokens that are
classes of rare words.  Then prints the share of tags in DEV.parsed that agree with DEV.mrg.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from minitransformer.data.prepare import PreparedData
from minitransformer.extras.parsing.penn import read_trees
from minitransformer.extras.parsing.plain import plain
from minitransformer.inference.scoring import TargetScore, score_pairs
from minitransformer.model.transformer import Transformer
from minitransformer.system.threads import available_cores


def print_losses(model: Transformer, data: PreparedData) -> None:
    """Print the loss and the share of rare words, for held-out and for training trees."""
    for split, step in (("validation", 1), ("train", 8)):
        store = data.stores[split].read()
        pairs = [store.pair(i) for i in range(0, len(store), step)]
        sources = list(itertools.chain.from_iterable(source for source, _ in pairs))
        n_rare = sum("<rare:" in data.tokenizer.source.id_to_piece(int(i)) for i in sources)
        loss = TargetScore.sum(score_pairs(model, pairs, n_threads=available_cores())).loss
        print(f"{split}: {len(pairs):,} trees, loss {loss:.4f}, rare words {n_rare / len(sources):.2%}", flush=True)


def print_tags(gold: Path, parsed: Path) -> None:
    """Print the share of right tags, and the number of sentences below 80 %: in these the parser has lost count."""
    trees = ([tree for tree in map(plain, read_trees(path)) if tree.walk] for path in (gold, parsed))
    right = [
        [a.tag == b.tag for a, b in zip(one.leaves, other.leaves, strict=True)]
        for one, other in zip(*trees, strict=True)
    ]
    n_bad = sum(sum(tags) < 0.8 * len(tags) for tags in right)
    share = sum(map(sum, right)) / sum(map(len, right))
    print(f"tags right: {share:.2%}; less than 80 % of them in {n_bad:,} of {len(right):,} sentences")


def main() -> None:
    """Print the losses, and the tags if trees are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("trees", type=Path, nargs="*")
    options = parser.parse_args()
    print_losses(Transformer.load(options.model), PreparedData.open(options.data))
    if options.trees:
        print_tags(*options.trees)


if __name__ == "__main__":
    main()
