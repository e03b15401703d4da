"""Counter-based randomness."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autograd.random import (
    RandomStream,
    Site,
    named_site,
    normal,
    permutation,
    random_uint16,
    random_words,
    uniform,
)

WORDS = st.integers(0, 2**64 - 1)
SITES = st.builds(Site, seed=WORDS, site=WORDS, update=WORDS, shard=WORDS)
HERE = np.empty(0)


@given(SITES, st.integers(0, 40))
def test_reference_is_numpys_philox(site: Site, count: int) -> None:
    philox = np.random.Philox(
        key=np.array([site.seed, site.site], np.uint64), counter=np.array([0, site.shard, site.update, 0], np.uint64)
    )
    np.testing.assert_array_equal(random_words.reference(HERE, site=site, count=count), philox.random_raw(count))


@given(SITES, st.integers(0, 1000))
def test_kernel_is_the_reference(site: Site, count: int) -> None:
    np.testing.assert_array_equal(
        random_words(HERE, site=site, count=count), random_words.reference(HERE, site=site, count=count)
    )


@given(SITES, st.integers(0, 50), st.integers(0, 50))
def test_an_element_does_not_depend_on_how_many_are_drawn(site: Site, n: int, more: int) -> None:
    np.testing.assert_array_equal(
        random_uint16(HERE, site=site, count=n + more)[:n], random_uint16(HERE, site=site, count=n)
    )


def test_a_stream_hands_out_distinct_sites_and_repeats_itself() -> None:
    first, again = RandomStream(7, 3, 2), RandomStream(7, 3, 2)
    sites = [first.next_site() for _ in range(5)]
    assert len(set(sites)) == 5
    assert sites == [again.next_site() for _ in range(5)]
    assert {(site.seed, site.update, site.shard) for site in sites} == {(7, 3, 2)}


def test_names_have_sites_of_their_own() -> None:
    assert named_site(1, "encoder") == named_site(1, "encoder")
    assert len({named_site(1, "encoder"), named_site(1, "decoder"), named_site(2, "encoder")}) == 3


def test_uniform_and_normal_have_their_moments() -> None:
    u, z = uniform(Site(1, 2), (400, 500)), normal(Site(1, 3), (400, 500))
    assert 0 <= u.min() < u.max() < 1
    assert abs(u.mean() - 0.5) < 0.003
    assert abs(u.var() - 1 / 12) < 0.001
    assert abs(z.mean()) < 0.01
    assert abs(z.std() - 1) < 0.01
    assert abs((np.abs(z) < 1.96).mean() - 0.95) < 0.003


@given(SITES, st.integers(0, 200))
def test_permutation_is_one(site: Site, n: int) -> None:
    order = permutation(site, n)
    assert sorted(order) == list(range(n))
    np.testing.assert_array_equal(order, permutation(site, n))
