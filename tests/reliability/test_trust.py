"""What leaves the clients where sums are secure, as docs/trust.md says it."""

import functools
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests import tiers
from tests.soak import program
from tff_drift import aggregators, algorithms, compat, execution, simulation

# Values of clients that reach the server one by one, or in sums that it can read.
_PLAIN = re.compile(r"\bfederated_(sum|mean|collect|aggregate|reduce)\(")

_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?")


@pytest.fixture(autouse=True, scope="module")
def local_context():
    context = execution.create_local_execution_context()
    with compat.get_context_stack().install(context):
        yield


def _plain_aggregations(computation):
    text = computation.to_building_block().compact_representation()
    return sorted(_PLAIN.findall(text))


def _secure_sum(bound=100.0):
    return tff.aggregators.SecureSumFactory(bound)


def _secure_options():
    mean = tff.aggregators.MeanFactory(
        value_sum_factory=_secure_sum(),
        weight_sum_factory=tff.aggregators.SecureSumFactory(100.0, 0.0),
        no_nan_division=True,
    )
    return {
        "model_aggregator": aggregators.reject_non_finite_factory(
            mean, count_sum_factory=tff.aggregators.SecureSumFactory(1, 0)
        ),
        "metrics_aggregator": tff.learning.metrics.secure_sum_then_finalize,
    }


def test_plain_aggregations_are_found():
    process = algorithms.build_fed_avg(program.linear_regression(), 0.1)
    assert len(_plain_aggregations(process.next)) > 1


def test_without_client_states_only_a_count_is_summed_in_the_open():
    assert _plain_aggregations(_composed("secure").next) == ["sum"]


@pytest.mark.conformance
@pytest.mark.parametrize("method", tiers.first(["scaffold"], ["scaffold", "adabest"]))
def test_client_states_may_stay_at_the_clients(method):
    model, options = program.linear_regression(), _secure_options()
    if method == "scaffold":
        options["control_variate_sum_factory"] = _secure_sum()
        process = algorithms.build_scaffold(model, 0.1, 6, **options)
    else:
        process = algorithms.build_adabest(model, 0.1, **options)
    # Numbers of clients, steps and examples, and norms: one sum of scalars.
    assert _plain_aggregations(process.next_at_clients) == ["sum"]
    # The simulation's own round hands every client's state to whoever drives it.
    assert len(_plain_aggregations(process.next)) > 1


@pytest.mark.parametrize(
    "method",
    tiers.first(["adabest", "fed_avg", "mime", "scaffold"], list(program.METHODS)),
)
def test_no_metric_has_the_size_of_the_model(method):
    process = program.build(method)
    metrics = process.next.type_signature.result.metrics.member
    fields = dict(compat.structure.to_elements(metrics))
    fields.pop(algorithms.CLIENT_STATES, None)
    specs = tf.nest.flatten(
        [compat.type_to_tf_tensor_specs(field) for field in fields.values()]
    )
    assert specs
    assert {spec.shape.num_elements() for spec in specs} == {1}


def _individuals(train):
    """Every number of what each client alone would send: Δ_i, y_i, ‖Δ_i‖, its loss."""
    process = program.build("fed_avg")
    state = process.initialize()
    [start] = state.global_model_weights.trainable
    found = {}
    for name in train.client_ids:
        output = process.next(state, [list(train.training_batches(name, 0))])
        [end] = output.state.global_model_weights.trainable
        delta = start - end
        found[name] = [*delta, *end, np.linalg.norm(delta), np.sum(delta**2)]
    return found


def _numbers(*texts):
    return {float(number) for text in texts for number in _NUMBER.findall(text)}


def _told(told, individual):
    return np.any(np.isclose(individual, sorted(told), rtol=1e-5, atol=0), axis=None)


def _pipeline(kind):
    if kind == "secure":
        return _secure_options()
    # Without its noise, which would hide what is told.
    private = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(0.0, 6, 1e6)
    wrapped = aggregators.cohort_measurements_factory(
        aggregators.reject_non_finite_factory(private)
    )
    return {
        "model_aggregator": aggregators.adaptive_clipping_factory(wrapped),
        "client_weighting": tff.learning.ClientWeighting.UNIFORM,
    }


@functools.cache
def _composed(kind):
    model, options = program.linear_regression(), _pipeline(kind)
    return algorithms.build_fed_avg(model, 0.1, **options)


@pytest.mark.parametrize("kind", tiers.first(["secure"], ["private", "secure"]))
def test_rows_logs_and_states_have_no_number_of_a_client(kind, caplog):
    train = program.client_datasets()
    broken = {name: train.examples(name) for name in train.client_ids}
    broken["client_5"][0][0, 0] = np.nan  # A rejected client is warned of.
    train = simulation.ClientDatasets.from_arrays(broken, batch_size=2, seed=5)
    process = _composed(kind)
    with caplog.at_level("DEBUG"):
        result = simulation.run_training(process, train, rounds=2, cohort_size=6)
    # Named for its data, which are looked at where they are: not for its rejection.
    assert re.findall(r"client_\d.*", caplog.text) == [
        "client_5', example 0, is not finite."
    ]
    told = _numbers(
        caplog.text, *(repr(simulation.without_timing(row)) for row in result.rows)
    )
    for leaf in map(np.asarray, tree.flatten(result.state)):
        if leaf.dtype.kind == "f":
            told.update(map(float, leaf.ravel()))
    assert len(told) > 5
    individuals = _individuals(train)
    assert not any(
        _told(told, np.array(individuals[name])[:, np.newaxis])
        for name in train.client_ids[:5]
    )


def _events(state):
    """The texts in a server's state: TFF's DpEvents, what accounting begins with."""
    leaves = tree.flatten_with_path(state)
    return {path: leaf for path, leaf in leaves if isinstance(leaf, bytes)}


@pytest.mark.conformance
def test_a_private_run_that_is_resumed_keeps_its_events(tmp_path):
    def train(rounds, folder):
        return simulation.run_training(
            _composed("private"),
            program.client_datasets(),
            rounds=rounds,
            cohort_size=6,
            output_dir=tmp_path / folder,
        ).state

    whole = train(2, "whole")
    train(1, "parts")
    resumed = train(2, "parts")
    assert b"GaussianDpEvent" in _events(whole).values()
    assert _events(resumed) == _events(whole)
    for one, other in zip(tree.flatten(resumed), tree.flatten(whole), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.conformance
def test_a_cohort_of_one_tells_its_clients_numbers():
    # So the test above can fail.
    train = program.client_datasets()
    [name, *_] = train.client_ids
    result = simulation.run_training(
        program.build("fed_avg"), train, rounds=1, sampling=lambda _: [name]
    )
    [weights] = result.model_weights.trainable
    individual = np.array(_individuals(train)[name])
    assert _told({float(x) for x in weights}, individual[:, np.newaxis])
