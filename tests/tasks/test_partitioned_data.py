import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.sources import central_data, partitioned_data

_NUM_CLASSES = 5


def _data(num_train, num_test):
    """Image k of both parts together is filled with the two bytes of k."""

    def part(first, count):
        numbers = np.arange(first, first + count)
        images = np.stack([numbers // 256, numbers % 256], axis=-1).astype(np.uint8)
        labels = (numbers % _NUM_CLASSES).astype(np.int32)
        return central_data.Images(images[:, np.newaxis, np.newaxis], labels)

    return central_data.Splits(part(0, num_train), part(num_train, num_test))


def _split(data, seed=0, **options):
    options = {
        "num_clients": 10,
        "alpha": 0.3,
        "size_sigma": 0.0,
        "similarity": None,
        "validation_fraction": 0.1,
        "batch_size": 5,
        "epochs": 1,
        "max_examples": None,
        **options,
    }
    return partitioned_data.split_over_clients(
        data,
        _NUM_CLASSES,
        lambda examples, generator: examples,
        seed=seed,
        options=options,
    )


def _numbers(datasets):
    """The numbers of the images of each client."""
    numbers = {}
    for client_id in datasets.client_ids:
        images, labels = datasets.examples(client_id)
        numbers[client_id] = (images[:, 0, 0] @ np.array([256, 1])).tolist()
        np.testing.assert_array_equal(
            labels, np.array(numbers[client_id]) % _NUM_CLASSES
        )
    return numbers


@settings(max_examples=25, deadline=None)
@given(
    num_clients=st.integers(1, 20),
    alpha=st.one_of(st.none(), st.floats(0.01, 100)),
    size_sigma=st.floats(0, 2),
    validation_fraction=st.floats(0, 0.9),
    seed=st.integers(0, 2**40),
)
def test_every_image_has_one_client_of_its_part(
    num_clients, alpha, size_sigma, validation_fraction, seed
):
    clients = _split(
        _data(300, 60),
        seed,
        num_clients=num_clients,
        alpha=alpha,
        size_sigma=size_sigma,
        validation_fraction=validation_fraction,
    )

    assert len(clients.train) == num_clients
    assert clients.test.client_ids == clients.train.client_ids
    num_held_out = round(validation_fraction * num_clients)
    trained = _numbers(clients.train)
    held_out = _numbers(clients.validation) if clients.validation else {}
    assert len(held_out) == num_held_out
    assert not set(trained) & set(held_out)
    used = np.concatenate([*trained.values(), *held_out.values()])
    np.testing.assert_array_equal(np.sort(used), np.arange(300))
    tested = _numbers(clients.test)
    used = np.concatenate([*tested.values()])
    np.testing.assert_array_equal(np.sort(used), np.arange(300, 360))
    if size_sigma == 0:
        for parts in ([*trained.values(), *held_out.values()], tested.values()):
            sizes = [len(part) for part in parts]
            assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("num_clients", "num_held_out"), [(100, 10), (1000, 100)])
def test_a_tenth_as_many_clients_are_for_validation(num_clients, num_held_out):
    clients = _split(_data(2200, 1000), num_clients=num_clients)

    assert len(clients.train) == num_clients
    assert len(clients.validation) == num_held_out
    for datasets in (clients.train, clients.validation):
        sizes = {datasets.num_examples(each) for each in datasets.client_ids}
        assert sizes == {2200 // (num_clients + num_held_out)}


def _label_mixes(datasets):
    return np.array(
        [
            np.bincount(datasets.examples(each)[1], minlength=_NUM_CLASSES)
            / datasets.num_examples(each)
            for each in datasets.client_ids
        ]
    )


def test_tests_follow_the_mix_of_their_clients():
    clients = _split(_data(11_000, 5000), alpha=0.1)
    train, test = _label_mixes(clients.train), _label_mixes(clients.test)

    assert train.max(axis=1).mean() > 0.5
    own = np.abs(train - test).sum(axis=1).mean()
    of_others = np.abs(train - np.roll(test, 1, axis=0)).sum(axis=1).mean()
    assert own < of_others / 2


def test_without_skew_all_clients_have_the_mix_of_all():
    clients = _split(_data(11_000, 5000), alpha=None)

    for datasets, size in ((clients.train, 1000), (clients.test, 500)):
        deviation = np.sqrt(0.2 * 0.8 / size)
        assert np.abs(_label_mixes(datasets) - 0.2).max() < 5 * deviation


def test_the_split_is_a_pure_function_of_its_seed():
    splits = [_split(_data(300, 60), seed) for seed in (4, 4, 5)]

    for part in ("train", "test", "validation"):
        first, same, other = (_numbers(getattr(each, part)) for each in splits)
        assert first == same
        assert first != other


def test_the_cut_is_for_training_alone():
    clients = _split(_data(330, 60), max_examples=7)

    assert {clients.train.num_examples(each) for each in clients.train.client_ids} == {
        7
    }
    (held_out,) = clients.validation.client_ids
    assert clients.validation.num_examples(held_out) == 30
    assert clients.test.num_examples(clients.test.client_ids[0]) == 6


def test_raises_on_more_clients_than_test_examples():
    with pytest.raises(ValueError, match="num_clients must be at most 9, found 10"):
        _split(_data(300, 9))


def test_tests_follow_the_labels_that_similarity_gave_their_clients():
    clients = _split(_data(11_000, 5000), similarity=0.0)
    train, test = _label_mixes(clients.train), _label_mixes(clients.test)

    # Sorted by label, a client has few of the classes, and its tests are of these.
    assert ((train > 0).sum(axis=1) <= 2).all()
    own = np.abs(train - test).sum(axis=1).mean()
    of_others = np.abs(train - np.roll(test, 5, axis=0)).sum(axis=1).mean()
    assert own < of_others / 2


def test_the_last_batch_is_the_training_clients():
    clients = _split(_data(330, 60), last_batch="bootstrap", batch_size=7)

    batches = clients.train.training_batches(clients.train.client_ids[0], 0)
    assert {len(labels) for _, labels in batches} == {7}
