"""What a run needs of the machine: files, checksums, memory, threads, placement; errors and provenance."""
