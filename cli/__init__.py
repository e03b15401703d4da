"""The commands: each reads its options, makes one call and shows the result."""

import os

from cli.processor import name_processor_to_openblas

name_processor_to_openblas(os.environ)  # before a command imports NumPy
os.environ.setdefault("VECLIB_MAXIMUM_THREADS", "1")  # Accelerate of macOS: threadpoolctl cannot limit its threads
