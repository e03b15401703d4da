"""Ids that every vocabulary reserves, and sentencepiece's mark.  There is no padding symbol: batches are packed."""

UNKNOWN = 0
START = 1  # first input of the decoder
END = 2  # last token of every source and of every target

BLANK = "▁"  # how sentencepiece writes a blank; words begin with it
