"""Measures of translations, of parse trees, and of what training and layers cost."""
