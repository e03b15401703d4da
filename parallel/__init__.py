"""Communication between the N processes of a program: their ranks, and sums over their arrays."""
