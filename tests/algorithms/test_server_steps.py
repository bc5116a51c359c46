"""The server's steps against NumPy, and where one method is another."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import methods, models, stateful, tiers
from tff_drift import algorithms, execution, optimizers

CLIENTS = models.client_arrays([10, 7, 3], seed=3)
DATA = models.datasets(CLIENTS)
RATE = 0.3  # Of the clients.

SERVER_RATES = {
    "fed_avgm": 0.5,
    "fed_adagrad": 0.1,
    "fed_adam": 0.1,
    "fed_yogi": 0.1,
    "normalized_fed_avg": 0.1,
    "fed_sgd": 0.5,
}


@pytest.fixture(scope="module")
def local():
    return execution.create_local_execution_context()


@pytest.fixture(autouse=True)
def local_context(local, default_context):
    """Runs the tests under it: `test_every_method` has the native one."""
    with tff.framework.get_context_stack().install(local):
        yield


@functools.cache
def build(name):
    return algorithms.methods()[name].build(
        models.softmax_regression,
        client_learning_rate=RATE,
        server_learning_rate=SERVER_RATES[name],
    )


# The server steps, element by element, as the papers print them.


def momentum(x, d, m, v):
    m = 0.9 * m + d
    return x - 0.5 * m, m, v


def adagrad(x, d, m, v):
    v = v + d**2
    return x - 0.1 * d / (np.sqrt(v) + 1e-3), m, v


def adam(x, d, m, v):
    m = 0.9 * m + 0.1 * d
    v = 0.99 * v + 0.01 * d**2
    return x - 0.1 * m / (np.sqrt(v) + 1e-3), m, v


def yogi(x, d, m, v):
    m = 0.9 * m + 0.1 * d
    v = v - 0.01 * d**2 * np.sign(v - d**2)
    return x - 0.1 * m / (np.sqrt(v) + 1e-3), m, v


# In the first tier momentum, and the one whose slots hang on a sign: the optimizers of
# the others are held against references of their own in `tests/optimizers`.
@pytest.mark.parametrize(
    ("name", "server_step"),
    tiers.first(
        [0, 3],
        [
            ("fed_avgm", momentum),
            ("fed_adagrad", adagrad),
            ("fed_adam", adam),
            ("fed_yogi", yogi),
        ],
    ),
)
def test_three_rounds_equal_numpy(name, server_step):
    process = build(name)
    state = process.initialize()
    x = [np.asarray(t, np.float64) for t in models.trainable(process, state)]
    slots = [(np.zeros_like(t), np.zeros_like(t)) for t in x]
    for _ in range(3):
        delta = models.pseudo_gradient(x, CLIENTS, RATE)
        stepped = [
            server_step(t, d, *s) for t, d, s in zip(x, delta, slots, strict=True)
        ]
        x = [new for new, _, _ in stepped]
        slots = [(m, v) for _, m, v in stepped]
    state, _ = models.train(process, DATA, rounds=3, state=state)
    for actual, expected in zip(models.trainable(process, state), x, strict=True):
        np.testing.assert_allclose(actual, expected, atol=3e-5)


@pytest.mark.conformance
def test_fed_avgm_without_momentum_is_fed_avg_bit_for_bit():
    fed_avgm = algorithms.build_fed_avgm(
        models.softmax_regression, RATE, 0.7, momentum=0.0
    )
    fed_avg = algorithms.build_fed_avg(
        models.softmax_regression, RATE, tff.learning.optimizers.build_sgdm(0.7)
    )
    models.assert_bit_equal(
        models.trainable(fed_avgm, models.train(fed_avgm, DATA, 3)[0]),
        models.trainable(fed_avg, models.train(fed_avg, DATA, 3)[0]),
    )


def test_normalized_fed_avg_moves_by_exactly_the_server_rate():
    process = build("normalized_fed_avg")
    state = process.initialize()
    for _ in range(3):
        before = models.trainable(process, state)
        state, _ = models.train(process, DATA, state=state)
        moved = [
            n - b for n, b in zip(models.trainable(process, state), before, strict=True)
        ]
        length = np.sqrt(sum(np.sum(np.square(t, dtype=np.float64)) for t in moved))
        np.testing.assert_allclose(length, 0.1, rtol=1e-5)


@pytest.mark.conformance
def test_normalized_fed_avg_does_not_move_on_a_zero_update():
    process = build("normalized_fed_avg")
    # Without examples there is no local step, so every pseudo-gradient is zero.
    empty = models.datasets(models.client_arrays([0, 0]))
    initial = process.initialize()
    state, _ = models.train(process, empty, state=initial)
    models.assert_bit_equal(
        models.trainable(process, state), models.trainable(process, initial)
    )


def test_fed_sgd_is_gradient_descent_on_all_data():
    process = build("fed_sgd")
    state = process.initialize()
    x = [np.asarray(t, np.float64) for t in models.trainable(process, state)]
    features, labels = (np.concatenate(part) for part in zip(*CLIENTS, strict=True))
    for _ in range(3):
        gradient = models.softmax_gradient(x, features, labels)
        x = [t - 0.5 * g for t, g in zip(x, gradient, strict=True)]
    state, _ = models.train(process, DATA, rounds=3, state=state)
    for actual, expected in zip(models.trainable(process, state), x, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.conformance
def test_fed_sgd_is_fed_avg_with_one_full_batch_step():
    full_batches = models.datasets(CLIENTS, batch_size=100)
    fed_sgd = build("fed_sgd")
    fed_avg = algorithms.build_fed_avg(
        models.softmax_regression, 1.0, tff.learning.optimizers.build_sgdm(0.5)
    )
    for actual, expected in zip(
        models.trainable(fed_sgd, models.train(fed_sgd, DATA, 2)[0]),
        models.trainable(fed_avg, models.train(fed_avg, full_batches, 2)[0]),
        strict=True,
    ):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


class HalfPrecisionRegression(stateful.LinearRegression):
    """The same model in float16."""

    def __init__(self):
        super().__init__()
        self._first = tf.Variable(tf.zeros([2, 2], tf.float16))
        self._last = tf.Variable(tf.zeros([1], tf.float16))

    @property
    def input_spec(self):
        return (
            tf.TensorSpec([None, stateful.DIMENSION], tf.float16),
            tf.TensorSpec([None], tf.float16),
        )

    def forward_pass(self, batch_input, training=True):
        features, targets = batch_input
        predictions = self.predict_on_batch(features, training)
        loss = tf.reduce_mean(tf.square(predictions - targets)) / 2
        return tff.learning.models.BatchOutput(loss, predictions, tf.shape(targets)[0])


@pytest.mark.parametrize(
    ("num_clients", "steps", "examples", "weighting"),
    # Σ w_i K_i is 80,000, and 66,000 in a large cohort of equal weights.
    tiers.first(
        [0], [(2, 40, 25, stateful.NUM_EXAMPLES), (66, 1000, 1, stateful.UNIFORM)]
    ),
)
def test_the_steps_of_a_cohort_are_no_half_precision_number(
    num_clients, steps, examples, weighting, native_context
):
    """More than float16's largest number, 65,504, when they are summed."""
    rate = 0.05
    process = algorithms.build_fed_cm(
        HalfPrecisionRegression, rate, alpha=0.5, client_weighting=weighting
    )
    client = stateful.axis_client(1.0, optimum=1.0, steps=steps)
    client = client._replace(
        features=np.repeat(client.features, examples, axis=0),
        targets=np.repeat(client.targets, examples),
        batch_size=examples,
    )
    clients = dict.fromkeys(map(str, range(num_clients)), client)
    # So many steps after one another take the worker least.
    with tff.framework.get_context_stack().install(native_context):
        driver = stateful.Driver(process, clients, dtype=np.float16)
        metrics = driver.round(list(clients))
    # y_i is close to 1, and m = Δ / (η K).
    np.testing.assert_allclose(
        metrics["finalizer"]["momentum_norm"],
        metrics["client_work"]["drift"] / (rate * steps),
        rtol=0.01,
    )
    assert metrics["client_work"]["drift"] > 0.5


