"""Table 1 of the paper, measured: what a layer of each type costs, and how far its signals travel."""
