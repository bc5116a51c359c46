import numpy as np
import pytest
import sklearn.datasets
import tensorflow_federated as tff

import tasks


@pytest.fixture(scope="module")
def task():
    return tasks.load("digits", seed=1)


def _stack(datasets):
    examples = [datasets.examples(client_id) for client_id in datasets.client_ids]
    return tuple(np.concatenate(arrays) for arrays in zip(*examples, strict=True))


def test_train_and_test_clients_hold_every_real_image_once(task):
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    found = [
        np.concatenate(arrays)
        for arrays in zip(_stack(task.train), _stack(task.test), strict=True)
    ]

    expected = sorted(map(tuple, np.column_stack([images, labels])))
    assert sorted(map(tuple, np.column_stack([found[0] * 16, found[1]]))) == expected


def test_sizes_are_balanced(task):
    assert len(task.train) == len(task.test) == 50
    assert task.train.client_ids == task.test.client_ids
    # 1,797 images, of which 1797 // 5 = 359 are for tests.
    for datasets, total in ((task.train, 1438), (task.test, 359)):
        sizes = [datasets.num_examples(client_id) for client_id in datasets.client_ids]
        assert sum(sizes) == total
        assert max(sizes) - min(sizes) <= 1


def test_the_task_is_a_pure_function_of_its_seed(task):
    again = tasks.load("digits", seed=1)
    other = tasks.load("digits", seed=2)

    for part in ("train", "test"):
        mine, same, different = (
            _stack(getattr(each, part))[0] for each in (task, again, other)
        )
        np.testing.assert_array_equal(mine, same)
        assert not np.array_equal(mine, different)


def _label_mixes(datasets):
    return np.array(
        [
            np.bincount(datasets.examples(client_id)[1], minlength=10)
            / datasets.num_examples(client_id)
            for client_id in datasets.client_ids
        ]
    )


def test_clients_are_skewed_and_their_tests_follow_their_training_data(task):
    train, test = _label_mixes(task.train), _label_mixes(task.test)

    # The largest class of an unskewed client has about a tenth of its 29 images.
    assert train.max(axis=1).mean() > 0.35
    own = np.abs(train - test).sum(axis=1).mean()
    of_others = np.abs(train - np.roll(test, 1, axis=0)).sum(axis=1).mean()
    assert own < of_others / 1.5


def test_options_reach_the_data():
    task = tasks.load(
        "digits", num_clients=3, alpha=1000.0, batch_size=7, epochs=2, max_examples=20
    )

    assert task.train.client_ids == ("client_0", "client_1", "client_2")
    batches = list(task.train.training_data("client_1", 0).as_numpy_iterator())
    assert [len(labels) for _, labels in batches] == [7, 7, 6] * 2
    # The cut is for training; 359 / 3 images are for each client's test.
    assert task.test.num_examples("client_1") == 120
    assert _label_mixes(task.train.replace(max_examples=None)).max() < 0.2


def test_without_skew_clients_have_the_mix_of_all():
    task = tasks.load("digits", num_clients=4, alpha=None)

    # About 359 and 90 images per client; five standard deviations of a tenth.
    for datasets, size in ((task.train, 359), (task.test, 90)):
        bound = 5 * np.sqrt(0.1 * 0.9 / size)
        assert np.abs(_label_mixes(datasets) - 0.1).max() < bound


def test_model_has_the_parameters_of_its_layers(task):
    model = task.model_fn()

    assert [tuple(v.shape) for v in model.trainable_variables] == [
        (64, 50),
        (50,),
        (50, 10),
        (10,),
    ]
    assert sum(v.shape.num_elements() for v in model.trainable_variables) == (
        64 * 50 + 50 + 50 * 10 + 10
    )
    assert model.input_spec == task.train.element_spec


@pytest.mark.conformance
def test_initial_weights_follow_the_seed_also_inside_tff(task):
    weights, same, different = (
        [v.numpy() for v in each.model_fn().trainable_variables]
        for each in (task, tasks.load("digits", seed=1), tasks.load("digits", seed=2))
    )
    process = tff.learning.algorithms.build_weighted_fed_avg(
        task.model_fn, tff.learning.optimizers.build_sgdm(0.1)
    )
    state = process.initialize()

    for mine, again, inside_tff in zip(
        weights, same, state.global_model_weights.trainable, strict=True
    ):
        np.testing.assert_array_equal(mine, again)
        np.testing.assert_array_equal(mine, inside_tff)
    assert not np.array_equal(weights[0], different[0])
    assert not np.array_equal(weights[2], different[2])

    cohort = task.train.client_ids[:3]
    output = process.next(state, [task.train.training_data(k, 0) for k in cohort])
    metrics = output.metrics["client_work"]["train"]
    assert metrics["num_examples"] == sum(map(task.train.num_examples, cohort))
    assert 0 <= metrics["accuracy"] <= 1
