"""Yao et al. (2019), FedMeta: what the paper says must hold.

Federated Learning with Unbiased Gradient Aggregation and Controllable Meta Updating.
https://arxiv.org/abs/1910.08234
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests import models, stateful, tiers
from tff_drift import algorithms, optimizers, simulation

RATE = 0.3
META_RATE = 0.5
CLIENTS = models.client_arrays([10, 7, 3], seed=3)
DATA = models.datasets(CLIENTS)
# Seven examples, the last batch short.
META = models.client_arrays([7], seed=9)[0]
META_DATA = models.datasets([META])[0]


def with_meta(process, rate, model_fn=models.softmax_regression, **options):
    data = options.pop("meta_data", META_DATA)
    return algorithms.add_meta_step(process, model_fn, data, rate, **options)


@pytest.fixture(scope="module")
def base():
    return algorithms.build_fed_avg(models.softmax_regression, RATE)


@pytest.fixture(scope="module")
def wrapped(base):
    """The base with a meta step whose rate halves with every round."""
    schedule = optimizers.per_round_factor(0.5)
    return with_meta(base, META_RATE, meta_rate_schedule=schedule)


@pytest.mark.no_smoke
def test_a_round_is_the_base_and_a_step_on_the_meta_data(wrapped, each_context):
    process = wrapped
    state = process.initialize()
    model = models.trainable(process, state)
    for round_number in range(2):
        output = process.next(state, DATA)
        update = models.pseudo_gradient(model, CLIENTS, RATE)
        model = [w - d for w, d in zip(model, update, strict=True)]
        gradient = models.softmax_gradient(model, *META)
        rate = META_RATE * 0.5**round_number
        model = [w - rate * g for w, g in zip(model, gradient, strict=True)]
        state, meta = output.state, output.metrics["meta"]
        for actual, expected in zip(
            models.trainable(process, state), model, strict=True
        ):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
        assert meta["learning_rate"] == np.float32(rate)
        assert meta["train"]["num_examples"] == 7
        norm = np.sqrt(sum(np.sum(g**2) for g in gradient))
        np.testing.assert_allclose(meta["gradient_norm"], norm, rtol=1e-4)


def descend(model, batches, rate):
    """Gradient steps on minibatches in turn."""
    for features, labels in batches:
        gradient = models.softmax_gradient(model, features, labels)
        model = [w - rate * g for w, g in zip(model, gradient, strict=True)]
    return model


@pytest.mark.conformance
def test_epochs_without_minibatches_are_full_steps(base, each_context):
    process = with_meta(base, META_RATE, meta_epochs=3)
    state = process.initialize()
    start = models.trainable(process, state)
    output = process.next(state, DATA)
    after_round = [
        w - d
        for w, d in zip(
            start, models.pseudo_gradient(start, CLIENTS, RATE), strict=True
        )
    ]
    expected = descend(after_round, [META] * 3, META_RATE)
    found = models.trainable(process, output.state)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    norm = np.sqrt(
        sum(np.sum((x - y) ** 2) for x, y in zip(after_round, expected, strict=True))
    )
    meta = output.metrics["meta"]
    np.testing.assert_allclose(meta["gradient_norm"], norm / META_RATE, rtol=1e-4)
    assert meta["train"]["num_examples"] == 3 * 7


@pytest.mark.conformance
def test_minibatches_pass_over_all_examples_in_some_order_of_every_epoch():
    # Clients that stand still leave the meta steps alone.
    base = algorithms.build_fed_avg(models.softmax_regression, 1e-30)
    features, labels = META[0][:3], META[1][:3]
    data = models.datasets([(features, labels)])[0]
    process = with_meta(base, 2.0, meta_data=data, meta_epochs=2, meta_batch_size=2)
    orders = list(itertools.permutations(range(3)))

    def epoch(order):
        return [
            (features[list(part)], labels[list(part)])
            for part in (order[:2], order[2:])
        ]

    taken = []
    state = process.initialize()
    for _ in range(4):
        model = models.trainable(process, state)
        output = process.next(state, DATA)
        found = models.trainable(process, output.state)
        matching = [
            (one, other)
            for one in orders
            for other in orders
            # A pair in a minibatch has no order.
            if one[0] < one[1]
            and other[0] < other[1]
            and all(
                np.allclose(x, y, rtol=1e-5, atol=1e-6)
                for x, y in zip(
                    found, descend(model, epoch(one) + epoch(other), 2.0), strict=True
                )
            )
        ]
        assert len(matching) == 1
        taken.append(matching[0])
        state = output.state
    # Neither the epochs of a round nor the rounds have all one order.
    assert len({each for pair in taken for each in pair}) > 1
    assert len(set(taken)) > 1
    again, _ = models.train(process, DATA, rounds=4)
    models.assert_bit_equal(
        models.trainable(process, again), models.trainable(process, state)
    )


@pytest.mark.parametrize("name", ["meta_epochs", "meta_batch_size"])
def test_no_epochs_and_no_batches_are_refused(base, name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, found 0"):
        with_meta(base, 0.1, **{name: 0})
    with pytest.raises(TypeError, match=f"{name} must be an integer, found 1.5"):
        with_meta(base, 0.1, **{name: 1.5})


@pytest.mark.conformance
def test_hyperparameters_and_weights_can_be_set(base):
    process = with_meta(base, META_RATE)
    state = process.initialize()
    hparams = process.get_hparams(state)
    assert hparams["meta"]["learning_rate"] == np.float32(META_RATE)
    assert hparams["client_work"]["learning_rate"] == np.float32(RATE)
    hparams["meta"]["learning_rate"] = 0.0
    hparams["client_work"]["learning_rate"] = 0.0
    weights = process.get_model_weights(state)
    doubled = tf.nest.map_structure(lambda tensor: 2 * tensor + 1, weights)
    state = process.set_model_weights(process.set_hparams(state, hparams), doubled)
    after, _ = models.train(process, DATA, rounds=2, state=state)
    models.assert_bit_equal(
        models.trainable(process, after), [2 * t + 1 for t in weights.trainable]
    )


# Methods of each shape, without and with client state.
BASES = {
    "fed_avg": lambda: algorithms.build_fed_avg(stateful.LinearRegression, 0.1),
    "uga": lambda: algorithms.build_uga(
        stateful.LinearRegression, 0.1, 0.5, local_epochs=2
    ),
    "scaffold": lambda: algorithms.build_scaffold(
        stateful.LinearRegression, 0.1, num_clients=4
    ),
    "adabest": lambda: algorithms.build_adabest(
        stateful.LinearRegression, 0.1, mu=0.1, beta=0.5
    ),
}
QUADRATICS = stateful.ragged_clients([5, 6, 8, 3])
COHORTS = [["client_0", "client_2"], ["client_2", "client_1"]]


def quadratic_meta(rate, base):
    data = stateful.ragged_clients([4], epochs=1, seed=8)["client_0"].dataset()
    return with_meta(base, rate, stateful.LinearRegression, meta_data=data)


@pytest.mark.parametrize("name", tiers.first(["scaffold"], list(BASES)))
def test_without_a_rate_it_is_the_base(name, each_context):
    base = BASES[name]()
    wrapped = quadratic_meta(0.0, base)
    assert isinstance(wrapped, type(base))
    drivers = [stateful.Driver(p, QUADRATICS) for p in (base, wrapped)]
    for cohort in COHORTS:
        metrics = [driver.round(cohort) for driver in drivers]
        assert set(metrics[1]) - set(metrics[0]) == {"meta"}
    one, other = drivers
    models.assert_bit_equal([other.model], [one.model])
    models.assert_bit_equal([other.deployed_model()], [one.deployed_model()])
    for client, state in one.client_states.items():
        models.assert_bit_equal(
            tf.nest.flatten(other.client_states[client]), tf.nest.flatten(state)
        )


@pytest.mark.conformance
def test_the_driver_trains_a_wrapped_method_with_client_state():
    process = quadratic_meta(0.1, BASES["scaffold"]())
    clients = {
        name: (
            client.features.astype(np.float32),
            client.targets.astype(np.float32),
        )
        for name, client in QUADRATICS.items()
    }
    train = simulation.ClientDatasets.from_arrays(clients, batch_size=3)
    result = simulation.run_training(process, train, rounds=3, cohort_size=2)
    losses = [row["meta/train/loss"] for row in result.rows]
    assert len(losses) == 3
    assert losses[2] < losses[0]
    # Traffic is the base's: D_meta does not leave the server.
    assert simulation.model_traffic(process) == simulation.model_traffic(
        BASES["scaffold"]()
    )


@pytest.mark.conformance
def test_a_step_that_is_not_finite_is_left_out(base):
    broken = (np.full([2, 3], np.inf, np.float32), np.zeros([2], np.int32))
    process = with_meta(base, META_RATE, meta_data=models.datasets([broken])[0])
    state, metrics = models.train(process, DATA)
    expected, _ = models.train(base, DATA)
    models.assert_bit_equal(
        models.trainable(process, state), models.trainable(base, expected)
    )
    assert metrics[0]["meta"]["rejected"] == 1


def test_bad_meta_data_is_refused(base, monkeypatch):
    empty = (np.zeros([0, 3], np.float32), np.zeros([0], np.int32))
    with pytest.raises(ValueError, match="meta_data is endless"):
        with_meta(base, META_RATE, meta_data=META_DATA.repeat())
    endless = META_DATA.unbatch().repeat().batch(10_000).filter(lambda *_: True)
    assert endless.cardinality() == tf.data.UNKNOWN_CARDINALITY
    monkeypatch.setattr("tff_drift.client_works.batches._MOST_BYTES", 1_000_000)
    with pytest.raises(ValueError, match=r"meta_data holds more .*1 MB.*take\(n\)"):
        with_meta(base, META_RATE, meta_data=endless)
    with pytest.raises(ValueError, match="meta_data is empty"):
        with_meta(base, 0.1, meta_data=models.datasets([empty])[0])
    doubles = (META[0].astype(np.float64), META[1])
    with pytest.raises(TypeError, match=r"the model takes.*float64"):
        with_meta(base, 0.1, meta_data=models.datasets([doubles])[0])
    with pytest.raises(TypeError, match="type that the model takes"):
        with_meta(base, 0.1, meta_data=META_DATA.unbatch())
    with pytest.raises(TypeError, match=r"must be a tf\.data\.Dataset"):
        with_meta(base, 0.1, meta_data=META)


def test_other_bad_arguments_are_refused(base, wrapped):
    with pytest.raises(ValueError, match="meta_learning_rate must be"):
        with_meta(base, -0.1)
    with pytest.raises(TypeError, match="process must be a tff"):
        with_meta(models.softmax_regression, 0.1)
    with pytest.raises(TypeError, match="process has a meta step already"):
        with_meta(wrapped, 0.1)
    with pytest.raises(TypeError, match="process must be of the model of model_fn"):
        quadratic_meta(0.1, base)
