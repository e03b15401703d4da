"""minitransformer-score: score translations with references or with a model's log-probabilities."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.command import run_command, say
from cli.options import Positional, parse_kind
from minitransformer.config import ConfigError, RunConfig
from minitransformer.config.data import common_ending, require_language, target_language
from minitransformer.config.run import TRANSLATIONS_FILE
from minitransformer.data.corpus import check_aligned, read_pairs
from minitransformer.data.profile import TextProfile
from minitransformer.data.survey import CorpusError, Pair, read_lines
from minitransformer.extras.paper.audit import TOKENISED, audit
from minitransformer.extras.parsing.evalb import COLLINS, Status, compare, with_tags_of
from minitransformer.extras.parsing.evalb_report import read_parameters, report
from minitransformer.extras.parsing.linear import WORD
from minitransformer.extras.parsing.penn import read_candidates, read_gold_trees
from minitransformer.extras.parsing.tree import Tree
from minitransformer.extras.report.comparison import PairedTestName, compare_systems, comparison_table
from minitransformer.extras.report.run_record import read_run
from minitransformer.inference.bleu import bleu, chrf
from minitransformer.inference.length_penalty import ALPHAS, Tried, choose_alpha
from minitransformer.inference.scoring import TargetScore, score_pairs
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.task import TranslationTask
from minitransformer.inference.translator import load_translator, load_with_tokenizer
from minitransformer.model.files import load_model_files, require_no_bundle, save_model_files
from minitransformer.system.provenance import code_version
from minitransformer.system.records import as_object
from minitransformer.system.threads import available_cores

DESCRIPTION = """Score translations: "bleu" compares a file of translations with references; "audit" does so under every
convention used in papers; "compare" tests which of several systems is better; "tune-length" chooses the length penalty
of a model; "pairs" gives the log-probability of given translations under a model; "trees" compares parsed trees with
gold trees, as EVALB does."""


@dataclass(frozen=True)
class AuditOptions:
    """Compute BLEU under every convention used in papers, each with the published figures that are comparable."""

    hypothesis: Positional[Path]
    """File of translations, detokenised, a sentence a line."""
    references: Positional[tuple[Path, ...]]
    """One or more files of reference translations, detokenised, aligned line by line."""
    language: str | None = None
    """Language of the translations, such as zh, for BLEU's tokenizer; if not given, the ending of the references."""


@dataclass(frozen=True)
class BleuOptions(AuditOptions):
    """Compute BLEU and chrF of a file of translations, with sacrebleu's signatures."""

    lowercase: bool = False
    """Ignore case."""


@dataclass(frozen=True)
class CompareOptions:
    """Compare two or more systems with the first one: BLEU, chrF and TER with p-values, by sacrebleu's paired tests.

    TER is left out for languages without blanks between words.
    """

    files: Positional[tuple[Path, ...]]
    """Files of translations, one for each system, then the file of references, all aligned line by line."""
    language: str | None = None
    """Language of the translations, such as zh, for BLEU's tokenizer; if not given, the ending of the references."""
    test: PairedTestName = "bootstrap"
    """Paired bootstrap with 1,000 resampled corpora, or paired approximate randomisation with 10,000 trials."""


@dataclass(frozen=True)
class TuneLengthOptions:
    """Translate held-out text with several exponents of the length penalty, and store the best one with the model.

    The model keeps its own exponent unless another one has a greater BLEU, or its translations are much too long.
    """

    files: Positional[tuple[Path, ...]]
    """File of source lines that the model was not trained on, and file of their reference translations; if not given,
    the validation text of the run, which its training has translated at the end."""
    run: Path = RunConfig.run
    """Directory of a training run."""
    beam: int = SearchConfig.beam
    """Hypotheses kept alive for each sentence."""
    alphas: tuple[float, ...] = ALPHAS
    """Exponents to try; the model's own one is always tried."""
    language: str | None = None
    """Language of the translations, such as zh, for BLEU's tokenizer; if not given, the ending of the references, or
    the language that the training knew."""


@dataclass(frozen=True)
class PairsOptions:
    """Compute the log-probability (nats) of each target line given its source line, and the loss and perplexity."""

    source: Positional[Path]
    """File of source lines."""
    target: Positional[Path]
    """File of target lines, aligned with the source lines."""
    run: Path = RunConfig.run
    """Directory of a training run."""


@dataclass(frozen=True)
class TreesOptions:
    """Compute labelled bracketing scores of parsed trees, and print them as EVALB does."""

    gold: Positional[Path]
    """File of gold trees in Penn bracket format; a tree may span several lines, as in the treebank."""
    candidate: Positional[Path]
    """File of parsed trees of the same sentences, one per line."""
    parameters: Path | None = None
    """EVALB parameter file; COLLINS.prm if not given."""
    gold_tags: bool = False
    """Take the words' tags from the gold trees, for parsers without tags (XX); tags mark punctuation."""


