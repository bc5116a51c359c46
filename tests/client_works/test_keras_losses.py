"""A client's step of a Keras 2 model is Keras' own: with masks and added losses."""

import functools
from contextlib import nullcontext

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.client_works import against_keras
from tff_drift import algorithms, models, simulation
from tff_drift.models.keras2 import as_in_fit, check_batches

L = tf.keras.layers
TOKENS = np.array([[1, 2, 0, 0], [3, 0, 0, 0]])
NEXT = np.array([[1, 2, 3, 3], [2, 3, 3, 3]])
# Two steps of the first sequence and one of the second are not masked.
STEPS = np.ones((2, 4, 2), np.float32)
STEPS[0, 2:] = STEPS[1, 1:] = 0
FEATURES = np.arange(10, dtype=np.float32).reshape(2, 5) / 10


class Penalty(L.Layer):
    def call(self, inputs):
        # AutoGraph has to convert what users write.
        if tf.reduce_sum(inputs) > -1e9:
            inputs = 2.0 * inputs
        self.add_loss(0.1 * tf.reduce_mean(inputs**2))
        return inputs


def embedded():
    return tf.keras.Sequential(
        [L.Embedding(6, 3, mask_zero=True, input_shape=(4,)), L.Dense(4)]
    )


def masked():
    rnn = L.SimpleRNN(3, return_sequences=True)
    return tf.keras.Sequential([L.Masking(input_shape=(4, 2)), rnn, L.Dense(4)])


def regularized():
    hidden = L.Dense(3, input_shape=[5], activity_regularizer="l2")
    return tf.keras.Sequential([hidden, L.Dense(5)])


def penalized():
    return tf.keras.Sequential([L.Dense(3, input_shape=[5]), Penalty(), L.Dense(5)])


def with_loss_of_the_model():
    inputs = tf.keras.Input([5])
    hidden = L.Dense(3)(inputs)
    keras_model = tf.keras.Model(inputs, L.Dense(5)(hidden))
    keras_model.add_loss(0.1 * tf.reduce_mean(hidden**2))
    return keras_model


MODELS = {
    embedded: (TOKENS, NEXT),
    masked: (STEPS, NEXT),
    regularized: (FEATURES, FEATURES),
    penalized: (FEATURES, FEATURES),
    with_loss_of_the_model: (FEATURES, FEATURES),
}


def loss_of(batch):
    if batch[1] is NEXT:
        return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return tf.keras.losses.MeanSquaredError()


@pytest.mark.no_smoke
@pytest.mark.parametrize("context", tiers.first(["local"], ["local", "native"]))
@pytest.mark.parametrize("build", tiers.first([1], MODELS.keys()))
def test_a_step_of_a_client_is_a_step_of_keras(native_context, build, context):
    batch = MODELS[build]
    keras_model = build()
    begin = keras_model.get_weights()
    keras_model.compile(tf.keras.optimizers.legacy.SGD(0.5), loss_of(batch))
    keras_model.train_on_batch(*batch)
    expected = keras_model.get_weights()

    def model_fn():
        spec = against_keras.spec_of(batch)
        return tff.learning.models.from_keras_model(build(), loss_of(batch), spec)

    installed = against_keras.local() if context == "local" else nullcontext()
    with installed:
        trained, metrics = against_keras.step(model_fn, begin, batch)
    against_keras.assert_alike(trained, expected)
    assert not np.allclose(trained[-1], begin[-1], atol=1e-4)
    assert metrics["num_examples"] == 2


@pytest.mark.no_smoke
def test_padding_is_in_no_metric():
    """As in `fit`: 3 steps of 8 count, whose labels are 1, 2 and 2."""
    keras_model = embedded()
    begin = keras_model.get_weights()
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy
    keras_model.compile("sgd", loss_of((TOKENS, NEXT)), [accuracy()])
    expected = keras_model.evaluate(TOKENS, NEXT, verbose=0, return_dict=True)
    logits = keras_model.predict(TOKENS, verbose=0)
    shown = [logits[0, 0], logits[0, 1], logits[1, 0]]
    by_hand = [
        np.log(np.exp(row).sum()) - row[label]
        for row, label in zip(shown, [1, 2, 2], strict=True)
    ]
    np.testing.assert_allclose(expected["loss"], np.mean(by_hand), rtol=1e-6)

    def model_fn():
        return tff.learning.models.from_keras_model(
            embedded(),
            loss_of((TOKENS, NEXT)),
            against_keras.spec_of((TOKENS, NEXT)),
            metrics=[accuracy()],
        )

    with against_keras.local():
        _, metrics = against_keras.step(model_fn, begin, (TOKENS, NEXT))
    test = simulation.ClientDatasets.from_arrays({"a": (TOKENS, NEXT)}, batch_size=2)
    evaluate = simulation.build_evaluation(model_fn, test, accuracy_metric=None)
    evaluated = evaluate(tff.learning.models.ModelWeights(begin, []))
    for found in (metrics, evaluated):
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-6)
        assert found["num_examples"] == 2


