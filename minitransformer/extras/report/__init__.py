"""Pages and pictures of a model's attention, of one sentence's numbers, and of training runs."""
