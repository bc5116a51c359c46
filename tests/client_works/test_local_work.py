"""Local work as init / step / finish, away from TFF and within it."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, tiers
from tff_drift import algorithms, client_works
from tff_drift.algorithms import compose

CLIENTS = models.client_arrays([9, 6], seed=5)
ITERATOR = tff.learning.LoopImplementation.DATASET_ITERATOR


def outcome(work, client, batch_size=4):
    """Runs one client's work eagerly, from fixed weights."""
    model = client_works.build_model_spec(models.softmax_regression).build()
    weights = tff.learning.models.ModelWeights(
        trainable=[tf.ones([3, 4]), tf.zeros([4])], non_trainable=[]
    )
    return client_works.run_local_work(
        work,
        model,
        weights,
        models.datasets([client], batch_size)[0],
        context=client_works.LocalContext(
            tuple(weights.trainable), work.initial_hparams(), tf.constant(0)
        ),
        loop_implementation=ITERATOR,
    )


def sgd(rate):
    return client_works.LocalSgd(tff.learning.optimizers.build_sgdm(rate))


def test_local_sgd_sends_the_pseudo_gradient():
    result = outcome(sgd(0.5), CLIENTS[0])
    start = [np.ones([3, 4]), np.zeros(4)]
    local = models.local_sgd(start, CLIENTS[0], 0.5)
    for actual, x, y in zip(result.update, start, local, strict=True):
        np.testing.assert_allclose(actual, x - y, atol=1e-6)
    assert int(result.num_examples) == 9
    assert not bool(result.rejected)


def test_full_gradient_weighs_batches_by_their_examples():
    result = outcome(client_works.FullGradient(), CLIENTS[0], batch_size=4)
    start = [np.ones([3, 4]), np.zeros(4)]
    for actual, g in zip(
        result.update, models.softmax_gradient(start, *CLIENTS[0]), strict=True
    ):
        np.testing.assert_allclose(actual, g, atol=1e-6)


@pytest.mark.parametrize("work", [sgd(0.5), client_works.FullGradient()])
def test_a_client_without_examples_sends_zeros(work):
    (empty,) = models.client_arrays([0])
    result = outcome(work, empty)
    assert all(np.all(tensor.numpy() == 0) for tensor in result.update)
    assert int(result.num_examples) == 0


class _WithRateIn(tff.learning.optimizers.Optimizer):
    """SGD whose state is whatever holds its rate."""

    def __init__(self, build_state):
        self._build_state = build_state

    def initialize(self, specs):
        del specs
        return self._build_state()

    def next(self, state, weights, gradients):
        rate = tf.reshape(tf.nest.flatten(state)[0], [])
        return state, tf.nest.map_structure(
            lambda w, g: w - rate * g, weights, gradients
        )


@pytest.mark.parametrize(
    "build_state",
    tiers.first(
        ["number", "list", "tuple"],
        {
            "tensor": lambda: tf.constant(0.3),
            "number": lambda: 0.3,
            "numpy": lambda: np.float32(0.3),
            "vector": lambda: tf.constant([0.3]),
            "list": lambda: [tf.constant(0.3)],
            "tuple": lambda: (tf.constant(0.3), tf.constant(1.0)),
        },
    ),
)
def test_a_client_optimizer_keeps_its_state_in_any_form(build_state):
    own = algorithms.build_fed_avg(models.softmax_regression, _WithRateIn(build_state))
    found, expected = (
        models.trainable(
            process, process.next(process.initialize(), models.datasets(CLIENTS)).state
        )
        for process in (own, models.fed_avg(0.3))
    )
    for actual, weights in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, weights, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_non_finite_update_is_rejected_with_its_metrics(bad):
    features, labels = CLIENTS[0]
    poisoned = features.copy()
    poisoned[-1, 0] = bad
    result = outcome(sgd(0.5), (poisoned, labels))
    assert bool(result.rejected)
    assert all(np.all(tensor.numpy() == 0) for tensor in result.update)
    for values in result.metrics.values():
        assert all(np.all(np.asarray(value) == 0) for value in values)