class Tripled(tf.keras.metrics.Mean):
    """A mean of Keras with a variable more, and a value of its own."""

    def __init__(self, name="tripled", dtype=None):
        super().__init__(name, dtype)
        self.factor = self.add_weight("factor")

    def result(self):
        return self.factor * super().result()


class Noted(tf.keras.metrics.Mean):
    """A mean of Keras with a variable more."""

    def __init__(self, name="noted", dtype=None):
        super().__init__(name, dtype)
        self.note = self.add_weight("note")


METRICS = (
    tf.keras.metrics.Sum,
    tf.keras.metrics.SparseCategoricalAccuracy,
    tf.keras.metrics.RootMeanSquaredError,
    functools.partial(tf.keras.metrics.AUC, name="auc"),
    Tripled,
    Noted,
)


@pytest.mark.parametrize("are_made", [True, False])
def test_values_of_metrics_are_those_of_keras(are_made):
    metrics = {metric.name: metric for metric in (make() for make in METRICS)}
    for metric in metrics.values():
        for place, variable in enumerate(metric.variables, start=3):
            variable.assign(tf.fill(variable.shape, float(place)))
    sums = {
        name: [variable.numpy() for variable in metric.variables]
        for name, metric in metrics.items()
    }
    # TFF's own.
    sums["loss"], sums["num_batches"] = np.float32([3, 4]), [np.int64(3)]
    sums["num_examples"] = [np.int64(7)]

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        model = tff.learning.models.from_keras_model(
            penalized(),
            loss_of((FEATURES, FEATURES)),
            against_keras.spec_of((FEATURES, FEATURES)),
            metrics=[make() for make in METRICS] if are_made else list(METRICS),
        )
        values = {
            name: finalize([tf.constant(value) for value in sums[name]])
            for name, finalize in as_in_fit(model).metric_finalizers().items()
        }
        session.run(tf.compat.v1.global_variables_initializer())
        found = session.run(values)

    expected = {name: metric.result().numpy() for name, metric in metrics.items()}
    assert found == {**expected, "loss": 0.75, "num_batches": 3, "num_examples": 7}


class Unweighted(tf.keras.metrics.Mean):
    def update_state(self, y_true, y_pred):
        return super().update_state(y_pred)


def test_a_metric_that_can_leave_nothing_out_is_refused_where_there_is_a_mask():
    def model_fn(build, batch):
        return tff.learning.models.from_keras_model(
            build(),
            loss_of(batch),
            against_keras.spec_of(batch),
            metrics=[lambda: Unweighted("mine")],
        )

    with pytest.raises(ValueError, match="'mine' cannot leave out the steps that a ma"):
        algorithms.build_fed_avg(lambda: model_fn(embedded, (TOKENS, NEXT)), 0.1)
    algorithms.build_fed_avg(lambda: model_fn(regularized, (FEATURES, FEATURES)), 0.1)


