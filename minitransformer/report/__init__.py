"""Pictures of what a model does, to look at and to keep."""
