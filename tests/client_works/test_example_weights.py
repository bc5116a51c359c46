"""Weights of examples and of classes count as in Keras' `fit`."""

from collections import OrderedDict
from contextlib import nullcontext

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.client_works import against_keras
from tff_drift import algorithms, models, simulation
from tff_drift.models import example_weights

pytestmark = pytest.mark.no_smoke

L = tf.keras.layers
DRAW = np.random.default_rng(5)
X = DRAW.normal(size=(6, 5)).astype(np.float32)
Y = np.array([0, 2, 1, 2, 0, 2])
WEIGHTS = np.array([1.0, 0.0, 2.5, 0.25, 3.0, 1.0], np.float32)
OF_CLASSES = {0: 0.5, 1: 20.0, 2: 1.5}
TOKENS = np.array([[1, 2, 0], [3, 1, 4]])
NEXT = np.array([[2, 1, 3], [1, 1, 2]])
OF_STEPS = np.array([[1.0, 0.5, 7.0], [2.0, 0.0, 4.0]], np.float32)


def dense(outputs=3):
    return tf.keras.Sequential([L.Dense(outputs, input_shape=[5])])


def tokens():
    layers = [L.Embedding(6, 3, mask_zero=True, input_shape=(3,)), L.Dense(4)]
    return tf.keras.Sequential(layers)


def two_outputs():
    inputs = tf.keras.Input([5])
    return tf.keras.Model(inputs, [L.Dense(3, name=name)(inputs) for name in "ab"])


def crossentropy():
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def one_hot_loss():
    return tf.keras.losses.CategoricalCrossentropy(from_logits=True)


def per_example():
    return tf.keras.losses.MeanSquaredError()


ONE_HOT = np.eye(3, dtype=np.float32)[Y]
BINARY = (Y == 2).astype(np.float32)[:, None]
# A model, its loss, a batch and weights of classes.
CASES = {
    "examples": (dense, crossentropy(), (X, Y, WEIGHTS), None),
    "float64": (dense, crossentropy(), (X, Y, WEIGHTS.astype(np.float64)), None),
    "classes": (dense, crossentropy(), (X, Y), OF_CLASSES),
    "both": (dense, crossentropy(), (X, Y, WEIGHTS), OF_CLASSES),
    "one-hot classes": (dense, one_hot_loss(), (X, ONE_HOT), OF_CLASSES),
    "binary": (
        lambda: dense(1),
        tf.keras.losses.BinaryCrossentropy(from_logits=True),
        (X, BINARY),
        {0: 1.0, 1: 9.0},
    ),
    "binary, without a last dimension": (
        lambda: dense(1),
        tf.keras.losses.BinaryCrossentropy(from_logits=True),
        (X, BINARY[:, 0], WEIGHTS),
        {0: 1.0, 1: 9.0},
    ),
    "regression": (dense, per_example(), (X, X[:, :3], WEIGHTS), None),
    "steps and a mask": (tokens, crossentropy(), (TOKENS, NEXT, OF_STEPS), None),
    "sequences": (tokens, crossentropy(), (TOKENS, NEXT, OF_STEPS[:, 0]), None),
    "two outputs": (
        two_outputs,
        [crossentropy()] * 2,
        (X, (Y, Y[::-1]), WEIGHTS),
        None,
    ),
    "a weight for each output": (
        two_outputs,
        [crossentropy()] * 2,
        (X, (Y, Y[::-1]), (WEIGHTS, WEIGHTS[::-1])),
        None,
    ),
}
in_both_contexts = pytest.mark.parametrize(
    ("case", "context"),
    tiers.first(
        # Weights of examples with a mask.
        [8],
        [
            (case, "local" if place % 3 else "native")
            for place, case in enumerate(CASES)
        ],
    ),
)


def of_keras2(build, loss, batch, class_weight, **options):
    return lambda: models.from_keras2(
        build(),
        loss,
        against_keras.spec_of(batch),
        class_weight=class_weight,
        **options,
    )


