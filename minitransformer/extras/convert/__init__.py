"""Conversion of models from the formats of other programs to ours, and from ours to theirs."""
