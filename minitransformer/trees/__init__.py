"""Constituency trees: the Penn Treebank's brackets, and trees as sequences of symbols."""
