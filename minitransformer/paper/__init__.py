"""The tables of the paper, its FLOPs, and the conventions of other systems."""
