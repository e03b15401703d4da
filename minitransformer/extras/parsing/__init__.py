"""Constituency parsing: trees, treebanks, a parser that writes brackets, and scores."""