KINDS = {
    "bleu": BleuOptions,
    "audit": AuditOptions,
    "compare": CompareOptions,
    "tune-length": TuneLengthOptions,
    "pairs": PairsOptions,
    "trees": TreesOptions,
}


def main() -> int:
    """Run the command."""
    return run_command(lambda: score(sys.argv[1:]))


def score(arguments: Sequence[str]) -> int:
    """Compute the scores that the options name; print scores on stdout, other lines on stderr."""
    options = parse_kind(
        KINDS, DESCRIPTION, arguments, '; to compare translations with references, give "bleu" before the files'
    )
    require_language("--language", vars(options).get("language"))
    scores: dict[type, Callable[[Any], None]] = {
        BleuOptions: score_bleu,
        AuditOptions: score_audit,
        CompareOptions: score_compare,
        TuneLengthOptions: tune_length,
        PairsOptions: score_with_model,
        TreesOptions: score_trees,
    }
    scores[type(options)](options)
    return 0


def score_bleu(options: BleuOptions) -> None:
    """Print BLEU and chrF with their signatures."""
    hypotheses, references = _read(options)
    language = options.language or common_ending(options.references)
    print(bleu(hypotheses, references, lowercase=options.lowercase, language=language))
    print(chrf(hypotheses, references, lowercase=options.lowercase))
    say(f"code {code_version()}")


def score_audit(options: AuditOptions) -> None:
    """Print the score under every convention, with its interval, its signature, and comparable published figures."""
    hypotheses, references = _read(options)
    language = options.language or common_ending(options.references)
    if language not in TOKENISED:
        say(f"conventions of tokenised text are left out; --language {' | '.join(TOKENISED)} adds them")
    for audited in audit(hypotheses, references, language=language):
        score = audited.score
        interval = "±   ?" if score.interval is None else f"± {score.interval:.2f}"
        print(f"{score.value:6.2f} {interval}  {audited.convention}")
        print(f"    {score.signature}")
        print(f"    compare with: {audited.comparable_with}", flush=True)
    say(f"code {code_version()}")


def _read(options: AuditOptions) -> tuple[list[str], list[list[str]]]:
    """Read the lines of the translations, and of every set of references."""
    if not options.references:
        raise CorpusError("score: name at least one file of references after the file of translations")
    hypotheses = list(read_lines(options.hypothesis))
    if not hypotheses:
        raise CorpusError(f"{options.hypothesis}: is empty")
    references = [list(read_lines(path)) for path in options.references]
    for path, lines in zip(options.references, references, strict=True):
        check_aligned((options.hypothesis, len(hypotheses)), (path, len(lines)))
    return hypotheses, references


def score_compare(options: CompareOptions) -> None:
    """Print a table with a row for each system."""
    if len(options.files) < 3:
        raise CorpusError(
            f"score: expected two files of translations or more, then the references; got {len(options.files)} files"
        )
    *systems, reference = ((path, list(read_lines(path))) for path in options.files)
    for path, lines in systems:
        check_aligned((reference[0], len(reference[1])), (path, len(lines)))
    if not reference[1]:
        raise CorpusError(f"{reference[0]}: is empty")
    names = [str(path) for path, _ in systems]
    compared = compare_systems(
        [(str(path), lines) for path, lines in systems],
        reference[1],
        test=options.test,
        language=options.language or common_ending([reference[0]]),
    )
    print("\n".join(comparison_table(names, compared)))
    say(f"code {code_version()}")


def tune_length(options: TuneLengthOptions) -> None:
    """Print BLEU for each exponent, and store the best one with the model, unless the model's own is as good."""
    if not options.alphas:
        raise ConfigError("score: name at least one exponent to try")
    translator = load_translator(options.run)
    pairs, ending = _held_out_pairs(options)
    require_no_bundle(options.run)
    config, task, tried = translator.model.config, TranslationTask(options.language or ending), list[Tried]()
    own, search = config.own_alpha, SearchConfig(beam=options.beam)
    configs = [dataclasses.replace(config, alpha=alpha) for alpha in dict.fromkeys((*options.alphas, own))]
    for alpha in (each.own_alpha for each in configs):
        search = dataclasses.replace(search, alpha=alpha)
        found = task.evaluate(translator, pairs, search, n_threads=available_cores(), advance=lambda n: None)
        tried.append(Tried(alpha, found))
        print(f"alpha {alpha:g}: {found.score}{tried[-1].remark}", flush=True)
    (chosen, *_), best = choose_alpha(tried, own)
    if chosen == own:
        say(f"kept alpha {own:g} of {options.run}: {_why_kept(tried, best)}")
        return
    stored, weights = load_model_files(options.run)
    save_model_files(options.run, dataclasses.replace(stored, alpha=chosen), weights)
    middle = f", the middle of the best ones, {_join(best)}" if len(best) > 1 else ""
    say(f"stored alpha {chosen:g} in {options.run} (before: {own:g}){middle}; searches with this model now take it")


