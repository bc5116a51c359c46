"""What random layers of Keras 3 draw follows from round, step and batch alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import keras3_models
from tests import models as small
from tff_drift import algorithms, execution, simulation
from tff_drift.layers import step_seed
from tff_drift.models import from_keras3

pytestmark = keras3_models.needed

CLIENTS = small.client_arrays([12, 8, 12, 5], seed=4)


class Noise(keras.layers.Layer if keras3_models.IS_THERE else object):
    """A random layer of a user's own."""

    def __init__(self):
        super().__init__()
        self.seed = keras.random.SeedGenerator(3)

    def call(self, inputs, training=False):
        if not training:
            return inputs
        return inputs + keras.random.normal(keras.ops.shape(inputs), seed=self.seed)


def random_model():
    layers = [keras.layers.Dropout(0.5), Noise(), keras.layers.GaussianNoise(0.3)]
    return keras3_models.softmax_regression(*layers)


def train(keras_model, rounds=3, build=algorithms.build_fed_avg):
    process = build(keras3_models.model_fn(keras_model), 0.1)
    return keras3_models.Rounds(process, small.datasets(CLIENTS), rounds)


def test_seeds_are_no_weights():
    weights = keras3_models.model_fn(random_model())()
    assert [v.shape for v in weights.trainable_variables] == [(3, 4), (4,)]
    assert weights.non_trainable_variables == []


def test_training_depends_on_no_seed_and_no_history_of_the_model():
    keras_model = random_model()
    first = train(keras_model)
    # The model's own generators go on.
    keras_model(CLIENTS[0][0], training=True)
    for again in (train(keras_model), train(random_model())):
        assert again.metrics == first.metrics
        small.assert_bit_equal(again.weights, first.weights)
    plain = train(keras3_models.softmax_regression())
    assert np.any(plain.weights[0] != first.weights[0])


def test_vectorized_clients_draw_as_those_that_train_one_by_one():
    results = []
    for batch_clients in (True, False):
        context = execution.create_local_execution_context(batch_clients=batch_clients)
        with tff.framework.get_context_stack().install(context):
            results.append(train(random_model()).weights)
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_each_layer_step_and_round_draws_anew():
    inputs = keras.layers.Input([4])
    zeros = keras.layers.Dense(4, kernel_initializer="zeros", use_bias=False)(inputs)
    outputs = keras.layers.Concatenate()([Noise()(zeros), Noise()(zeros)])
    keras_model = keras.Model(inputs, outputs)
    spec = (tf.TensorSpec([None, 4]), tf.TensorSpec([None, 8]))
    model = from_keras3(keras_model, keras.losses.MeanSquaredError(), spec)
    seed = tf.Variable([0, 0], dtype=tf.int64)
    x, y = np.ones([2, 4], np.float32), np.ones([2, 8], np.float32)

    def draw(round_number, step, batch):
        seed.assign(step_seed.build_step_seed(round_number, step, batch))
        with step_seed.step_seed(seed):
            return model.forward_pass(batch, training=True).predictions.numpy()

    drawn = [
        draw(0, 0, (x, y)),
        draw(0, 1, (x, y)),
        draw(1, 0, (x, y)),
        draw(0, 0, (x + 1, y)),
    ]
    halves = [half for each in drawn for half in np.split(each, 2, axis=1)]
    assert len({half.tobytes() for half in halves}) == 8
    np.testing.assert_array_equal(draw(0, 0, (x, y)), drawn[0])
    same = model.predict_on_batch(x, training=False)
    np.testing.assert_array_equal(same, np.zeros([2, 8]))


def test_a_resumed_run_goes_on_bit_for_bit(tmp_path):
    clients = {f"client_{index}": arrays for index, arrays in enumerate(CLIENTS)}
    data = simulation.ClientDatasets.from_arrays(clients, batch_size=4)
    model_fn = keras3_models.model_fn(random_model())

    def run(rounds, folder):
        # A process of its own for each, as after a restart.
        return simulation.run_training(
            algorithms.build_scaffold(model_fn, 0.1, num_clients=len(data)),
            data,
            rounds=rounds,
            cohort_size=2,
            output_dir=tmp_path / folder,
        )

    whole = run(4, "whole")
    run(2, "parts")
    resumed = run(4, "parts")
    small.assert_bit_equal(
        list(resumed.model_weights.trainable), list(whole.model_weights.trainable)
    )
    rows = [list(map(simulation.without_timing, r.rows)) for r in (resumed, whole)]
    assert rows[0] == rows[1]


def test_uga_repeats_the_steps_that_it_differentiates():
    def build(model_fn, rate):
        return algorithms.build_uga(model_fn, rate, 0.1, local_epochs=2)

    process = build(keras3_models.model_fn(random_model()), 0.1)
    data = [dataset.repeat(2) for dataset in small.datasets(CLIENTS)]
    runs = [keras3_models.Rounds(process, data, 2) for _ in range(2)]
    small.assert_bit_equal(runs[0].weights, runs[1].weights)
    assert runs[0].metrics[1]["loss"] != runs[0].metrics[0]["loss"]


@pytest.mark.parametrize("rounds", [1, 2])
def test_tffs_own_training_repeats_bit_for_bit_too(rounds):
    process = tff.learning.algorithms.build_weighted_fed_avg(
        keras3_models.model_fn(random_model()),
        tff.learning.optimizers.build_sgdm(0.1),
    )
    runs = [
        keras3_models.Rounds(process, small.datasets(CLIENTS), rounds) for _ in range(2)
    ]
    small.assert_bit_equal(runs[0].weights, runs[1].weights)
    plain = tff.learning.algorithms.build_weighted_fed_avg(
        keras3_models.model_fn(keras3_models.softmax_regression()),
        tff.learning.optimizers.build_sgdm(0.1),
    )
    without = keras3_models.Rounds(plain, small.datasets(CLIENTS), rounds)
    assert np.any(without.weights[0] != runs[0].weights[0])
