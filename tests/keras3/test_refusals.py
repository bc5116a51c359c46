"""What cannot work is refused before training starts, with what to do."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import keras3_models
from tests import models as small
from tff_drift import algorithms, checks, models, optimizers, simulation

pytestmark = keras3_models.needed

BRIDGE = r"tff_drift\.models\.from_keras3\(keras_model, loss, input_spec, metrics\)"


def evaluate(model_fn):
    arrays = {"client": small.client_arrays([4])[0]}
    test = simulation.ClientDatasets.from_arrays(arrays, batch_size=4)
    return simulation.build_evaluation(model_fn, test)


PLACES = {
    "fed_avg": lambda model_fn: algorithms.build_fed_avg(model_fn, 0.1),
    "scaffold": lambda model_fn: algorithms.build_scaffold(model_fn, 0.1, 4),
    "uga": lambda model_fn: algorithms.build_uga(model_fn, 0.1, 0.1, local_epochs=1),
    "evaluation": evaluate,
}
every_place = pytest.mark.parametrize("take", PLACES.values(), ids=PLACES)


@every_place
def test_a_keras_model_is_to_go_over_the_bridge(take):
    keras_model = keras3_models.softmax_regression()
    with pytest.raises(TypeError, match=f"found <.*equential.*{BRIDGE}"):
        take(keras_model)
    with pytest.raises(TypeError, match=f"found <.*equential.*{BRIDGE}"):
        take(lambda: keras_model)
    with pytest.raises(TypeError, match=f"found <.*equential.*{BRIDGE}"):
        take(keras.Sequential)
    built = keras3_models.model_fn(keras_model)()
    with pytest.raises(TypeError, match=r"must be a function.*from_keras3\("):
        take(built)


@pytest.mark.parametrize("place", ["fed_avg", "scaffold", "uga"])
@pytest.mark.parametrize("is_built", [False, True])
def test_a_layer_from_outside_is_made_inside(place, is_built):
    head = keras.layers.Dense(3)
    if is_built:
        head.build([None, 5])
    inputs, labels = small.INPUT_SPEC

    def model_fn():
        layers = [keras.layers.Input(inputs.shape[1:]), keras.layers.Dense(5), head]
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return models.from_keras3(keras.Sequential(layers), loss, (inputs, labels))

    with pytest.raises(ValueError, match=r"layer that was made outside .* itself"):
        PLACES[place](model_fn)


class ComparesByOperator(keras.layers.Layer):
    def call(self, inputs):
        return keras.ops.where(inputs != 0, inputs, 5.0)


class CallsPython(keras.layers.Layer):
    def call(self, inputs):
        doubled = tf.py_function(lambda x: 2 * x, [inputs], tf.float32)
        return tf.ensure_shape(doubled, inputs.shape)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            lambda: ComparesByOperator(),
            r"ComparesByOperator\.call .* by !=.*keras\.ops\.equal",
        ),
        # Keras' own, in which nothing is augmented then.
        (
            lambda: keras.layers.RandAugment(),
            "RandAugment.* by ==.* Keras' own: .* to the data",
        ),
        (CallsPython, r"calls Python in tf\.py_function"),
    ],
)
@every_place
def test_what_layers_cannot_do_in_graphs_is_named(take, layer, message):
    spec = tf.TensorSpec([None, 8, 8, 3]), tf.TensorSpec([None], tf.int32)

    def model_fn():
        layers = [keras.layers.Input([8, 8, 3]), layer(), keras.layers.Flatten()]
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        net = keras.Sequential([*layers, keras.layers.Dense(3)])
        return models.from_keras3(net, loss, spec)

    with pytest.raises(ValueError, match=message):
        take(model_fn)


def of_keras2(model=None, loss=None, metrics=None, bridge="from_keras_model"):
    library = tff.learning.models if bridge == "from_keras_model" else models
    return lambda: getattr(library, bridge)(
        model or small.keras_softmax_regression(),
        loss or tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        small.INPUT_SPEC,
        metrics=metrics,
    )


def functional():
    inputs = keras.Input([small.NUM_FEATURES])
    return keras.Model(inputs, keras.layers.Dense(small.NUM_CLASSES)(inputs))


@every_place
@pytest.mark.parametrize("bridge", ["from_keras_model", "from_keras2"])
def test_bridges_of_keras_2_are_not_for_keras_3(take, bridge):
    cases = {
        "Sequential": {"model": keras3_models.softmax_regression()},
        "Functional": {"model": functional()},
        "SparseCategoricalCrossentropy": {"loss": keras3_models.loss()},
        "SparseCategoricalAccuracy": {"metrics": keras3_models.metrics()},
        "Mean": {"metrics": [keras.metrics.Mean]},
    }
    for name, arguments in cases.items():
        message = rf"models\.{bridge} takes.*found {name} of Keras 3.*{BRIDGE}"
        with pytest.raises(TypeError, match=message):
            take(of_keras2(**arguments, bridge=bridge))


def test_a_clone_of_a_compiled_model_is_made_outside():
    compiled = keras3_models.softmax_regression()
    compiled.compile("adam", "mse")

    def model_fn():
        return keras3_models.model_fn(keras.models.clone_model(compiled))()

    with pytest.raises(ValueError, match=r"load_model\(path, compile=False\)"):
        PLACES["fed_avg"](model_fn)
    clone = keras.models.clone_model(compiled)
    PLACES["fed_avg"](keras3_models.model_fn(clone))


def test_other_errors_of_a_model_function_stay_what_they_are():
    number = 3
    with pytest.raises(TypeError, match="'int' object is not callable"):
        algorithms.build_fed_avg(lambda: number(), 0.1)
    with pytest.raises(ValueError, match="'x' is not in list"):
        algorithms.build_fed_avg(lambda: ["y"].index("x"), 0.1)


def bridge(**changes):
    arguments = {
        "keras_model": keras3_models.softmax_regression(),
        "loss": keras3_models.loss(),
        "input_spec": small.INPUT_SPEC,
        **changes,
    }
    return models.from_keras3(**arguments)


def two_outputs():
    inputs = keras.layers.Input([small.NUM_FEATURES])
    return keras.Model(
        inputs,
        {"a": keras.layers.Dense(2)(inputs), "b": keras.layers.Dense(1)(inputs)},
    )


def frozen():
    keras_model = keras3_models.softmax_regression()
    keras_model.trainable = False
    return keras_model


MSE = "mean_squared_error"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            lambda: {"keras_model": small.keras_softmax_regression()},
            TypeError,
            r"keras_model must be.*Sequential.*from_keras_model",
        ),
        (
            lambda: {"keras_model": keras3_models.softmax_regression},
            TypeError,
            "keras_model must be.*found <function",
        ),
        (lambda: {"keras_model": 3}, TypeError, "keras_model must be.*found 3"),
        (lambda: {"keras_model": frozen()}, ValueError, "no trainable weights"),
        (
            lambda: {"keras_model": keras.Sequential([keras.Input([3])])},
            ValueError,
            "has no trainable weights",
        ),
        (
            lambda: {"loss": tf.keras.losses.MeanSquaredError()},
            TypeError,
            "loss must be.*of Keras 3.*found <.*MeanSquaredError",
        ),
        (lambda: {"loss": MSE}, TypeError, f"loss must be.*'{MSE}'"),
        (
            lambda: {"loss": keras.losses.MeanSquaredError},
            TypeError,
            "loss must be a loss of Keras 3",
        ),
        (lambda: {"loss_weights": [1.0]}, ValueError, "loss_weights needs a loss for"),
        (
            lambda: {"keras_model": two_outputs(), "loss": {"a": keras3_models.loss()}},
            ValueError,
            "loss must have an entry for each output.*'a', 'b'",
        ),
        (
            lambda: {
                "keras_model": two_outputs(),
                "loss": dict.fromkeys("ab", keras3_models.loss()),
                "loss_weights": {"a": 1.0, "b": float("nan")},
            },
            ValueError,
            r"loss_weights\['b'\] must be a finite number",
        ),
        (
            lambda: {
                "keras_model": two_outputs(),
                "loss": [keras3_models.loss()] * 2,
            },
            ValueError,
            r"loss must be a mapping .*Name what belongs to each: {'a': ..., 'b': ...}",
        ),
        (
            lambda: {
                "keras_model": two_outputs(),
                "loss": dict.fromkeys("ab", keras3_models.loss()),
                "loss_weights": [1.0, 2.0],
            },
            ValueError,
            "loss_weights must be a mapping",
        ),
        (
            lambda: {"input_spec": small.INPUT_SPEC[:1]},
            ValueError,
            "input_spec must be",
        ),
        (
            lambda: {"input_spec": {"x": small.INPUT_SPEC[0], "z": 3}},
            ValueError,
            r"input_spec must be.*\(x, y\).*found \['x', 'z'\]",
        ),
        (
            lambda: {"input_spec": (3, 4)},
            TypeError,
            "each of input_spec must be a tf.TensorSpec, found 3",
        ),
        (
            lambda: {"metrics": [tf.keras.metrics.Mean()]},
            TypeError,
            "metrics must be.*of Keras 3.*found.*Mean",
        ),
        (lambda: {"metrics": ["accuracy"]}, TypeError, "metrics must be.*'accuracy'"),
        (lambda: {"metrics": "accuracy"}, TypeError, "metrics must be.*'accuracy'"),
        (
            lambda: {"metrics": {"c": keras.metrics.Mean()}},
            ValueError,
            "metrics has 'c', which is not an output",
        ),
        (
            lambda: {"metrics": [keras.metrics.Mean("loss")]},
            ValueError,
            "different names, found 'loss' twice",
        ),
        (
            lambda: {"metrics": [keras.metrics.AUC(name="num_examples")]},
            ValueError,
            "'num_examples' must count examples, .* found AUC. Give it another",
        ),
        (
            lambda: {"weighted_metrics": [keras.metrics.Sum("num_batches")]},
            ValueError,
            "'num_batches' must count batches, .* found Sum. Give it another",
        ),
        (
            lambda: {"metrics": [keras.metrics.AUC(name="my metric")]},
            ValueError,
            "a metric named 'my metric', .*letters of English",
        ),
    ],
)
def test_bad_arguments_of_the_bridge(changes, error, message):
    with pytest.raises(error, match=message):
        bridge(**changes())


def test_a_metric_whose_name_no_graph_takes_is_named():
    def model_fn():
        return bridge(metrics=[keras.metrics.AUC(name="my metric")])

    with pytest.raises(ValueError, match="model_fn gives something the name 'my metri"):
        algorithms.build_fed_avg(model_fn, 0.1)
    # Keras would put it before the names of all that comes after.
    layer = keras.layers.Dense(2, name="later")
    layer.build([None, 3])
    assert [weight.path for weight in layer.weights] == ["later/kernel", "later/bias"]


class Unseeded(keras.layers.Layer if keras3_models.IS_THERE else object):
    """Draws from the generator of the whole process."""

    def call(self, inputs, training=False):
        if not training:
            return inputs
        return inputs + keras.random.normal(keras.ops.shape(inputs))


def remembering():
    recurrent = keras.layers.GRU(2, stateful=True)
    layers = [keras.layers.Reshape([3, 1]), recurrent, keras.layers.Dense(4)]
    return keras.Sequential([keras.layers.Input([3], batch_size=4), *layers])


def normalising():
    dense = keras.layers.Dense(4)
    return keras3_models.softmax_regression(keras.layers.SpectralNormalization(dense))


def constrained():
    limit = keras.constraints.MaxNorm(1)
    return keras3_models.softmax_regression(
        keras.layers.Dense(4, kernel_constraint=limit)
    )


def quantized():
    keras_model = keras3_models.softmax_regression()
    keras_model.quantize("float8")
    return keras_model


UNTRAINABLE = {
    "stateful": (remembering, "variable that is not one of its weights.*stateful=True"),
    "unseeded": (
        lambda: keras3_models.softmax_regression(Unseeded()),
        r"not one of its weights.*keras\.random\.SeedGenerator",
    ),
    "spectral": (normalising, "sets.*its trainable weight '.*kernel'"),
    "constraint": (constrained, "constraint of its weight '.*kernel'"),
    "float8": (quantized, "quantized to float8: its weight '.*scale'"),
}


@pytest.mark.parametrize(
    ("make", "message"), UNTRAINABLE.values(), ids=UNTRAINABLE.keys()
)
@every_place
def test_models_whose_training_clients_would_lose_are_refused(take, make, message):
    keras_model = make()
    with pytest.raises(ValueError, match=message) as raised:
        take(keras3_models.model_fn(keras_model))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (
            ([None, 2], tf.float32),
            ([None], tf.int32),
            "batches: Input 0 .* value 3, but",
        ),
        (
            ([None, 3], tf.float32),
            ([None, 4], tf.float32),
            "batches: Argument `output`",
        ),
        (([None, 3], tf.float32), ([None], tf.string), r"strings in y, .*y\.astype"),
        (([None, 3], tf.string), ([None], tf.int32), "strings in x,"),
    ],
    ids=["columns", "one-hot", "labels of strings", "inputs of strings"],
)
@every_place
def test_batches_that_a_model_cannot_take_are_refused(take, inputs, labels, message):
    keras_model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(4)])
    spec = tf.TensorSpec(*inputs), tf.TensorSpec(*labels)

    def model_fn():
        return models.from_keras3(keras_model, keras3_models.loss(), spec)

    with pytest.raises((TypeError, ValueError), match=message) as raised:
        take(model_fn)
    text = str(raised.value)
    assert text.isprintable()
    assert len(text) < 600


@pytest.mark.parametrize("argument", ["metrics", "weighted_metrics"])
@pytest.mark.parametrize(
    "name", ["Accuracy", "AUC", "BinaryAccuracy", "F1Score", "KLDivergence", "Recall"]
)
def test_metrics_that_cannot_count_numbers_of_classes_are_refused(argument, name):
    make = getattr(keras.metrics, name)

    def model_fn(**changes):
        return lambda: bridge(**{argument: [make()]}, **changes)

    message = (
        rf"^{argument} has {name} .*labels .* and outputs of .*SparseCateg.*one-hot"
    )
    with pytest.raises(ValueError, match=message) as raised:
        PLACES["fed_avg"](model_fn())
    assert len(str(raised.value)) < 400
    inputs, _ = small.INPUT_SPEC
    one_hot = tf.TensorSpec([None, small.NUM_CLASSES], tf.float32)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    PLACES["fed_avg"](model_fn(input_spec=(inputs, one_hot), loss=loss))


@pytest.mark.parametrize("argument", ["metrics", "weighted_metrics"])
def test_a_metric_of_keras_of_all_outputs_is_refused(argument):
    class Own(keras.metrics.Mean):
        def update_state(self, y_true, y_pred, sample_weight=None):
            super().update_state(y_pred["a"])

    def model_fn(metrics):
        kinds, sizes = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 1])
        return lambda: bridge(
            keras_model=two_outputs(),
            loss={"a": keras3_models.loss(), "b": keras.losses.MeanSquaredError()},
            input_spec=(small.INPUT_SPEC[0], {"a": kinds, "b": sizes}),
            **{argument: metrics},
        )

    squared = keras.metrics.MeanSquaredError()
    with pytest.raises(
        ValueError, match=f"^{argument} has MeanSq.* of all outputs .*{argument}={{'<"
    ):
        PLACES["fed_avg"](model_fn([squared]))
    for taken in ([Own("own")], {"b": [squared]}):
        PLACES["fed_avg"](model_fn(taken))


def test_a_lookup_layer_that_counts_its_tokens_is_told_so():
    """It has a column for each, as many as its table says."""

    def model_fn(**options):
        words = keras.layers.Input([1], dtype="string")
        columns = keras.layers.StringLookup(
            vocabulary=["a", "b"], output_mode="one_hot", **options
        )(words)
        outputs = keras.layers.Dense(2)(keras.layers.Flatten()(columns))
        return models.from_keras3(
            keras.Model(words, outputs),
            keras3_models.loss(),
            (tf.TensorSpec([None, 1], tf.string), tf.TensorSpec([None], tf.int32)),
        )

    with pytest.raises(ValueError, match=r"max_tokens=.* pad_to_max") as raised:
        PLACES["fed_avg"](model_fn)
    assert len(str(raised.value)) < 800
    PLACES["fed_avg"](lambda: model_fn(max_tokens=3, pad_to_max_tokens=True))


def test_metrics_that_count_numbers_of_classes_are_taken():
    def of_class(labels, outputs):
        return tf.gather(outputs, tf.cast(labels, tf.int32), batch_dims=1)

    metrics = [
        keras.metrics.SparseCategoricalAccuracy(),
        keras.metrics.SparseTopKCategoricalAccuracy(),
        keras.metrics.CategoricalAccuracy(),
        keras.metrics.MeanMetricWrapper(of_class, name="of_class"),
    ]
    PLACES["fed_avg"](lambda: bridge(metrics=metrics))


def test_weights_of_another_model_are_not_assigned():
    keras_model = keras3_models.softmax_regression()
    weights = keras3_models.weights(keras_model)
    other = keras3_models.softmax_regression(keras.layers.Dense(5))
    with pytest.raises(ValueError, match=r"arrays of shapes \[\(3, 4\), \(4,\)\]"):
        models.assign_to_keras3(weights, other)
    with pytest.raises(TypeError, match="model_weights must be a tff"):
        models.assign_to_keras3(keras_model, keras_model)
    with pytest.raises(TypeError, match=r"keras_model must be a keras\.Model"):
        models.assign_to_keras3(weights, small.keras_softmax_regression())
    with pytest.raises(ValueError, match=r"trainable weights of shapes \[\]"):
        models.assign_to_keras3(weights, keras.Sequential([keras.layers.Dense(4)]))


def test_weights_are_not_assigned_where_other_layers_are_trainable():
    keras_model = keras.Sequential(
        [keras.layers.Input([4]), keras.layers.Dense(4), keras.layers.Dense(4)]
    )
    first, _ = keras_model.layers
    first.trainable = False
    weights = keras3_models.weights(keras_model)
    before = keras_model.get_weights()
    first.trainable = True
    message = (
        r"weights\.trainable has.*\[\(4, 4\), \(4,\)\].*set trainable of its layers"
    )
    with pytest.raises(ValueError, match=message):
        models.assign_to_keras3(weights, keras_model)
    small.assert_bit_equal(keras_model.get_weights(), before)
    first.trainable = False
    models.assign_to_keras3(weights, keras_model)


def test_an_optimizer_of_keras_3_is_refused_as_one_of_keras_2():
    with pytest.raises(TypeError, match="Optimizers of Keras are not supported"):
        optimizers.as_optimizer("client_optimizer_fn", keras.optimizers.SGD(0.1))


def test_what_is_of_keras_3():
    class Mine(keras.layers.Layer):
        pass

    for value in (keras.Model, Mine, keras.losses.mean_squared_error):
        assert checks.is_of_keras3(value)
    assert checks.is_of_keras3(Mine())
    for value in (tf.keras.Model, np.zeros(3), len, None, tf.keras.losses.mse):
        assert not checks.is_of_keras3(value)


def test_another_backend_is_refused_in_one_line():
    program = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import keras
import tff_drift
try:
    tff_drift.models.from_keras3(None, None, None)
except ValueError as error:
    print(error)
"""
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert output == (
        "keras computes with 'jax', and TFF with TensorFlow. Set the environment "
        "variable KERAS_BACKEND=tensorflow before keras is imported.\n"
    )


def test_what_keras_says_at_length_is_told_briefly():
    kernel = np.zeros((30, 30))

    def model_fn():
        keras_model = keras.Sequential(
            [keras.Input([30]), keras.layers.Dense(30, weights=[kernel])]
        )
        return models.from_keras3(keras_model, keras3_models.loss(), small.INPUT_SPEC)

    with pytest.raises(ValueError, match=r"ValueError: Unrecognized key.*") as caught:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert len(str(caught.value)) < 1200
