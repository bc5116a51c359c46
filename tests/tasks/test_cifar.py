from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks.models import convolutional_nets, resnet
from tasks.papers import cifar10

_CONVOLUTIONS = (5 * 5 * 3 * 64 + 64) + (5 * 5 * 64 * 64 + 64)


def _adabest_parameters(num_classes):
    # Without padding, and with pooling after each convolution: 32, 28, 14, 10, 5.
    return (
        _CONVOLUTIONS
        + (5 * 5 * 64 * 394 + 394)
        + (394 * 192 + 192)
        + (192 * num_classes + num_classes)
    )


def _uga_parameters(num_classes):
    # With padding: 32, 16, 8.
    return (
        _CONVOLUTIONS
        + (8 * 8 * 64 * 384 + 384)
        + (384 * 192 + 192)
        + (192 * num_classes + num_classes)
    )


def _resnet18_parameters(num_classes):
    def conv(size, channels, filters):
        return size * size * channels * filters

    def norm(channels):
        return 2 * channels

    stem = conv(7, 3, 64) + norm(64)
    # The first block of all has no normalisation in front and an open shortcut.
    blocks = conv(3, 64, 64) + norm(64) + conv(3, 64, 64)
    for filters in (128, 256, 512):
        channels = filters // 2
        blocks += norm(channels) + conv(3, channels, filters)
        blocks += norm(filters) + conv(3, filters, filters)
        blocks += conv(1, channels, filters) + norm(filters)
    for filters in (64, 128, 256, 512):
        blocks += 2 * (norm(filters) + conv(3, filters, filters))
    return stem + blocks + norm(512) + 512 * num_classes + num_classes


def _count(variables):
    return sum(variable.shape.num_elements() for variable in variables)


@pytest.fixture(scope="module")
def resnet18():
    return resnet.build_resnet18((24, 24, 3), 100, seed=3)


@pytest.mark.parametrize("num_classes", [10, 100])
def test_convolutional_nets_have_the_parameters_of_the_papers_layers(num_classes):
    for build, expected in (
        (convolutional_nets.build_adabest, _adabest_parameters(num_classes)),
        (convolutional_nets.build_uga, _uga_parameters(num_classes)),
    ):
        model = build(num_classes, seed=0)
        assert _count(model.trainable_variables) == model.count_params() == expected
    assert _adabest_parameters(10) == 815_892
    assert _uga_parameters(10) == 1_756_426


def test_resnet18_has_the_parameters_of_its_layers(resnet18):
    assert _count(resnet18.trainable_variables) == _resnet18_parameters(100)
    assert resnet18.count_params() == _resnet18_parameters(100) == 11_227_812
    # 17 convolutions of 3 x 3 and 7 x 7, three shortcuts and the dense layer: 18
    # layers deep, shortcuts aside.
    layers = [type(layer).__name__ for layer in resnet18.layers]
    assert layers.count("Conv2D") == 17 + 3
    assert layers.count("Dense") == 1
    groups = {
        layer.groups
        for layer in resnet18.layers
        if hasattr(layer, "groups") and type(layer).__name__ == "GroupNormalization"
    }
    assert groups == {2}


@pytest.mark.conformance
def test_initial_weights_follow_the_seed_and_differ_between_layers(resnet18):
    same = resnet.build_resnet18((24, 24, 3), 100, seed=3)
    for build, kernels in (
        (lambda seed: convolutional_nets.build_adabest(10, seed), 5),
        (lambda seed: convolutional_nets.build_uga(10, seed), 5),
    ):
        first, again, other = (build(seed).get_weights() for seed in (1, 1, 2))
        for mine, repeated, different in zip(first, again, other, strict=True):
            np.testing.assert_array_equal(mine, repeated)
            assert np.array_equal(mine, different) == (mine.ndim == 1)
        assert sum(each.ndim > 1 for each in first) == kernels
    for mine, repeated in zip(resnet18.get_weights(), same.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, repeated)
    alike = [w for w in resnet18.get_weights() if w.shape == (3, 3, 64, 64)]
    assert len({weights.tobytes() for weights in alike}) == len(alike) == 4


