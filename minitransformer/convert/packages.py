"""Optional packages, of other programs and of the extra "convert"."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from minitransformer.convert.parts import ConversionError


@contextmanager
def packages_needed(*names: str, purpose: str) -> Iterator[None]:
    """Guard imports of optional packages.  Raises: ConversionError with the command that installs them."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in names:
            raise
        raise ConversionError(f"{purpose} needs {error.name}: pip install {' '.join(names)}") from error