@in_both_contexts
def test_a_step_is_a_step_of_fit(native_context, case, context):
    build, loss, batch, class_weight = CASES[case]
    keras_model = build()
    begin = keras_model.get_weights()
    keras_model.compile(tf.keras.optimizers.legacy.SGD(0.5), loss)
    x, y, weights = (*batch, None)[:3]
    as_lists = [
        list(part) if isinstance(part, tuple) else part for part in (y, weights)
    ]
    history = keras_model.fit(
        x,
        as_lists[0],
        len(x),
        sample_weight=as_lists[1],
        class_weight=class_weight,
        verbose=0,
    ).history
    expected = keras_model.get_weights()
    installed = against_keras.local() if context == "local" else nullcontext()
    with installed:
        trained, metrics = against_keras.step(
            of_keras2(build, loss, batch, class_weight), begin, batch
        )
    against_keras.assert_alike(trained, expected)
    np.testing.assert_allclose(metrics["loss"], history["loss"][0], rtol=1e-5)
    assert metrics["num_examples"] == len(x)


def test_weights_of_classes_keep_their_fractions_beside_integers():
    """Unlike in `fit`, which cuts those of classes to integers then."""

    def trained(weights):
        batch = (X, Y, weights)
        begin = [np.ones((5, 3), np.float32), np.zeros(3, np.float32)]
        with against_keras.local():
            return against_keras.step(
                of_keras2(dense, crossentropy(), batch, OF_CLASSES), begin, batch
            )[0]

    kernel, bias = trained(Y.astype(np.uint8))
    # All classes are as likely where the rows of the kernel are constant.
    errors = (1 / 3 - ONE_HOT) * (Y * [OF_CLASSES[k] for k in Y])[:, None]
    np.testing.assert_allclose(bias, -0.5 * errors.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(kernel, 1 - 0.5 * X.T @ errors / len(X), atol=1e-5)


def gradient(kernel, bias, weights):
    """That of Σ w_i (x_i·kernel + bias - y_i)² / n, by hand."""
    errors = X[:, :1] @ kernel + bias - X[:, 1:2]
    factor = 2 * weights[:, None] * errors / len(X)
    return X[:, :1].T @ factor, factor.sum(axis=0)


@pytest.mark.parametrize(
    "name",
    tiers.first(
        ["fed_avg"],
        ["fed_avg", "fed_sgd", "uga", "mime", "fed_meta"],
    ),
)
def test_weights_by_hand_of_two_clients(name):
    """Clients count by their numbers of examples, whatever these weigh."""

    def net():
        return tf.keras.Sequential([L.Dense(1, input_shape=[1])])

    parts = [slice(0, 4), slice(4, 6)]
    batch = (X[:, :1], X[:, 1:2], WEIGHTS)
    model_fn = of_keras2(net, per_example(), batch, None)
    data = [
        tf.data.Dataset.from_tensor_slices(tuple(leaf[part] for leaf in batch)).batch(3)
        for part in parts
    ]
    begin = [np.array([[0.5]], np.float32), np.array([-1.0], np.float32)]
    rate = 0.1
    expected = [
        value - rate * g
        for value, g in zip(begin, gradient(*begin, WEIGHTS), strict=True)
    ]
    if name == "fed_avg":
        # Plain SGD over the batches of each client.
        expected = [np.zeros_like(value) for value in begin]
        for part in parts:
            kernel, bias = begin
            rows = np.arange(6)[part]
            for some in (rows[:3], rows[3:]):
                if len(some):
                    x, y, w = (leaf[some] for leaf in batch)
                    factor = 2 * w[:, None] * (x @ kernel + bias - y) / len(some)
                    kernel, bias = (
                        kernel - rate * x.T @ factor,
                        bias - rate * factor.sum(axis=0),
                    )
            share = len(rows) / 6
            expected = [
                total + share * each
                for total, each in zip(expected, (kernel, bias), strict=True)
            ]
        process = algorithms.build_fed_avg(model_fn, rate)
    elif name == "fed_sgd":
        process = algorithms.build_fed_sgd(model_fn, rate)
    elif name == "uga":
        # A step of rate 0 leaves the gradient at the server's model.
        process = algorithms.build_uga(model_fn, 1e-30, rate, local_epochs=1)
    elif name == "mime":
        sgdm = tff.learning.optimizers.build_sgdm(0.0, 0.5)
        process = algorithms.build_mime(model_fn, sgdm)
        expected = begin
    else:
        whole = tf.data.Dataset.from_tensor_slices(batch).batch(4)
        process = algorithms.build_fed_meta(
            model_fn, 1e-30, whole, meta_learning_rate=rate
        )
    with against_keras.local():
        trained, _ = against_keras.round_of(process, begin, *data)
    against_keras.assert_alike(trained, expected)


def test_metrics_are_weighted_as_in_fit():
    def metrics(name):
        return [tf.keras.metrics.SparseCategoricalAccuracy(name)]

    keras_model = dense()
    # Every example is taken for one of the first one's class.
    begin = [np.zeros_like(each) for each in keras_model.get_weights()]
    begin[-1][Y[0]] = 1
    keras_model.set_weights(begin)
    keras_model.compile(
        "sgd", crossentropy(), metrics("plain"), weighted_metrics=metrics("weighted")
    )
    expected = keras_model.evaluate(
        X, Y, sample_weight=WEIGHTS, verbose=0, return_dict=True
    )
    assert expected["plain"] != pytest.approx(expected["weighted"])
    batch = (X, Y, WEIGHTS)
    # Weights of classes are of training alone.
    model_fn = of_keras2(
        dense,
        crossentropy(),
        batch,
        OF_CLASSES,
        metrics=[lambda: metrics("plain")[0]],
        weighted_metrics=[lambda: metrics("weighted")[0]],
    )
    test = simulation.ClientDatasets.from_arrays(
        {
            "a": tuple(leaf[:2] for leaf in batch),
            "b": tuple(leaf[2:] for leaf in batch),
        },
        batch_size=2,
    )
    evaluate = simulation.build_evaluation(model_fn, test, accuracy_metric="weighted")
    found = evaluate(tff.learning.models.ModelWeights(begin, []))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5)