@pytest.mark.conformance
def test_a_schedule_of_an_integer_rate():
    process = algorithms.build_fed_avg(
        stateful.LinearRegression,
        tff.learning.optimizers.build_sgdm(1),
        client_rate_schedule=optimizers.per_round_factor(0.5),
    )
    driver = stateful.Driver(process, {"a": stateful.axis_client(0.5, optimum=8.0)})
    # x - η g with g = (x - 8) / 2, at the rates 1 and 1/2.
    for expected in (4.0, 5.0):
        driver.round(["a"])
        np.testing.assert_allclose(driver.model[0], expected, rtol=1e-6)


def _linear_model(dtype):
    """Half the mean squared error of x'w, in a dtype."""
    return tff.learning.models.FunctionalModel(
        initial_weights=((np.zeros(2, dtype.as_numpy_dtype),), ()),
        predict_on_batch_fn=tf.function(
            lambda weights, x, training: tf.linalg.matvec(x, weights[0][0])
        ),
        loss_fn=tf.function(
            lambda output, label, sample_weight=None: (
                tf.reduce_mean(tf.square(output - label)) / 2
            )
        ),
        input_spec=(tf.TensorSpec([None, 2], dtype), tf.TensorSpec([None], dtype)),
    )


_SGDM = tff.learning.optimizers.build_sgdm(0.25, 0.5)
# Of one client: what has momentum, and whether it keeps it from round to round.
_WITH_MOMENTUM = {
    "server": (
        lambda model: algorithms.build_fed_avgm(model, 0.25, 1.0, momentum=0.5),
        True,
    ),
    "mime": (lambda model: algorithms.build_mime(model, _SGDM), True),
    "mime_lite": (lambda model: algorithms.build_mime_lite(model, _SGDM), True),
    "clients": (lambda model: algorithms.build_fed_avg(model, _SGDM), False),
    "fed_nova": (lambda model: algorithms.build_fed_nova(model, _SGDM), False),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    # Each dtype twice in the first tier. MimeLite's momentum is Mime's.
    tiers.first(
        [0, 3, 7, 8],
        list(itertools.product(_WITH_MOMENTUM, [tf.float16, tf.float64])),
    ),
)
def test_momentum_of_weights_of_another_dtype(name, dtype):
    builder, keeps = _WITH_MOMENTUM[name]
    x = np.array([[1.0, 2.0], [-1.0, 0.5], [0.5, 0.25]])
    y = np.array([1.0, -2.0, 0.5])
    process = builder(_linear_model(dtype))
    batch = (tf.constant(x, dtype), tf.constant(y, dtype))
    data = tf.data.Dataset.from_tensors(batch).repeat(1 if keeps else 2)
    state, _ = models.train(process, [data], rounds=2)

    w, m = np.zeros(2), np.zeros(2)
    for step in range(2 if keeps else 4):
        if step == 2:  # The next round.
            m = np.zeros(2)
        m = 0.5 * m + x.T @ (x @ w - y) / 3
        w = w - 0.25 * m
    (found,) = models.trainable(process, state)
    assert found.dtype == dtype.as_numpy_dtype
    np.testing.assert_allclose(found, w, rtol=1e-6 if dtype == tf.float64 else 4e-3)


