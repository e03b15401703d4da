"""The fixture that counts matrix products."""

from metered import meter

__all__ = ["meter"]