@pytest.mark.parametrize("is_made", [True, False])
def test_a_weighted_metric_with_the_name_of_another_is_named_as_in_fit(is_made):
    make = tf.keras.metrics.MeanAbsoluteError
    keras_model = dense()
    keras_model.compile("sgd", "mse", metrics=[make()], weighted_metrics=[make()])
    batch = (X, X[:, :3], WEIGHTS)
    expected = keras_model.evaluate(
        *batch[:2], sample_weight=WEIGHTS, verbose=0, return_dict=True
    )
    given = [make() if is_made else make for _ in range(2)]
    model = models.from_keras2(
        dense(),
        per_example(),
        against_keras.spec_of(batch),
        metrics=given[:1],
        weighted_metrics=given[1:],
    )
    for variable, value in zip(
        model.trainable_variables, keras_model.get_weights(), strict=True
    ):
        variable.assign(value)
    model.forward_pass(batch)
    sums = model.report_local_unfinalized_metrics()
    finalizers = model.metric_finalizers()
    assert list(finalizers) == list(sums)
    # That of `make` and the same with `weighted_` before it.
    assert len(expected) == 3
    for name, value in expected.items():
        np.testing.assert_allclose(finalizers[name](sums[name]), value, rtol=1e-5)


@pytest.mark.parametrize("is_made", [True, False])
@pytest.mark.parametrize(
    "names", [("m", "m"), ("loss",)], ids=["twice", "that of the loss"]
)
def test_metrics_of_one_name_are_refused(names, is_made):
    def made(name):
        def make():
            return tf.keras.metrics.MeanAbsoluteError(name)

        return make() if is_made else make

    def of(function, argument="metrics"):
        metrics = {argument: [made(name) for name in names]}
        return function(dense(), per_example(), spec, **metrics)

    spec = against_keras.spec_of((X, X[:, :3]))
    for model_fn in (
        lambda: of(tff.learning.models.from_keras_model),
        lambda: of(models.from_keras2),
        lambda: of(models.from_keras2, "weighted_metrics"),
    ):
        with pytest.raises(
            ValueError, match=f"found '{names[0]}' twice. Give"
        ) as error:
            algorithms.build_fed_avg(model_fn, 0.1)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("form", [list, dict])
