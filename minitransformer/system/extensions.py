"""The extras that the core uses if a configuration names them; the only file of the core that knows their names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

EXTENSIONS = {
    "task:demonstration": "minitransformer.extras.demo.task:TASK",
    "task:parsing": "minitransformer.extras.parsing.task:TASK",
    "tokenizer:file": "minitransformer.extras.convert.tokenizer_files:read_tokenizer",
}


def extension(name: str) -> Any:
    """Import and return the extension ``name``, a key of EXTENSIONS."""
    module, _, attribute = EXTENSIONS[name].partition(":")
    return getattr(import_module(module), attribute)