@pytest.mark.parametrize("name", ["client_optimizer_fn", "server_optimizer_fn"])
def test_an_optimizer_of_float32_alone_is_refused_by_name(name):
    rates = {"client_optimizer_fn": 0.1, "server_optimizer_fn": 1.0}
    rates[name] = tff.learning.optimizers.build_rmsprop(0.1)
    with pytest.raises(TypeError, match=f"^{name} must take steps of the model's"):
        algorithms.build_fed_avg(_linear_model(tf.float64), **rates)


# Of nobody, and of clients of whom none counts.
_EMPTY = models.datasets(models.client_arrays([0, 0]))
_BROKEN = models.datasets(
    [(np.full([3, 3], np.nan, np.float32), np.zeros(3, np.int32))]
)


def _harmonic(round_number):
    return 1.0 / (2.0 + round_number)


_SGD = tff.learning.optimizers.build_sgdm(1.5)
_WITH_A_SCHEDULE = {
    "of_the_builder": (_SGD, _harmonic, "local"),
    "of_the_optimizer": (
        optimizers.build_scheduled(_SGD, _harmonic),
        None,
        "native_context",
    ),
}


@pytest.mark.parametrize(
    ("optimizer", "schedule", "context"),
    tiers.first(["of_the_builder"], _WITH_A_SCHEDULE),
)
def test_rounds_without_a_step_are_rounds_of_the_schedule(
    optimizer, schedule, context, request
):
    stack = tff.framework.get_context_stack()
    with stack.install(request.getfixturevalue(context)):
        _check_rounds_of_a_schedule(optimizer, schedule)