def test_loss_weights_by_name_are_those_of_the_outputs(form):
    keras_model = two_outputs()
    labels = (X[:, :3], 2 * X[:, :3])
    losses = {name: per_example() for name in "ab"}
    losses = losses if form is dict else list(losses.values())

    def of_weights(loss_weights):
        spec = against_keras.spec_of((X, labels))
        return models.from_keras2(keras_model, losses, spec, loss_weights=loss_weights)

    model = of_weights({"b": 100.0, "a": 1.0})
    squares = [
        np.mean((found - wanted) ** 2)
        for found, wanted in zip(keras_model.predict(X, verbose=0), labels, strict=True)
    ]
    np.testing.assert_allclose(
        model.forward_pass((X, labels)).loss, squares[0] + 100 * squares[1], rtol=1e-5
    )
    for wrong in ({"a": 1.0, "c": 1.0}, {"a": 1.0}):
        with pytest.raises(ValueError, match="loss_weights must have an entry for eac"):
            of_weights(wrong)


def test_a_run_and_batches_with_names():
    arrays = {"x": X, "y": Y, "sample_weight": WEIGHTS}
    halves = {
        name: {key: leaf[part] for key, leaf in arrays.items()}
        for name, part in {"a": slice(3), "b": slice(3, 6)}.items()
    }
    train = simulation.ClientDatasets.from_arrays(halves, batch_size=3, shuffle=False)
    model_fn = of_keras2(dense, crossentropy(), arrays, None)
    begin = dense().get_weights()
    with against_keras.local():
        result = simulation.run_training(
            algorithms.build_scaffold(model_fn, 0.5, num_clients=2),
            train,
            rounds=1,
            cohort_size=2,
            initial_weights=begin,
        )
    expected = []
    for part in (slice(3), slice(3, 6)):
        keras_model = dense()
        keras_model.set_weights(begin)
        keras_model.compile(tf.keras.optimizers.legacy.SGD(0.5), crossentropy())
        keras_model.train_on_batch(X[part], Y[part], WEIGHTS[part])
        expected.append(keras_model.get_weights())
    mean = [np.mean(pair, axis=0) for pair in zip(*expected, strict=True)]
    against_keras.assert_alike(result.model_weights.trainable, mean)
    counts = simulation.label_counts(train)
    assert counts.loc["a"].tolist() == [1, 1, 1]


def test_the_loss_of_functional_models_gets_the_weights():
    batch = (X, Y, WEIGHTS)
    net = dense()
    begin = net.get_weights()
    net.compile(
        tf.keras.optimizers.legacy.SGD(0.5),
        crossentropy(),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy("accuracy")],
    )
    logs = net.train_on_batch(X, Y, WEIGHTS, return_dict=True)
    expected = net.get_weights()
    functional = tff.learning.models.functional_model_from_keras(
        dense(),
        crossentropy(),
        against_keras.spec_of(batch),
        lambda: OrderedDict(accuracy=tf.keras.metrics.SparseCategoricalAccuracy()),
    )
    with against_keras.local():
        trained, metrics = against_keras.step(functional, begin, batch)
    against_keras.assert_alike(trained, expected)
    np.testing.assert_allclose(metrics["accuracy"], logs["accuracy"], rtol=1e-6)
    test = simulation.ClientDatasets.from_arrays({"a": batch}, batch_size=4)
    evaluate = simulation.build_evaluation(functional, test)
    found = evaluate(tff.learning.models.ModelWeights(begin, []))
    np.testing.assert_allclose(found["loss"], logs["loss"], rtol=1e-6)
    np.testing.assert_allclose(found["accuracy"], logs["accuracy"], rtol=1e-6)


@pytest.mark.parametrize("given", [0.25, [0.25], {"dense": 0.25}])
@pytest.mark.parametrize("form", [list, None])
def test_one_loss_has_a_weight_too(form, given):
    keras_model = tf.keras.Sequential([L.Dense(1, input_shape=[5], name="dense")])
    batch = (X, X[:, :1])
    keras_model.compile("sgd", "mse", loss_weights=[0.25])
    expected = keras_model.evaluate(*batch, verbose=0)
    mse = tf.keras.losses.MeanSquaredError()
    model = models.from_keras2(
        keras_model,
        [mse] if form is list else mse,
        against_keras.spec_of(batch),
        loss_weights=given,
    )
    np.testing.assert_allclose(model.forward_pass(batch).loss, expected, rtol=1e-6)


