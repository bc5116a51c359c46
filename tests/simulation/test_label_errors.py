"""A label that the model has no output for is named, in every context."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.paper.contexts import both_contexts
from tff_drift import algorithms, simulation
from tff_drift.simulation.data import label_errors


def _datasets(label=12, example=3, dtype=np.int32):
    labels = np.zeros(6, dtype)
    bad = labels.copy()
    bad[example] = label
    x = np.zeros((6, 3), np.float32)
    return simulation.ClientDatasets.from_arrays(
        {"ann": (x, labels), "bob": (x, bad)}, batch_size=2
    )


def _model(dtype=tf.int32):
    layer = tf.keras.layers.Dense(10, input_shape=(3,), kernel_initializer="zeros")
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential([layer]),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=(
            tf.TensorSpec((None, 3), tf.float32),
            tf.TensorSpec((None,), dtype),
        ),
    )


def _message(process, label):
    with pytest.raises(ValueError, match="found the label") as caught:
        simulation.run_training(process, _datasets(label), rounds=1, cohort_size=2)
    return str(caught.value)


def _expected(label):
    return (
        f"client 'bob', example 3: found the label {label}, but the model has outputs "
        "for the labels 0 to 9. Correct the label, or build the model with an output "
        "for each."
    )


@pytest.mark.no_smoke
def test_a_label_without_output_is_named():
    process = algorithms.build_fed_avg(_model, 0.1)
    for _ in both_contexts():
        assert _message(process, 12) == _expected(12)


@pytest.mark.conformance
@pytest.mark.parametrize("label", tiers.first([1], [12.0, 12.9, -1.0]))
def test_it_is_named_among_floats(label):
    # Of which Keras' loss takes the whole part.
    process = algorithms.build_fed_avg(lambda: _model(tf.float32), 0.1)
    data = _datasets(label, dtype=np.float32)
    for _ in both_contexts():
        with pytest.raises(ValueError, match="found the label") as caught:
            simulation.run_training(process, data, rounds=1, cohort_size=2)
        assert str(caught.value) == _expected(int(label))


@pytest.mark.conformance
def test_it_is_named_where_clients_keep_states_too():
    process = algorithms.build_scaffold(_model, 0.1, num_clients=2)

    assert _message(process, -1) == _expected(-1)


_TOKEN = "indices[0,1] = 12 is not in [0, 10)"
_LABEL = "label value of 12 which is outside the valid range of [0, 10)"


@pytest.mark.parametrize("names", [None, ("x", "y"), ("first", "second")])
def test_inputs_with_the_number_of_a_label_are_not_blamed(names):
    inputs, labels = np.array([[3, 12], [4, 5]]), np.array([1, 2])
    bad_inputs, bad_labels = np.zeros((2, 2), int), np.array([1, 12])
    clients = {"ann": (inputs, labels), "bob": (bad_inputs, bad_labels)}
    if names:
        clients = {
            each: dict(zip(names, clients[each], strict=True)) for each in clients
        }
    datasets = simulation.ClientDatasets.from_arrays(clients, batch_size=2)

    def named(complaint):
        naming = label_errors.naming_bad_labels(datasets, ["ann", "bob"])
        with pytest.raises(ValueError, match="client '") as caught, naming:
            raise ValueError(complaint)
        return str(caught.value).partition(": ")[0]

    # Names of their own do not say which are the labels.
    unknown = "client 'ann', example 0"
    expected = unknown if names == ("first", "second") else "client 'bob', example 1"
    assert named(_LABEL) == expected


def _explained(complaint, *clients):
    clients = dict(zip(("ann", "bob"), clients, strict=False))
    datasets = simulation.ClientDatasets.from_arrays(clients, batch_size=2)
    naming = label_errors.naming_bad_labels(datasets, list(clients))
    with pytest.raises(ValueError, match="client '") as caught, naming:
        raise ValueError(complaint)
    return str(caught.value)


_INPUTS, _LABELS = np.array([[1, 2], [4, 12]]), np.array([1, 2])


def test_an_embedding_is_blamed_for_what_inputs_alone_have():
    expected = (
        "client 'ann', example 1: found 12, but the model has an embedding for 0 to 9. "
        "Correct the example, or build the model with an embedding for each."
    )
    assert _explained(_TOKEN, (_INPUTS, _LABELS)) == expected
    by_other_names = {"first": _INPUTS, "second": _LABELS}
    assert _explained(_TOKEN, by_other_names) == expected


@pytest.mark.parametrize(
    ("clients", "places"),
    [
        # A loss may have a table of its own.
        (
            [(_INPUTS, np.array([1, 12]))],
            "x has 12 in client 'ann', example 1, and y has 12 in client 'ann', "
            "example 1",
        ),
        (
            [(_INPUTS, _LABELS), (np.zeros((2, 2), int), np.array([12, 0]))],
            "x has 12 in client 'ann', example 1, and y has 12 in client 'bob', "
            "example 0",
        ),
        (
            [{"x": np.zeros((2, 2)), "y": np.array([1, 12])}],
            "y has 12 in client 'ann', example 1",
        ),
    ],
)
def test_of_an_index_that_labels_have_too_all_places_are_named(clients, places):
    assert _explained(_TOKEN, *clients) == (
        "found the index 12, but a table of the model or of its loss has the rows 0 to "
        f"9: {places}. Correct the examples, or build the table with a row for each."
    )


@pytest.mark.parametrize(
    "error",
    [
        ValueError("something else"),
        # A label that is in no client's data.
        ValueError("label value of 99 which is outside the valid range of [0, 10)"),
    ],
)
def test_other_errors_are_left_alone(error):
    def run():
        with label_errors.naming_bad_labels(_datasets(), ["ann", "bob"]):
            raise error

    with pytest.raises(ValueError, match=r"else|99") as caught:
        run()
    assert caught.value is error
