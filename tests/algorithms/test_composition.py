"""What methods are composed of: states, messages, aggregators, server optimizers."""

import collections
import inspect

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, stateful, tiers
from tests.paper import reference
from tff_drift import aggregators, algorithms, client_works, execution, optimizers
from tff_drift.algorithms import server_steps
from tff_drift.tensors import from_vector, to_vector

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


@pytest.mark.conformance
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


@pytest.mark.conformance
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
        paper.c = (
            c
            + sum(d * min(1, 0.5 / n) for d, n in zip(changes, norms, strict=True)) / 3
        )
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


@pytest.mark.conformance
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


@pytest.mark.conformance
@pytest.mark.parametrize("has_meta_step", tiers.first([0], [False, True]))
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


class KeptMomentum(client_works.LocalSgd):
    """Local SGD whose momentum goes on from round to round."""

    def initial_client_state(self, zeros):
        return collections.OrderedDict(accumulator=zeros)

    def initial_optimizer_state(self, context, fresh):
        kept = from_vector(
            context.client_state["accumulator"], context.initial_trainable
        )
        return collections.OrderedDict(fresh, accumulator=kept)

    def update_client_state(self, context, local):
        del context
        optimizer_state, _ = local.work_state
        return client_works.ClientOutput(
            collections.OrderedDict(
                accumulator=to_vector(optimizer_state["accumulator"])
            )
        )


@pytest.mark.conformance
def test_a_client_can_keep_its_optimizers_state():
    # Alone, it is momentum SGD that is never interrupted.
    process = algorithms.compose(
        stateful.LinearRegression,
        KeptMomentum(tff.learning.optimizers.build_sgdm(0.05, momentum=0.75)),
        1.0,
    )
    driver = stateful.Driver(process, CLIENTS)
    for _ in range(3):
        driver.round(["client_1"])
    batches = CLIENTS["client_1"].batches()
    sgd = reference.Sgd(0.05, momentum=0.75)
    whole = sgd.run(np.zeros(D), batches * 3)
    np.testing.assert_allclose(driver.model, whole, atol=1e-6)
    restarted = np.zeros(D)
    for _ in range(3):
        restarted = sgd.run(restarted, batches)
    assert np.linalg.norm(whole - restarted) > 0.01


class Towards(client_works.LocalSgd):
    """Steps along what the server sent; says how many it took."""

    def correction(self, context):
        return context.server_message

    def update_client_state(self, context, local):
        del context
        return client_works.ClientOutput(message=local.num_steps)


class Remembering(server_steps.ServerStep):
    """x <- x - Δ; sends the last Δ, and keeps the clients' mean message."""

    def initial_state(self, trainable):
        return collections.OrderedDict(
            last=tuple(tf.zeros_like(tensor) for tensor in trainable),
            message=tf.constant(0.0),
        )

    def message(self, state):
        return to_vector(tuple(state["last"]))

    def next(self, state, trainable, pseudo_gradient, cohort):
        return server_steps.ServerResult(
            collections.OrderedDict(last=pseudo_gradient, message=cohort.message),
            tuple(x - g for x, g in zip(trainable, pseudo_gradient, strict=True)),
            collections.OrderedDict(),
        )


def test_messages_travel_both_ways_without_client_state():
    process = algorithms.compose(
        stateful.LinearRegression, Towards(RATE), Remembering()
    )
    assert not isinstance(process, algorithms.StatefulLearningProcess)
    assert "float32[5]" in repr(process)
    traffic = (process.message_down, process.message_up)
    assert list(map(str, traffic)) == ["float32[5]", "float32"]
    driver = stateful.Driver(process, CLIENTS)
    x, last = np.zeros(D), np.zeros(D)
    for cohort in COHORTS:
        driver.round(cohort)
        clients = [CLIENTS[name] for name in cohort]
        moves = [
            x - reference.Sgd(RATE).run(x, c.batches(), lambda w, v=last: v)
            for c in clients
        ]
        sizes = [len(c.targets) for c in clients]
        last = np.average(moves, axis=0, weights=sizes)
        x = x - last
        np.testing.assert_allclose(driver.model, x, atol=1e-6)
        # Weighted as the updates are: by examples.
        steps = np.average([len(c.batches()) for c in clients], weights=sizes)
        np.testing.assert_allclose(driver.state.finalizer["message"], steps, rtol=1e-6)


def test_messages_have_the_weights_of_the_updates_or_are_refused():
    alike = tff.aggregators.UnweightedMeanFactory()
    for method in ("mime", "mime_lite", "fed_nova"):
        with pytest.raises(ValueError, match="message_aggregator must be a weighted"):
            algorithms.methods()[method].build(
                stateful.LinearRegression,
                client_learning_rate=RATE,
                message_aggregator=alike,
            )
    # Where all weigh the same, there is nothing to mix.
    for options in (
        {"client_weighting": stateful.UNIFORM},
        {"model_aggregator": alike},
    ):
        process = algorithms.build_mime_lite(
            stateful.LinearRegression, RATE, message_aggregator=alike, **options
        )
        assert isinstance(process, algorithms.ComposedLearningProcess)


@pytest.mark.parametrize("name", sorted(algorithms.methods()))
def test_completion_and_help_list_the_options(name):
    builder = algorithms.methods()[name].builder
    parameters = inspect.signature(builder).parameters
    assert inspect.Parameter.VAR_KEYWORD not in {p.kind for p in parameters.values()}
    assert parameters["client_weighting"].default in tff.learning.ClientWeighting
    offered = [each for each in parameters if each.startswith("client_")]
    assert "client_weighting" in offered
    if algorithms.methods()[name].has_client_rate:
        assert {"client_weight_decay", "client_rate_schedule"} < set(offered)


def test_the_signature_tells_the_weighting_of_methods_with_client_state():
    def default(builder):
        return inspect.signature(builder).parameters["client_weighting"].default

    assert default(algorithms.build_scaffold) == stateful.UNIFORM
    assert default(algorithms.build_fed_avg) == stateful.NUM_EXAMPLES
    with pytest.raises(TypeError, match="client_weighting must be"):
        algorithms.build_fed_avg(stateful.LinearRegression, 0.1, client_weighting=None)


def test_a_process_with_client_state_tells_what_clients_keep():
    process = stateful.scaffold("II", RATE, 3)
    assert repr(process).splitlines() == [
        "StatefulLearningProcess",
        "  model:             5 numbers in 2 tensors to train, nothing besides",
        "  a client receives: the model and float32[5]",
        "  a client sends:    its update and float32[5]",
        "  a client keeps:    <control_variate=float32[5]>",
        "  hyperparameters:   <client_work=<learning_rate=float32>,"
        "finalizer=<learning_rate=float32>>",
    ]
    html = process._repr_html_()
    assert html.startswith("<b>StatefulLearningProcess</b><table><tr>")
    assert "&lt;control_variate=float32[5]&gt;" in html
