"""Constituency trees, as the Penn Treebank's brackets and as sequences of symbols."""
