"""Models of other software: read into ours, and written from ours."""
