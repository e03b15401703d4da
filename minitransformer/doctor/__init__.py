"""What is there to train on, and whether it works: what ``minitransformer-doctor`` tells."""
