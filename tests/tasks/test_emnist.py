import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks.papers import emnist_data
from tasks.sources import sqlite_files

_CHARACTER_PARAMETERS = (
    (3 * 3 * 1 * 32 + 32)
    + (3 * 3 * 32 * 64 + 64)
    # Two convolutions without padding and a pooling: 28, 26, 24, 12.
    + (12 * 12 * 64 * 128 + 128)
    + (128 * 62 + 62)
)
_DIGITS_PARAMETERS = (
    (5 * 5 * 1 * 32 + 32)
    + (5 * 5 * 32 * 64 + 64)
    # Two convolutions with padding, a pooling after each: 28, 14, 7.
    + (7 * 7 * 64 * 512 + 512)
    + (512 * 10 + 10)
)


@pytest.fixture(scope="module", params=["emnist_character", "emnist_digits"])
def task(request):
    return tasks.load(request.param, synthetic=True, seed=5)


def _baseline(task_name):
    """TFF's own task on the same data with, dropout aside, the same net."""
    is_character = task_name == "emnist_character"
    return tff.simulation.baselines.emnist.create_character_recognition_task(
        tff.simulation.baselines.ClientSpec(
            num_epochs=1, batch_size=32, shuffle_buffer_size=1
        ),
        model_id="cnn_dropout" if is_character else "cnn",
        only_digits=not is_character,
        use_synthetic_data=True,
    )


def test_parameters_are_those_of_the_papers_layers(task):
    model = task.model_fn()

    count = sum(v.shape.num_elements() for v in model.trainable_variables)
    expected = {
        "emnist_character": _CHARACTER_PARAMETERS,
        "emnist_digits": _DIGITS_PARAMETERS,
    }[task.name]
    assert count == expected
    assert model.input_spec == task.train.element_spec


@pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="TFF's models for EMNIST call random.randint(1, 1e9), and Python 3.12 takes "
    "no float there",
)
def test_examples_and_predictions_equal_those_of_tffs_baseline(task):
    baseline = _baseline(task.name)
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
    logits = model.forward_pass(ours, training=False).predictions
    probabilities = baseline_model.forward_pass(batch, training=False).predictions
    np.testing.assert_allclose(tf.nn.softmax(logits), probabilities, rtol=1e-4)


def test_initial_weights_follow_the_seed(task):
    other_task = tasks.load(task.name, synthetic=True, seed=6)
    weights, same, other = (
        [v.numpy() for v in each.model_fn().trainable_variables]
        for each in (task, task, other_task)
    )

    for mine, again, different in zip(weights, same, other, strict=True):
        np.testing.assert_array_equal(mine, again)
        # Biases start at zero, kernels at random.
        assert np.array_equal(mine, different) == (mine.ndim == 1)


def test_dropout_acts_in_training_alone(task):
    model = task.model_fn()
    (batch,) = task.train.evaluation_batches(task.train.client_ids[0])
    batch = tuple(map(tf.constant, batch))

    training, evaluation, again = (
        model.predict_on_batch(batch[0], training=training).numpy()
        for training in (True, False, False)
    )

    np.testing.assert_array_equal(evaluation, again)
    assert np.abs(training - evaluation).max() > 1e-3


def test_loss_and_accuracy_are_those_of_the_logits(task):
    model = task.model_fn()
    (x, y) = task.test.examples(task.test.client_ids[0])
    output = model.forward_pass((x, y), training=False)

    logits = output.predictions.numpy().astype(np.float64)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(
        output.loss, -log_probabilities[np.arange(len(y)), y].mean(), rtol=1e-5
    )
    metrics = model.report_local_unfinalized_metrics()
    right, counted = metrics["accuracy"]
    assert (right, counted) == (np.sum(logits.argmax(axis=1) == y), len(y))
    assert metrics["num_examples"] == [len(y)]


@pytest.mark.parametrize("only_digits", [False, True])
def test_real_examples_equal_those_of_tffs_loader(real_data, only_digits):
    data = emnist_data.build(only_digits)
    reader = sqlite_files.SqliteExamples(
        sqlite_files.find_file(
            real_data,
            data.file_name,
            task_name="",
            download=False,
            load_data=data.load_data,
        ),
        (data.train_split, data.test_split),
        data.element_spec,
    )
    client_data = tff.simulation.datasets.emnist.load_data(only_digits, real_data)

    for split, clients in zip(
        (data.train_split, data.test_split), client_data, strict=True
    ):
        assert reader.client_ids(split) == clients.client_ids
        assert clients.element_type_structure == data.element_spec
        for client_id in clients.client_ids[::120]:
            dataset = clients.create_tf_dataset_for_client(client_id)
            expected = next(dataset.batch(10_000).as_numpy_iterator())
            examples = reader.read(split, client_id)
            assert examples.keys() == expected.keys()
            for name, array in examples.items():
                assert array.dtype == expected[name].dtype
                np.testing.assert_array_equal(array, expected[name])


def test_emnist_digits_draws_its_writers_by_the_seed(real_data):
    draws = [
        tasks.load("emnist_digits", cache_dir=real_data, seed=seed)
        for seed in (0, 0, 1)
    ]
    everyone = tff.simulation.datasets.emnist.load_data(True, real_data)[0].client_ids

    for task in draws:
        assert len(set(task.train.client_ids)) == 100
        assert task.test.client_ids == task.train.client_ids
        assert set(task.train.client_ids) <= set(everyone)
    assert draws[0].train.client_ids == draws[1].train.client_ids
    assert draws[0].train.client_ids != draws[2].train.client_ids


def test_emnist_digits_raises_on_more_writers_than_there_are(real_data):
    with pytest.raises(
        ValueError, match=r"num_clients is 100000, but the data has only \d+ writers"
    ):
        tasks.load("emnist_digits", cache_dir=real_data, num_clients=100_000)


def test_emnist_character_has_all_writers(real_data):
    task = tasks.load("emnist_character", cache_dir=real_data, max_examples=10)

    train, test = tff.simulation.datasets.emnist.load_data(False, real_data)
    assert list(task.train.client_ids) == train.client_ids
    assert list(task.test.client_ids) == test.client_ids
    client_id = task.train.client_ids[0]
    assert task.train.num_examples(client_id) == 10
    (images, labels), *_ = task.test.evaluation_batches(client_id)
    assert images.shape[1:] == (28, 28, 1)
    assert (labels.min() >= 0) & (labels.max() < 62)


def test_adabests_net_has_ten_classes():
    task = tasks.load("emnist_digits", synthetic=True, seed=5, network="adabest")
    model = task.model_fn()
    shapes = [tuple(variable.shape) for variable in model.trainable_variables]
    assert shapes == [(784, 100), (100,), (100, 100), (100,), (100, 10), (10,)]
    assert model.input_spec == task.train.element_spec

    plain = tasks.load("emnist_digits", synthetic=True, seed=5)
    client_id = task.train.client_ids[0]
    images, labels = task.train.examples(client_id)
    raw, raw_labels = plain.train.examples(client_id)
    np.testing.assert_allclose(images * 0.1622 + 0.9625, raw, atol=1e-6)
    np.testing.assert_array_equal(labels, raw_labels)
    assert images.dtype == np.float32
