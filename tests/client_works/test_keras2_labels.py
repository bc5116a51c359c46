"""Labels of a Keras 2 model are those of its outputs, as in `fit`."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.client_works import against_keras
from tests.client_works.keras2_models import (
    COLUMN,
    FEATURES,
    OF_EXAMPLES,
    SquaredErrors,
    of_dtypes,
    one_output,
)
from tff_drift import algorithms, models
from tff_drift.models.keras2 import as_in_fit

L = tf.keras.layers


def two_outputs():
    inputs = tf.keras.Input([5])
    outputs = [L.Dense(3, name="kind")(inputs), L.Dense(1, name="size")(inputs)]
    return tf.keras.Model(inputs, outputs)


def twice_one_output():
    inputs = tf.keras.Input([1])
    outputs = [one_output()(inputs), one_output()(2 * inputs)]
    return tf.keras.Model(inputs, outputs)


BY_NAME = {type(loss).__name__: loss for loss in OF_EXAMPLES}


@pytest.mark.parametrize(
    ("build", "name"),
    # In the first tier each loss of one output, and one of two.
    tiers.first(
        range(len(BY_NAME) + 1),
        [(build, name) for build in (one_output, twice_one_output) for name in BY_NAME],
    ),
)
def test_labels_without_a_last_dimension_are_not_one_example(build, name):
    """As in `fit`: labels `[n]` of outputs `[n, 1]` are a number for each example."""
    x, y = COLUMN
    losses, labels, given = BY_NAME[name], y, y
    if build is twice_one_output:
        losses, labels, given = [losses] * 2, (y, y), [y, y]
    keras_model = build()
    keras_model.compile("sgd", losses)
    expected = keras_model.evaluate(x, given, verbose=0, return_dict=True)["loss"]
    spec = against_keras.spec_of((x, labels))
    model = as_in_fit(tff.learning.models.from_keras_model(build(), losses, spec))
    found = model.forward_pass((x, labels)).loss
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "keys", tiers.first([1], [(("kind", "size"),), (("size", "kind"),), None])
)
def test_labels_by_name_and_a_list_of_losses(keys):
    labels = {"kind": np.array([2, 0]), "size": np.array([[1.0], [3.0]], np.float32)}
    losses = [
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        tf.keras.losses.MeanSquaredError(),
    ]
    in_order = (FEATURES, list(labels.values()))
    begin, expected, _ = against_keras.step_of_keras(
        two_outputs(), losses, in_order, loss_weights=[1.0, 0.25]
    )
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


def test_one_loss_is_that_of_each_output():
    inputs = tf.keras.Input([5])
    keras_model = tf.keras.Model(inputs, [L.Dense(2)(inputs), L.Dense(1)(inputs)])
    labels = (FEATURES[:, :2], FEATURES[:, :1])
    squares = [
        np.mean((output - wanted) ** 2)
        for output, wanted in zip(keras_model(FEATURES), labels, strict=True)
    ]
    model = models.from_keras2(
        keras_model,
        tf.keras.losses.MeanSquaredError(),
        against_keras.spec_of((FEATURES, labels)),
    )
    loss = model.forward_pass((FEATURES, labels)).loss
    np.testing.assert_allclose(loss, sum(squares), rtol=1e-6)


def test_one_loss_for_all_outputs_is_refused_where_tff_has_it_take_them_for_one():
    class Own(tf.keras.losses.Loss):
        def call(self, y_true, y_pred):
            return tf.abs(y_pred[0] - y_true[0])

    y = FEATURES[:, :1]
    spec = against_keras.spec_of((FEATURES[:, :1], (y, y)))

    def model_of(loss):
        return as_in_fit(
            tff.learning.models.from_keras_model(twice_one_output(), loss, spec)
        )

    with pytest.raises(ValueError, match=r"2 outputs the one loss MeanSq.* loss=\["):
        model_of(tf.keras.losses.MeanSquaredError())
    model_of(Own())
    model_of([tf.keras.losses.MeanSquaredError()] * 2)


def test_what_belongs_to_outputs_that_are_a_mapping_is_named():
    """Keras sorts these in some places: no sequence has a certain order."""
    inputs = tf.keras.Input([5])
    outputs = {name: L.Dense(1, name=name)(inputs) for name in "ba"}
    keras_model = tf.keras.Model(inputs, outputs)
    column = FEATURES[:, :1]
    named = {"b": column, "a": 2 * column}
    mse, mae = tf.keras.losses.MeanSquaredError(), tf.keras.losses.MeanAbsoluteError()

    def loss_of(batch, losses=None, **options):
        losses = losses or {"b": mse, "a": mae}
        spec = against_keras.spec_of(batch)
        model = models.from_keras2(keras_model, losses, spec, **options)
        return model.forward_pass(batch).loss

    found = {name: each.numpy() for name, each in keras_model(FEATURES).items()}
    expected = np.mean((found["b"] - column) ** 2) + 10 * np.mean(
        np.abs(found["a"] - 2 * column)
    )
    np.testing.assert_allclose(
        loss_of((FEATURES, named), loss_weights={"a": 10.0, "b": 1.0}),
        expected,
        rtol=1e-6,
    )
    batch, weights = (FEATURES, named), column[:, 0]
    for name, call in {
        "loss": lambda: loss_of(batch, [mse, mae]),
        "loss_weights": lambda: loss_of(batch, loss_weights=[1.0, 10.0]),
        "the labels of input_spec": lambda: loss_of((FEATURES, (column, column))),
        "the weights of input_spec": lambda: loss_of((*batch, (weights, weights))),
    }.items():
        with pytest.raises(ValueError, match=f"^{name} must be a mapping .*'a': ..."):
            call()


class Deviations(tf.keras.metrics.Mean):
    """A metric of one's own, which casts nothing."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        values = tf.reduce_mean(tf.abs(y_true - y_pred), axis=-1)
        if sample_weight is not None:
            values *= tf.reshape(sample_weight, [-1])
        return super().update_state(values)


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
