"""Large values of models are in files, and in no graph."""

import collections
import fcntl
import os
import tempfile
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models
from tff_drift import algorithms, compat, execution, simulation
from tff_drift.models import value_files

pytestmark = pytest.mark.no_smoke

WIDTH = 200
VALUES = np.random.default_rng(2).normal(size=[WIDTH, WIDTH]).astype(np.float32)
DATA = [
    (np.eye(WIDTH, dtype=np.float32)[:6], np.array([0, 1, 2, 0, 1, 2])),
    (np.eye(WIDTH, dtype=np.float32)[6:10], np.array([2, 1, 0, 0])),
]
DATASETS = [tf.data.Dataset.from_tensor_slices(each).batch(2) for each in DATA]


@pytest.fixture(autouse=True)
def local():
    context = execution.create_local_execution_context()
    with tff.framework.get_context_stack().install(context):
        yield context


def keras_model():
    """A frozen layer with loaded weights, a frozen normalization, and a head."""
    frozen = tf.keras.layers.Dense(
        WIDTH, "tanh", trainable=False, input_shape=[WIDTH], bias_initializer="ones"
    )
    normalization = tf.keras.layers.BatchNormalization(
        trainable=False, moving_mean_initializer="ones"
    )
    head = tf.keras.layers.Dense(3, kernel_initializer="zeros")
    model = tf.keras.Sequential([frozen, normalization, head])
    frozen.kernel.assign(VALUES)
    return model


def loss():
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def model_fn():
    return tff.learning.models.from_keras_model(
        keras_model(), loss(), DATASETS[0].element_spec
    )


def functional_model():
    @tf.function
    def predict(weights, x, training=True):
        del training
        return tf.tanh(x @ weights[1][0]) @ weights[0][0]

    def mean_loss(output, label, sample_weight=None):
        return loss()(label, output, sample_weight)

    @tf.function
    def initialize():
        return collections.OrderedDict(batches=tf.zeros([]))

    @tf.function
    def update(state, labels, batch_output, sample_weight=None):
        del labels, batch_output, sample_weight
        return collections.OrderedDict(batches=state["batches"] + 1.0)

    @tf.function
    def finalize(state):
        return state

    return tff.learning.models.FunctionalModel(
        initial_weights=((np.zeros([WIDTH, 3], np.float32),), (VALUES,)),
        predict_on_batch_fn=predict,
        loss_fn=mean_loss,
        metrics_fns=(initialize, update, finalize),
        input_spec=DATASETS[0].element_spec,
    )


def size(computation):
    return compat.framework.serialize_computation(computation).ByteSize()


def test_frozen_layers_of_keras_2():
    process = algorithms.build_scaffold(model_fn, 0.1, num_clients=2)
    # The value is a constant of what the model function itself does, once.
    assert size(process.initialize) < 1.5 * VALUES.nbytes
    trained = 3 * WIDTH + 3
    (state,) = process.initial_client_state.values()
    assert state.shape == (trained,)
    assert simulation.model_traffic(process).bytes_down == 8 * trained

    process = algorithms.build_fed_avg(model_fn, 0.1)
    initial = process.initialize()
    model = keras_model()
    models.assert_bit_equal(
        initial.global_model_weights.non_trainable,
        [each.numpy() for each in model.non_trainable_variables],
    )
    state = process.next(initial, DATASETS[:1]).state
    model.compile(tf.keras.optimizers.legacy.SGD(0.1), loss())
    model.fit(*DATA[0], batch_size=2, shuffle=False, verbose=0)
    after = process.get_model_weights(state)
    for actual, expected in zip(
        after.trainable, model.trainable_variables, strict=True
    ):
        np.testing.assert_allclose(actual, expected.numpy(), atol=1e-6)
    models.assert_bit_equal(
        after.non_trainable, initial.global_model_weights.non_trainable
    )


