"""Test clients are evaluated where their data is, to the same bits."""

import functools
import os
import pathlib
import threading

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import models
from tff_drift import execution, simulation
from tff_drift.simulation import ClientDatasets

SIZES = [10, 7, 23, 5, 6, 1, 14]


def client_arrays():
    return {
        f"client {k}": each
        for k, each in enumerate(models.client_arrays(SIZES, seed=3))
    }


def load(folder, client_id):
    """Loads a client, and says in which process."""
    (pathlib.Path(folder) / f"{os.getpid()} {client_id}").touch()
    return client_arrays()[client_id]


def in_ram():
    return ClientDatasets.from_arrays(client_arrays(), batch_size=4)


def weights():
    model = models.softmax_regression()
    random = np.random.default_rng(4)
    return tff.learning.models.ModelWeights(
        [
            random.normal(size=each.shape).astype(np.float32)
            for each in model.trainable_variables
        ],
        [],
    )


def evaluate(context, test, model=models.softmax_regression, **options):
    evaluation = simulation.build_evaluation(model, test, batch_size=4, **options)
    with tff.framework.get_context_stack().install(context):
        return evaluation(weights())


@pytest.fixture(scope="module")
def expected():
    return evaluate(execution.create_local_execution_context(), in_ram())


def test_clients_are_evaluated_at_the_actors(two, expected, tmp_path):
    test = ClientDatasets(
        list(client_arrays()), functools.partial(load, tmp_path), batch_size=4
    )
    evaluation = simulation.build_evaluation(
        models.softmax_regression, test, batch_size=4
    )
    # What this process has read, to tell these examples from others.
    for path in tmp_path.iterdir():
        path.unlink()
    with tff.framework.get_context_stack().install(two):
        assert evaluation(weights()) == expected
    assert expected["num_examples"] == sum(SIZES)
    read = {tuple(path.name.split(maxsplit=1)) for path in tmp_path.iterdir()}
    assert {pid for pid, _ in read} <= {str(each["pid"]) for each in two.actors}
    assert {client for _, client in read} == set(client_arrays())


def test_of_examples_in_ram_and_of_some_clients(two, expected):
    assert evaluate(two, in_ram()) == expected
    local = execution.create_local_execution_context()
    some = {"max_clients": 3, "accuracy_metric": None}
    assert evaluate(two, in_ram(), **some) == evaluate(local, in_ram(), **some)


def test_a_model_that_cannot_be_sent_is_evaluated_here(two, expected, caplog):
    lock = threading.Lock()

    def model():
        with lock:
            return models.softmax_regression()

    assert evaluate(two, in_ram(), model) == expected
    assert "in this process: cannot pickle '_thread.lock' object. Give" in caplog.text


def test_a_bad_label_is_named(two):
    arrays = client_arrays()
    arrays["client 3"][1][2] = 77
    with pytest.raises(ValueError, match=r"client 3.*example 2.*label 77"):
        evaluate(two, ClientDatasets.from_arrays(arrays, batch_size=4))


def test_weights_of_another_model_are_refused(two):
    evaluation = simulation.build_evaluation(models.softmax_regression, in_ram())
    other = tff.learning.models.ModelWeights([np.zeros(3, np.float32)], [])
    message = "model_weights has arrays of shapes"
    with (
        tff.framework.get_context_stack().install(two),
        pytest.raises(ValueError, match=message),
    ):
        evaluation(other)
