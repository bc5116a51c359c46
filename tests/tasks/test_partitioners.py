import math
import time

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
    alpha=st.floats(1e-300, 1e6),
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


@pytest.mark.parametrize("alpha", [1e-300, 1e-12, 1e-5, 9.9e-4])
def test_the_smallest_alphas_take_no_time_and_choose_classes_evenly(alpha):
    start = time.process_time()
    proportions = partitioners.dirichlet_proportions(20_000, 5, alpha, 0)
    assert time.process_time() - start < 5
    np.testing.assert_allclose(proportions.sum(axis=1), 1)
    # The chance of two classes with a share of a thousandth is about α · 5 · log 1000.
    several = (proportions > 1e-3).sum(axis=1) > 1
    assert several.mean() <= 2 * alpha * 5 * math.log(1000)
    counts = np.bincount(proportions.argmax(axis=1), minlength=5)
    # Five standard deviations of a binomial law.
    assert np.abs(counts - 4000).max() < 5 * math.sqrt(20_000 * 0.2 * 0.8)


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


@settings(max_examples=50, deadline=None)
@given(
    num_clients=st.integers(1, 40),
    extra=st.integers(0, 2000),
    sigma=st.floats(0, 30) | st.just(10**30),
    seed=st.integers(0, 2**40),
)
def test_log_normal_sizes_use_every_example_and_leave_no_client_empty(
    num_clients, extra, sigma, seed
):
    sizes = partitioners.log_normal_sizes(num_clients + extra, num_clients, sigma, seed)

    assert sizes.shape == (num_clients,)
    assert sizes.sum() == num_clients + extra
    assert sizes.min() >= 1
    if sigma == 0:
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.0])
def test_log_sizes_have_the_standard_deviation_sigma_and_are_normal(sigma):
    # So many examples that neither rounding nor the one of every client shows.
    sizes = partitioners.log_normal_sizes(10**9, 4000, sigma, seed=2)
    deviations = np.log(sizes) - np.log(sizes).mean()

    # Five standard errors of a normal sample's standard deviation, and the
    # moments of its shape: skewness 0 and kurtosis 3.
    np.testing.assert_allclose(deviations.std(), sigma, rtol=5 / np.sqrt(2 * 4000))
    standard = deviations / deviations.std()
    assert abs(np.mean(standard**3)) < 5 * np.sqrt(6 / 4000)
    assert abs(np.mean(standard**4) - 3) < 5 * np.sqrt(24 / 4000)


def test_log_normal_sizes_are_a_pure_function_of_their_seed():
    draws = [partitioners.log_normal_sizes(10**4, 50, 0.3, seed) for seed in (7, 7, 8)]

    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=10),
    spare=st.integers(0, 30),
    seed=st.integers(0, 2**40),
)
def test_iid_deals_every_example_at_most_once(sizes, spare, seed):
    num_examples = max(sum(sizes) + spare, 1)

    shares = partitioners.partition_iid(num_examples, np.array(sizes), seed)

    assert [len(share) for share in shares] == sizes
    dealt = np.concatenate(shares).tolist()
    assert len(set(dealt)) == sum(sizes)
    assert set(dealt) <= set(range(num_examples))


def test_iid_follows_the_seed_and_mixes_the_labels():
    sizes = np.full(20, 100)
    shares = partitioners.partition_iid(2000, sizes, seed=1)
    np.testing.assert_array_equal(shares, partitioners.partition_iid(2000, sizes, 1))
    assert not np.array_equal(shares, partitioners.partition_iid(2000, sizes, 2))

    # Examples sorted by label: a split in order would give clients one label each.
    labels = np.repeat(np.arange(10), 200)
    counts = np.array([np.bincount(labels[share], minlength=10) for share in shares])
    expected = 100 / 10
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    # 19 x 9 degrees of freedom: mean 171, standard deviation sqrt(2 x 171).
    assert abs(chi_squared - 171) < 5 * np.sqrt(2 * 171)


def test_class_quotas_are_exact_when_every_example_is_dealt():
    """Neither skew nor sizes make a class larger than it is."""
    rng = np.random.default_rng(0)
    labels = rng.choice(7, 1000, p=[0.4, 0.3, 0.1, 0.1, 0.05, 0.04, 0.01])
    for alpha in (0.03, 0.3, 100.0):
        for sizes in (
            partitioners.balanced_sizes(1000, 11),
            partitioners.log_normal_sizes(1000, 11, 0.3, seed=3),
        ):
            proportions = partitioners.dirichlet_proportions(11, 7, alpha, seed=3)
            shares = partitioners.partition_by_proportions(
                labels, proportions, sizes, seed=3
            )
            dealt = np.concatenate(shares)
            assert [len(share) for share in shares] == sizes.tolist()
            np.testing.assert_array_equal(np.bincount(dealt), np.ones(1000))