def test_weights_of_functional_models():
    process = algorithms.build_fed_avg(functional_model(), 0.1)
    initial = process.initialize()
    assert size(process.initialize) < VALUES.nbytes / 2
    models.assert_bit_equal(initial.global_model_weights.non_trainable, (VALUES,))
    x, y = DATA[0]
    kernel = np.zeros([WIDTH, 3])
    for rows in (slice(0, 2), slice(2, 4), slice(4, 6)):
        hidden = np.tanh(x[rows] @ VALUES)
        logits = np.exp(hidden @ kernel)
        error = logits / logits.sum(1, keepdims=True) - np.eye(3)[y[rows]]
        kernel -= 0.1 * hidden.T @ error / 2
    state = process.next(initial, DATASETS[:1]).state
    (trained,) = process.get_model_weights(state).trainable
    np.testing.assert_allclose(trained, kernel, atol=1e-6)


def file_and_value(value):
    with tf.Graph().as_default() as graph:
        tensor = value_files.constant(value)
        assert tensor.shape == value.shape
        names = [
            node.attr["value"].tensor.string_val[0].decode()
            for node in graph.as_graph_def().node
            if node.name == "RestoreV2/prefix"
        ]
        with tf.compat.v1.Session() as session:
            found = session.run(tensor)
    return names, found


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bfloat16", "uint8"])
def test_values_of_any_type(dtype):
    value = VALUES.reshape([5, -1, 4])
    value = np.concatenate([value] * 2).astype(tf.as_dtype(dtype).as_numpy_dtype)
    (name,), found = file_and_value(value)
    assert found.dtype == value.dtype
    np.testing.assert_array_equal(found, value)
    # Equal values share a file, which no others may read.
    assert file_and_value(value.copy())[0] == [name]
    assert os.stat(os.path.dirname(name)).st_mode & 0o077 == 0


@pytest.mark.parametrize("value", [np.zeros(3), np.array(7), np.full(20_000, "text")])
def test_small_values_and_texts_are_constants(value):
    with tf.Graph().as_default() as graph:
        value_files.constant(value)
        assert [node.op for node in graph.as_graph_def().node] == ["Const"]


def test_values_are_sent_to_where_they_are_missing(tmp_path, monkeypatch):
    with tf.Graph().as_default() as graph:
        value_files.constant(VALUES)
        message = graph.as_graph_def().SerializeToString()
    assert value_files.values_of(b"none") == {}
    files = value_files.values_of(message)
    there = {
        str(tmp_path / "there" / os.path.basename(name)): content
        for name, content in files.items()
    }
    value_files.receive(there)
    (prefix,) = {name.partition(".data")[0] for name in there if ".data" in name}
    found = tf.train.load_checkpoint(prefix).get_tensor("value")
    np.testing.assert_array_equal(found, VALUES)


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.touch()
    monkeypatch.setattr(value_files, "_folder", lambda pid: path / "folder")
    with (
        tf.Graph().as_default(),
        pytest.raises(OSError, match=r"160,000 bytes.*TMPDIR"),
    ):
        value_files.constant(VALUES)


def test_models_that_are_given_weights_begin_with_zeros():
    with tf.Graph().as_default() as graph:
        with value_files.left_out():
            tensor = value_files.constant(VALUES)
        assert tensor.shape == VALUES.shape
        assert len(graph.as_graph_def().SerializeToString()) < 1000
        assert value_files.constant(VALUES).op.type == "RestoreV2"


def test_what_killed_programs_left_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folders = {}
    for name in ("left", "used", "new"):
        folders[name] = tmp_path / f"tff_drift_values_{name}"
        folders[name].mkdir()
        if name != "new":
            os.utime(folders[name], (time.time() - 1000,) * 2)
    (tmp_path / "of_others").mkdir()
    descriptor = os.open(folders["used"], os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    value_files._remove_left_behind()
    os.close(descriptor)
    left = sorted(each.name for each in tmp_path.iterdir())
    assert left == ["of_others", *sorted(folders[n].name for n in ("new", "used"))]
