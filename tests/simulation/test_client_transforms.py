"""Functions that make a client's examples into what models take."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.simulation.fakes import labelled_clients
from tff_drift.simulation import ClientDatasets


def _add_noise(examples, generator):
    """A transform: half the label, and noise on the features in training."""
    features, labels = examples
    noise = 0 if generator is None else generator.normal(size=features.shape)
    return (features + noise).astype(np.float64), labels // 2


def test_a_transform_makes_what_models_take():
    clients = labelled_clients([6, 9])
    datasets = ClientDatasets.from_arrays(
        clients, batch_size=4, epochs=2, transform=_add_noise
    )

    assert datasets.element_spec == (
        tf.TensorSpec((None, 3), tf.float64),
        tf.TensorSpec((None,), tf.int32),
    )
    for features, labels in (
        datasets.examples("client_1"),
        *datasets.evaluation_batches("client_1", batch_size=9),
    ):
        # Outside training nothing is drawn.
        np.testing.assert_array_equal(features, clients["client_1"][0])
        np.testing.assert_array_equal(labels, clients["client_1"][1] // 2)
    batches = list(datasets.training_data("client_1", 3).as_numpy_iterator())
    assert [len(labels) for _, labels in batches] == [4, 4, 1] * 2
    labels = np.concatenate([labels for _, labels in batches]).reshape(2, 9)
    for epoch in labels:
        np.testing.assert_array_equal(np.sort(epoch), (1000 + np.arange(9)) // 2)


@pytest.mark.parametrize(
    "use",
    [
        lambda datasets: datasets.examples("client_0"),
        lambda datasets: datasets.element_spec,
        lambda datasets: datasets.training_data("client_0", 0),
    ],
)
def test_a_transform_that_writes_to_what_is_kept_is_an_error(use):
    def in_place(examples, generator):
        examples[0][:] += 1
        return examples

    clients = labelled_clients([6])
    before = clients["client_0"][0].copy()
    datasets = ClientDatasets.from_arrays(
        clients, batch_size=4, shuffle=False, transform=in_place
    )
    with pytest.raises(ValueError, match="read-only"):
        use(datasets)
    np.testing.assert_array_equal(clients["client_0"][0], before)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_transform_draws_by_seed_round_client_and_epoch(shuffle):
    def features(client_id, round_number, seed=0):
        datasets = ClientDatasets.from_arrays(
            {client_id: (np.zeros((8, 3), np.float32), np.arange(8))},
            batch_size=8,
            epochs=2,
            shuffle=shuffle,
            seed=seed,
            transform=_add_noise,
        )
        batches = datasets.training_data(client_id, round_number)
        return [features for features, _ in batches.as_numpy_iterator()]

    first = features("a", 0)
    np.testing.assert_array_equal(first, features("a", 0))
    draws = [*first, *features("a", 1), *features("b", 0), *features("a", 0, seed=1)]
    assert len({draw.tobytes() for draw in draws}) == 8


def test_a_transform_is_kept_and_can_be_replaced():
    datasets = ClientDatasets.from_arrays(
        labelled_clients([4]), batch_size=2, transform=_add_noise
    )

    for kept in (
        datasets.subset(["client_0"]),
        datasets.replace(epochs=3),
        datasets.replace(max_examples=3),
    ):
        assert kept.examples("client_0")[0].dtype == np.float64
    plain = datasets.replace(transform=None)
    assert plain.examples("client_0")[0].dtype == np.float32


def test_raises_on_a_transform_that_loses_examples():
    datasets = ClientDatasets.from_arrays(
        labelled_clients([4]),
        batch_size=2,
        transform=lambda examples, _: tuple(leaf[:1] for leaf in examples),
    )

    with pytest.raises(
        ValueError, match="transform made 1 examples of the 4 of client 'client_0'"
    ):
        datasets.examples("client_0")
    with pytest.raises(TypeError, match="transform must be a function"):
        ClientDatasets.from_arrays(labelled_clients([4]), batch_size=2, transform=3)


@pytest.mark.parametrize("make", ["training_data", "training_batches"])
def test_raises_on_a_transform_of_other_dtypes_in_training(make):
    def transform(examples, generator):
        features, labels = examples
        return features, labels if generator is None else labels + 0.9

    datasets = ClientDatasets.from_arrays(
        labelled_clients([4]), batch_size=2, transform=transform
    )
    assert datasets.element_spec[1].dtype == tf.int32
    with pytest.raises(
        ValueError,
        match=r"transform returned \(tf.float32, tf.float64\) of client 'client_0' in "
        r"training, and \(tf.float32, tf.int32\) outside\. .*astype",
    ):
        list(getattr(datasets, make)("client_0", 0))


def test_a_transform_may_crop_in_training_alone():
    def transform(examples, generator):
        features, labels = examples
        return features if generator is None else features[:, :2], labels

    datasets = ClientDatasets.from_arrays(
        labelled_clients([4]), batch_size=2, transform=transform
    )
    assert datasets.element_spec[0].shape.as_list() == [None, 3]
    batches = datasets.training_batches("client_0", 0)
    assert [features.shape for features, _ in batches] == [(2, 2), (2, 2)]


def test_batches_are_made_when_they_are_read_and_anew_each_time():
    draws = []

    def transform(examples, generator):
        if generator is not None:
            draws.append(generator.integers(1000))
        return examples

    datasets = ClientDatasets.from_arrays(
        {"ann": np.arange(5)}, batch_size=2, epochs=2, transform=transform
    )
    batches = datasets.training_batches("ann", 0)
    assert [len(batches), *batches.sizes] == [6, 2, 2, 1, 2, 2, 1]
    assert not draws
    first, again = list(batches), list(batches)
    assert draws[:2] == draws[2:]
    assert [x.tolist() for x in first] == [x.tolist() for x in again]
    assert sorted(np.concatenate(first[:3])) == [0, 1, 2, 3, 4]


def test_a_transform_may_return_a_list():
    datasets = ClientDatasets.from_arrays(
        labelled_clients([4]),
        batch_size=2,
        shuffle=False,
        transform=lambda examples, _: list(examples),
    )
    [first, _] = datasets.training_data("client_0", 0).as_numpy_iterator()
    assert [leaf.tolist() for leaf in first] == [[[0, 0, 0], [0, 0, 0]], [0, 1]]


def _fail(*_):
    raise KeyError("row 7")


def test_an_error_of_a_users_function_says_of_which_client():
    clients = labelled_clients([6, 9])
    data = tff.simulation.datasets.TestClientData(
        {name: {"x": x, "y": y} for name, (x, y) in clients.items()}
    )
    for datasets, done in (
        (ClientDatasets(["client_0", "client_1"], _fail, batch_size=2), "loaded"),
        (ClientDatasets.from_client_data(data, _fail, batch_size=2), "loaded"),
        (
            ClientDatasets.from_arrays(clients, batch_size=2, transform=_fail),
            "transformed",
        ),
    ):
        with pytest.raises(KeyError, match="row 7") as error:
            list(datasets.evaluation_batches("client_1", batch_size=2))
        (note,) = error.value.__notes__
        assert note == f"While the examples of client 'client_1' were {done}."


def test_a_preprocessing_of_datasets_is_sent_to_tff():
    data = tff.simulation.datasets.TestClientData({"a": {"x": [1.0], "y": [1]}})
    with pytest.raises(TypeError, match=r"uses batch of .*client_data\.preprocess\("):
        ClientDatasets.from_client_data(
            data, lambda dataset: dataset.batch(2), batch_size=2
        ).examples("a")