def test_weights_of_examples_beside_values_of_two_dimensions_are_refused():
    """Where two of them have one size, they would be weights of others."""
    pixels = tf.keras.Sequential(
        [L.Dense(12, input_shape=[5]), L.Reshape([2, 2, 3])],
    )
    labels = np.zeros([len(X), 2, 2], np.int64)

    def model_of(*weights):
        batch = (X, labels, *weights)
        spec = against_keras.spec_of(batch)
        return models.from_keras2(pixels, crossentropy(), spec), batch

    model, batch = model_of(np.ones(len(X), np.float32))
    with pytest.raises(ValueError, match=r"sample_weight has the shape .* each value"):
        model.forward_pass(batch)
    model, batch = model_of()
    expected = model.forward_pass(batch).loss
    for weights in (np.ones([len(X), 2], np.float32), np.ones([len(X), 2, 2], "f")):
        model, batch = model_of(weights)
        found = model.forward_pass(batch).loss
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_cannot_be_weighted_is_refused():
    spec = against_keras.spec_of((X, Y, WEIGHTS))
    with pytest.raises(ValueError, match=r"call tff_drift\.models\.from_keras2"):
        algorithms.build_fed_avg(
            lambda: tff.learning.models.from_keras_model(dense(), crossentropy(), spec),
            0.1,
        )
    with pytest.raises(ValueError, match="input_spec must be"):
        models.from_keras2(dense(), crossentropy(), (*spec, *spec))
    for given, error, text in (
        ([1.0, 2.0], TypeError, "class_weight must be a mapping of classes"),
        (
            {"ill": 2.0},
            TypeError,
            "each key of class_weight must be an integer, found 'ill'",
        ),
        ({-1: 2.0}, ValueError, "class_weight"),
        ({1: -2.0}, ValueError, r"class_weight\[1\]"),
        ({1: np.nan}, ValueError, r"class_weight\[1\]"),
        ({}, ValueError, "class_weight is empty"),
    ):
        with pytest.raises(error, match=text):
            models.from_keras2(dense(), crossentropy(), spec, class_weight=given)
    for build, labels in ((tokens, NEXT), (two_outputs, (Y, Y))):
        given = against_keras.spec_of((X if build is two_outputs else TOKENS, labels))
        losses = [crossentropy()] * (2 if build is two_outputs else 1)
        with pytest.raises(ValueError, match="class_weight needs one label for each"):
            models.from_keras2(build(), losses, given, class_weight=OF_CLASSES)


@pytest.mark.parametrize(
    ("outputs", "loss", "last"),
    [
        (1, tf.keras.losses.BinaryCrossentropy(from_logits=True), 1),
        (3, crossentropy(), 2),
    ],
)
def test_classes_beyond_the_outputs_have_no_weights(outputs, loss, last):
    spec = tf.TensorSpec([None, 5]), tf.TensorSpec([None], tf.int64)
    models.from_keras2(dense(outputs), loss, spec, class_weight={0: 1, last: 5})
    with pytest.raises(ValueError, match=f"class {last + 1}, .* from 0 to {last}"):
        models.from_keras2(dense(outputs), loss, spec, class_weight={last + 1: 5})
    with pytest.raises(ValueError, match=f"class {last + 1}, "):
        models.from_keras2(dense(outputs), [loss], spec, class_weight={last + 1: 5})
    squares = tf.keras.losses.MeanSquaredError()
    models.from_keras2(dense(1), squares, spec, class_weight={7: 5})


@pytest.mark.parametrize("labels", [[-1.0, 1.0, 0.0, 9.0], [-1, 1, 0, 9]])
def test_labels_that_are_no_class_of_the_table_weigh_one(labels):
    weights = example_weights.with_class_weights(
        None, tf.constant(labels), {0: 3, 1: 5}
    )
    assert weights.numpy().tolist() == [1.0, 5.0, 3.0, 1.0]


@pytest.mark.conformance
def test_classes_that_are_left_out_weigh_one():
    keras_model = dense()
    begin = keras_model.get_weights()
    keras_model.compile(tf.keras.optimizers.legacy.SGD(0.5), crossentropy())
    keras_model.train_on_batch(X, Y, class_weight={0: 1.0, 1: 3.0, 2: 1.0})
    expected = keras_model.get_weights()
    with against_keras.local():
        trained, _ = against_keras.step(
            of_keras2(dense, crossentropy(), (X, Y), {1: 3.0}), begin, (X, Y)
        )
    against_keras.assert_alike(trained, expected)
