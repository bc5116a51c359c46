import numpy as np
import pytest

import tasks
from tasks.papers import shakespeare_character_gru


def parameters(units: int) -> int:
    """Those of the net; a GRU has three gates, each with two biases in Keras."""
    gates = 3 * (256 * units + units * units + 2 * units)
    return 90 * 256 + gates + (units * 90 + 90)


@pytest.mark.no_smoke
def test_shares_all_but_the_net_with_the_other_shakespeare_task():
    # The weights of so many units take seconds to draw: one model serves all.
    task = tasks.load("shakespeare_character_gru", synthetic=True, seed=2)
    other = tasks.load("shakespeare_character", synthetic=True, seed=2)
    model = task.model_fn()

    assert task.train.client_ids == other.train.client_ids
    for client_id in task.train.client_ids:
        for array, expected in zip(
            task.train.examples(client_id), other.train.examples(client_id), strict=True
        ):
            np.testing.assert_array_equal(array, expected)
    assert model.input_spec == task.train.element_spec
    names = {metric.name for metric in model.get_metrics()}
    assert {"accuracy", "num_tokens", "loss"} <= names
    net = shakespeare_character_gru.build_keras_model(seed=2)
    assert net.count_params() == parameters(1024) == 4_053_594
    for variable, same in zip(
        model.trainable_variables, net.trainable_variables, strict=True
    ):
        np.testing.assert_array_equal(variable, same)


def test_has_as_many_units_as_it_is_told():
    task = tasks.load("shakespeare_character_gru", synthetic=True, units=8)
    variables = task.model_fn().trainable_variables
    assert sum(np.prod(variable.shape) for variable in variables) == parameters(8)


def test_draws_100_roles_by_the_seed(real_data):
    draws = [
        tasks.load("shakespeare_character_gru", cache_dir=real_data, seed=seed)
        for seed in (0, 0, 1)
    ]
    everyone = tasks.load("shakespeare_character", cache_dir=real_data)

    for task in draws:
        assert len(set(task.train.client_ids)) == 100
        assert task.test.client_ids == task.train.client_ids
        assert set(task.train.client_ids) <= set(everyone.train.client_ids)
    assert draws[0].train.client_ids == draws[1].train.client_ids
    assert draws[0].train.client_ids != draws[2].train.client_ids
    with pytest.raises(ValueError, match=r"num_clients is 716, but .* only 715 roles"):
        tasks.load("shakespeare_character_gru", cache_dir=real_data, num_clients=716)
