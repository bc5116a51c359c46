import collections

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_drift import aggregators
from tff_drift.aggregators import wrapping

FACTORIES = [
    aggregators.adaptive_clipping_factory,
    aggregators.reject_non_finite_factory,
    aggregators.cohort_measurements_factory,
]
SCALAR = tff.TensorType(np.float32)


class MeasuringSum(tff.aggregators.UnweightedAggregationFactory):
    """A sum with the measurements that `make` makes of it."""

    def __init__(self, make):
        self._make = make

    def create(self, value_type):
        inner = tff.aggregators.SumFactory().create(value_type)

        @tff.federated_computation(
            inner.state_type, tff.FederatedType(value_type, tff.CLIENTS)
        )
        def next_fn(state, value):
            output = inner.next(state, value)
            return tff.templates.MeasuredProcessOutput(
                output.state, output.result, self._make(output.result)
            )

        return tff.templates.AggregationProcess(inner.initialize, next_fn)


def measured(make):
    process = aggregators.reject_non_finite_factory(MeasuringSum(make)).create(SCALAR)
    return process.next(process.initialize(), [1.0, 2.0]).measurements


def zipped(**fields):
    return tff.federated_zip(collections.OrderedDict(fields))


def test_named_measurements_are_joined():
    found = measured(lambda total: zipped(total=total, twice=total))
    assert found == collections.OrderedDict(rejected_clients=0, total=3.0, twice=3.0)


def test_measurements_of_the_same_name_are_kept_apart():
    found = measured(lambda total: zipped(rejected_clients=total, twice=total))
    assert found == collections.OrderedDict(
        rejected_clients=0,
        inner=collections.OrderedDict(rejected_clients=3.0, twice=3.0),
    )


@pytest.mark.parametrize(
    ("make", "inner"),
    [
        (lambda total: total, 3.0),
        (lambda total: tff.federated_zip((total, total)), (3.0, 3.0)),
    ],
)
def test_measurements_without_names(make, inner):
    assert measured(make) == collections.OrderedDict(rejected_clients=0, inner=inner)


@pytest.mark.parametrize("build", FACTORIES)
def test_structure_of_a_single_tensor(build):
    """TFF must not take a structure of one for an argument list."""
    single = tff.to_type([tff.TensorType(np.float32, [2])])
    process = build(tff.aggregators.UnweightedMeanFactory()).create(single)
    values = [[np.array([0.25, 0.5], np.float32)], [np.array([0.75, 0], np.float32)]]
    result = process.next(process.initialize(), values).result
    assert isinstance(result, list)
    np.testing.assert_array_equal(result, [[0.5, 0.25]])


def test_steps_in_other_forms_are_refused():
    def wrapped(describe):
        sums = tff.aggregators.SumFactory()
        return wrapping.wrap_factory(sums, describe).create(SCALAR)

    def calls(inner, value_type, weight_type):
        del value_type, weight_type
        return wrapping.Steps(
            inner.initialize,
            lambda state, value, weight: wrapping.call_next(
                inner, state, value, weight
            ),
        )

    assert wrapped(calls).next((), [1.0, 2.0]).result == 3.0

    def of_nothing(*types):
        steps = calls(*types)

        def next_fn(state, value, weight):
            output = steps.next(state, value, weight)
            nothing = collections.OrderedDict()
            return tff.templates.MeasuredProcessOutput(nothing, output.result, nothing)

        return wrapping.Steps(collections.OrderedDict, next_fn)

    process = wrapped(of_nothing)
    output = process.next(process.initialize(), [1.0, 2.0])
    assert output.result == 3.0
    assert len(output.measurements) == 0
    with pytest.raises(
        TypeError,
        match=r"^What describe returns must be a tff_drift\.aggregators\.wrapping\."
        r"Steps, found \(.*\)\. Return wrapping\.Steps\(initialize, next\)\.$",
    ):
        wrapped(lambda *types: tuple(calls(*types)))
    with pytest.raises(
        TypeError,
        match="^What next of the Steps that describe returns must be a "
        r"tff\.templates\.MeasuredProcessOutput, found \(",
    ):
        wrapped(
            lambda *types: calls(*types)._replace(
                next=lambda state, value, weight: (state, value)
            )
        )


@pytest.mark.parametrize("build", FACTORIES)
def test_inner_factory_must_be_a_factory(build):
    process = tff.aggregators.MeanFactory().create(SCALAR, SCALAR)
    for wrong in (tff.aggregators.MeanFactory, process, 1.0):
        with pytest.raises(
            TypeError, match=r"inner_factory must .*MeanFactory\(\), found"
        ):
            build(wrong)
    with pytest.raises(TypeError, match=r"class: call it, MeanFactory\(\.\.\.\)\.$"):
        build(tff.aggregators.MeanFactory)


@pytest.mark.parametrize("build", FACTORIES)
def test_integers_are_refused(build):
    mixed = tff.to_type([np.float32, (np.int32, [2])])
    with pytest.raises(TypeError, match="Cast the others to float32 on the clients"):
        build().create(mixed, SCALAR)
    with pytest.raises(TypeError, match="Cast the others to float32 on the clients"):
        build(tff.aggregators.SumFactory()).create(tff.TensorType(np.int32))


@pytest.mark.parametrize("build", FACTORIES)
@pytest.mark.parametrize(
    "value_type",
    [np.float32, tff.FederatedType(np.float32, tff.CLIENTS), tff.SequenceType(SCALAR)],
)
def test_value_type_must_be_a_type_of_tensors(build, value_type):
    with pytest.raises(TypeError, match=r"value_type must be a tff\.TensorType"):
        build().create(value_type, SCALAR)