class _Corrected(client_works.LocalSgd):
    """Everything that may correct a gradient."""

    gradient_share = 0.6

    def proximal_strength(self, context):
        return 0.7

    def correction(self, context):
        return tf.linspace(-1.0, 1.0, 16)


class _InWords(_Corrected):
    """The same, whose steps are taken as the formula says."""

    def direction(self, context, correction, step):
        return super().direction(context, correction, step)


@pytest.mark.parametrize("decay", tiers.first([1], [0.0, 0.3]))
def test_steps_of_sgd_without_clipping_are_those_of_the_formula(decay):
    options = {"client_weight_decay": decay}
    together = outcome(_Corrected(0.5, **options), CLIENTS[1])
    in_words = outcome(_InWords(0.5, **options), CLIENTS[1])
    not_clipped = outcome(
        _Corrected(0.5, gradient_clipping_norm=1e6, **options), CLIENTS[1]
    )
    start = x = [np.ones([3, 4]), np.zeros(4)]
    correction = np.linspace(-1, 1, 16)
    fixed = [correction[:12].reshape(3, 4), correction[12:]]
    features, labels = CLIENTS[1]
    for first in range(0, len(labels), 4):
        batch = slice(first, first + 4)
        gradient = models.softmax_gradient(x, features[batch], labels[batch])
        x = [
            y - 0.5 * (0.6 * g + 0.7 * (y - y_0) + c + decay * y)
            for y, g, y_0, c in zip(x, gradient, start, fixed, strict=True)
        ]
    for result in (together, in_words, not_clipped):
        for update, before, after in zip(result.update, start, x, strict=True):
            np.testing.assert_allclose(update, before - after, atol=1e-6)


class _Proximal(client_works.LocalSgd):
    """A correction as drift control makes it: g + mu (y - x)."""

    def direction(self, context, correction, step):
        return tuple(
            g + 0.7 * (y - x)
            for g, y, x in zip(
                super().direction(context, correction, step),
                step.trainable,
                context.initial_trainable,
                strict=True,
            )
        )


@functools.cache
def composed():
    return compose(models.softmax_regression, sgd(0.5), 1.0)


def test_a_corrected_variant_overrides_one_method():
    work = _Proximal(tff.learning.optimizers.build_sgdm(0.5))
    process = compose(
        models.softmax_regression, work, tff.learning.optimizers.build_sgdm(1.0)
    )
    state = process.initialize()
    start = models.trainable(process, state)
    state, _ = models.train(process, models.datasets(CLIENTS[:1]), state=state)
    local = [np.asarray(tensor, np.float64) for tensor in start]
    features, labels = CLIENTS[0]
    for first in range(0, len(labels), 4):
        batch = slice(first, first + 4)
        gradient = models.softmax_gradient(local, features[batch], labels[batch])
        local = [
            y - 0.5 * (g + 0.7 * (y - x))
            for y, g, x in zip(local, gradient, start, strict=True)
        ]
    for actual, y in zip(models.trainable(process, state), local, strict=True):
        np.testing.assert_allclose(actual, y, atol=1e-6)


def test_a_round_has_the_documented_types():
    spec = client_works.build_model_spec(models.softmax_regression)
    process = composed()
    state = process.next.type_signature.result.state.member
    assert str(state.client_work) == (
        "<round_number=int32,hparams=<learning_rate=float32>>"
    )
    # As in TFF's own processes: plain SGD keeps its rate, the mean nothing.
    assert str(state.finalizer) == "<learning_rate=float32>"
    assert str(state.aggregator) == str(
        tff.aggregators.MeanFactory(no_nan_division=True)
        .create(spec.weights_type.trainable, tff.to_type(np.float32))
        .initialize.type_signature.result.member
    )
    measured = process.next.type_signature.result.metrics.member
    names = tff.structure.name_list_with_nones
    assert names(measured) == ["distributor", "client_work", "aggregator", "finalizer"]
    assert names(measured.client_work) == [
        "train",
        "rejected_clients",
        "learning_rate",
        "drift",
    ]
    assert names(measured.finalizer) == ["update_non_finite", "pseudo_gradient_norm"]


