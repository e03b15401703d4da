"""Lines in many scripts, with what a normalisation by compatibility would change, and tokenizers of them."""

import itertools
from functools import cache

from minitransformer.config import TextNormalisation, TokenizerType
from minitransformer.data.tokenizer import Tokenizer

SCRIPTS = {
    "Arabic": "هل هذا صحيح؟ نعم، «٢٠٢٤».",
    "Armenian": "Բարեւ ձեզ։",
    "Bengali": "আমি র‍্যাম কিনি।",  # with a joiner
    "Chinese": "你好，世界！“是吗？”（对）：……《书》〔注〕３％",
    "Devanagari": "क्या यह सही है? हाँ। श्‍र",
    "Ethiopic": "ሰላም፡ዓለም።",
    "French": "«\u00a0Où était-ce\u202f?\u00a0» l’œuvre n°\u00a05",
    "German": "„Straße“ – 5\u00a0€ … ﬁ",
    "Georgian": "გამარჯობა მსოფლიო",
    "Greek": "Τι ώρα είναι; «ναί»·",
    "Hebrew": "שָׁלוֹם עוֹלָם״",
    "Japanese": "\u3000「ｶﾀｶﾅ」と漢字、ﾊﾞ２０２４年。",
    "Khmer": "ខ្ញុំ\u200bស្រឡាញ់\u200bអ្នក។",
    "Korean": "안녕하세요, 세계! ㈜한국",
    "Persian": "می\u200cخواهم کتاب‌ها را",
    "Russian": "«Ёлка» — № 5, чай й",
    "Sinhala": "ශ්‍රී ලංකාව",
    "Tamil": "வணக்கம் உலகம்",
    "Thai": "น้ำใจ ทำงาน ๒๕๖๗ ฯลฯ",
    "Tibetan": "བོད་སྐད།",
    "Vietnamese": "Tiếng Việt, Tie\u0302\u0301ng Vie\u0323\u0302t",
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 ❤\ufe0f \U0001f1e9\U0001f1ea ✌🏽",
    "signs": "2⁵ = 32, x₂ ½ ™ Ω K Å ℃ ㎡ ﷼ Ⅷ",
}
SYLLABLES = ["the", "fox", "box", "ing", "qua", "jum", "zoo", "wiz", "vek", "dry"]
LINES = [*SCRIPTS.values()] * 4 + ["".join(each) for each in itertools.product(SYLLABLES, repeat=2)]
SIZE = 308  # pieces, of which nearly all are the characters


@cache
def tokenizer_of(rule: TextNormalisation, kind: TokenizerType = "bpe") -> Tokenizer:
    return Tokenizer.train([(line, line) for line in LINES], vocabulary_size=SIZE, normalisation=rule, kind=kind)
