"""Measure alignments of words, continued beginnings of translations, and the gain of an ensemble.

    python benchmarks/search_options.py RUN [RUN …] [--source FILE --reference FILE] [--sentences 1000]

RUN: runs of the demonstration, or of English and German text; several are also measured as an ensemble.  Without files
the text is the demonstration's test set.

- Alignment: between source and reference, at nouns and adjectives of the demonstration's word list that occur once on
  each side.  Each layer is measured, at the step that generates a word.
- Beginnings: the first half of each reference is given, ending after a word or within one.  The benchmark counts the
  translations that are equal to the reference.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from minitransformer.extras.demo import demo_corpus
from minitransformer.extras.demo.words import COLOURS, MOODS, NOUNS, QUALITIES
from minitransformer.inference.alignment import links_of, words_of_source, words_of_target
from minitransformer.inference.attention import attention_weights
from minitransformer.inference.bleu import bleu
from minitransformer.inference.prefix import NO_PREFIX
from minitransformer.inference.translator import Translator

PUNCTUATION = ",.?!"


def dictionary() -> dict[str, set[str]]:
    """Return the German forms of each English noun and adjective."""
    forms: dict[str, set[str]] = {}
    for noun in NOUNS.values():
        german = {noun.german, noun.genitive, noun.german_plural, f"{noun.german_plural}n", f"{noun.german}s"}
        for english in filter(None, (noun.english, noun.english_plural)):
            forms.setdefault(english, set()).update(german)
    for adjective in (*COLOURS, *MOODS, *QUALITIES):
        forms[adjective.english] = {adjective.german, *(adjective.stem + end for end in ("e", "en", "er", "em", "es"))}
    return forms


def known_links(source: str, target: str, forms: dict[str, set[str]]) -> dict[int, int]:
    """Return the source word of each target word whose translation is certain."""
    english = [word.strip(PUNCTUATION).lower() for word in source.split()]
    german = [word.strip(PUNCTUATION) for word in target.split()]
    links: dict[int, list[int]] = {}
    for i, word in enumerate(english):
        found = [j for j, other in enumerate(german) if other in forms.get(word, ())]
        if english.count(word) == 1 == len(found):
            links.setdefault(found[0], []).append(i)
    return {j: i for j, (i, *others) in links.items() if not others}


def measure_alignment(translator: Translator, pairs: list[tuple[str, str]]) -> None:
    """Print the share of known links that the heads of each layer, averaged, find."""
    forms, tokenizer, right, n_links = dictionary(), translator.tokenizer, dict[int, int](), 0
    for source, target in pairs:
        known = known_links(source, target, forms)
        if not known:
            continue
        n_links += len(known)
        ids, target_ids = tokenizer.encode_source([source])[0], tokenizer.encode_target([target])[0]
        rows = words_of_target(translator.prefixer, target_ids, NO_PREFIX)
        columns = words_of_source(tokenizer, source)
        layers = attention_weights(translator.model, ids, target_ids).encoder_decoder.mean(axis=1)
        for layer, weights in enumerate(layers, 1):
            links = links_of(weights[: len(target_ids), : len(ids)], columns, rows)
            right[layer] = right.get(layer, 0) + sum((i, j) in links for j, i in known.items())
    for layer, n_right in right.items():
        print(f"  layer {layer}: {n_right / n_links:.1%} of {n_links:,} links")


def beginning(reference: str, *, within_word: bool) -> str:
    """Return the first half of the words, and, ``within_word``, half of the next one."""
    words = reference.split()
    n = len(words) // 2
    following = words[n] if within_word else ""
    return " ".join([*words[:n], following[: max(1, len(following) // 2)]])


def measure_beginnings(translator: Translator, sources: list[str], references: list[str]) -> None:
    """Print how many translations equal their references, without and with a given beginning."""
    for name, begun in (
        ("free", None),
        ("after a word", [beginning(reference, within_word=False) for reference in references]),
        ("within a word", [beginning(reference, within_word=True) for reference in references]),
    ):
        found = translator.translate(sources, prefixes=begun)
        n_equal = sum(one == other for one, other in zip(found, references, strict=True))
        print(f"  beginning {name}: {n_equal} of {len(references)} equal the reference")


def main() -> None:
    """Measure each run, then all as an ensemble."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--sentences", type=int, default=1_000)
    options = parser.parse_args()
    pairs = demo_corpus(n_train=0).test
    if options.source:
        texts = (path.read_text(encoding="utf-8").splitlines() for path in (options.source, options.reference))
        pairs = list(zip(*texts, strict=True))
    pairs = pairs[: options.sentences]
    sources, references = [source for source, _ in pairs], [reference for _, reference in pairs]
    groups = [[run] for run in options.runs] + ([options.runs] if len(options.runs) > 1 else [])
    for runs in groups:
        translator = Translator.load(*runs)
        score = bleu(translator.translate(sources), [references])
        print(f"{' + '.join(map(str, runs))}: BLEU {score.value:.2f}")
        if len(runs) == 1:
            measure_alignment(translator, pairs)
            measure_beginnings(translator, sources, references)


if __name__ == "__main__":
    main()
