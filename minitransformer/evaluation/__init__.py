"""Measures of translations."""
