"""Ids that every vocabulary reserves.  There is no padding symbol, because batches are packed."""

UNKNOWN = 0
START = 1  # first input of the decoder
END = 2  # last token of every source and of every target
