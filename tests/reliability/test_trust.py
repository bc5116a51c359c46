"""What leaves the clients where sums are secure, as docs/trust.md says it."""

import re

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.reliability import program
from tff_drift import aggregators, algorithms, compat

# Values of clients that reach the server one by one, or in sums that it can read.
_PLAIN = re.compile(r"\bfederated_(sum|mean|collect|aggregate|reduce)\(")


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
    process = algorithms.build_fed_avg(
        program.linear_regression(), 0.1, **_secure_options()
    )
    assert _plain_aggregations(process.next) == ["sum"]


@pytest.mark.parametrize("method", ["scaffold", "adabest"])
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


@pytest.mark.parametrize("method", program.METHODS)
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
