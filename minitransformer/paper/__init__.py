"""The tables of the paper, its FLOPs, and what other systems do where the paper says nothing."""