@pytest.mark.parametrize(
    "name", tiers.first(["fed_sgd"], ["fed_sgd", "uga", "mime", "fed_meta"])
)
def test_the_gradients_of_other_methods_leave_padding_out(name):
    """Labels of hidden steps change nothing."""
    other = NEXT.copy()
    other[TOKENS == 0] = 0
    begin = embedded().get_weights()

    def model_fn():
        spec = against_keras.spec_of((TOKENS, NEXT))
        return tff.learning.models.from_keras_model(
            embedded(), loss_of((TOKENS, NEXT)), spec
        )

    def trained(labels):
        data = tf.data.Dataset.from_tensors((TOKENS, labels))
        if name == "fed_sgd":
            process = algorithms.build_fed_sgd(model_fn, 0.5)
        elif name == "mime":
            sgdm = tff.learning.optimizers.build_sgdm(0.5, 0.9)
            process = algorithms.build_mime(model_fn, sgdm)
        elif name == "uga":
            process = algorithms.build_uga(model_fn, 0.5, 0.5, local_epochs=1)
        else:
            process = algorithms.build_fed_meta(model_fn, 0.5, data)
        return against_keras.round_of(process, begin, data)[0]

    with against_keras.local():
        one, two = trained(NEXT), trained(other)
    for found, wanted in zip(one, two, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert not np.allclose(one[-1], begin[-1], atol=1e-4)


F1 = {"average": "macro"}
LATE = {
    "f1": lambda: tf.keras.metrics.F1Score(**F1, name="late"),
    "r2": lambda: tf.keras.metrics.R2Score(name="late"),
    "auc": lambda: tf.keras.metrics.AUC(multi_label=True, name="late"),
}


@pytest.mark.parametrize(
    "is_made", tiers.first(["object"], {"object": True, "function": False})
)
@pytest.mark.parametrize("name", tiers.first(["auc"], list(LATE)))
def test_metrics_that_make_their_variables_late(name, is_made):
    """Summed over two clients they are Keras' own of all examples."""
    draw = np.random.default_rng(3)
    x = draw.normal(size=(12, 5)).astype(np.float32)
    y = np.eye(3, dtype=np.float32)[draw.integers(3, size=12)]
    make = LATE[name]

    def net():
        return tf.keras.Sequential([L.Dense(3, "softmax", input_shape=[5])])

    keras_model = net()
    keras_model.compile("sgd", "mse", [make()])
    expected = keras_model.evaluate(x, y, verbose=0, return_dict=True)
    weights = tff.learning.models.ModelWeights(keras_model.get_weights(), [])

    def model_fn():
        return tff.learning.models.from_keras_model(
            net(),
            tf.keras.losses.MeanSquaredError(),
            against_keras.spec_of((x, y)),
            metrics=[make() if is_made else make],
        )

    test = simulation.ClientDatasets.from_arrays(
        {"a": (x[:5], y[:5]), "b": (x[5:], y[5:])}, batch_size=4
    )
    evaluate = simulation.build_evaluation(model_fn, test, accuracy_metric=None)
    np.testing.assert_allclose(
        evaluate(weights)["late"], expected["late"], rtol=1e-5, atol=1e-6
    )
    with against_keras.local():
        process = algorithms.build_fed_avg(model_fn, 1e-30)
        state = process.set_model_weights(process.initialize(), weights)
        data = [test.training_data(each, 0) for each in "ab"]
        metrics = process.next(state, data).metrics["client_work"]["train"]
    np.testing.assert_allclose(metrics["late"], expected["late"], rtol=1e-5, atol=1e-6)


def test_a_late_metric_that_cannot_count_the_labels_is_refused():
    def model_fn():
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([L.Dense(3, input_shape=[5])]),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            (tf.TensorSpec([None, 5]), tf.TensorSpec([None], tf.int64)),
            metrics=[tf.keras.metrics.F1Score()],
        )

    with pytest.raises(ValueError, match="'f1_score' makes its variables") as error:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert len(str(error.value)) < 1200


def two_outputs():
    inputs = tf.keras.Input([5])
    outputs = [L.Dense(3, name="kind")(inputs), L.Dense(1, name="size")(inputs)]
    return tf.keras.Model(inputs, outputs)


@pytest.mark.parametrize(
    "keys", tiers.first([1], [(("kind", "size"),), (("size", "kind"),), None])
)
def test_labels_by_name_and_a_list_of_losses(keys):
    labels = {"kind": np.array([2, 0]), "size": np.array([[1.0], [3.0]], np.float32)}
    losses = [
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        tf.keras.losses.MeanSquaredError(),
    ]
    keras_model = two_outputs()
    begin = keras_model.get_weights()
    keras_model.compile(
        tf.keras.optimizers.legacy.SGD(0.5), losses, loss_weights=[1.0, 0.25]
    )
    keras_model.train_on_batch(FEATURES, list(labels.values()))
    expected = keras_model.get_weights()
    given = tuple(labels.values()) if keys is None else {k: labels[k] for k in keys}

    def model_fn():
        return tff.learning.models.from_keras_model(
            two_outputs(),
            losses,
            against_keras.spec_of((FEATURES, given)),
            loss_weights=[1.0, 0.25],
        )

    with against_keras.local():
        trained, _ = against_keras.step(model_fn, begin, (FEATURES, given))
    against_keras.assert_alike(trained, expected)


