"""Hypothesis for all tests: no deadlines on shared machines, and the same examples in every run of the CI."""

import os

from hypothesis import Phase, settings

settings.register_profile("here", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.register_profile(
    "mutants", deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)  # make mutants: that a test fails is enough; the smallest example need not be found
settings.load_profile("here")
