"""Texts around a model: the sentences that it reads, and the text that its translations become."""
