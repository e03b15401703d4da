"""A translation server: a page, a JSON API that is LibreTranslate's, and metrics; needs the extra "serve"."""
