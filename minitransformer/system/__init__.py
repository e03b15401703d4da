"""System services of a run: files, checksums, memory, threads, placement; errors and provenance."""