def test_a_process_tells_what_it_is_in_five_lines():
    lines = repr(composed()).splitlines()
    assert lines == [
        "ComposedLearningProcess",
        "  model:             16 numbers in 2 tensors to train, nothing besides",
        "  a client receives: the model",
        "  a client sends:    its update",
        "  a client keeps:    nothing",
        "  hyperparameters:   <client_work=<learning_rate=float32>,"
        "finalizer=<learning_rate=float32>>",
    ]


@pytest.mark.conformance
def test_batches_may_be_mappings():
    spec_of_mapping = collections.OrderedDict(
        x=models.INPUT_SPEC[0], y=models.INPUT_SPEC[1]
    )

    def model_fn():
        return tff.learning.models.from_keras_model(
            models.keras_softmax_regression(),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=spec_of_mapping,
        )

    features, labels = CLIENTS[0]
    data = tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(x=features, y=labels)
    ).batch(4)
    process = compose(model_fn, sgd(0.5), tff.learning.optimizers.build_sgdm(1.0))
    tuples = compose(
        models.softmax_regression, sgd(0.5), tff.learning.optimizers.build_sgdm(1.0)
    )
    models.assert_bit_equal(
        models.trainable(process, models.train(process, [data])[0]),
        models.trainable(tuples, models.train(tuples, models.datasets(CLIENTS[:1]))[0]),
    )


class _Halved(tf.keras.layers.Dense):
    """A layer that sets its own weight when it is called, as a norm of weights does."""

    def call(self, inputs, training=False):
        if training:
            self.kernel.assign(self.kernel / 2)
        return super().call(inputs)


_X = np.array([[1.0, 2.0], [3.0, -1.0]], np.float32)
_Y = np.array([[1.0], [2.0]], np.float32)


def _halved_model():
    layer = _Halved(1, use_bias=False, kernel_initializer="ones", input_shape=[2])
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential([layer]),
        loss=tf.keras.losses.MeanSquaredError(),
        input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])),
    )


def _after_a_round(process):
    """The weight after a round of one client with two batches, which are the same."""
    output = process.next(process.initialize(), [[(_X, _Y), (_X, _Y)]])
    return process.get_model_weights(output.state).trainable[0]


# In Mime the gradients at x are those of c.
@pytest.mark.parametrize("build", [algorithms.build_fed_avg, algorithms.build_mime])
def test_a_step_begins_where_a_layer_has_set_its_weight(build):
    w = np.ones([2, 1])
    for _ in range(2):
        w = w / 2
        w = w - 0.1 * _X.T @ (_X @ w - _Y)
    np.testing.assert_allclose(_after_a_round(build(_halved_model, 0.1)), w, rtol=1e-5)


@pytest.mark.parametrize(
    "build",
    # FedSGD's gradient is Mime's c.
    tiers.first(
        ["uga"],
        {
            "fed_sgd": lambda: algorithms.build_fed_sgd(_halved_model, 0.1),
            "uga": lambda: algorithms.build_uga(
                _halved_model, 0.1, 0.1, local_epochs=1
            ),
        },
    ),
)
def test_all_gradients_at_x_are_at_x_where_a_layer_sets_its_weight(build):
    w = np.ones([2, 1])
    w = w - 0.1 * _X.T @ (_X @ (w / 2) - _Y)
    np.testing.assert_allclose(_after_a_round(build()), w, rtol=1e-5)


def test_uga_refuses_steps_that_set_a_weight():
    with pytest.raises(ValueError, match=r"^model_fn: the model sets a trainable"):
        algorithms.build_uga(_halved_model, 0.1, 0.1, local_epochs=2)


class _Once(tf.keras.layers.Layer):
    """A layer that sets its weight by a scatter, in a branch, in a loop."""

    def build(self, shape):
        self.table = self.add_weight("table", [shape[-1]])

    def call(self, inputs):
        for step in tf.range(2):
            if step > 0:
                self.table.scatter_nd_update([[0]], [1.0])
        return inputs * self.table


