"""Table 1 of the paper, measured: cost, sequential operations and path length of each layer type."""
