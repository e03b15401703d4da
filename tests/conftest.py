"""Hypothesis for all tests: no deadlines on shared machines, and the same examples in every run.

``--hypothesis-profile=explore`` draws new ones.
"""

from hypothesis import Phase, settings

settings.register_profile("here", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.register_profile(
    "mutants", deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)  # make mutants: that a test fails is enough; the smallest example need not be found
settings.load_profile("here")
