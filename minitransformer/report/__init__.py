"""Pages and pictures of a model's attention and of Table 1."""
