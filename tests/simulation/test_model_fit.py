"""Examples that do not fit a model are refused, in training and in evaluation."""

import collections
import pickle

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.paper.contexts import both_contexts
from tff_drift import algorithms, simulation
from tff_drift.simulation.data import model_fit

NUM_LABELS = 10
X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
Y = np.arange(6, dtype=np.int32)


def dense_model(x=tf.float32, y=tf.int32):
    def build():
        layer = tf.keras.layers.Dense(
            NUM_LABELS, kernel_initializer="zeros", input_shape=(3,), dtype=x
        )
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([layer]),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy("accuracy")],
            input_spec=(tf.TensorSpec((None, 3), x), tf.TensorSpec((None,), y)),
        )

    return build


def token_model():
    layers = [
        tf.keras.layers.Embedding(50, 2, input_length=3),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(NUM_LABELS),
    ]
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential(layers),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy("accuracy")],
        input_spec=(
            tf.TensorSpec((None, 3), tf.int32),
            tf.TensorSpec((None,), tf.int32),
        ),
    )


TOKENS = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]] * 2, np.int32)
MODELS = {"dense": dense_model(), "tokens": token_model}
PROCESSES = {}


def process_of(model):
    if model not in PROCESSES:
        PROCESSES[model] = algorithms.build_fed_avg(MODELS[model], 0.1)
    return PROCESSES[model]


def clients(x, y):
    """A client whose examples fit, and one of others of the same dtypes."""
    good = {"dense": X, "tokens": TOKENS}
    fits = good["tokens" if np.asarray(x).dtype.kind in "iu" else "dense"]
    return simulation.ClientDatasets.from_arrays(
        {
            "ann": (fits.astype(np.asarray(x).dtype), Y.astype(np.asarray(y).dtype)),
            "bob": (x, y),
        },
        batch_size=4,
    )


def train(model, data):
    return simulation.run_training(process_of(model), data, rounds=1, cohort_size=2)


def evaluate(model, data):
    weights = process_of(model).get_model_weights(process_of(model).initialize())
    return simulation.build_evaluation(MODELS[model], data)(weights)


def replaced(array, index, value):
    array = array.copy()
    array[index] = value
    return array


REFUSED = {
    "labels between": (
        *("dense", X, replaced(Y.astype(np.float64), 3, 3.9)),
        r"client 'bob', example 3: found 3.9 of float64 in \[1\], which the model "
        "takes as int32",
    ),
    "labels that are no number": (
        *("dense", X, replaced(Y.astype(np.float32), 2, np.nan)),
        "client 'bob', example 2: found nan of float32",
    ),
    "labels beyond 32 bits": (
        *("dense", X, replaced(Y.astype(np.int64), 5, 2**32 + 5)),
        "client 'bob', example 5: found 4294967301 of int64",
    ),
    "tokens beyond 32 bits": (
        *("tokens", replaced(TOKENS.astype(np.int64), (4, 1), 2**32 + 5), Y),
        r"client 'bob', example 4: found 4294967301 of int64 in \[0\]",
    ),
    "unsigned tokens beyond 32 bits": (
        *("tokens", replaced(TOKENS.astype(np.uint64), (1, 1), 2**63 + 5), Y),
        "client 'bob', example 1: found 9223372036854775813 of uint64",
    ),
    "floats that would be infinite": (
        *("dense", replaced(X.astype(np.float64), (2, 0), 1e300), Y),
        r"client 'bob', example 2: found 1e\+300 of float64",
    ),
    "labels without output": (
        *("dense", X, replaced(Y, 4, 12)),
        "client 'bob', example 4: found the label 12, but the model has outputs for "
        "the labels 0 to 9",
    ),
    "tokens without embedding": (
        *("tokens", replaced(TOKENS, (3, 2), 50), Y),
        "client 'bob', example 3: found 50, but the model has an embedding for 0 to 49",
    ),
    "negative tokens": (
        *("tokens", replaced(TOKENS, (3, 2), -1), Y),
        "client 'bob', example 3: found -1, but the model has an embedding for 0 to 49",
    ),
}


