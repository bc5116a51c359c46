import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks.papers import shakespeare_character
from tasks.sources import sqlite_files
from tff_drift import layers

_PARAMETERS = (
    90 * 8
    + 4 * ((8 + 256) * 256 + 256)
    + 4 * ((256 + 256) * 256 + 256)
    + (256 * 90 + 90)
)


@pytest.fixture(scope="module")
def task():
    return tasks.load("shakespeare_character", synthetic=True, seed=2)


@pytest.fixture(scope="module")
def model_and_initial_weights(task):
    """A model for tests to change, and its weights before that."""
    model = task.model_fn()
    return model, [variable.numpy() for variable in model.trainable_variables]


@pytest.fixture(scope="module")
def baseline():
    """TFF's own task, batches of up to 1,000 sequences, unshuffled."""
    return tff.simulation.baselines.shakespeare.create_character_prediction_task(
        tff.simulation.baselines.ClientSpec(
            num_epochs=1, batch_size=1000, shuffle_buffer_size=1
        ),
        use_synthetic_data=True,
    )


def _baseline_examples(baseline, snippets):
    dataset = tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(snippets=snippets)
    )
    batches = baseline.datasets.train_preprocess_fn(dataset).as_numpy_iterator()
    return tuple(np.concatenate(arrays) for arrays in zip(*batches, strict=True))


def _assert_equal_examples(examples, expected):
    for array, expected_array in zip(examples, expected, strict=True):
        assert array.dtype == expected_array.dtype
        np.testing.assert_array_equal(array, expected_array)


def test_tokens_of_a_speech_by_hand():
    x, y = shakespeare_character.preprocess({"snippets": np.array([b"dh\xe9"], object)})

    # "d" and "h" are the first characters of the vocabulary, byte E9 is none.
    assert x[0, :6].tolist() == [88, 1, 2, 87, 89, 0]
    assert y[0, :6].tolist() == [1, 2, 87, 89, 0, 0]
    assert x.shape == y.shape == (1, 80)
    assert not x[0, 5:].any()
    assert len(set(shakespeare_character.CHARACTERS)) == 86


def test_preprocessing_equals_tffs_at_the_edges(baseline):
    # Two tokens are added; 81 make a piece.
    snippets = [b"", b"a" * 78, b"b" * 79, b"c" * 80, b"d" * 160, b"e" * 161]
    snippets += [bytes(range(256)), "Où est Cæsar?\r\n".encode()]

    examples = shakespeare_character.preprocess(
        {"snippets": np.array(snippets, object)}
    )

    _assert_equal_examples(examples, _baseline_examples(baseline, snippets))


@pytest.mark.conformance
def test_preprocessing_equals_tffs_on_real_plays(baseline, real_data):
    data = shakespeare_character.DATA
    reader = sqlite_files.SqliteExamples(
        sqlite_files.find_file(
            real_data,
            data.file_name,
            task_name="",
            download=False,
            load_data=data.load_data,
        ),
        ("train", "test"),
        data.element_spec,
    )
    task = tasks.load("shakespeare_character", cache_dir=real_data)
    client_data = tff.simulation.datasets.shakespeare.load_data(real_data)
    for split, clients in zip(("train", "test"), client_data, strict=True):
        assert reader.client_ids(split) == clients.client_ids
        for client_id in clients.client_ids[::200]:
            dataset = clients.create_tf_dataset_for_client(client_id)
            expected = next(dataset.batch(10_000).as_numpy_iterator())["snippets"]
            read = reader.read(split, client_id)["snippets"]
            assert read.tolist() == expected.tolist()

    assert task.train.client_ids == task.test.client_ids
    assert len(task.train) == 715
    snippets = [
        snippet
        for client_id in task.test.client_ids
        for snippet in reader.read("test", client_id)["snippets"]
    ]
    assert len(snippets) == 2356
    examples = [task.test.examples(client_id) for client_id in task.test.client_ids]
    _assert_equal_examples(
        tuple(np.concatenate(arrays) for arrays in zip(*examples, strict=True)),
        _baseline_examples(baseline, snippets),
    )


