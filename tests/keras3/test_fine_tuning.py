"""Frozen backbones with adapters: what trains is all that a round is about."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import keras3_models
from tests import models as small
from tff_drift import algorithms, compat, models, simulation
from tff_drift.models import value_files
from tff_drift.simulation.records import checkpoint

pytestmark = keras3_models.needed

RANDOM = np.random.default_rng(5)
CLIENTS = {
    name: (
        RANDOM.normal(size=[count, 6]).astype(np.float32),
        RANDOM.integers(0, 3, count),
    )
    for name, count in {"ann": 8, "bob": 12}.items()
}
TRAIN = simulation.ClientDatasets.from_arrays(CLIENTS, batch_size=4, shuffle=False)
WIDTH, RANK, RATE = 520, 2, 0.1
# The backbone's kernel is more than 2**18 numbers, 1 MiB.
TRAINED = WIDTH * RANK + RANK * WIDTH + WIDTH * 3 + 3


def fine_tuned(seed=3):
    """A frozen backbone with an adapter and a normalization, and a head."""
    keras.utils.set_random_seed(seed)
    normalization = keras.layers.BatchNormalization()
    adapted = keras.layers.Dense(WIDTH, activation="tanh")
    layers = [keras.layers.Dense(WIDTH), normalization, adapted]
    keras_model = keras.Sequential(
        [keras.layers.Input([6]), *layers, keras.layers.Dense(3)]
    )
    mean, variance = np.linspace(-1, 1, WIDTH), np.linspace(1, 2, WIDTH)
    normalization.set_weights([variance, mean, mean, variance])
    adapted.enable_lora(RANK)
    adapted.bias.trainable = False
    adapted.lora_kernel_b.assign(np.full([RANK, WIDTH], 0.1, np.float32))
    for layer in layers[:2]:
        layer.trainable = False
    return keras_model


@pytest.fixture(scope="module")
def keras_model():
    return fine_tuned()


def loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def model_fn_of(keras_model):
    return lambda: models.from_keras3(keras_model, loss(), TRAIN.element_spec)


@pytest.fixture(scope="module")
def model_fn(keras_model):
    return model_fn_of(keras_model)


@pytest.fixture(scope="module")
def fed_avg(model_fn):
    return algorithms.build_fed_avg(model_fn, RATE)


@pytest.fixture(scope="module")
def scaffold(model_fn):
    return algorithms.build_scaffold(model_fn, RATE, num_clients=2)


def by_fit(keras_model, x, y):
    """The weights after one pass of Keras' own training, the model's order."""
    before = keras_model.get_weights()
    keras_model.compile(keras.optimizers.SGD(RATE), loss(), jit_compile=False)
    keras_model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    after = keras3_models.weights(keras_model)
    keras_model.set_weights(before)
    return tf.nest.flatten(after)


def graphs_of(process):
    return b"".join(
        compat.framework.serialize_computation(each).SerializeToString()
        for each in (process.initialize, process.next, process.get_model_weights)
    )


def test_a_round_is_about_what_trains(keras_model, scaffold):
    assert sum(v.shape.num_elements() for v in keras_model.trainable_variables) == (
        TRAINED
    )
    (state,) = scaffold.initial_client_state.values()
    assert state.shape == (TRAINED,)
    traffic = simulation.model_traffic(scaffold)
    assert (traffic.bytes_down, traffic.bytes_up) == (8 * TRAINED, 8 * TRAINED + 4)
    kernel = keras_model.layers[2].kernel.numpy()
    assert kernel.nbytes > 2**20
    graphs = graphs_of(scaffold)
    assert kernel.tobytes()[:64] not in graphs
    assert len(graphs) < 2**20


def test_a_client_trains_as_in_fit(keras_model, fed_avg):
    x, y = CLIENTS["bob"]
    before = keras3_models.weights(keras_model)
    expected = by_fit(keras_model, x, y)
    rounds = keras3_models.Rounds(fed_avg, [dataset("bob")], 1)
    for actual, wanted in zip(rounds.weights, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, atol=2e-6)
    frozen = rounds.weights[len(before.trainable) :]
    for actual, wanted in zip(frozen, before.non_trainable, strict=True):
        np.testing.assert_array_equal(actual, wanted)


def dataset(client):
    return tf.data.Dataset.from_tensor_slices(CLIENTS[client]).batch(4)


def trained(process):
    datasets = [dataset(each) for each in CLIENTS]
    return keras3_models.Rounds(process, datasets, 2).weights


def test_files_of_values_change_nothing(model_fn, scaffold, monkeypatch):
    by_files = trained(scaffold)
    monkeypatch.setattr(value_files, "LARGEST_CONSTANT", 2**40)
    process = algorithms.build_scaffold(model_fn, RATE, num_clients=2)
    assert len(graphs_of(process)) > 2**20
    for actual, expected in zip(trained(process), by_files, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_the_native_context_trains_alike(fed_avg, native):
    here = trained(fed_avg)
    with tff.framework.get_context_stack().install(native):
        there = trained(fed_avg)
    for actual, expected in zip(there, here, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_a_normalization_that_trains_beside_a_frozen_one_counts():
    keras_model = keras.Sequential(
        [
            keras.layers.Input([6]),
            keras.layers.BatchNormalization(),
            keras.layers.BatchNormalization(trainable=False),
            keras.layers.Dense(3),
        ]
    )
    keras_model.layers[1].set_weights([np.full(6, each) for each in (2.0, 1, 3, 4)])
    x, y = CLIENTS["ann"]
    model = model_fn_of(keras_model)()
    for start in (0, 4):
        model.forward_pass((x[start : start + 4], y[start : start + 4]), training=True)
    for start in (0, 4):
        keras_model(x[start : start + 4], training=True)
    for actual, expected in zip(
        model.non_trainable_variables, keras_model.non_trainable_variables, strict=True
    ):
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-6)
    np.testing.assert_array_equal(model.non_trainable_variables[-2].numpy(), 3.0)
    assert np.any(model.non_trainable_variables[0].numpy() != 0)


def run(process, folder, rounds):
    return simulation.run_training(
        process,
        TRAIN,
        rounds=rounds,
        cohort_size=1,
        output_dir=simulation.OutputDir(folder, rounds_per_checkpoint=1),
    )


def leaves(result):
    return [np.asarray(each) for each in tf.nest.flatten(result.model_weights)]


def test_checkpoints_hold_what_trains(scaffold, tmp_path):
    whole = run(scaffold, tmp_path / "whole", 3)
    run(scaffold, tmp_path / "run", 1)
    frozen = tmp_path / "run" / "frozen.npz"
    assert frozen.stat().st_size > 2**20
    written = frozen.stat().st_mtime_ns
    resumed = run(scaffold, tmp_path / "run", 3)
    assert frozen.stat().st_mtime_ns == written
    for actual, expected in zip(leaves(resumed), leaves(whole), strict=True):
        np.testing.assert_array_equal(actual, expected)
    # x and c, and the states of two clients, with the names of things.
    size = (tmp_path / "run" / "checkpoint.npz").stat().st_size
    assert 3 * 4 * TRAINED < size <= 4 * 4 * TRAINED


class _Frozen(simulation.callbacks.Callback):
    """Notes where the adapted kernel of a run's model is; may change the user's."""

    def __init__(self, keras_model, value=None):
        self.variable, self.value = keras_model.layers[2]._kernel.value, value
        self.is_shared, self.values = [], []

    def after_round(self, rounds_completed, state, row):
        (kernel,) = (
            each
            for each in state.global_model_weights.non_trainable
            if each.shape == (WIDTH, WIDTH)
        )
        of_user = np.asarray(self.variable.read_value())
        self.is_shared.append(np.shares_memory(kernel, of_user))
        self.values.append(np.array(kernel))
        if self.value is not None:
            self.variable.assign(tf.fill(self.variable.shape, self.value))


def run_noting(process, noting, rounds, **options):
    return simulation.run_training(
        process, TRAIN, rounds=rounds, cohort_size=1, callbacks=[noting], **options
    )


def test_a_run_has_the_frozen_weights_of_the_users_model(
    keras_model, fed_avg, scaffold, tmp_path
):
    noting = _Frozen(keras_model)
    run_noting(fed_avg, noting, 2)
    run_noting(fed_avg, noting, 1, initial_weights=keras_model)
    for rounds in (1, 2):
        run_noting(scaffold, noting, rounds, output_dir=tmp_path)
    assert noting.is_shared == [True] * 5


def test_a_users_model_that_changes_later_leaves_a_run_as_it_is():
    # Of the same weights another model of this process has them, too.
    keras_model = fine_tuned(seed=4)
    process = algorithms.build_fed_avg(model_fn_of(keras_model), RATE)
    before = keras_model.layers[2]._kernel.numpy()
    noting = _Frozen(keras_model, 7.0)
    result = run_noting(process, noting, 2)
    assert noting.is_shared == [True, False]
    for each in noting.values:
        np.testing.assert_array_equal(each, before)
    assert any(np.array_equal(each, before) for each in leaves(result))
    np.testing.assert_array_equal(keras_model.layers[2]._kernel.numpy(), 7.0)
    # The process begins with the weights that it was built of, as ever.
    again = _Frozen(keras_model)
    run_noting(process, again, 1)
    assert again.is_shared == [False]
    np.testing.assert_array_equal(again.values[0], before)


def test_a_run_of_an_earlier_version_goes_on(scaffold, tmp_path, monkeypatch):
    whole = run(scaffold, tmp_path / "whole", 2)
    with monkeypatch.context() as earlier:
        earlier.setattr(checkpoint, "_LEAST_FROZEN_BYTES", 2**40)
        run(scaffold, tmp_path / "run", 1)
    assert not (tmp_path / "run" / "frozen.npz").exists()
    resumed = run(scaffold, tmp_path / "run", 2)
    assert (tmp_path / "run" / "frozen.npz").exists()
    for actual, expected in zip(leaves(resumed), leaves(whole), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_other_frozen_weights_are_refused(scaffold, tmp_path):
    run(scaffold, tmp_path, 1)
    frozen = tmp_path / "frozen.npz"
    frozen.unlink()
    with pytest.raises(checkpoint.CheckpointError, match=r"frozen\.npz.*Put the run's"):
        run(scaffold, tmp_path, 2)
    np.savez(frozen, header=np.zeros(3, np.uint8))
    with pytest.raises(checkpoint.CheckpointError, match=r"frozen\.npz"):
        run(scaffold, tmp_path, 2)


def test_a_state_whose_weights_do_change_is_saved_whole(tmp_path):
    def state(value):
        weights = tff.learning.models.ModelWeights(
            [np.zeros(2)], [np.full(2**18, value, np.float32)]
        )
        return collections.OrderedDict(global_model_weights=weights)

    path = tmp_path / "checkpoint.npz"
    for value in (1, 2, 2):
        checkpoint.save_checkpoint(path, 1, {}, {"server_state": state(value)})
        restored = checkpoint.load_checkpoint(path).restore("server_state", state(0))
        (found,) = restored["global_model_weights"].non_trainable
        np.testing.assert_array_equal(found, value)


def test_whole_models_come_out(model_fn, scaffold, tmp_path):
    result = run(scaffold, tmp_path / "run", 1)
    other = fine_tuned()
    for variable in other.variables:
        if variable.dtype == "float32":
            variable.assign(np.zeros(variable.shape))
    models.assign_to_keras3(result.model_weights, other)
    for name, variables in zip(
        ("trainable", "non_trainable"),
        (other.trainable_variables, other.non_trainable_variables),
        strict=True,
    ):
        values = getattr(result.model_weights, name)
        for variable, value in zip(variables, values, strict=True):
            np.testing.assert_array_equal(variable.numpy(), value)
    evaluate = simulation.build_evaluation(model_fn, TRAIN, accuracy_metric=None)
    x, y = (np.concatenate(each) for each in zip(*CLIENTS.values(), strict=True))
    np.testing.assert_allclose(
        evaluate(result.model_weights)["loss"], loss()(y, other(x)), rtol=1e-5
    )
    table = simulation.evaluate_clients(
        model_fn, result.model_weights, TRAIN, train=TRAIN, client_optimizer_fn=RATE
    )
    assert np.all(table["loss_after"] < table["loss_before"])


def test_algorithms_of_tff_train_models_with_files_many_at_a_time(local):
    keras_model = keras3_models.softmax_regression(keras.layers.Dense(5000))
    model_fn = keras3_models.model_fn(keras_model)
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        model_fn, tff.learning.optimizers.build_sgdm(RATE)
    )
    datasets = small.datasets(small.client_arrays([6] * 5))
    state = process.initialize()
    assert "vectorized in lockstep" in str(
        local.explain(process.next, (state, datasets))
    )
    theirs = process.get_model_weights(process.next(state, datasets).state)
    ours = keras3_models.Rounds(
        algorithms.build_fed_avg(
            model_fn, RATE, client_weighting=tff.learning.ClientWeighting.UNIFORM
        ),
        datasets,
        1,
    )
    for actual, expected in zip(theirs.trainable, ours.weights, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)
