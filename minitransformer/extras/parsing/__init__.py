"""Constituency parsing: trees, treebanks, search for brackets, scores."""