_LAYERS = tf.keras.layers
_SETTING = {
    "assignment": ([_Halved(1)], True),
    "branch": ([_Once(), _LAYERS.Dense(1)], True),
    "normalization": ([_LAYERS.BatchNormalization(), _LAYERS.Dense(1)], False),
    "rows": ([_LAYERS.Embedding(3, 2), _LAYERS.Flatten(), _LAYERS.Dense(1)], False),
    "loop": (
        [_LAYERS.Reshape([2, 1]), _LAYERS.LSTM(2, dropout=0.5), _LAYERS.Dense(1)],
        False,
    ),
}


@pytest.mark.parametrize("name", list(_SETTING))
def test_what_sets_weights_is_known(name):
    layers, sets = _SETTING[name]

    def model_fn():
        copies = [type(each).from_config(each.get_config()) for each in layers]
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([tf.keras.layers.Input([2]), *copies]),
            loss=tf.keras.losses.MeanSquaredError(),
            input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])),
        )

    spec = client_works.build_model_spec(model_fn)
    with tf.Graph().as_default():
        model = spec.build()

        @tf.function
        def step(batch):
            return model.gradients((), batch, tf.zeros([2], tf.int64)).gradients

        step.get_concrete_function((tf.TensorSpec([3, 2]), tf.TensorSpec([3, 1])))
    assert model.sets_weights == sets


def _half_model():
    """A functional model in float16 whose gradients are -x, of the batch's mean x."""
    return tff.learning.models.FunctionalModel(
        initial_weights=((np.zeros(2, np.float16),), ()),
        predict_on_batch_fn=tf.function(
            lambda weights, x, training: tf.linalg.matvec(
                x, tf.cast(weights[0][0], tf.float32)
            )
        ),
        loss_fn=tf.function(
            lambda output, label, sample_weight=None: -tf.reduce_mean(output)
        ),
        input_spec=(
            tf.TensorSpec([None, 2], tf.float32),
            tf.TensorSpec([None], tf.float32),
        ),
    )


@pytest.mark.parametrize("method", ["fed_sgd", "uga"])
def test_sums_of_gradients_in_float16_do_not_overflow(method):
    # 3000 examples of -50 make -150000, beyond float16's 65504; of 2048 and more of 1
    # float16 holds every other.
    data = tf.data.Dataset.from_tensor_slices(
        (np.tile(np.float32([50, 1]), [3000, 1]), np.zeros(3000, np.float32))
    ).batch(1 if method == "fed_sgd" else 3000)
    uniform = {"client_weighting": tff.learning.ClientWeighting.UNIFORM}
    if method == "fed_sgd":
        process = algorithms.build_fed_sgd(_half_model(), 1.0, **uniform)
    else:
        process = algorithms.build_uga(
            _half_model(), 0.5, 1.0, local_epochs=1, **uniform
        )
    output = process.next(process.initialize(), [data])
    assert output.metrics["client_work"]["rejected_clients"] == 0
    (weights,) = process.get_model_weights(output.state).trainable
    np.testing.assert_array_equal(weights, np.float16([50, 1]))


_OTHER = {
    "half": (tf.bfloat16, "bfloat16"),
    "integers": (tf.int32, "int32"),
    "complex": (tf.complex64, "complex64"),
}


@pytest.mark.parametrize("name", list(_OTHER))
def test_weights_that_tff_does_not_average_are_refused(name):
    dtype, found = _OTHER[name]
    model = tff.learning.models.FunctionalModel(
        initial_weights=((np.zeros(2, dtype.as_numpy_dtype), np.float32([1])), ()),
        predict_on_batch_fn=tf.function(
            lambda weights, x, training: x * tf.cast(weights[0][0], tf.float32)
        ),
        loss_fn=tf.function(
            lambda output, label, sample_weight=None: tf.reduce_mean(output)
        ),
        input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None])),
    )
    message = f"^model_fn: the model's trainable .* found {found}. Give layers dtype="
    with pytest.raises(TypeError, match=message):
        algorithms.build_fed_avg(model, 0.1)


def test_so_are_layers_of_bfloat16():
    def model_fn():
        return models.from_keras(
            models.keras_softmax_regression(_LAYERS.Dense(3, dtype="bfloat16"))
        )

    with pytest.raises(TypeError, match=r"^model_fn: .* found bfloat16\. Give"):
        client_works.build_model_spec(model_fn)
