"""BLEU of one translation under every convention used in papers, each with the published figures that are comparable.

The paper's 27.3 and 28.4 are BLEU of tokenised text, with hyphenated words split and the references' quotation marks
made straight.  SacreBLEU gives the same translations up to 1.5 points less.

Source: Post 2018, "A Call for Clarity in Reporting BLEU Scores"; tensor2tensor's ``get_ende_bleu.sh``, which scored
the paper's translations.  Martin Popel found that the references used with this script differ from WMT's: "all unicode
quotes including „" are straight.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from minitransformer.inference.bleu import WORDS, Score, bleu_tokenizer, score_corpus

TOKENISED = ("de", "fr", "en")  # languages of the published figures of tokenised text
Preprocess = Callable[[str], str]

N_BOOTSTRAP = 1_000  # resampled corpora; 95 % of their scores lie within the interval

# Bytes, as in Perl: a match ends with the byte after the hyphen, so "a-b-c" is split once, "a-ä-c" twice.
_HYPHEN = re.compile(rb"(\S)-(\S)")


@dataclass(frozen=True)
class AuditedScore:
    """A score under one convention, and the published figures that were computed in the same way.

    ``comparable_with`` describes the published figures.  This module does not know the test set, so the description
    names the test set of the published figures.
    """

    convention: str
    score: Score
    comparable_with: str


def audit(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    language: str | None,
    n_bootstrap: int = N_BOOTSTRAP,
) -> Iterator[AuditedScore]:
    """Score detokenised translations under every convention, with intervals by bootstrap (Koehn 2004).

    Args:
        references: one list of detokenised lines for every set of references.
        language: the code of the text's language, for BLEU's tokenizer and for the tokenisation rules of Moses; hyphens
            are split in German only.  Conventions of tokenised text exist only for the languages TOKENISED.
        n_bootstrap: resampled corpora for each interval.

    Raises: ValueError for no lines, or sets of unequal lengths.
    """
    for convention, metric, comparable_with in _sacrebleu_metrics(bleu_tokenizer(language, references)):
        yield AuditedScore(
            convention, score_corpus(metric, hypotheses, references, n_bootstrap=n_bootstrap), comparable_with
        )
    if language not in TOKENISED:
        return
    for convention, (steps, preprocess_hypothesis, preprocess_reference), comparable_with in _tokenisations(language):
        score = score_corpus(
            # multi-bleu.perl does not smooth; force: the text is tokenised on purpose
            BLEU(tokenize="none", smooth_method="none", force=True),
            [preprocess_hypothesis(line) for line in hypotheses],
            [[preprocess_reference(line) for line in lines] for lines in references],
            n_bootstrap=n_bootstrap,
        )
        signature = f"sacremoses:{version('sacremoses')}|lang:{language}|{steps}{score.signature}"
        yield AuditedScore(
            convention, Score(score.name, score.value, signature, score.detail, score.interval), comparable_with
        )


def _sacrebleu_metrics(tokenizer: str) -> Iterator[tuple[str, Metric, str]]:
    """Yield sacreBLEU's own conventions: the name, the metric, and a description of comparable figures."""
    published = "sacreBLEU figures on the same test set, of WMT and of papers since 2018"
    yield (
        f"sacreBLEU, {tokenizer}",
        BLEU(tokenize=tokenizer),
        published if tokenizer == WORDS else f"{published}, with tok:{tokenizer} in their signature",
    )
    yield (
        f"sacreBLEU, {tokenizer}, lower-cased",
        BLEU(tokenize=tokenizer, lowercase=True),
        "the same with case:lc in their signature",
    )
    if tokenizer == WORDS:
        yield (
            "sacreBLEU, intl",
            BLEU(tokenize="intl"),
            "on the same test set, mteval-v14.pl -c --international-tokenization, BLEU_cased of tensor2tensor's"
            " t2t-bleu",
        )
        yield (
            "sacreBLEU, intl, lower-cased",
            BLEU(tokenize="intl", lowercase=True),
            "the same without -c, when mteval-v14.pl lower-cases, and BLEU_uncased of t2t-bleu",
        )
    yield "chrF2", CHRF(), "chrF2 figures on the same test set, whatever their tokenisation"


def _tokenisations(language: str) -> Iterator[tuple[str, tuple[str, Preprocess, Preprocess], str]]:
    """Yield the conventions that tokenise text before scoring.

    Each is a name, (steps for the signature, function for a translation, function for a reference), and a description
    of comparable figures.  The functions tokenise one line.
    """
    moses, punctuation = MosesTokenizer(language), MosesPunctNormalizer(language)

    def tokenise(line: str) -> str:
        return str(moses.tokenize(line, return_str=True))

    def split_compounds(line: str) -> str:
        return split_hyphens(tokenise(punctuation.replace_unicode_punct(line)))

    def straighten_quotes(line: str) -> str:  # references only: the script handles “ and ”, but not „
        return split_compounds(line.replace("„", '"'))

    french = "; no source says how Vaswani et al. 2017 tokenised for their French 38.1 and 41.0 (later 41.8)"
    yield (
        "tokenised",
        ("", tokenise, tokenise),
        f"multi-bleu.perl on the same test set, tokenised by Moses{french if language == 'fr' else ''}",
    )
    if language == "de":
        yield (
            "tokenised, compounds split",
            ("sys:ascii-punct|ref:straight-quotes|hyphens:split|", split_compounds, straighten_quotes),
            "on newstest2014, with English as the source: Vaswani et al. 2017, Table 2 (27.3 and 28.4), Ott et al. 2018"
            " (29.3); on another test set, neither",
        )
        yield (
            "the same, references' quotation marks kept",
            ("sys:ascii-punct|ref:as-is|hyphens:split|", split_compounds, lambda line: split_hyphens(tokenise(line))),
            "get_ende_bleu.sh on the same test set, with WMT's unchanged references, whose “ then never matches",
        )


def split_hyphens(tokenised: str) -> str:
    """Split hyphenated words into three tokens, as ``get_ende_bleu.sh`` does: "a-b" becomes "a ##AT##-##AT## b"."""
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", tokenised.encode()).decode()