def _held_out_pairs(options: TuneLengthOptions) -> tuple[list[Pair], str | None]:
    """Return the pairs on which exponents are tried, and the code of their target language; None if it is unknown."""
    if not options.files:
        record = read_run(options.run)
        if not record.translations:
            raise CorpusError(
                f"{options.run}: has no {TRANSLATIONS_FILE}, which holds the validation text of a finished training;"
                " name a file of source lines and a file of references"
            )
        return record.pairs(), target_language(as_object(record.settings.get("data")))
    if len(options.files) != 2:
        raise CorpusError(f"score: expected a file of sources and one of references; got {len(options.files)} files")
    source, reference = options.files
    pairs = list(read_pairs(source, reference))
    if not pairs:
        raise CorpusError(f"{source}: is empty")
    return pairs, common_ending([reference])


def _why_kept(tried: Sequence[Tried], best: Sequence[float]) -> str:
    if len(tried) == len(best) > 1:
        return f"BLEU is the same with all {len(tried)} exponents, so this text cannot choose; give other text, or more"
    if len(best) > 1:
        return f"the best ones, {_join(best)}, have the same BLEU, so this text cannot choose among them"
    too_long = any(one.remark for one in tried)
    return f"no other exponent is better{', or its translations are much too long' if too_long else ''}"


def _join(alphas: Sequence[float]) -> str:
    return ", ".join(f"{alpha:g}" for alpha in alphas)


def score_with_model(options: PairsOptions) -> None:
    """Print a line "log p <TAB> tokens" for each pair, and the corpus' loss and perplexity."""
    lines = list(read_pairs(options.source, options.target))
    model, tokenizer = load_with_tokenizer(options.run)
    TextProfile.load(options.run).require_tags(source for source, _ in lines)
    sources = tokenizer.encode_source([source for source, _ in lines])
    targets = tokenizer.encode_target([target for _, target in lines])
    scores = score_pairs(model, list(zip(sources, targets, strict=True)), n_threads=available_cores())
    for pair_score in scores:
        print(f"{pair_score.log_probability:.4f}\t{pair_score.n_tokens}")
    total = TargetScore.sum(scores)
    say(
        f"{len(scores):,} pairs, {total.n_tokens:,} target tokens: log-probability {total.log_probability:.4f},"
        f" {total.loss:.4f} nats per token, perplexity {total.perplexity:.3f}"
    )


def score_trees(options: TreesOptions) -> None:
    """Print EVALB's report: a line for each sentence, and summaries."""
    parameters = COLLINS if options.parameters is None else read_parameters(options.parameters)
    gold, candidates = list(read_gold_trees(options.gold)), _trees_of_parser(options.candidate)
    whole = [tree for tree in gold if tree.walk]
    if len(gold) != len(candidates) == len(whole):  # minitransformer-parse --treebank ignores empty lines
        gold = whole
    if len(gold) != len(candidates):
        raise CorpusError(
            f"{options.candidate}: has {len(candidates):,} trees, but {options.gold} has {len(gold):,};"
            f" line n of {options.candidate} must be the tree of the same sentence as gold tree n"
        )
    if not gold:
        raise CorpusError(f"{options.gold}: is empty")
    if options.gold_tags:
        candidates = [
            None if tree is None else with_tags_of(right, tree) for right, tree in zip(gold, candidates, strict=True)
        ]
    elif any(leaf.tag == WORD for tree in candidates if tree for leaf in tree.leaves):
        say(f"warning: {options.candidate}: has tags {WORD}; --gold-tags takes the tags from the gold trees")
    compared = [compare(right, tree, parameters) for right, tree in zip(gold, candidates, strict=True)]
    print("\n".join(report(compared, parameters.cutoff_length)))


def _trees_of_parser(path: Path) -> list[Tree | None]:
    """Return a parser's trees, with None for a line that is not a tree; warn of each of these lines.

    Raises: CorpusError if no line is a tree.
    """
    found = list(read_candidates(path))
    errors = [tree for tree in found if isinstance(tree, CorpusError)]
    if errors and len(errors) == len(found):
        raise errors[0]
    for error in errors:
        say(f"warning: {error}; the sentence has status {Status.ERROR:d}")
    return [None if isinstance(tree, CorpusError) else tree for tree in found]