class SquaredErrors(tf.keras.losses.Loss):
    def call(self, y_true, y_pred):
        return (y_true - y_pred) ** 2


OF_EXAMPLES = [
    tf.keras.losses.KLDivergence(),
    tf.keras.losses.CosineSimilarity(),
    tf.keras.losses.CategoricalHinge(),
    tf.keras.losses.MeanSquaredError("sum"),
    SquaredErrors(),
]


# Labels `[n]` of outputs `[n, 1]`.
COLUMN = np.float32([[0.2], [0.9], [0.4]]), np.float32([0.0, 1.0, 1.0])


def one():
    ones = {"kernel_initializer": "ones", "activation": "sigmoid"}
    return tf.keras.Sequential([L.Dense(1, input_shape=[1], **ones)])


@pytest.mark.parametrize("loss", OF_EXAMPLES, ids=lambda loss: type(loss).__name__)
def test_labels_without_a_last_dimension_are_not_one_example(loss):
    """As in `fit`: labels `[n]` of outputs `[n, 1]` are a number for each example."""
    x, y = COLUMN

    def two():
        inputs = tf.keras.Input([1])
        outputs = [one()(inputs), one()(2 * inputs)]
        return tf.keras.Model(inputs, outputs)

    for build, losses, labels in ((one, loss, y), (two, [loss] * 2, (y, y))):
        keras_model = build()
        keras_model.compile("sgd", losses)
        given = list(labels) if build is two else labels
        expected = keras_model.evaluate(x, given, verbose=0, return_dict=True)["loss"]
        spec = against_keras.spec_of((x, labels))
        model = as_in_fit(tff.learning.models.from_keras_model(build(), losses, spec))
        found = model.forward_pass((x, labels)).loss
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("loss", OF_EXAMPLES[:4], ids=lambda loss: type(loss).__name__)
def test_nor_are_they_in_a_functional_model_of_tff(loss):
    keras_model = one()
    begin = keras_model.get_weights()
    keras_model.compile(tf.keras.optimizers.legacy.SGD(0.5), loss)
    logs = keras_model.train_on_batch(*COLUMN, return_dict=True)
    expected = keras_model.get_weights()
    functional = tff.learning.models.functional_model_from_keras(
        one, loss, against_keras.spec_of(COLUMN)
    )
    with against_keras.local():
        trained, _ = against_keras.step(functional, begin, COLUMN)
    against_keras.assert_alike(trained, expected)
    test = simulation.ClientDatasets.from_arrays({"a": COLUMN}, batch_size=3)
    evaluate = simulation.build_evaluation(functional, test, accuracy_metric=None)
    found = evaluate(tff.learning.models.ModelWeights(begin, []))
    np.testing.assert_allclose(found["loss"], logs["loss"], rtol=1e-6)


