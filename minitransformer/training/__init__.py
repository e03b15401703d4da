"""The training loop, its callbacks, checkpoints and checks."""
