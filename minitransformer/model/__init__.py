"""The model of the paper, bottom up: layers, stacks, transformer."""