class Deviations(tf.keras.metrics.Mean):
    """A metric of one's own, which casts nothing."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        values = tf.reduce_mean(tf.abs(y_true - y_pred), axis=-1)
        if sample_weight is not None:
            values *= tf.reshape(sample_weight, [-1])
        return super().update_state(values)


def of_dtypes(*dtypes):
    """A model with an output of each dtype."""
    inputs = tf.keras.Input([5])
    ones = {"kernel_initializer": "ones"}
    outputs = [
        L.Activation("tanh", dtype=d)(L.Dense(2, **ones)(inputs)) for d in dtypes
    ]
    return tf.keras.Model(inputs, outputs[0] if len(dtypes) == 1 else outputs)


@pytest.mark.parametrize("are_weighted", [False, True])
@pytest.mark.parametrize(
    "outputs",
    tiers.first(
        ["float32", "float16 float32"],
        ["float32", "float16", "float16 float32", "float64 float64"],
    ),
)
def test_losses_and_metrics_of_ones_own_get_the_dtype_of_the_outputs(
    outputs, are_weighted
):
    """As in `fit`, of labels and of weights, and losses of several dtypes are added."""
    dtypes = outputs.split()
    labels = np.array([[0.1, 0.7], [0.2, -0.4]])
    weights = [np.array([2, 1])] if are_weighted else []
    losses = [SquaredErrors() for _ in dtypes]
    metrics = {"metrics": [], "weighted_metrics": []}
    if len(dtypes) == 1:
        metrics["weighted_metrics" if are_weighted else "metrics"] = [Deviations("own")]
    keras_model = of_dtypes(*dtypes)
    keras_model.compile("sgd", losses, **metrics)
    expected = keras_model.evaluate(
        FEATURES, [labels] * len(dtypes), 2, 0, *weights, return_dict=True
    )

    y = labels if len(dtypes) == 1 else (labels,) * len(dtypes)
    batch = (FEATURES, y, *weights)
    model = models.from_keras2(
        of_dtypes(*dtypes),
        losses[0] if len(dtypes) == 1 else losses,
        against_keras.spec_of(batch),
        metrics=[Deviations("own") for _ in metrics["metrics"]],
        weighted_metrics=[Deviations("own") for _ in metrics["weighted_metrics"]],
    )
    found = model.forward_pass(batch).loss
    np.testing.assert_allclose(found, expected["loss"], rtol=2e-3)
    if len(dtypes) == 1:
        (own,) = (each for each in model._model.get_metrics() if each.name == "own")
        np.testing.assert_allclose(own.result(), expected["own"], rtol=2e-3)


def test_so_do_those_of_functional_models_of_tff():
    """The output is tanh of the sum of the features, the loss the mean square."""
    batch = FEATURES, np.array([[0.1, 0.7], [0.2, -0.4]])
    model = tff.learning.models.functional_model_from_keras(
        lambda: of_dtypes("float32"), SquaredErrors(), against_keras.spec_of(batch)
    )
    test = simulation.ClientDatasets.from_arrays({"a": batch}, batch_size=2)
    evaluate = simulation.build_evaluation(model, test, accuracy_metric=None)
    begin = [np.ones((5, 2), np.float32), np.zeros(2, np.float32)]
    found = evaluate(tff.learning.models.ModelWeights(begin, []))
    outputs = np.tanh(FEATURES.sum(axis=1, keepdims=True))
    expected = np.mean((outputs - batch[1]) ** 2)
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-5)


def test_labels_that_are_not_those_of_the_outputs_are_refused():
    def model_fn():
        given = {"kind": np.array([2, 0]), "weight": np.array([[1.0], [3.0]])}
        return tff.learning.models.from_keras_model(
            two_outputs(),
            [tf.keras.losses.MeanSquaredError()] * 2,
            against_keras.spec_of((FEATURES, given)),
        )

    with pytest.raises(ValueError, match="an entry for each output of the model, whi"):
        algorithms.build_fed_avg(model_fn, 0.1)


def test_a_layer_that_is_adapted_in_the_model_function_is_refused():
    def model_fn():
        layer = L.Normalization()
        layer.adapt(FEATURES)
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([tf.keras.Input([5]), layer, L.Dense(5)]),
            tf.keras.losses.MeanSquaredError(),
            against_keras.spec_of((FEATURES, FEATURES)),
        )

    with pytest.raises(ValueError, match=r"Normalization\(mean=") as error:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert len(str(error.value)) < 1200


LOOKUPS = {
    "strings": lambda **more: L.StringLookup(
        vocabulary=["a", "b"], output_mode="multi_hot", **more
    ),
    "integers": lambda **more: L.IntegerLookup(
        vocabulary=[1, 2], output_mode="count", **more
    ),
    "text": lambda **more: L.TextVectorization(
        vocabulary=["a", "b"], output_mode="multi_hot", **more
    ),
}


@pytest.mark.parametrize("name", tiers.first(["strings"], list(LOOKUPS)))
def test_a_lookup_that_counts_its_tokens_is_refused_with_what_to_give_it(name):
    dtype = tf.int64 if name == "integers" else tf.string

    def model_fn(**more):
        inputs = tf.keras.Input([1], dtype=dtype)
        outputs = L.Dense(1)(LOOKUPS[name](**more)(inputs))
        return tff.learning.models.from_keras_model(
            tf.keras.Model(inputs, outputs),
            tf.keras.losses.MeanSquaredError(),
            (tf.TensorSpec([None, 1], dtype), tf.TensorSpec([None, 1])),
        )

    with pytest.raises(ValueError, match=r"max_tokens=.* pad_to_max") as error:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert "made outside" not in str(error.value)
    assert len(str(error.value)) < 800
    given = {"max_tokens": 3, "pad_to_max_tokens": True}
    process = algorithms.build_fed_avg(lambda: model_fn(**given), 0.1)
    kernel, _ = process.get_model_weights(process.initialize()).trainable
    # Two tokens, and one for all others.
    assert kernel.shape == (3, 1)


@pytest.mark.parametrize("name", tiers.first(["text"], ["text", "strings", "own"]))
def test_a_weight_without_a_shape_of_its_own_is_refused(name):
    class Own(L.Layer):
        def build(self, _):
            self.scale = tf.Variable([1.0], shape=[None], trainable=False)

        def call(self, inputs):
            is_a = tf.cast(tf.equal(inputs, "a"), tf.float32)
            return is_a * tf.reduce_sum(self.scale)

    tf_idf = {
        "vocabulary": ["a", "b"], "idf_weights": [0.5, 0.7], "output_mode": "tf_idf",
        "max_tokens": 3, "pad_to_max_tokens": True,
    }  # fmt: skip
    layers = {
        "text": lambda: L.TextVectorization(**tf_idf),
        "strings": lambda: L.StringLookup(**tf_idf),
        "own": Own,
    }

    def model_fn():
        inputs = tf.keras.Input([1], dtype=tf.string)
        outputs = L.Dense(1)(layers[name]()(inputs))
        return tff.learning.models.from_keras_model(
            tf.keras.Model(inputs, outputs),
            tf.keras.losses.MeanSquaredError(),
            (tf.TensorSpec([None, 1], tf.string), tf.TensorSpec([None, 1])),
        )

    with pytest.raises(ValueError, match=r"has the shape \(None,\).*tf_idf") as error:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert len(str(error.value)) < 400


def test_constraints_of_weights_are_refused():
    def constrained(trainable=True):
        hidden = L.Dense(3, input_shape=[5], kernel_constraint="non_neg")
        hidden.trainable = trainable
        return tf.keras.Sequential([hidden, L.Dense(5)])

    loss = tf.keras.losses.MeanSquaredError()
    spec = against_keras.spec_of((FEATURES, FEATURES))
    make = tff.learning.models.from_keras_model
    for model_fn in (
        lambda: make(constrained(), loss, spec),
        lambda: models.from_keras2(constrained(), loss, spec),
        tff.learning.models.functional_model_from_keras(constrained, loss, spec),
    ):
        with pytest.raises(ValueError, match=r"constraint of its weight '.*kernel:0'"):
            algorithms.build_fed_avg(model_fn, 0.1)
    # A weight that is not trained stays what it is.
    models.from_keras2(constrained(trainable=False), loss, spec)


def test_losses_of_layers_of_half_precision():
    """The kernel is all ones: its regularizer adds 0.1 · 5."""
    hidden = L.Dense(
        1,
        input_shape=[5],
        dtype="mixed_float16",
        kernel_initializer="ones",
        kernel_regularizer=tf.keras.regularizers.L2(0.1),
    )
    labels = np.float32([[1.0], [2.0]])
    model = models.from_keras2(
        tf.keras.Sequential([hidden]),
        tf.keras.losses.MeanSquaredError(),
        against_keras.spec_of((FEATURES, labels)),
    )
    expected = np.mean((FEATURES.sum(axis=1) - labels[:, 0]) ** 2) + 0.5
    found = model.forward_pass((FEATURES, labels)).loss
    np.testing.assert_allclose(found, expected, rtol=2e-3)


def test_metrics_of_intersection_over_union():
    """Of [0, 1, 1] found as [0, 1, 0], each class has one in common of two."""
    x = np.float32([[1, 0], [0, 1], [1, 0]])
    y = np.array([0, 1, 1])

    class Chosen(L.Layer):
        def call(self, inputs):
            return tf.cast(tf.argmax(inputs, axis=1)[:, None], tf.float32)

    def model_fn():
        dense = L.Dense(2, input_shape=[2], use_bias=False)
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([dense, Chosen()]),
            tf.keras.losses.MeanSquaredError(),
            against_keras.spec_of((x, y)),
            metrics=[
                tf.keras.metrics.MeanIoU(2, name="mean"),
                tf.keras.metrics.IoU(2, [1], name="one"),
                tf.keras.metrics.BinaryIoU([0], name="binary"),
            ],
        )

    test = simulation.ClientDatasets.from_arrays(
        {"a": (x[:1], y[:1]), "b": (x[1:], y[1:])}, batch_size=2
    )
    evaluate = simulation.build_evaluation(model_fn, test, accuracy_metric=None)
    weights = tff.learning.models.ModelWeights([np.eye(2, dtype=np.float32)], [])
    found = evaluate(weights)
    for name in ("mean", "one", "binary"):
        np.testing.assert_allclose(found[name], 0.5, rtol=1e-6)
    # Training has the metrics forget between clients.
    algorithms.build_fed_avg(model_fn, 0.1)


def functional(keras_model):
    spec = against_keras.spec_of((STEPS, NEXT))
    return tff.learning.models.functional_model_from_keras(
        keras_model,
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        spec,
    )


@pytest.mark.parametrize("given", [masked, masked()], ids=["function", "model"])
def test_a_functional_model_that_loses_a_mask_is_refused(given):
    with pytest.raises(ValueError, match="which TFF does not give to the loss"):
        algorithms.build_fed_avg(functional(given), 0.1)
    test = simulation.ClientDatasets.from_arrays({"a": (STEPS, NEXT)}, batch_size=2)
    with pytest.raises(ValueError, match=r"Give .* tff_drift\.models\.from_keras2"):
        simulation.build_evaluation(functional(given), test, accuracy_metric=None)


# Without the optimizer of graphs TensorFlow does not drop what TFF's function of the
# Keras model has besides.
@pytest.mark.conformance
def test_a_functional_model_that_takes_its_mask_into_account_trains():
    """The state after the last step that is not masked has no mask itself."""

    def build():
        rnn = L.SimpleRNN(3)
        return tf.keras.Sequential([L.Masking(input_shape=(4, 2)), rnn, L.Dense(4)])

    batch = (STEPS, NEXT[:, 0])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    keras_model = build()
    begin = keras_model.get_weights()
    keras_model.compile(tf.keras.optimizers.legacy.SGD(0.5), loss)
    keras_model.train_on_batch(*batch)
    expected = keras_model.get_weights()
    model = tff.learning.models.functional_model_from_keras(
        build, loss, against_keras.spec_of(batch)
    )
    with against_keras.local():
        trained, _ = against_keras.step(model, begin, batch)
    against_keras.assert_alike(trained, expected)


def spec_of(inputs, labels):
    return tf.TensorSpec(*inputs), tf.TensorSpec(*labels)


OF_NUMBERS = ([None, 5], tf.float32)


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (
            spec_of(OF_NUMBERS, ([None], tf.string)),
            TypeError,
            r"strings in y, .*y\.astype",
        ),
        (
            spec_of(([None, 5], tf.string), ([None], tf.int32)),
            TypeError,
            "strings in x,",
        ),
        (
            spec_of(OF_NUMBERS, ([None, 3], tf.float32)),
            ValueError,
            r"take such batches: .*\(6,\).*\(2, 3\)\. Build them",
        ),
    ],
    ids=["labels", "inputs", "one-hot"],
)
def test_batches_that_would_fail_in_a_round_are_refused(spec, error, message):
    def model_fn():
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([L.Dense(3, input_shape=[5])]),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            spec,
        )

    with pytest.raises(error, match=message) as raised:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert len(str(raised.value)) < 600


def test_strings_are_taken_where_a_layer_looks_them_up():
    lookup = [
        tf.keras.Input([], dtype=tf.string),
        L.StringLookup(vocabulary=["a", "b"], output_mode="one_hot"),
        L.Dense(3),
    ]
    spec = spec_of(([None], tf.string), ([None], tf.int32))
    check_batches(
        models.from_keras2(
            tf.keras.Sequential(lookup),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            spec,
        )
    )


def test_rows_of_labels_are_taken_of_outputs_that_are_one_long_row():
    steps = [
        L.Embedding(6, 4, input_shape=[3]),
        L.Lambda(lambda x: tf.reshape(x, [-1, 4])),
    ]
    spec = spec_of(([None, 3], tf.int32), ([None, 3], tf.int32))
    check_batches(
        models.from_keras2(
            tf.keras.Sequential(steps),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            spec,
        )
    )