def _finalize_in_tff(model):
    """Metrics as TFF's server makes them of the clients' sums."""
    sums = tf.nest.map_structure(
        lambda value: value.numpy(), model.report_local_unfinalized_metrics()
    )

    @tff.tensorflow.computation
    def finalize():
        return collections.OrderedDict(
            (name, finalizer([tf.constant(value) for value in sums[name]]))
            for name, finalizer in model.metric_finalizers().items()
        )

    return finalize()


@pytest.mark.conformance
def test_model_equals_tffs_with_accuracy_over_characters_alone(
    task, baseline, model_and_initial_weights
):
    model, _ = model_and_initial_weights
    baseline_model = baseline.model_fn()
    count = sum(v.shape.num_elements() for v in model.trainable_variables)
    assert count == _PARAMETERS == 820_522
    assert model.input_spec == task.train.element_spec
    for variable, baseline_variable in zip(
        model.trainable_variables, baseline_model.trainable_variables, strict=True
    ):
        # Large weights, so that predictions differ from one position to the next.
        variable.assign(10 * variable)
        baseline_variable.assign(variable)
    x, y = task.test.examples(task.test.client_ids[0])

    output = model.forward_pass((x, y), training=False)
    expected = baseline_model.forward_pass((x, y), training=False)

    # Our LSTM adds up in another order than Keras'; the logits reach tens.
    np.testing.assert_allclose(
        output.predictions, expected.predictions, rtol=1e-4, atol=1e-3
    )
    np.testing.assert_allclose(output.loss, expected.loss, rtol=1e-5)
    logits = output.predictions.numpy().astype(np.float64)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    picked = np.take_along_axis(log_probabilities, y[..., np.newaxis], axis=-1)
    # The mean is over padding too, as in TFF's baseline.
    np.testing.assert_allclose(output.loss, -picked.mean(), rtol=1e-5)

    is_character = (y >= 1) & (y <= 86)
    right = logits.argmax(axis=-1) == y
    metrics = {metric.name: metric.result() for metric in model.get_metrics()}
    assert 0 < is_character.sum() < (y != 0).sum() < y.size
    np.testing.assert_allclose(
        metrics["accuracy"], right[is_character].mean(), rtol=1e-6
    )
    assert metrics["num_tokens"] == np.count_nonzero(y)
    for name, value in _finalize_in_tff(model).items():
        np.testing.assert_allclose(value, metrics[name])


def test_characters_pass_the_fast_lstm():
    kinds = [type(each) for each in shakespeare_character.build_keras_model(0).layers]
    assert kinds.count(layers.LSTM) == 2


def test_initial_weights_follow_the_seed_and_differ_between_layers(
    task, model_and_initial_weights
):
    _, weights = model_and_initial_weights
    other_task = tasks.load("shakespeare_character", synthetic=True, seed=3)
    same, other = (
        [v.numpy() for v in each.model_fn().trainable_variables]
        for each in (task, other_task)
    )

    for mine, again, different in zip(weights, same, other, strict=True):
        np.testing.assert_array_equal(mine, again)
        # Biases start at constants, kernels at random.
        assert np.array_equal(mine, different) == (mine.ndim == 1)
    recurrent = [kernel for kernel in weights if kernel.shape == (256, 1024)]
    # The second layer's kernel and both layers' recurrent kernels.
    assert len(recurrent) == 3
    for k in range(3):
        assert not np.allclose(recurrent[k], recurrent[k - 1])


def test_roles_are_drawn_by_the_seed(real_data):
    def roles(seed, **options):
        task = tasks.load(
            "shakespeare_character", cache_dir=real_data, seed=seed, **options
        )
        assert task.train.client_ids == task.test.client_ids
        return task.train.client_ids

    drawn = roles(1, num_clients=12)
    assert len(set(drawn)) == 12
    assert set(drawn) < set(roles(1))
    assert drawn == roles(1, num_clients=12) != roles(2, num_clients=12)
