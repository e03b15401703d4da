"""Ids that every vocabulary reserves, and marks in text.  There is no padding symbol: batches are packed."""

import re

UNKNOWN = 0
START = 1  # first input of the decoder
END = 2  # last token of every source and of every target

BLANK = "▁"  # how sentencepiece writes a blank; words begin with it
LANGUAGE_CODE = re.compile(r">>[^<>\s]+<<")  # the first word of a source line in multilingual OPUS-MT models
