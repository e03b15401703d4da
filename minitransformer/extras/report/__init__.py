"""Pages and pictures of a model's attention."""