def _baseline():
    """TFF's task, with the two groups that its net had for the papers."""
    layer = tf.keras.layers.GroupNormalization
    task = tff.simulation.baselines.cifar100.create_image_classification_task(
        tff.simulation.baselines.ClientSpec(
            num_epochs=1, batch_size=32, shuffle_buffer_size=1
        ),
        use_synthetic_data=True,
    )
    with mock.patch.object(
        tf.keras.layers, "GroupNormalization", lambda axis: layer(2, axis=axis)
    ):
        return task, task.model_fn()


@pytest.mark.conformance
def test_examples_and_predictions_equal_those_of_tffs_baseline(resnet18):
    task = tasks.load("cifar100", synthetic=True, seed=3)
    baseline, baseline_model = _baseline()
    client_id = task.train.client_ids[0]
    dataset = baseline.datasets.train_preprocess_fn(
        baseline.datasets.train_data.create_tf_dataset_for_client(client_id)
    )
    (batch,) = dataset.as_numpy_iterator()
    (ours,) = task.train.evaluation_batches(client_id)
    for array, expected in zip(ours, batch, strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_allclose(array, expected, atol=1e-6)

    net = tf.keras.models.clone_model(resnet18)
    for variable, baseline_variable, initial in zip(
        net.trainable_variables,
        baseline_model.trainable_variables,
        resnet18.trainable_variables,
        strict=True,
    ):
        # Other weights than 0 and 1 for biases and scales, too.
        value = initial + 0.05 * tf.cos(tf.range(initial.shape[-1] * 1.0))
        variable.assign(value)
        baseline_variable.assign(value)
    expected = baseline_model.predict_on_batch(batch[0], training=False).numpy()
    # Classes that differ much, or agreement would show nothing.
    assert expected.max() > 100 * expected.min()
    np.testing.assert_allclose(tf.nn.softmax(net(ours[0])), expected, rtol=2e-3)


def test_kernels_and_the_last_biases_decay(resnet18):
    decaying = [
        weights.astype(np.float64)
        for weights in resnet18.get_weights()
        if weights.ndim > 1 or weights.shape == (100,)
    ]

    assert len(decaying) == 17 + 3 + 2
    expected = 1e-4 * sum((weights**2).sum() for weights in decaying)
    np.testing.assert_allclose(sum(resnet18.losses), expected, rtol=1e-5)


def test_pachinko_images_are_distorted_in_training_alone():
    task = tasks.load("cifar100", synthetic=True, augment=True, batch_size=5)
    plain = tasks.load("cifar100", synthetic=True, batch_size=5)
    client_id = task.train.client_ids[0]

    for datasets in (task.train, task.test):
        for array, expected in zip(
            datasets.examples(client_id), plain.test.examples(client_id), strict=True
        ):
            np.testing.assert_array_equal(array, expected)
    ((images, labels),) = task.train.training_data(client_id, 0)
    ((_, plain_labels),) = plain.train.training_data(client_id, 0)
    np.testing.assert_array_equal(labels, plain_labels)
    assert images.shape == (5, 24, 24, 3)
    centres = plain.train.examples(client_id)[0]
    distances = np.abs(images.numpy()[:, np.newaxis] - centres).mean(axis=(2, 3, 4))
    assert (distances.min(axis=1) > 1e-3).any()


@pytest.mark.parametrize(
    ("name", "options", "mean", "std"),
    [
        ("cifar10", {}, (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
        (
            "cifar100",
            {"setting": "adabest"},
            (0.5071, 0.4867, 0.4408),
            (0.2675, 0.2565, 0.2761),
        ),
    ],
)
def test_adabests_images_are_standardized_and_distorted_in_training(
    name, options, mean, std
):
    task = tasks.load(name, synthetic=True, num_clients=2, seed=1, **options)
    plain = tasks.load(
        name, synthetic=True, num_clients=2, seed=1, augment=False, **options
    )
    assert task.train.batching.batch_size == 45
    for client_id in task.train.client_ids:
        images, _ = task.train.examples(client_id)
        pixels = (images.astype(np.float64) * std + mean) * 255
        np.testing.assert_allclose(pixels, np.rint(pixels), atol=1e-3)
        assert 0 <= np.rint(pixels).min() <= np.rint(pixels).max() <= 255

    training, undistorted = (
        np.concatenate(
            [images for images, _ in each.train.training_data("client_0", 4)]
        )
        for each in (task, plain)
    )
    kept = (training == undistorted).all(axis=(1, 2, 3))
    # A quarter is neither mirrored nor cropped, give or take 5 deviations.
    deviation = np.sqrt(0.25 * 0.75 / len(kept))
    assert abs(kept.mean() - 0.25) < 5 * deviation + 1 / 81


def test_cifar10_splits_the_real_images(real_data):
    task = tasks.load("cifar10", cache_dir=real_data, seed=2)
    with np.load(f"{real_data}/cifar10_subset.npz") as file:
        labels = {part: file[f"y_{part}"] for part in ("train", "test")}

    assert len(task.train) == len(task.test) == 100
    assert len(task.validation) == 10
    for part, clients in (
        ("train", [task.train, task.validation]),
        ("test", [task.test]),
    ):
        found = np.concatenate(
            [
                datasets.examples(client_id)[1]
                for datasets in clients
                for client_id in datasets.client_ids
            ]
        )
        np.testing.assert_array_equal(np.bincount(found), np.bincount(labels[part]))


def test_cifar100_reads_real_images_as_tff_does_and_pools_them(real_data):
    task = tasks.load("cifar100", cache_dir=real_data)
    pooled = tasks.load("cifar100", cache_dir=real_data, setting="adabest")
    clients, test = tff.simulation.datasets.cifar100.load_data(real_data)

    assert list(task.train.client_ids) == clients.client_ids
    assert list(task.test.client_ids) == test.client_ids
    client_id = clients.client_ids[7]
    elements = list(clients.create_tf_dataset_for_client(client_id).as_numpy_iterator())
    raw, labels = task.train.replace(transform=None).examples(client_id)
    np.testing.assert_array_equal(raw, [element["image"] for element in elements])
    np.testing.assert_array_equal(labels, [element["label"] for element in elements])
    totals = [
        sum(map(datasets.num_examples, datasets.client_ids))
        for datasets in (pooled.train, pooled.validation, pooled.test)
    ]
    assert sum(totals[:2]) == 100 * len(clients.client_ids)
    assert totals[2] == 100 * len(test.client_ids)


def test_settings_have_their_papers_options():
    large_cohort = tasks.load("cifar100", synthetic=True)
    adabest = tasks.load("cifar100", synthetic=True, setting="adabest", num_clients=20)
    tuned = tasks.load("cifar100", synthetic=True, validation_fraction=0.5)

    assert large_cohort.train.batching.batch_size == 20
    assert large_cohort.validation is None
    assert adabest.train.batching.batch_size == 45
    assert len(adabest.validation) == 2
    # The stand-in has clients of its own and ignores the share.
    assert tuned.validation is None
    assert cifar10.NETWORKS.keys() == {"adabest", "uga", "resnet18"}
    assert tasks.describe("cifar100").higher_is_better


@pytest.mark.conformance
def test_cifar10_has_the_residual_net_as_an_option():
    task = tasks.load("cifar10", synthetic=True, network="resnet18", num_clients=2)

    weights = [tuple(each.shape) for each in task.model_fn().trainable_variables]
    # ResNet-18 with 100 classes, see test_resnet, less 90 rows of its last layer.
    assert sum(map(np.prod, weights)) == 11_227_812 - 90 * 513
    assert weights[-1] == (10,)
