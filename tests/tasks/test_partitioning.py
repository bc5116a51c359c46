"""Whose examples are whose, on arrays and on columns."""

import numpy as np
import pandas as pd
import pytest

import tasks

LABELS = np.repeat(np.arange(10), 60)


def classes_per_client(labels, owners):
    return pd.Series(labels).groupby(np.asarray(owners)).nunique()


@pytest.mark.parametrize(
    "skew",
    [{}, {"alpha": 0.3}, {"similarity": 0.1}, {"classes_per_client": 2}],
)
def test_every_example_has_an_owner_and_clients_are_alike_in_size(skew):
    owners = tasks.partition(LABELS, 20, seed=1, **skew)
    counts = pd.Series(owners).value_counts()
    assert sorted(counts.index) == [f"client_{index:02}" for index in range(20)]
    assert (counts == 30).all()
    np.testing.assert_array_equal(owners, tasks.partition(LABELS, 20, seed=1, **skew))
    assert (owners != tasks.partition(LABELS, 20, seed=2, **skew)).any()


def test_what_skews_do():
    def mean_classes(**skew):
        return classes_per_client(LABELS, tasks.partition(LABELS, 20, **skew)).mean()

    # Of thirty examples at random hardly a class is missing.
    assert mean_classes() > 9
    assert mean_classes(alpha=0.1) < mean_classes(alpha=1.0) - 1
    assert mean_classes(alpha=1e6) > 9
    assert mean_classes(similarity=0.0) <= 2
    # A shard of fifteen lies in one class, for 60 is four of them.
    assert mean_classes(classes_per_client=2) <= 2
    assert mean_classes(classes_per_client=1) == 1


def test_sizes_are_log_normal():
    owners = tasks.partition(np.zeros(100_000), 200, size_sigma=0.3)
    sizes = pd.Series(owners).value_counts()
    assert np.log(sizes).std() == pytest.approx(0.3, abs=0.05)


def test_a_column_keeps_its_index_and_makes_a_task():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=100), "y": rng.choice(["a", "b"], 100)})
    frame = frame.iloc[::-1]
    frame["client"] = tasks.partition(frame["y"], 4, alpha=0.5)
    again = tasks.partition(frame["y"].to_numpy(), 4, alpha=0.5)
    np.testing.assert_array_equal(frame["client"].to_numpy(), again)
    task = tasks.from_frame(frame, client_id="client", label="y")
    assert task.train.client_ids == ("client_0", "client_1", "client_2", "client_3")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"labels": [[1]]}, TypeError, r"labels must be .* found the shape \(1, 1\)"),
        ({"labels": []}, TypeError, r"found the shape \(0,\)"),
        (
            {"labels": np.array([1, "a"], object)},
            TypeError,
            "labels cannot be sorted",
        ),
        ({"num_clients": 700}, ValueError, "there are only 600 examples"),
        ({"num_clients": 1.5}, TypeError, "num_clients must be an integer"),
        ({"alpha": 0}, ValueError, "alpha must be a finite number greater than 0"),
        (
            {"alpha": 1, "similarity": 0.5},
            ValueError,
            "alpha and similarity are given. Give one",
        ),
        ({"similarity": 2}, ValueError, "similarity must be"),
        ({"classes_per_client": 0}, ValueError, "classes_per_client must be at least"),
        ({"classes_per_client": 61}, ValueError, "ask for 610 shards of 600 examples"),
        (
            {"classes_per_client": 2, "size_sigma": 0.3},
            ValueError,
            "size_sigma is 0.3, but shards are of one size",
        ),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        tasks.partition(**{"labels": LABELS, "num_clients": 10, **arguments})


@pytest.mark.parametrize("missing", [[0.0, np.nan], ["a", None]])
def test_a_missing_label_is_refused(missing):
    with pytest.raises(ValueError, match=r"found (nan|None) as that of example 1"):
        tasks.partition(np.array(missing * 3), 2)
