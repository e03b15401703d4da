"""Ids that every vocabulary reserves, and marks in text.  There is no padding symbol: batches are packed."""

import re

UNKNOWN = 0
START = 1  # first input of the decoder
END = 2  # last token of every source and of every target

BLANK = "▁"  # how sentencepiece writes a blank; words begin with it
# The first word of a source line, which names the target language of a model of several languages, as in OPUS-MT.
LANGUAGE_CODE = re.compile(r">>([^<>\s]+)<<")


def language_code(language: str) -> str:
    """Return the first word of source lines whose translations are in ``language``: ">>de<<" for "de".

    Source: Johnson et al. 2017, "Google's multilingual neural machine translation system", section 3; the form is that
    of OPUS-MT.
    """
    return f">>{language}<<"
