import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import partitioners


@given(num_clients=st.integers(1, 40), extra=st.integers(0, 100))
def test_balanced_sizes_differ_by_at_most_one(num_clients, extra):
    sizes = partitioners.balanced_sizes(num_clients + extra, num_clients)

    assert sizes.sum() == num_clients + extra
    assert len(sizes) == num_clients
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1


@settings(deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=80),
    num_clients=st.integers(1, 10),
    alpha=st.floats(1e-4, 1e6),
    fraction=st.floats(0, 1),
    seed=st.integers(0, 2**40),
)
def test_every_example_is_dealt_at_most_once_and_sizes_are_kept(
    labels, num_clients, alpha, fraction, seed
):
    labels = np.array(labels)
    rng = np.random.default_rng(seed)
    sizes = rng.multinomial(
        int(fraction * len(labels)), [1 / num_clients] * num_clients
    )
    proportions = partitioners.dirichlet_proportions(num_clients, 5, alpha, seed)

    shares = partitioners.partition_by_proportions(labels, proportions, sizes, seed)

    np.testing.assert_allclose(proportions.sum(axis=1), 1.0)
    assert [len(share) for share in shares] == sizes.tolist()
    dealt = np.concatenate(shares)
    assert len(set(dealt.tolist())) == len(dealt)
    assert set(dealt.tolist()) <= set(range(len(labels)))


def test_partition_is_a_pure_function_of_its_seed():
    labels = np.arange(200) % 10

    def partition(seed):
        proportions = partitioners.dirichlet_proportions(5, 10, 0.3, seed)
        return partitioners.partition_by_proportions(
            labels, proportions, np.full(5, 40), seed
        )

    np.testing.assert_array_equal(partition(4), partition(4))
    assert not np.array_equal(partition(4), partition(5))


def _class_counts(alpha):
    """Counts of 10 classes at 20 clients with 100 examples; no class runs out."""
    labels = np.arange(20_000) % 10
    proportions = partitioners.dirichlet_proportions(20, 10, alpha, 0)
    shares = partitioners.partition_by_proportions(
        labels, proportions, np.full(20, 100), 0
    )
    return np.array([np.bincount(labels[share], minlength=10) for share in shares])


def test_a_tiny_alpha_gives_every_client_one_class():
    counts = _class_counts(1e-8)
    assert counts.max(axis=1).tolist() == [100] * 20
    # Twenty clients that each draw one of ten classes do not all draw the same.
    assert np.count_nonzero(counts.sum(axis=0)) > 1


def test_a_huge_alpha_gives_clients_the_same_mix():
    # Ten examples per class and client, give or take four standard deviations of
    # a multinomial draw.
    counts = _class_counts(1e6)
    assert np.abs(counts - 10).max() <= 4 * np.sqrt(100 * 0.1 * 0.9)


def test_proportions_are_followed_and_leftovers_are_used_up():
    labels = np.array([0] * 6 + [1] * 4)
    proportions = np.array([[1.0, 0.0], [1.0, 0.0]])

    shares = partitioners.partition_by_proportions(
        labels, proportions, np.array([3, 3]), seed=1
    )
    assert labels[np.concatenate(shares)].tolist() == [0] * 6

    shares = partitioners.partition_by_proportions(
        labels, proportions, np.array([5, 5]), seed=1
    )
    assert sorted(np.concatenate(shares).tolist()) == list(range(10))


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (partitioners.balanced_sizes, (3, 4), "num_clients is 4, but there are only 3"),
        (partitioners.balanced_sizes, (3, 0), "num_clients must be at least 1"),
        (
            partitioners.dirichlet_proportions,
            (3, 2, 0.0, 1),
            "alpha must be a finite number greater than 0, found 0.0",
        ),
        (
            partitioners.dirichlet_proportions,
            (3, 2, float("inf"), 1),
            "alpha must be a finite number greater than 0, found inf",
        ),
        (
            partitioners.partition_by_proportions,
            (np.zeros(3, int), np.ones((2, 1)), np.array([2, 2]), 0),
            "sizes ask for 4 examples, but there are 3",
        ),
        (
            partitioners.partition_by_proportions,
            (np.zeros(3, int), np.ones((2, 1)), np.array([2]), 0),
            "sizes are of 1 clients and proportions of 2",
        ),
        (
            partitioners.partition_by_proportions,
            (np.arange(3), np.ones((1, 2)), np.array([2]), 0),
            "labels are from 0 to 2, but proportions are of 2 classes",
        ),
        (
            partitioners.partition_by_proportions,
            (np.zeros(3, int), np.ones((1, 1)), np.array([2]), -1),
            "seed must be at least 0, found -1",
        ),
    ],
)
def test_raises_on_bad_arguments(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
