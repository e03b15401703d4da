"""A translation server: a page, a JSON API with LibreTranslate's words, and metrics; needs the extra "serve"."""