@pytest.mark.parametrize("alpha", [0.03, 0.3, 10.0])
def test_proportions_have_the_moments_of_the_dirichlet_law(alpha):
    classes = 10
    drawn = partitioners.dirichlet_proportions(20_000, classes, alpha, seed=5)

    # Mean 1/K and variance (K - 1) / (K² (K α + 1)), of 20,000 clients.
    variance = (classes - 1) / (classes**2 * (classes * alpha + 1))
    np.testing.assert_allclose(
        drawn.mean(axis=0), 1 / classes, atol=5 * np.sqrt(variance / 20_000)
    )
    # The fourth moment bounds the error of the variance; deviations are below 1.
    np.testing.assert_allclose(
        drawn.var(axis=0), variance, atol=5 * np.sqrt(variance / 20_000)
    )


def test_label_counts_follow_the_proportions_while_classes_last():
    labels = np.arange(100_000) % 10
    proportions = partitioners.dirichlet_proportions(20, 10, 0.3, seed=4)

    shares = partitioners.partition_by_proportions(
        labels, proportions, np.full(20, 1000), seed=4
    )

    counts = np.array([np.bincount(labels[share], minlength=10) for share in shares])
    error = 5 * np.sqrt(1000 * proportions * (1 - proportions)) + 1
    assert (np.abs(counts - 1000 * proportions) <= error).all()


@settings(max_examples=50, deadline=None)
@given(
    num_clients=st.integers(1, 60),
    fraction=st.floats(0, 0.99),
    seed=st.integers(0, 2**40),
)
def test_held_out_clients_are_a_part_of_all_clients(num_clients, fraction, seed):
    client_ids = [f"client_{k}" for k in range(num_clients)]
    num_held_out = int(fraction * num_clients)

    kept, held_out = partitioners.hold_out_clients(client_ids, num_held_out, seed)

    assert len(held_out) == num_held_out
    assert sorted(kept + held_out, key=client_ids.index) == client_ids
    for part in (kept, held_out):
        assert part == sorted(part, key=client_ids.index)
    assert partitioners.hold_out_clients(client_ids, num_held_out, seed) == (
        kept,
        held_out,
    )


def test_every_client_is_held_out_equally_often():
    client_ids = list("abcdefghij")
    counts = dict.fromkeys(client_ids, 0)
    for seed in range(400):
        for client_id in partitioners.hold_out_clients(client_ids, 2, seed)[1]:
            counts[client_id] += 1

    # 400 draws with probability 1/5: mean 80, standard deviation 8.
    assert min(counts.values()) > 80 - 5 * 8
    assert max(counts.values()) < 80 + 5 * 8


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (partitioners.balanced_sizes, (3, 4), "num_clients is 4, but there are only 3"),
        (partitioners.balanced_sizes, (3, 0), "num_clients must be at least 1"),
        (
            partitioners.log_normal_sizes,
            (3, 4, 0.3, 0),
            "num_clients is 4, but there are only 3",
        ),
        (
            partitioners.log_normal_sizes,
            (5, 4, -0.3, 0),
            "sigma must be a finite number of at least 0, found -0.3",
        ),
        (
            partitioners.partition_iid,
            (3, np.array([2, 2]), 0),
            "sizes ask for 4 examples, but there are 3",
        ),
        (
            partitioners.hold_out_clients,
            (["a", "b"], 2, 0),
            "num_held_out is 2, but there are only 2 clients",
        ),
        (
            partitioners.hold_out_clients,
            (["a", "b", "a"], 1, 0),
            "client_ids has 'a' more than once, which would be trained on and held out",
        ),
        (
            partitioners.hold_out_clients,
            (["a", "b"], -1, 0),
            "num_held_out must be at least 0, found -1",
        ),
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


def test_ids_of_clients_that_are_held_out_are_strings():
    with pytest.raises(TypeError, match="client_ids has 2, and a client's id is a str"):
        partitioners.hold_out_clients(["a", 2], 1, 0)


def test_without_similarity_clients_take_their_share_in_the_order_of_labels():
    labels = np.array([1, 0, 2, 1, 0, 2, 2, 0])

    shares = partitioners.partition_by_similarity(labels, 0.0, np.array([2, 3, 3]), 0)

    assert [labels[share].tolist() for share in shares] == [
        [0, 0],
        [0, 1, 1],
        [2, 2, 2],
    ]


def test_full_similarity_is_iid():
    labels, sizes = np.arange(12) % 3, np.array([5, 1, 4])

    shares = partitioners.partition_by_similarity(labels, 1.0, sizes, seed=3)

    expected = partitioners.partition_iid(12, sizes, seed=3)
    assert [share.tolist() for share in shares] == [each.tolist() for each in expected]


def test_a_share_is_random_and_the_rest_sorted():
    labels = np.repeat([1, 0], 50)
    order = partitioners.partition_iid(100, np.array([100]), seed=1)[0]
    # Of 50 and 40 examples, a tenth: 5 and 4. What is left of the 90 is sorted.
    rest = sorted(labels[order[9:90]])

    first, second = partitioners.partition_by_similarity(
        labels, 0.1, np.array([50, 40]), seed=1
    )

    assert first[:5].tolist() == order[:5].tolist()
    assert second[:4].tolist() == order[5:9].tolist()
    assert labels[first[5:]].tolist() == rest[:45]
    assert labels[second[4:]].tolist() == rest[45:]
    assert len({*first.tolist(), *second.tolist()}) == 90