@pytest.mark.parametrize("use", [train, evaluate])
@pytest.mark.parametrize("case", REFUSED)
def test_a_value_that_would_be_another_one_is_refused(case, use):
    model, x, y, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        use(model, clients(x, y))


@pytest.mark.conformance
def test_it_is_refused_in_every_context():
    model, x, y, message = REFUSED["tokens beyond 32 bits"]
    for _ in both_contexts():
        with pytest.raises(ValueError, match=message):
            train(model, clients(x, y))
    model, x, y, message = REFUSED["tokens without embedding"]
    for _ in both_contexts():
        with pytest.raises(ValueError, match=message):
            train(model, clients(x, y))


KINDS = {
    "text labels": (
        *("dense", X, Y.astype(str)),
        r"has \[1\] as string, but the model takes int32. Number them: np.unique",
    ),
    "text examples": ("tokens", TOKENS.astype(str), Y, r"has \[0\] as string"),
    "complex numbers": (
        *("dense", X + 1j, Y),
        r"has \[0\] as complex64, but the model takes float32. Give real and imaginary",
    ),
    "another shape": (
        *("dense", X[:, :2], Y),
        r"has \[0\] of shape \(None, 2\), but the model takes \(None, 3\)",
    ),
    "labels in a column": (
        *("dense", X, Y[:, None]),
        r"has \[1\] of shape \(None, 1\), but the model takes \(None,\)",
    ),
}


@pytest.mark.parametrize("use", [train, evaluate])
@pytest.mark.parametrize("case", KINDS)
def test_another_kind_or_shape_is_refused_before_anything_runs(case, use):
    model, x, y, message = KINDS[case]
    data = simulation.ClientDatasets.from_arrays({"bob": (x, y)}, batch_size=4)
    name = "train" if use is train else "test"
    with pytest.raises(TypeError, match=f"^{name} {message}"):
        data.fitting(name, MODELS[model]().input_spec)
    if use is train:
        with pytest.raises(TypeError, match=f"^train {message}"):
            simulation.run_training(process_of(model), data, rounds=1, cohort_size=1)
    else:
        with pytest.raises(TypeError, match=f"^test {message}"):
            simulation.build_evaluation(MODELS[model], data)


@pytest.mark.parametrize("examples", [X, (X, Y, Y), {"x": X, "labels": Y}])
def test_another_structure_is_refused(examples):
    data = simulation.ClientDatasets.from_arrays({"bob": examples}, batch_size=4)
    spec = collections.OrderedDict(
        x=tf.TensorSpec((None, 3), tf.float32), y=tf.TensorSpec((None,), tf.int32)
    )
    with pytest.raises(TypeError, match=r"train has examples of .* but the model"):
        data.fitting("train", spec)


def test_names_are_refused_where_the_model_has_none():
    examples = {"x": X, "y": Y}
    data = simulation.ClientDatasets.from_arrays({"bob": examples}, batch_size=4)
    with pytest.raises(TypeError, match=r"train has examples of <x=.* but the model"):
        simulation.run_training(process_of("dense"), data, rounds=1, cohort_size=1)


def fits(examples, spec):
    data = simulation.ClientDatasets.from_arrays({"bob": examples}, batch_size=4)
    return data.fitting("train", spec)


def test_dictionaries_fit_by_their_names():
    spec = collections.OrderedDict(
        y=tf.TensorSpec((None,), tf.int32), x=tf.TensorSpec((None, 3), tf.float32)
    )
    good = fits({"x": X, "y": Y.astype(np.int64)}, spec)
    assert good.element_spec["y"].dtype == tf.int64
    assert good.training_data("bob", 0).element_spec["y"].dtype == tf.int32
    with pytest.raises(ValueError, match="example 1: found 2147483648 of int64 in y"):
        fits({"x": X, "y": replaced(Y.astype(np.int64), 1, 2**31)}, spec)


