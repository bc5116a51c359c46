import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks.papers import quadratic


def _hessian_and_optimum(x, y):
    """A_i and b_i of (w - b)' A (w - b) / 2, the mean over rows of (x'w - y)^2 / 2."""
    x, y = x.astype(np.float64), y.astype(np.float64)[:, 0]
    return x.T @ x / len(x), np.linalg.solve(x, y)


@pytest.fixture(scope="module")
def clients():
    return quadratic.draw_clients(num_clients=6, dimension=4, heterogeneity=1.0, seed=3)


def test_curvatures_are_between_a_half_and_two(clients):
    curvatures = [
        np.linalg.eigvalsh(_hessian_and_optimum(*client)[0])
        for client in clients.values()
    ]

    assert np.min(curvatures) >= 0.5 - 1e-6
    assert np.max(curvatures) <= 2 + 1e-6
    assert np.ptp(curvatures) > 0.5


def test_global_optimum_balances_the_clients_gradients(clients):
    optimum = quadratic.global_optimum(clients)

    quadratics = [_hessian_and_optimum(*client) for client in clients.values()]
    gradient = sum(a @ (optimum - b) for a, b in quadratics)
    np.testing.assert_allclose(gradient, 0, atol=1e-5)
    # No client has its optimum there: this is what makes local steps drift.
    assert min(np.linalg.norm(optimum - b) for _, b in quadratics) > 0.1


def test_without_heterogeneity_all_optima_are_one():
    clients = quadratic.draw_clients(5, 3, heterogeneity=0.0, seed=0)
    optimum = quadratic.global_optimum(clients)

    for client in clients.values():
        own = _hessian_and_optimum(*client)[1]
        np.testing.assert_allclose(own, optimum, atol=1e-5)


def test_data_is_a_pure_function_of_the_seed(clients):
    again = quadratic.draw_clients(6, 4, 1.0, seed=3)
    other = quadratic.draw_clients(6, 4, 1.0, seed=4)

    for client_id, (x, y) in clients.items():
        np.testing.assert_array_equal(x, again[client_id][0])
        np.testing.assert_array_equal(y, again[client_id][1])
        assert not np.array_equal(x, other[client_id][0])


def test_model_computes_the_quadratic_its_gradient_and_the_distance():
    task = tasks.load("quadratic", seed=3, num_clients=6, dimension=4)
    client_id = task.train.client_ids[2]
    a, b = _hessian_and_optimum(*task.train.examples(client_id))
    optimum = quadratic.global_optimum(
        {k: task.train.examples(k) for k in task.train.client_ids}
    )
    model = task.model_fn()
    (batch,) = task.train.evaluation_batches(client_id)
    weights = np.array([1.0, -2.0, 0.5, 3.0])
    model.trainable_variables[0].assign(weights[:, np.newaxis])

    with tf.GradientTape() as tape:
        loss = model.forward_pass(batch).loss
    (gradient,) = tape.gradient(loss, model.trainable_variables)

    np.testing.assert_allclose(loss, (weights - b) @ a @ (weights - b) / 2, rtol=1e-5)
    np.testing.assert_allclose(gradient[:, 0], a @ (weights - b), rtol=1e-4)
    metrics = {metric.name: metric.result() for metric in model.get_metrics()}
    assert task.accuracy_metric == "distance"
    assert not task.higher_is_better
    np.testing.assert_allclose(
        metrics["distance"], np.linalg.norm(weights - optimum), rtol=1e-5
    )
    assert model.input_spec == task.train.element_spec


def test_batches_are_whole_clients_unless_asked_otherwise():
    exact = tasks.load("quadratic", dimension=4, epochs=3)
    stochastic = tasks.load("quadratic", dimension=4, epochs=1, batch_size=1)

    for task, sizes in ((exact, [4] * 3), (stochastic, [1] * 4)):
        dataset = task.train.training_data(task.train.client_ids[0], 0)
        assert [len(y) for _, y in dataset.as_numpy_iterator()] == sizes


def test_fed_avg_of_one_exact_step_follows_the_mean_gradient():
    task = tasks.load("quadratic", seed=1, num_clients=4, dimension=3, epochs=1)
    quadratics = [
        _hessian_and_optimum(*task.train.examples(k)) for k in task.train.client_ids
    ]
    process = tff.learning.algorithms.build_weighted_fed_avg(
        task.model_fn, tff.learning.optimizers.build_sgdm(0.3)
    )
    state = process.initialize()
    (start,) = state.global_model_weights.trainable

    output = process.next(
        state, [task.train.training_data(k, 0) for k in task.train.client_ids]
    )

    (weights,) = output.state.global_model_weights.trainable
    gradient = np.mean([a @ (start[:, 0] - b) for a, b in quadratics], axis=0)
    np.testing.assert_allclose(
        weights[:, 0], start[:, 0] - 0.3 * gradient, rtol=1e-4, atol=1e-5
    )
    # With one step per client, the metric sees the model as it was sent.
    (expected,) = (
        np.linalg.norm(start[:, 0] - quadratic.global_optimum(clients))
        for clients in [{k: task.train.examples(k) for k in task.train.client_ids}]
    )
    distance = output.metrics["client_work"]["train"]["distance"]
    np.testing.assert_allclose(distance, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "options", [{"dimension": 10**9}, {"num_clients": 10**9}, {"dimension": 10**18}]
)
def test_raises_before_drawing_what_would_not_fit(options):
    with pytest.raises(
        ValueError, match=r"GB of examples.*Choose a dimension of at mo"
    ):
        tasks.load("quadratic", **options)
