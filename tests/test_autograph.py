"""What users write is converted by AutoGraph, and what the library writes is not."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.autograph.impl import api

from tests import models, stateful, tiers
from tff_drift import algorithms, client_works, optimizers, simulation
from tff_drift.algorithms import composition, server_steps

CLIENTS = stateful.ragged_clients([7, 4, 9], seed=5)
INPUT_SPEC = stateful.LinearRegression().input_spec
# Every class below has an `if` over tensors, which cannot be traced as it is written.
# Each is held against a twin without, whose name says what the `if` comes to.


def halved_if_positive(tensor):
    """Python's control flow over tensors, in a function that others call."""
    total = tf.reduce_sum(tensor)
    if total > 0:
        return 0.5 * tensor
    return tensor


def halved_where_positive(tensor):
    return tf.where(tf.reduce_sum(tensor) > 0, 0.5, 1.0) * tensor


def both(build):
    """Returns what is built with an `if`, and with what it comes to."""
    return build(halved_if_positive), build(halved_where_positive)


def assert_alike(one, other, rounds=2):
    """Asserts that two processes train the same model and report the same."""
    drivers = [stateful.Driver(process, CLIENTS) for process in (one, other)]
    start = drivers[0].model
    for _ in range(rounds):
        for driver in drivers:
            driver.round(list(CLIENTS))
    tf.nest.map_structure(
        functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-7),
        *(driver.metrics["client_work"] for driver in drivers),
    )
    np.testing.assert_allclose(drivers[0].model, drivers[1].model, atol=1e-6)
    assert np.any(drivers[0].model != start)


class Model(stateful.LinearRegression):
    def __init__(self, halved):
        super().__init__()
        self._halved = halved

    def predict_on_batch(self, features, training=True):
        return self._halved(super().predict_on_batch(features, training))

    def report_local_unfinalized_metrics(self):
        report = super().report_local_unfinalized_metrics()
        report["loss"][0] = self._halved(report["loss"][0])
        return report


class Layer(tf.keras.layers.Layer):
    def __init__(self, halved):
        super().__init__()
        self._halved = halved

    def call(self, inputs):
        return self._halved(inputs)


class Loss(tf.keras.losses.Loss):
    def __init__(self, halved):
        super().__init__()
        self._halved = halved

    def call(self, y_true, y_pred):
        return self._halved(tf.square(y_true - y_pred))


class Metric(tf.keras.metrics.Mean):
    def __init__(self, halved=halved_where_positive):
        super().__init__("sizes")
        self._halved = halved

    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(self._halved(tf.abs(y_pred)))

    def result(self):
        return self._halved(super().result())


def keras_model(halved, layer=tf.keras.layers.Layer, loss=None, metrics=()):
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input([stateful.DIMENSION]),
            tf.keras.layers.Dense(1, kernel_initializer="ones"),
            layer(),
            tf.keras.layers.Reshape([]),
        ]
    )
    return tff.learning.models.from_keras_model(
        model,
        loss or tf.keras.losses.MeanSquaredError(),
        INPUT_SPEC,
        metrics=list(metrics),
    )


def functional_model(halved):
    @tf.function
    def predict(weights, features, training=True):
        (w,), _ = weights
        return halved(tf.linalg.matvec(features, w))

    def loss(output, label, sample_weight=None):
        return halved(tf.reduce_mean(tf.square(output - label)))

    return tff.learning.models.FunctionalModel(
        initial_weights=((np.zeros([stateful.DIMENSION], np.float32),), ()),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        input_spec=INPUT_SPEC,
    )


MODELS = {
    "variable model": lambda halved: lambda: Model(halved),
    "layer": lambda halved: lambda: keras_model(halved, lambda: Layer(halved)),
    "loss": lambda halved: lambda: keras_model(halved, loss=Loss(halved)),
    "metric": lambda halved: (
        lambda: keras_model(halved, metrics=[lambda: Metric(halved)])
    ),
    "functional model": functional_model,
}


