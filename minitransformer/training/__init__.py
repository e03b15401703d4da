"""The training loop and what surrounds it."""
