"""FedShare: every client trains on the public data too."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, tiers
from tff_drift import algorithms, execution

MODEL = models.softmax_regression
OWN = models.client_arrays([4, 8])
PUBLIC = models.client_arrays([6], seed=5)[0]


@pytest.fixture(
    autouse=True,
    scope="module",
    params=["local", pytest.param("native", marks=pytest.mark.conformance)],
)
def module_context(request):
    if request.param == "native":
        request.getfixturevalue("worker")
    return getattr(execution, f"create_{request.param}_execution_context")()


@pytest.fixture(autouse=True)
def context(module_context, default_context):
    with tff.framework.get_context_stack().install(module_context):
        yield


def _shared(client):
    return models.datasets([client])[0]


def test_is_fed_avg_on_the_union():
    process = algorithms.build_fed_share(MODEL, 0.3, _shared(PUBLIC))
    state, metrics = models.train(process, models.datasets(OWN))
    # Batches of four: own examples and public ones do not meet in a batch.
    union = [
        tuple(
            np.concatenate([mine, shared])
            for mine, shared in zip(client, PUBLIC, strict=True)
        )
        for client in OWN
    ]
    fed_avg = models.fed_avg()
    expected, _ = models.train(fed_avg, models.datasets(union))
    models.assert_bit_equal(
        models.trainable(process, state), models.trainable(fed_avg, expected)
    )
    assert metrics[0]["client_work"]["train"]["num_examples"] == 4 + 8 + 2 * 6


def test_an_empty_share_is_fed_avg_bit_for_bit():
    empty = _shared(tuple(part[:0] for part in PUBLIC))
    results = []
    for process in (
        algorithms.build_fed_share(MODEL, 0.3, empty),
        models.fed_avg(),
    ):
        state, _ = models.train(process, models.datasets(OWN), rounds=2)
        results.append(models.trainable(process, state))
    models.assert_bit_equal(*results)


def test_knows_the_places_of_its_weights_as_fed_avg_does():
    """So that `initial_weights` may be a Keras model with other layers frozen."""
    process = algorithms.build_fed_share(MODEL, 0.3, _shared(PUBLIC))
    assert process.weight_places == models.fed_avg().weight_places == ((0, 1), ())


@pytest.fixture(scope="module")
def of_two_epochs():
    return algorithms.build_fed_share(MODEL, 0.3, _shared(PUBLIC), local_epochs=2)


def test_is_passed_in_every_epoch(of_two_epochs):
    """As `share` does it: two epochs of own and public examples, in this order."""
    own = [models.datasets([client])[0].repeat(2) for client in OWN]
    process = of_two_epochs
    state, metrics = models.train(process, own)
    union = [
        tuple(
            np.concatenate([mine, shared])
            for mine, shared in zip(client, PUBLIC, strict=True)
        )
        for client in OWN
    ]
    fed_avg = models.fed_avg()
    epochs = [dataset.repeat(2) for dataset in models.datasets(union)]
    expected, _ = models.train(fed_avg, epochs)
    models.assert_bit_equal(
        models.trainable(process, state), models.trainable(fed_avg, expected)
    )
    assert metrics[0]["client_work"]["train"]["num_examples"] == 2 * (4 + 8 + 2 * 6)


def test_a_client_without_examples_has_the_public_ones_in_every_epoch(of_two_epochs):
    empty = tuple(part[:0] for part in PUBLIC)
    _, metrics = models.train(of_two_epochs, models.datasets([empty]))
    assert metrics[0]["client_work"]["train"]["num_examples"] == 2 * 6


@pytest.mark.conformance
def test_a_dataset_that_does_not_hold_its_epochs(of_two_epochs):
    with pytest.raises(Exception, match="local_epochs is 2"):
        models.train(of_two_epochs, models.datasets(models.client_arrays([4 * 3])))


@pytest.mark.parametrize(
    "known", tiers.first(["known"], {"known": True, "unknown": False})
)
def test_endless_shared_data(known, monkeypatch):
    monkeypatch.setattr("tff_drift.client_works.batches._MOST_BYTES", 1_000_000)
    endless = _shared(PUBLIC).unbatch().repeat().batch(10_000)
    if not known:
        endless = endless.filter(lambda features, labels: True)
    with pytest.raises(ValueError, match=r"shared_data .* endless"):
        algorithms.build_fed_share(MODEL, 0.3, endless)


def test_no_epochs():
    with pytest.raises(ValueError, match="local_epochs"):
        algorithms.build_fed_share(MODEL, 0.3, _shared(PUBLIC), local_epochs=0)


@pytest.mark.parametrize(
    "shared",
    [PUBLIC, tf.data.Dataset.from_tensor_slices(PUBLIC)],
    ids=["arrays", "rows"],
)
def test_wrong_shared_data(shared):
    with pytest.raises(TypeError, match="shared_data must"):
        algorithms.build_fed_share(MODEL, 0.3, shared)
