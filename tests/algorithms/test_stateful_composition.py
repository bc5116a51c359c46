"""Methods with client state and other aggregators and server optimizers."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, stateful
from tests.paper import reference
from tff_drift import aggregators, algorithms, execution, optimizers

D = stateful.DIMENSION
RATE = 0.1
CLIENTS = stateful.ragged_clients([7, 4, 9], seed=5)
COHORTS = (["client_0", "client_2"], ["client_1", "client_0"])


class ClippedScaffold(reference.Scaffold):
    """SCAFFOLD II whose updates x - y_i are clipped on their way, and nothing else."""

    def __init__(self, norms):
        super().__init__(D, CLIENTS, RATE, "II")
        self._norms = iter(norms)

    def round(self, cohort):
        x, c, c_i = self.x, self.c, dict(self.c_i)
        updates = [
            x - self.sgd.run(x, b, lambda w, i=i: c - c_i[i]) for i, b in cohort.items()
        ]
        super().round(cohort)
        norm = next(self._norms)
        clipped = [u * min(1.0, norm / np.linalg.norm(u)) for u in updates]
        assert any(np.linalg.norm(update) > norm for update in updates)
        self.x = x - np.mean(clipped, axis=0)


def test_adaptive_clipping_clips_the_model_and_not_the_variates():
    process = algorithms.build_scaffold(
        stateful.LinearRegression,
        RATE,
        len(CLIENTS),
        model_aggregator=aggregators.adaptive_clipping_factory(
            initial_clipping_norm=0.1
        ),
    )
    driver = stateful.Driver(process, CLIENTS)
    # All are clipped: ρ <- ρ exp(-0.2 (0 - 0.8)) after the first round.
    paper = ClippedScaffold([0.1, 0.1 * np.exp(0.16)])
    for cohort in COHORTS:
        metrics = driver.round(cohort)
        paper.round(stateful.batches(CLIENTS, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=1e-6)
        np.testing.assert_allclose(driver.server_variate(), paper.c, atol=1e-5)
        assert metrics["aggregator"]["model"]["clipped_fraction"] == 1.0


def test_differential_privacy_without_noise_is_a_fixed_clipping_norm():
    process = algorithms.build_scaffold(
        stateful.LinearRegression,
        RATE,
        len(CLIENTS),
        model_aggregator=tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
            noise_multiplier=0.0, clients_per_round=2, clip=0.2
        ),
    )
    driver = stateful.Driver(process, CLIENTS)
    paper = ClippedScaffold([0.2, 0.2])
    for cohort in COHORTS:
        driver.round(cohort)
        paper.round(stateful.batches(CLIENTS, cohort))
        np.testing.assert_allclose(driver.model, paper.x, atol=1e-6)
        np.testing.assert_allclose(driver.server_variate(), paper.c, atol=1e-5)


def test_any_server_optimizer_and_a_sum_of_variates_of_ones_own():
    process = algorithms.build_scaffold(
        stateful.LinearRegression,
        RATE,
        len(CLIENTS),
        optimizers.build_adam(0.01, beta_1=0.5, beta_2=0.75, tau=1e-3),
        control_variate_sum_factory=tff.aggregators.clipping_factory(
            0.5, tff.aggregators.SumFactory()
        ),
    )
    driver = stateful.Driver(process, CLIENTS)
    paper = reference.Scaffold(D, CLIENTS, RATE, "II")
    m, v = np.zeros(D), np.zeros(D)
    for cohort in COHORTS:
        x, c, c_i = paper.x, paper.c, dict(paper.c_i)
        paper.round(stateful.batches(CLIENTS, cohort))
        delta = x - paper.x
        m, v = 0.5 * m + 0.5 * delta, 0.75 * v + 0.25 * delta**2
        paper.x = x - 0.01 * m / (np.sqrt(v) + 1e-3)
        changes = [paper.c_i[client] - c_i[client] for client in cohort]
        norms = [np.linalg.norm(change) for change in changes]
        assert max(norms) > 0.5
        paper.c = c + sum(d * min(1, 0.5 / n) for d, n in zip(changes, norms)) / 3
        driver.round(cohort)
        np.testing.assert_allclose(driver.model, paper.x, atol=1e-5)
        np.testing.assert_allclose(driver.server_variate(), paper.c, atol=1e-5)
    hparams = process.get_hparams(driver.state)["finalizer"]
    np.testing.assert_allclose(hparams["learning_rate"], 0.01)
    hparams = process.get_hparams(driver.state)
    hparams["finalizer"]["learning_rate"] = 0.0
    driver.state = process.set_hparams(driver.state, hparams)
    before = driver.model
    driver.round(["client_1"])
    np.testing.assert_array_equal(driver.model, before)


def test_the_servers_control_variate_is_read_wherever_the_state_holds_it():
    # Of one client alone, c is its c_i over N.
    data = CLIENTS["client_0"].dataset()
    plain = algorithms.build_scaffold(stateful.LinearRegression, RATE, 2)
    processes = [
        plain,
        algorithms.build_scaffold_m(stateful.LinearRegression, RATE, 2),
        algorithms.build_scaffold_m(
            stateful.LinearRegression, RATE, 2, evaluated_model="average"
        ),
        algorithms.add_meta_step(plain, stateful.LinearRegression, data, 0.5),
    ]
    for process in processes:
        driver = stateful.Driver(process, CLIENTS)
        assert str(process.control_variate.type_signature.result) == "float32[5]"
        np.testing.assert_array_equal(driver.server_variate(), np.zeros(D))
        driver.round(["client_0"])
        c_i = driver.remembered("client_0")
        assert np.linalg.norm(c_i) > 0.1
        np.testing.assert_allclose(driver.server_variate(), c_i / 2, rtol=1e-5)
    assert stateful.adabest(RATE, 0.2, 0.5).control_variate is None


@pytest.mark.parametrize("has_meta_step", [False, True])
def test_the_new_client_states_may_stay_at_the_clients(has_meta_step):
    process = algorithms.build_scaffold(models.softmax_regression, 0.1, 10)
    data = models.datasets(models.client_arrays([8, 5, 3]))
    if has_meta_step:
        process = algorithms.add_meta_step(
            process, models.softmax_regression, data[0], meta_learning_rate=0.1
        )
    client_data = [
        {"examples": examples, "state": process.initial_client_state, "index": index}
        for index, examples in enumerate(data)
    ]
    local = execution.create_local_execution_context()
    for context in (tff.framework.get_context_stack().current, local):
        with tff.framework.get_context_stack().install(context):
            state = process.initialize()
            expected = process.next(state, client_data)
            output, kept = process.next_at_clients(state, client_data)
        tf.nest.map_structure(
            np.testing.assert_array_equal, output.state, expected.state
        )
        metrics = dict(expected.metrics)
        collected = metrics.pop(algorithms.CLIENT_STATES)
        assert set(output.metrics) == set(metrics)
        order = [int(each["index"]) for each in kept]
        assert sorted(order) == [0, 1, 2]
        rows = {int(index): row for row, index in enumerate(collected["index"])}
        for each in kept:
            np.testing.assert_array_equal(
                each["state"]["control_variate"],
                collected["state"]["control_variate"][rows[int(each["index"])]],
            )
            assert np.any(each["state"]["control_variate"])
