"""Hypothesis for all tests: no deadlines on shared machines, and the same examples in every run of the CI."""

import os

from hypothesis import settings

settings.register_profile("here", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("here")
