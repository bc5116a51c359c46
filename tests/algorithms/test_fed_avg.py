"""FedAvg against TFF's own, against NumPy, and at its edges."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, tiers
from tff_drift import aggregators, algorithms

CLIENTS = models.client_arrays([10, 7, 3])
DATA = models.datasets(CLIENTS)
build_sgdm = tff.learning.optimizers.build_sgdm


@pytest.mark.no_smoke
def test_equals_tff_fed_avg_bit_for_bit_with_metrics():
    ours = models.fed_avg(0.1)
    theirs = tff.learning.algorithms.build_weighted_fed_avg(
        models.softmax_regression, build_sgdm(0.1), build_sgdm(1.0)
    )
    our_state, our_metrics = models.train(ours, DATA, rounds=2)
    their_state, their_metrics = models.train(theirs, DATA, rounds=2)
    models.assert_bit_equal(
        models.trainable(ours, our_state), models.trainable(theirs, their_state)
    )
    for our_round, their_round in zip(our_metrics, their_metrics, strict=True):
        assert our_round["client_work"]["train"] == their_round["client_work"]["train"]


def test_a_seed_of_keras_draws_the_initial_weights_of_tff_builder():
    def model_fn():
        net = tf.keras.Sequential(
            [
                tf.keras.layers.Input([3]),
                tf.keras.layers.Dense(4, activation="relu"),
                tf.keras.layers.Dense(4),
            ]
        )
        return tff.learning.models.from_keras_model(
            net,
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            DATA[0].element_spec,
        )

    def drawn(build):
        tf.keras.utils.set_random_seed(1)
        process = build()
        return models.trainable(process, process.initialize())

    models.assert_bit_equal(
        drawn(lambda: algorithms.build_fed_avg(model_fn, 0.1)),
        drawn(
            lambda: tff.learning.algorithms.build_weighted_fed_avg(
                model_fn, build_sgdm(0.1), build_sgdm(1.0)
            )
        ),
    )


def test_one_round_equals_numpy():
    process = models.fed_avg(0.3)
    state = process.initialize()
    before = models.trainable(process, state)
    state, _ = models.train(process, DATA, state=state)
    delta = models.pseudo_gradient(before, CLIENTS, rate=0.3)
    for actual, x, d in zip(
        models.trainable(process, state), before, delta, strict=True
    ):
        np.testing.assert_allclose(actual, x - d, atol=1e-6)


@pytest.mark.conformance
def test_uniform_weighting_averages_the_clients_alike():
    process = algorithms.build_fed_avg(
        models.softmax_regression,
        0.5,
        client_weighting=tff.learning.ClientWeighting.UNIFORM,
    )
    state = process.initialize()
    before = models.trainable(process, state)
    state, _ = models.train(process, DATA, state=state)
    locals_ = [models.local_sgd(before, client, rate=0.5) for client in CLIENTS]
    for actual, *client_tensors in zip(
        models.trainable(process, state), *locals_, strict=True
    ):
        np.testing.assert_allclose(actual, np.mean(client_tensors, axis=0), atol=1e-6)


@pytest.mark.conformance
@pytest.mark.parametrize(
    "loop",
    tiers.first(
        [1],
        [
            tff.learning.LoopImplementation.DATASET_REDUCE,
            tff.learning.LoopImplementation.DATASET_ITERATOR,
        ],
    ),
)
def test_functional_model_and_both_loops_give_the_same_weights(loop):
    reference = models.fed_avg(0.1)
    expected = models.trainable(reference, models.train(reference, DATA, 2)[0])
    for model in (models.softmax_regression, models.functional_softmax_regression()):
        process = algorithms.build_fed_avg(model, 0.1, loop_implementation=loop)
        state, metrics = models.train(process, DATA, 2)
        for actual, wanted in zip(
            models.trainable(process, state), expected, strict=True
        ):
            np.testing.assert_allclose(actual, wanted, atol=1e-6)
        assert np.isfinite(metrics[-1]["client_work"]["train"]["loss"])


@pytest.mark.conformance
def test_accepts_any_tff_optimizer_on_both_sides():
    process = algorithms.build_fed_avg(
        models.softmax_regression,
        tff.learning.optimizers.build_adam(0.05),
        tff.learning.optimizers.build_rmsprop(0.01),
    )
    initial = process.initialize()
    state, _ = models.train(process, DATA, 2, state=initial)
    hparams = process.get_hparams(state)
    assert hparams["client_work"]["learning_rate"] == np.float32(0.05)
    assert hparams["finalizer"]["learning_rate"] == np.float32(0.01)
    moved = zip(
        models.trainable(process, state),
        models.trainable(process, initial),
        strict=True,
    )
    assert all(np.any(now != before) for now, before in moved)


def test_a_client_rate_that_is_set_is_used():
    process = models.fed_avg(0.1)
    other = models.fed_avg(0.3)
    state = process.initialize()
    hparams = process.get_hparams(state)
    hparams["client_work"]["learning_rate"] = 0.3
    state, metrics = models.train(
        process, DATA, state=process.set_hparams(state, hparams)
    )
    assert metrics[0]["client_work"]["learning_rate"] == np.float32(0.3)
    models.assert_bit_equal(
        models.trainable(process, state),
        models.trainable(other, models.train(other, DATA)[0]),
    )


def test_weight_decay_and_clipping_of_gradients_equal_numpy():
    decay, norm, rate = 0.3, 0.4, 0.5
    process = algorithms.build_fed_avg(
        models.softmax_regression,
        rate,
        client_weight_decay=decay,
        gradient_clipping_norm=norm,
    )
    state = process.initialize()
    before = models.trainable(process, state)
    state, _ = models.train(process, DATA[:1], state=state)
    features, labels = CLIENTS[0]
    local, lengths = [np.float64(tensor) for tensor in before], []
    for start in range(0, 10, 4):
        batch = slice(start, start + 4)
        gradient = models.softmax_gradient(local, features[batch], labels[batch])
        lengths.append(np.sqrt(sum(np.sum(np.square(g)) for g in gradient)))
        factor = min(1.0, norm / lengths[-1])
        local = [
            y - rate * (factor * g + decay * y)
            for y, g in zip(local, gradient, strict=True)
        ]
    assert max(lengths) > norm
    for actual, expected in zip(models.trainable(process, state), local, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.conformance
def test_client_schedule_multiplies_the_rate_round_by_round():
    process = algorithms.build_fed_avg(
        models.softmax_regression,
        0.4,
        client_rate_schedule=lambda round_number: 0.5**round_number,
    )
    state = process.initialize()
    for rate in (0.4, 0.2, 0.1):
        before = models.trainable(process, state)
        state, metrics = models.train(process, DATA, state=state)
        reported = metrics[0]["client_work"]["learning_rate"]
        np.testing.assert_allclose(reported, rate, rtol=1e-6)
        delta = models.pseudo_gradient(before, CLIENTS, rate)
        for actual, x, d in zip(
            models.trainable(process, state), before, delta, strict=True
        ):
            np.testing.assert_allclose(actual, x - d, atol=1e-6)
    assert process.get_hparams(state)["client_work"]["learning_rate"] == np.float32(0.4)


def test_server_schedule_multiplies_the_step():
    process = algorithms.build_fed_avg(
        models.softmax_regression,
        0.4,
        build_sgdm(2.0),
        server_rate_schedule=lambda round_number: 1.0 / (round_number + 2.0),
    )
    state = process.initialize()
    for rate in (1.0, 2 / 3):
        before = models.trainable(process, state)
        state, _ = models.train(process, DATA, state=state)
        delta = models.pseudo_gradient(before, CLIENTS, 0.4)
        for actual, x, d in zip(
            models.trainable(process, state), before, delta, strict=True
        ):
            np.testing.assert_allclose(actual, x - rate * d, atol=2e-6)
    assert process.get_hparams(state)["finalizer"]["learning_rate"] == np.float32(2.0)


def test_a_client_with_non_finite_data_is_left_out_and_counted():
    bad_features = np.full([3, models.NUM_FEATURES], np.nan, np.float32)
    bad = models.datasets([(bad_features, np.zeros(3, np.int32))])
    process = models.fed_avg(0.1)
    without, metrics_without = models.train(process, DATA)
    with_bad, metrics = models.train(process, DATA + bad)
    models.assert_bit_equal(
        models.trainable(process, with_bad), models.trainable(process, without)
    )
    assert metrics[0]["client_work"]["rejected_clients"] == 1
    assert metrics_without[0]["client_work"]["rejected_clients"] == 0
    assert (
        metrics[0]["client_work"]["train"] == metrics_without[0]["client_work"]["train"]
    )

    initial = process.initialize()
    all_bad, metrics = models.train(process, bad, state=initial)
    models.assert_bit_equal(
        models.trainable(process, all_bad), models.trainable(process, initial)
    )
    assert metrics[0]["client_work"]["rejected_clients"] == 1


EMPTY = models.datasets(models.client_arrays([0, 0]))


@pytest.mark.parametrize(
    "name", tiers.first(["fed_adam"], ["fed_avgm", "fed_adam", "fed_lamb"])
)
def test_a_round_without_weight_takes_no_step_by_momentum(name):
    builder = getattr(algorithms, f"build_{name}")
    process = builder(
        models.softmax_regression, 0.1, 0.1, server_rate_schedule=lambda t: 1 / (1 + t)
    )
    before, _ = models.train(process, DATA)
    after, metrics = models.train(process, EMPTY, state=before)
    assert metrics[0]["finalizer"]["update_non_finite"] == 0
    for found, expected in (
        (after.global_model_weights, before.global_model_weights),
        (after.finalizer["optimizer"], before.finalizer["optimizer"]),
        (after.finalizer["round_number"], 2),
    ):
        tf.nest.map_structure(np.testing.assert_array_equal, found, expected)


def test_with_uniform_weights_a_client_without_examples_does_not_count():
    process = algorithms.build_fed_avg(
        models.softmax_regression,
        0.1,
        client_weighting=tff.learning.ClientWeighting.UNIFORM,
    )
    with_empty, _ = models.train(process, [*DATA, *EMPTY])
    without, _ = models.train(process, DATA)
    models.assert_bit_equal(
        models.trainable(process, with_empty), models.trainable(process, without)
    )


@pytest.mark.conformance
def test_unreachable_clipping_threshold_equals_fed_avg_bit_for_bit():
    plain = models.fed_avg(0.1)
    clipped = algorithms.build_fed_avg(
        models.softmax_regression,
        0.1,
        model_aggregator=aggregators.adaptive_clipping_factory(
            initial_clipping_norm=1e6
        ),
    )
    models.assert_bit_equal(
        models.trainable(clipped, models.train(clipped, DATA, 2)[0]),
        models.trainable(plain, models.train(plain, DATA, 2)[0]),
    )


@pytest.mark.conformance
def test_unweighted_and_private_aggregators_are_accepted():
    private = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
        noise_multiplier=0.0, clients_per_round=3.0, clip=1e6
    )
    process = algorithms.build_fed_avg(
        models.softmax_regression, 0.5, model_aggregator=private
    )
    state = process.initialize()
    before = models.trainable(process, state)
    state, _ = models.train(process, DATA, state=state)
    locals_ = [models.local_sgd(before, client, rate=0.5) for client in CLIENTS]
    for actual, *client_tensors in zip(
        models.trainable(process, state), *locals_, strict=True
    ):
        np.testing.assert_allclose(actual, np.mean(client_tensors, axis=0), atol=1e-5)


def test_a_distributor_of_another_model_is_refused():
    other = tff.types.to_type(
        tff.learning.models.ModelWeights([tff.TensorType(np.float32, [3])], [])
    )
    distributor = tff.learning.templates.build_broadcast_process(other)
    with pytest.raises(TypeError, match=r"model_distributor .*found .*float32\[3\]"):
        algorithms.build_fed_avg(
            models.softmax_regression, 0.1, model_distributor=distributor
        )


def test_an_aggregator_of_integers_is_refused():
    of_integers = tff.aggregators.SecureSumFactory(1, 0)
    with pytest.raises(TypeError, match="model_aggregator cannot aggregate the type <"):
        algorithms.build_fed_avg(
            models.softmax_regression, 0.1, model_aggregator=of_integers
        )


def test_runs_under_tff_own_training_loop():
    process = models.fed_avg(0.1)
    state = tff.simulation.run_training_process(
        process, lambda round_number: DATA, total_rounds=2
    )
    models.assert_bit_equal(
        models.trainable(process, state),
        models.trainable(process, models.train(process, DATA, 2)[0]),
    )


def test_model_fn_is_built_few_times():
    calls = []

    def model_fn():
        calls.append(1)
        return models.softmax_regression()

    algorithms.build_fed_avg(model_fn, 0.1)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"client_optimizer_fn": -0.1}, ValueError, "client_optimizer_fn"),
        ({"client_optimizer_fn": float("nan")}, ValueError, "client_optimizer_fn"),
        ({"client_optimizer_fn": "sgd"}, TypeError, "client_optimizer_fn"),
        (
            {"client_optimizer_fn": None},
            TypeError,
            "client_optimizer_fn must be a lear",
        ),
        ({"client_optimizer_fn": lambda: None}, TypeError, "not a function that build"),
        (
            {"client_optimizer_fn": tf.keras.optimizers.SGD(0.1)},
            TypeError,
            "Keras are not supported",
        ),
        (
            {"client_optimizer_fn": tf.keras.optimizers.SGD},
            TypeError,
            "Keras are not supported",
        ),
        ({"server_optimizer_fn": None}, TypeError, "server_optimizer_fn must be a le"),
        ({"server_optimizer_fn": 0.0}, ValueError, "server_optimizer_fn must be"),
        ({"client_weight_decay": -1.0}, ValueError, "client_weight_decay must be"),
        ({"gradient_clipping_norm": 0}, ValueError, "gradient_clipping_norm must be"),
        ({"weight_decay": 0.1}, TypeError, "Did you mean client_weight_decay"),
        ({"model_fn": 3}, TypeError, "model_fn"),
        ({"model_fn": lambda: 3}, TypeError, "from_keras_model"),
        ({"client_weighting": "uniform"}, TypeError, "client_weighting"),
        ({"model_aggregator": 3}, TypeError, "model_aggregator"),
        ({"client_rate_schedule": 0.5}, TypeError, "client_rate_schedule"),
        ({"server_rate_schedule": 0.5}, TypeError, "server_rate_schedule"),
        ({"learning_rate": 1.0}, TypeError, "learning_rate"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    defaults = {"model_fn": models.softmax_regression, "client_optimizer_fn": 0.1}
    with pytest.raises(error, match=message):
        algorithms.build_fed_avg(**{**defaults, **arguments})


def test_a_built_keras_model_is_refused_with_the_remedy():
    with tf.Graph().as_default():
        model = models.keras_softmax_regression()
    with pytest.raises(TypeError, match=r"builds the model anew.*from_keras_model"):
        algorithms.build_fed_avg(model, 0.1)