def _check_rounds_of_a_schedule(optimizer, schedule):
    process = algorithms.build_fed_avg(
        models.softmax_regression,
        RATE,
        optimizer,
        server_rate_schedule=schedule,
        # No client moves in the first round.
        client_rate_schedule=lambda r: tf.minimum(r, 1.0),
    )
    state = process.initialize()
    x = models.trainable(process, state)
    for number, data in enumerate([DATA, [], DATA, _EMPTY, _BROKEN, DATA]):
        if number in (2, 5):
            moves = models.pseudo_gradient(x, CLIENTS, RATE)
            rate = 1.5 / (2 + number)
            x = [t - rate * move for t, move in zip(x, moves, strict=True)]
        state, _ = models.train(process, data, state=state)
        for actual, expected in zip(models.trainable(process, state), x, strict=True):
            np.testing.assert_allclose(actual, expected, atol=2e-6)
    assert process.get_hparams(state)["finalizer"]["learning_rate"] == 1.5


# The step on data of the server's own has a schedule of its own.
_SCHEDULED = [
    name
    for name, row in algorithms.methods().items()
    if row.has_server_rate and "meta_data" not in row.needs
]


@pytest.mark.parametrize("name", tiers.first(["mime", "scaffold"], _SCHEDULED))
def test_a_round_without_a_step_is_a_round_of_every_methods_schedule(name):
    process = methods.build(
        algorithms.methods()[name],
        server_rate_schedule=lambda r: tf.where(r < 1, 1.0, 0.0),
    )
    driver = stateful.Driver(process, methods.CLIENTS)
    client = methods.CLIENTS["client_1"]
    broken = client._replace(targets=np.full_like(client.targets, np.nan))
    before = driver.model
    driver.round(["client_1"], {"client_1": broken})
    driver.round(list(methods.CLIENTS))
    assert driver.metrics["finalizer"]["pseudo_gradient_norm"] > 0
    np.testing.assert_array_equal(driver.model, before)


def test_an_average_of_models_leaves_the_schedule_as_it_is():
    process = algorithms.build_scaffold(
        stateful.LinearRegression,
        RATE,
        len(methods.CLIENTS),
        server_rate_schedule=lambda r: tf.where(r < 1, 1.0, 0.0),
        evaluated_model="average",
    )
    driver = stateful.Driver(process, methods.CLIENTS)
    before = driver.model
    driver.round([])
    driver.round(list(methods.CLIENTS))
    np.testing.assert_array_equal(driver.model, before)


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["mime", "mime_lite"])
def test_a_schedule_of_the_base_optimizer_counts_rounds(name):
    base = optimizers.build_scheduled(
        tff.learning.optimizers.build_sgdm(0.1), lambda r: tf.where(r < 1, 1.0, 0.0)
    )
    builder = getattr(algorithms, f"build_{name}")
    driver = stateful.Driver(builder(stateful.LinearRegression, base), methods.CLIENTS)
    before = driver.model
    driver.round([])
    driver.round(list(methods.CLIENTS))
    np.testing.assert_array_equal(driver.model, before)


def test_a_run_with_momentum_is_known_by_the_class_of_tffs():
    """So it was when TFF's own took the steps: what was saved then goes on."""
    process = build("fed_avgm")
    assert process.settings["server_step"]["optimizer"] == "_SGD"
