import numpy as np
import pytest

import tasks
from tasks.papers import emnist_letters

_PARAMETERS = (28 * 28 * 100 + 100) + (100 * 100 + 100) + (100 * 26 + 26)


@pytest.fixture
def letters(tmp_path):
    """A folder with letters counted from 1, upright."""
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 1040), ("test", 260)):
        arrays[f"x_{part}"] = rng.integers(0, 200, (count, 28, 28), dtype=np.uint8)
        arrays[f"y_{part}"] = np.arange(count) % 26 + 1
    np.savez(tmp_path / "emnist_letters.npz", **arrays)
    return tmp_path, arrays


def test_model_has_the_parameters_of_the_papers_layers():
    model = tasks.load("emnist_letters", synthetic=True).model_fn()

    shapes = [tuple(each.shape) for each in model.trainable_variables]
    assert shapes == [(784, 100), (100,), (100, 100), (100,), (100, 26), (26,)]
    assert sum(map(np.prod, shapes)) == _PARAMETERS == 91_226


def test_splits_letters_and_standardizes_them_by_the_training_set(letters):
    folder, arrays = letters
    task = tasks.load("emnist_letters", cache_dir=str(folder), num_clients=20, seed=1)

    assert (len(task.train), len(task.validation), len(task.test)) == (20, 2, 20)
    mean, std = arrays["x_train"].mean(), arrays["x_train"].std()
    for part, clients in (
        ("train", [task.train, task.validation]),
        ("test", [task.test]),
    ):
        images, labels = (
            np.concatenate(each)
            for each in zip(
                *(
                    datasets.examples(client_id)
                    for datasets in clients
                    for client_id in datasets.client_ids
                ),
                strict=True,
            )
        )
        assert np.bincount(labels).tolist() == [len(labels) // 26] * 26
        expected = (arrays[f"x_{part}"].astype(np.float64) - mean) / std
        # Every image once: by its sum, as the order is that of the clients.
        np.testing.assert_allclose(
            np.sort(images.sum(axis=(1, 2, 3))),
            np.sort(expected.sum(axis=(1, 2))),
            atol=1e-2,
        )


def test_pixel_statistics_are_those_of_all_pixels():
    images = np.random.default_rng(1).integers(0, 256, (50, 28, 28, 1), dtype=np.uint8)

    mean, std = emnist_letters.pixel_statistics(images)

    np.testing.assert_allclose(mean, images.mean() / 255)
    np.testing.assert_allclose(std, images.std() / 255)


def test_initial_weights_follow_the_seed():
    weights, same, other = (
        emnist_letters.build_keras_model(seed).get_weights() for seed in (1, 1, 2)
    )

    for mine, again, different in zip(weights, same, other, strict=True):
        np.testing.assert_array_equal(mine, again)
        assert np.array_equal(mine, different) == (mine.ndim == 1)


def test_the_first_letters_alone():
    task = tasks.load("emnist_letters", synthetic=True, letters=10, num_clients=5)
    every = tasks.load("emnist_letters", synthetic=True, num_clients=5)

    def labels(datasets):
        ids = datasets.client_ids
        return np.concatenate([datasets.examples(each)[1] for each in ids])

    assert set(labels(task.train)) == set(range(10))
    assert set(labels(task.test)) == set(range(10))
    assert len(labels(task.test)) == (labels(every.test) < 10).sum()
    (*_, last) = task.model_fn().trainable_variables
    assert last.shape == (10,)
    with pytest.raises(ValueError, match="letters must be at most 26, found 27"):
        tasks.load("emnist_letters", synthetic=True, letters=27)


def test_logistic_regression_starts_at_zero():
    model = emnist_letters.build_keras_model(1, 10, "logistic")
    assert model.count_params() == 784 * 10 + 10
    assert not any(weights.any() for weights in model.get_weights())
