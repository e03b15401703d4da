"""The tables of the paper, measured again, and the conventions of other systems."""
