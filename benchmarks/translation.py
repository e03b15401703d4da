"""How fast is translation, compared with CTranslate2 and PyTorch with the same weights?

    pip install -e ".[bench]"
    python benchmarks/translation.py [1 32 96] [--rounds 5] [--avx2]

A unit of work is beam search (beam 4, base model) for the given number of sentences at once.  A sentence has 27 words
and the end symbol; every hypothesis of each contestant takes 30 decoder steps.  The weights are random, chosen so that
no sentence ends by itself.  Translations that are equal to ours are counted; those of int8 need not be equal.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from contest import MALLOC, Contestant, add_instruction_set, compete, describe_machine, report, serve

from autograd.malloc import keep_freed_memory
from autograd.packed_weight import PackedDtype
from minitransformer import ModelConfig, Transformer, Translator
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.search import SearchConfig
from minitransformer.model.symbols import END, START, UNKNOWN
from minitransformer.system.threads import available_cores

CONFIG = ModelConfig(37_000)
BEAM = 4
SOURCE_WORDS = 27
N_STEPS = 30
SENTENCES_AT_ONCE = 64  # in a batch of CTranslate2, as in one of ours

Translations = list[list[str]]  # for each sentence the best ones: ids, separated by spaces
Search = Callable[[int, int], Translations]  # number of words, number of translations for each sentence


def model_without_end(config: ModelConfig) -> Transformer:
    """Return a random model that never generates the end symbol or another symbol, in any program.

    The last norm becomes s (x + 1), with random signs s and Σ x = 0.  A symbol whose row of the softmax is −30 s/D then
    has the logit −30; the rows of words stay random.  A random model would repeat one word to the end.  The signs, and
    outputs of sublayers divided by 4, prevent this: nearly every step changes the order of the hypotheses, as in real
    translations.
    """
    model = Transformer(config, seed=1)
    for name, parameter in model.named_parameters():
        if name.endswith(".output.weight"):
            parameter.value /= 4
    signs = np.random.default_rng(1).choice([-1, 1], config.d_model)
    norm = model.decoder.layers[-1].feed_forward_residual.norm
    norm.gain.value[...] = norm.bias.value[...] = signs
    model.target_embedding.weight.value[[UNKNOWN, START, END]] = -30 * signs / config.d_model
    return model


class IdsAsText:
    """The tokenizer of a language whose words are numbers."""

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the numbers in lines."""
        return [[int(word) for word in line.split()] for line in lines]

    def decode_target(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Return lines of numbers."""
        return [" ".join(map(str, ids)) for ids in sequences]


def ours(directory: Path, sources: list[list[int]], *, weights: PackedDtype) -> Search:
    """Return our search, with batches and threads as in minitransformer-translate."""
    keep_freed_memory()
    translator = Translator(Transformer.load(directory / "ours"), cast(Tokenizer, IdsAsText()), weights=weights)
    lines = IdsAsText().decode_target(sources)

    def search(n_words: int, n_best: int) -> Translations:
        config = SearchConfig(
            beam=BEAM, n_best=n_best, max_extra_tokens=n_words + 1 - SOURCE_WORDS, max_length_factor=None
        )
        return [[translation.text for translation in found] for found in translator.n_best(lines, config)]

    return search


def ctranslate2(directory: Path, sources: list[list[int]], *, n_workers: int, compute_type: str) -> Search:
    """Return CTranslate2's search: ``n_workers`` workers translate batches in parallel, and share the cores."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # prevents an import that would only add memory
    from ctranslate2 import Translator as CTranslate2  # noqa: PLC0415 (of the contestants only these have it in memory)

    translator = CTranslate2(
        str(directory / "ctranslate2"),
        compute_type=compute_type,
        inter_threads=n_workers,
        intra_threads=available_cores() // n_workers,
    )
    lines = [[*map(str, ids), "</s>"] for ids in sources]
    n_batches = n_workers * math.ceil(len(lines) / n_workers / SENTENCES_AT_ONCE)

    def search(n_words: int, n_best: int) -> Translations:
        results = translator.translate_batch(
            lines,
            beam_size=BEAM,
            num_hypotheses=n_best,
            max_batch_size=math.ceil(len(lines) / n_batches),
            length_penalty=0.6,
            min_decoding_length=n_words,
            max_decoding_length=n_words,
        )
        return [[" ".join(words) for words in result.hypotheses] for result in results]

    return search


def torch(directory: Path, sources: list[list[int]]) -> Search:
    """Return PyTorch's search: all sentences in one batch, on all cores."""
    from translation_peers import TorchSearch  # noqa: PLC0415 (of the contestants only this one has PyTorch in memory)

    search = TorchSearch(directory / "ours", beam=BEAM)
    return lambda n_words, n_best: [IdsAsText().decode_target(found[:n_best]) for found in search(sources, n_words)]


def be_contestant(options: argparse.Namespace) -> None:
    """Run as a contestant: write all hypotheses of all sentences into a file, then translate for each line on stdin.

    Our last step generates the end symbol.  The peers end a sentence of the greatest length without this step.  So they
    generate one more word when they are timed, but not when translations are compared.
    """
    sources = json.loads((options.directory / "sources.json").read_text(encoding="utf-8"))
    searches: dict[str, Callable[[], Search]] = {
        "ours": lambda: ours(options.directory, sources, weights=options.compute_type),
        "ctranslate2": lambda: ctranslate2(
            options.directory, sources, n_workers=options.workers, compute_type=options.compute_type
        ),
        "torch": lambda: torch(options.directory, sources),
    }
    search = searches[options.serve]()
    options.answers.write_text(json.dumps(search(N_STEPS - 1, BEAM)), encoding="utf-8")
    n_words = N_STEPS - 1 if options.serve == "ours" else N_STEPS
    serve(lambda: len(search(n_words, 1)) * N_STEPS)


def command_lines(n: int) -> dict[str, list[str]]:
    """Return the arguments of each contestant that translates ``n`` sentences, by its name; ours first."""
    n_workers = {"one worker": 1, "a worker per core": available_cores()} if n > 1 else {"one worker": 1}
    theirs = {
        f"CTranslate2 {compute_type}, {name}": ["ctranslate2", f"--workers={number}", f"--compute-type={compute_type}"]
        for name, number in n_workers.items()
        for compute_type in ("float32", "int8")
    }
    weights = {"ours": "float32", "ours, bfloat16": "bfloat16", "ours, int8": "int8"}
    own = {name: ["ours", f"--compute-type={dtype}"] for name, dtype in weights.items()}
    return {**own, **theirs, "PyTorch, eager": ["torch"]}


def bench(n: int, rounds: int, directory: Path) -> None:
    """Let our search and its peers compete on ``n`` sentences, and compare their translations."""
    sources = np.random.default_rng(1).integers(3, CONFIG.vocabulary_size, (n, SOURCE_WORDS)).tolist()
    (directory / "sources.json").write_text(json.dumps(sources), encoding="utf-8")
    contestants: list[Contestant] = []
    answers: list[Path] = []
    for name, words in command_lines(n).items():
        answers.append(directory / f"answers-{len(answers)}.json")
        files = ["--directory", str(directory), "--answers", str(answers[-1])]
        environment = MALLOC if words == ["torch"] else {}
        contestants.append(Contestant(name, [__file__, *files, "--serve", *words], environment))
    compete(contestants, rounds)
    first, *others = [json.loads(path.read_text(encoding="utf-8")) for path in answers]
    same = {
        contestant.name: sum(set(a) == set(b) for a, b in zip(first, other, strict=True))
        for contestant, other in zip(contestants[1:], others, strict=True)
    }
    report(f"translation, {n} at once", contestants, same_translations=same)
    for name, number in same.items():
        print(f"{name}: the same {BEAM} translations as ours for {number} of {n} sentences")


def main() -> None:
    """Run the contest, or run as a contestant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sentences", nargs="*", type=int, default=[1, 32, 96])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=["ours", "ctranslate2", "torch"])
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--compute-type")
    add_instruction_set(parser)
    options = parser.parse_args()
    if options.serve:
        be_contestant(options)
        return
    from translation_peers import convert_to_ctranslate2  # noqa: PLC0415 (contestants shall not import all peers)

    describe_machine("ctranslate2", "torch", avx2=options.avx2)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        model_without_end(CONFIG).save(directory / "ours")
        convert_to_ctranslate2(directory / "ours", directory / "ctranslate2")
        for n in options.sentences:
            bench(n, options.rounds, directory)


if __name__ == "__main__":
    main()