@pytest.mark.no_smoke
@pytest.mark.conformance
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_models_and_what_they_are_made_of(model):
    assert_alike(
        *both(lambda halved: algorithms.build_fed_avg(model(halved), 0.05)),
    )


def test_the_model_that_is_evaluated():
    client = CLIENTS["client_0"]
    test = simulation.ClientDatasets.from_arrays(
        {
            "client": (
                client.features.astype(np.float32),
                client.targets.astype(np.float32),
            )
        },
        batch_size=3,
    )
    evaluations = both(
        lambda halved: simulation.build_evaluation(
            lambda: Model(halved), test, accuracy_metric=None
        )
    )
    weights = tff.learning.models.ModelWeights(
        [np.ones([2, 2], np.float32), np.ones([1], np.float32)], []
    )
    one, other = (evaluate(weights) for evaluate in evaluations)
    assert one == pytest.approx(other)
    assert one["loss"] > 0


class Optimizer(tff.learning.optimizers.Optimizer):
    """SGD with gradients of its own."""

    def __init__(self, halved):
        self._halved = halved

    def initialize(self, specs):
        return collections.OrderedDict(learning_rate=tf.constant(0.05))

    def next(self, state, weights, gradients):
        moved = tf.nest.map_structure(
            lambda w, g: w - state["learning_rate"] * self._halved(g),
            weights,
            gradients,
        )
        return state, moved

    def get_hparams(self, state):
        return collections.OrderedDict(learning_rate=state["learning_rate"])

    def set_hparams(self, state, hparams):
        return collections.OrderedDict(learning_rate=hparams["learning_rate"])


class ClientOptimizer(Optimizer):
    """One that clients give their rate within a round."""

    def set_hparams(self, state, hparams):
        rate = self._halved(hparams["learning_rate"])
        return collections.OrderedDict(learning_rate=rate)


OPTIMIZERS = {
    "own": Optimizer,
    "scheduled": lambda halved: optimizers.build_scheduled(
        Optimizer(halved), lambda round_number: 0.5
    ),
}


@pytest.mark.parametrize("optimizer", tiers.first(["own"], OPTIMIZERS))
def test_the_clients_and_the_servers_optimizer(optimizer):
    client_optimizer = ClientOptimizer if optimizer is Optimizer else optimizer
    # The loss has an `if` too: it is the first tier's only one of a model.
    assert_alike(
        *both(
            lambda halved: algorithms.build_fed_avg(
                MODELS["loss"](halved), client_optimizer(halved), optimizer(halved)
            )
        )
    )


@pytest.mark.conformance
def test_the_optimizer_whose_statistics_mime_applies():
    assert_alike(
        *both(
            lambda halved: algorithms.build_mime(
                stateful.LinearRegression, ClientOptimizer(halved)
            )
        )
    )


class Work(client_works.LocalSgd):
    """Local training in which everything that one may override is overridden."""

    def __init__(self, halved):
        super().__init__(0.05)
        self._halved = halved

    def correction(self, context):
        return 0.1 * self._halved(context.client_state["mine"])

    def proximal_strength(self, context):
        return self._halved(tf.constant(0.1))

    def minibatch_gradient(self, step):
        return tuple(self._halved(gradient) for gradient in step.gradients)

    def finish(self, context, state, trainable):
        update = super().finish(context, state, trainable)
        return tuple(self._halved(tensor) for tensor in update)

    def initial_client_state(self, zeros):
        return collections.OrderedDict(mine=zeros)

    def update_client_state(self, context, local):
        mine = self._halved(context.client_state["mine"] + local.num_steps)
        return client_works.ClientOutput(collections.OrderedDict(mine=mine))

    def idle_client_state(self, context):
        mine = self._halved(context.client_state["mine"] - 1.0)
        return collections.OrderedDict(mine=mine)


