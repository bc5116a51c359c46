import itertools
import sys

import numpy as np
import pytest
import tensorflow_federated as tff

import tasks

_WIDTHS = (784, 1000, 500, 250, 30, 250, 500, 1000, 784)
_PARAMETERS = sum(a * b + b for a, b in itertools.pairwise(_WIDTHS))


@pytest.fixture(scope="module")
def task():
    return tasks.load("emnist_autoencoder", synthetic=True, seed=5)


def test_parameters_are_those_of_the_papers_layers(task):
    variables = task.model_fn().trainable_variables

    kernels = [tuple(each.shape) for each in variables if each.shape.rank == 2]
    assert kernels == list(itertools.pairwise(_WIDTHS))
    count = sum(each.shape.num_elements() for each in variables)
    assert count == _PARAMETERS == 2_837_314


@pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="TFF's models for EMNIST call random.randint(1, 1e9), and Python 3.12 takes "
    "no float there",
)
def test_examples_and_errors_equal_those_of_tffs_baseline(task):
    baseline = tff.simulation.baselines.emnist.create_autoencoder_task(
        tff.simulation.baselines.ClientSpec(
            num_epochs=1, batch_size=32, shuffle_buffer_size=1
        ),
        use_synthetic_data=True,
    )
    client_id = task.train.client_ids[0]
    dataset = baseline.datasets.train_preprocess_fn(
        baseline.datasets.train_data.create_tf_dataset_for_client(client_id)
    )
    (batch,) = dataset.as_numpy_iterator()
    (ours,) = task.train.evaluation_batches(client_id)
    for array, expected in zip(ours, batch, strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)

    model, baseline_model = task.model_fn(), baseline.model_fn()
    for variable, baseline_variable in zip(
        model.trainable_variables, baseline_model.trainable_variables, strict=True
    ):
        baseline_variable.assign(variable)
    output = model.forward_pass(ours, training=False)
    expected = baseline_model.forward_pass(batch, training=False)
    np.testing.assert_allclose(output.predictions, expected.predictions, rtol=1e-5)
    error = np.mean((output.predictions.numpy().astype(np.float64) - ours[0]) ** 2)
    np.testing.assert_allclose(expected.loss, error, rtol=1e-5)
    # The published rates are for the sum over examples.
    np.testing.assert_allclose(output.loss, len(batch[0]) * error, rtol=1e-5)
    mean = tasks.load(task.name, synthetic=True, seed=5, loss="mean").model_fn()
    for variable, same in zip(
        mean.trainable_variables, model.trainable_variables, strict=True
    ):
        variable.assign(same)
    loss = mean.forward_pass(ours, training=False).loss
    np.testing.assert_allclose(loss, error, rtol=1e-5)
    metrics = {metric.name: metric.result() for metric in model.get_metrics()}
    np.testing.assert_allclose(metrics["mean_squared_error"], error, rtol=1e-5)


def test_a_lower_error_is_better(task):
    assert task.accuracy_metric == "mean_squared_error"
    assert not task.higher_is_better


def test_initial_weights_follow_the_seed(task):
    weights, same, other = (
        [v.numpy() for v in each.model_fn().trainable_variables]
        for each in (task, task, tasks.load(task.name, synthetic=True, seed=6))
    )

    for mine, again, different in zip(weights, same, other, strict=True):
        np.testing.assert_array_equal(mine, again)
        assert np.array_equal(mine, different) == (mine.ndim == 1)
