import numpy as np
import pytest

import tasks
from tasks.sources import official_data
from tff_drift.simulation import ClientDatasets


def _clients(count):
    return ClientDatasets.from_arrays(
        {f"client_{k}": np.full(2, k) for k in range(count)},
        batch_size=1,
        max_examples=1,
    )


def test_a_share_of_the_training_clients_is_held_out_with_all_its_examples():
    train, held_out = official_data.hold_out(_clients(20), 0.2, seed=3)

    # The 80-20 split of training clients.
    assert (len(train), len(held_out)) == (16, 4)
    assert set(train.client_ids) | set(held_out.client_ids) == set(
        _clients(20).client_ids
    )
    assert {train.num_examples(each) for each in train.client_ids} == {1}
    assert {held_out.num_examples(each) for each in held_out.client_ids} == {2}
    again = official_data.hold_out(_clients(20), 0.2, seed=3)[1]
    other = official_data.hold_out(_clients(20), 0.2, seed=4)[1]
    assert held_out.client_ids == again.client_ids != other.client_ids


def test_a_small_share_is_one_client_and_no_share_is_none():
    assert len(official_data.hold_out(_clients(20), 0.001, seed=0)[1]) == 1
    train, held_out = official_data.hold_out(_clients(20), 0.0, seed=0)
    assert len(train) == 20
    assert held_out is None
    with pytest.raises(ValueError, match="num_held_out is 1, but there are only 1"):
        official_data.hold_out(_clients(1), 0.5, seed=0)


def test_drawn_writers_leave_those_held_out(real_data):
    options = {"cache_dir": real_data, "num_clients": 10}
    task = tasks.load("emnist_digits", validation_fraction=0.1, **options)
    assert len(task.train) == len(task.test) == 10
    assert len(task.validation) > 10
    assert not set(task.train.client_ids) & set(task.validation.client_ids)
    assert tasks.load("emnist_digits", **options).validation is None


@pytest.mark.parametrize(
    ("name", "num_clients"), [("shakespeare_character", 715), ("cifar100", 100)]
)
def test_tasks_hold_clients_out_for_validation(real_data, name, num_clients):
    task = tasks.load(name, cache_dir=real_data, validation_fraction=0.2)

    assert len(task.train) + len(task.validation) == num_clients
    assert len(task.validation) == num_clients // 5
    assert not set(task.train.client_ids) & set(task.validation.client_ids)