class Step(server_steps.ServerStep):
    """A server step with an `if`."""

    def __init__(self, halved):
        self._halved = halved

    def initial_state(self, trainable):
        return collections.OrderedDict(rounds=tf.constant(0.0))

    def next(self, state, trainable, pseudo_gradient, cohort):
        moved = tuple(
            x - self._halved(tensor)
            for x, tensor in zip(trainable, pseudo_gradient, strict=True)
        )
        return server_steps.ServerResult(
            collections.OrderedDict(rounds=state["rounds"] + 1.0),
            moved,
            collections.OrderedDict(rounds=self._halved(state["rounds"])),
        )

    def aggregate_model(self, state, trainable):
        return tuple(self._halved(tensor) for tensor in trainable)


@pytest.mark.parametrize(
    "evaluated_model", tiers.first(["average"], ["cloud", "average"])
)
def test_the_work_and_the_server_step_of_a_method(evaluated_model):
    assert_alike(
        *both(
            lambda halved: composition.compose(
                stateful.LinearRegression,
                Work(halved),
                Step(halved),
                num_clients=3,
                evaluated_model=evaluated_model,
            )
        )
    )


class WholeWork(client_works.ClientWork):
    """A client's half that is not made of steps: the mean of the targets."""

    def __init__(self, halved):
        self._halved = halved

    def initial_hparams(self):
        return collections.OrderedDict()

    def prepare(self, spec, loop_implementation):
        model = spec.build()

        def run(weights, examples, context):
            state = model.start(weights)
            total = tf.constant(0.0)
            for _, targets in examples:
                total += tf.reduce_sum(targets)
            return client_works.LocalOutcome(
                update=tuple(
                    self._halved(tf.ones_like(x)) * self._halved(total)
                    for x in context.initial_trainable
                ),
                trainable=context.initial_trainable,
                num_examples=tf.constant(1, tf.int64),
                num_steps=tf.constant(1),
                rejected=tf.constant(False),
                metrics=model.metrics(state, discard=tf.constant(False)),
            )

        return run


def test_work_that_is_not_made_of_steps():
    # The sums over all epochs.
    sums = [
        np.float32(client.epochs * client.targets.sum()) for client in CLIENTS.values()
    ]
    update = 0.5 * np.mean([total / 2 if total > 0 else total for total in sums])
    process = composition.compose(
        stateful.LinearRegression,
        WholeWork(halved_if_positive),
        1.0,
        client_weighting=stateful.UNIFORM,
    )
    driver = stateful.Driver(process, CLIENTS)
    driver.round(list(CLIENTS))
    np.testing.assert_allclose(driver.model, -update, rtol=1e-5)


@pytest.mark.conformance
@pytest.mark.parametrize("side", tiers.first(["client"], ["client", "server"]))
def test_schedules(side):
    def schedule(halved):
        return lambda round_number: halved(round_number + 1.0)

    assert_alike(
        *both(
            lambda halved: algorithms.build_fed_avg(
                stateful.LinearRegression,
                0.05,
                **{f"{side}_rate_schedule": schedule(halved)},
            )
        )
    )


@pytest.mark.parametrize(
    "loop", tiers.first([0], list(tff.learning.LoopImplementation))
)
def test_nothing_of_the_librarys_own_is_converted(loop, monkeypatch):
    converted = []
    convert = api._convert_actual

    def recorded(entity, context):
        converted.append(f"{entity.__module__}.{entity.__qualname__}")
        return convert(entity, context)

    monkeypatch.setattr(api, "_convert_actual", recorded)
    # Its cache knows no function of a model that nobody has built yet.
    algorithms.build_scaffold(
        lambda: keras_model(None, lambda: Layer(halved_if_positive)),
        0.1,
        num_clients=3,
        loop_implementation=loop,
    )
    algorithms.build_fed_adam(models.softmax_regression, 0.1, 0.1)
    theirs = [each for each in converted if each.startswith("tff_drift.")]
    # The loop over an iterator is written with Python's `for`.
    if loop == tff.learning.LoopImplementation.DATASET_ITERATOR:
        assert set(theirs) == {"tff_drift.client_works.local_work._iterate"}
    else:
        assert theirs == []
    assert any(each.endswith("Layer.call") for each in converted)
