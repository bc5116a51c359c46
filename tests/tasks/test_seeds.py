from hypothesis import given
from hypothesis import strategies as st

from tasks import seeds


@given(seed=st.integers(0, 2**63), count=st.integers(1, 50))
def test_initializer_seeds_are_distinct_and_reproducible(seed, count):
    found = seeds.initializer_seeds(seed, count)

    assert len(set(found)) == count
    # Keras takes them as 32-bit integers.
    assert all(0 <= each < 2**31 + 50 for each in found)
    assert found == seeds.initializer_seeds(seed, count)


def test_streams_differ_by_seed_and_purpose():
    draws = [
        seeds.generator(seed, purpose).random()
        for seed in (0, 1)
        for purpose in ("partition", "writers")
    ]

    assert len(set(draws)) == 4
    assert seeds.generator(1, "writers").random() == draws[-1]