def test_clients_that_are_cast_go_to_other_processes():
    spec = tf.TensorSpec((None, 3), tf.float32), tf.TensorSpec((None,), tf.int32)
    sent = pickle.loads(pickle.dumps(fits((X.astype(np.float64), Y), spec)))
    batches = list(sent.training_data("bob", 0).as_numpy_iterator())
    x, y = map(np.concatenate, zip(*batches, strict=True))
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x[np.argsort(y)], X)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([1.5, -2.25, 1e-300]), tf.float32),
        (np.array([np.nan, np.inf, 1.0]), tf.float32),
        (np.array([0, 2**31 - 1, -(2**31)], np.int64), tf.int32),
        (np.array([0, 255, 7], np.uint8), tf.float32),
        (np.array([0, 2**24, -(2**24)], np.int64), tf.float32),
        (np.array([0, 2**60, -(2**62)], np.int64), tf.float32),
        (np.array([0, 256, -3], np.int32), tf.bfloat16),
        (np.array([True, False, True]), tf.int32),
        (np.array([1.0, 2.0, -3.0]), tf.int32),
        (np.array([0.0, 1.0, 1.0]), tf.bool),
        (np.array([1.5, 2.0, 3.0], np.float32), tf.bfloat16),
        (np.array([1, 2, 3], ml_dtypes.bfloat16), tf.float32),
        (np.array([1.0, 2.0, 3.0], np.float32), tf.complex64),
    ],
)
def test_casts_that_keep_every_value_are_taken(values, dtype):
    assert len(fits(values, tf.TensorSpec((None,), dtype))) == 1


@pytest.mark.conformance
def test_casts_train_the_same_model_in_every_context():
    for _ in both_contexts():
        expected, found = (
            train("dense", data).model_weights.trainable
            for data in (
                clients(X, Y),
                clients(X.astype(np.float64), Y.astype(np.int64)),
            )
        )
        assert np.any(expected[0])
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([0.0, 2.0**31, 1.0]), tf.int32),
        (np.array([0.0, -np.inf, 1.0]), tf.int64),
        (np.array([0.0, 2.0**63, 1.0]), tf.int64),
        (np.array([0, 2**24 + 1, 1], np.int64), tf.float32),
        (np.array([0, 2**60 + 1, 1], np.uint64), tf.float64),
        (np.array([0, 70_000, 1], np.int32), tf.float16),
        (np.array([0, 257, 1], np.int32), tf.bfloat16),
        (np.array([0, -1, 1], np.int8), tf.uint8),
        (np.array([0, 2, 1], np.int8), tf.bool),
        (np.array([0, 1e5, 1], np.float32), tf.float16),
        (np.array([0, 2**64 - 1, 1], np.uint64), tf.int64),
    ],
)
def test_casts_that_change_a_value_are_refused(values, dtype):
    with pytest.raises(ValueError, match=r"client 'bob', example 1: found \S+ of "):
        fits(values, tf.TensorSpec((None,), dtype))


def test_a_cast_is_told_once(caplog):
    model_fit._say_once.cache_clear()
    for _ in range(2):
        fits((X.astype(np.float64), Y), dense_model()().input_spec)
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if "has [0] as float64" in text] == told
    assert len(told) == 1


def test_values_are_looked_at_once_for_each_client():
    looked_at = []
    check = model_fit.check_fit(
        "train", tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None,), tf.int32)
    )
    for client_id in ("ann", "bob", "ann", "bob"):
        check(client_id, lambda name=client_id: looked_at.append(name) or Y)
    assert looked_at == ["ann", "bob"]


def test_examples_of_the_models_dtypes_are_not_looked_at():
    assert fits((X, Y), dense_model()().input_spec)._check is None


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.int4, np.longdouble, "M8[s]"]
)
def test_numbers_that_tff_has_no_type_for_are_refused(dtype):
    with pytest.raises(ValueError, match=r"^Client 'bob': for an array of .* no type"):
        fits((np.zeros((3, 2), dtype),), (tf.TensorSpec((None, 2), tf.float32),))
