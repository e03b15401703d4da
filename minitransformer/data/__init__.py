"""From raw text to batches of token ids."""
