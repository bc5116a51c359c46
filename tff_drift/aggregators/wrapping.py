"""The base of all aggregators here: a factory around an inner factory.

An aggregator is described once, by a function that gives its two steps for one
type of values; `wrap_factory` makes the weighted or the unweighted factory of it.
"""

from __future__ import annotations

import collections
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff
import tree

from tff_drift import checks, compat

# ( state, values, weights or None -> output )
NextFn = Callable[
    [compat.Value, compat.Value, compat.Value | None],
    tff.templates.MeasuredProcessOutput,
]


class Steps(NamedTuple):
    """An aggregation process, written as functions for TFF to trace.

    Attributes:
      initialize: Takes nothing and returns the state, a value at the server or
        a structure of them.
      next: Takes the state at the server, the values at the clients and the
        weights at the clients, or `None` in an unweighted aggregation. Returns a
        `tff.templates.MeasuredProcessOutput` of a state like the one of
        `initialize`, the result, and measurements, likewise.
    """

    initialize: Callable[[], Any]
    next: NextFn


# ( inner process, type of a value, type of a weight or None -> steps )
DescribeFn = Callable[
    [tff.templates.AggregationProcess, compat.Type, compat.Type | None], Steps
]


def wrap_factory(
    inner_factory: tff.aggregators.AggregationFactory | None, describe: DescribeFn
) -> tff.aggregators.AggregationFactory:
    """Returns a factory around `inner_factory`, as weighted or unweighted as it is.

    Args:
      inner_factory: The factory that aggregates the values in the end. `None` is
        TFF's weighted mean, which is zero (and not NaN) where all weights are.
      describe: Called by `create` with the inner process and the types of the
        values and the weights (`None` if unweighted); returns the process's
        steps.

    Returns:
      A `tff.aggregators.WeightedAggregationFactory` if `inner_factory` is one,
      else a `tff.aggregators.UnweightedAggregationFactory`. Its `create` raises
      TypeError if a tensor to aggregate is not of a floating type.

    Raises:
      TypeError: If `inner_factory` is not a factory.
    """
    if inner_factory is None:
        inner_factory = tff.aggregators.MeanFactory(no_nan_division=True)
    weighted = tff.aggregators.WeightedAggregationFactory
    unweighted = tff.aggregators.UnweightedAggregationFactory
    what = (
        "an instance of tff.aggregators.WeightedAggregationFactory or of "
        "tff.aggregators.UnweightedAggregationFactory, such as "
        "tff.aggregators.MeanFactory()"
    )
    checks.check_instance("inner_factory", inner_factory, (weighted, unweighted), what)
    if isinstance(inner_factory, weighted):
        return _WeightedFactory(inner_factory, describe)
    return _UnweightedFactory(inner_factory, describe)


class _Factory:
    """See `wrap_factory`."""

    def __init__(self, inner_factory: Any, describe: DescribeFn) -> None:
        self._inner_factory = inner_factory
        self._describe = describe

    def _create(
        self, value_type: compat.Type, *weight_type: compat.Type
    ) -> tff.templates.AggregationProcess:
        check_floats("value_type", value_type)
        for each in weight_type:
            checks.check_instance("weight_type", each, compat.Type)
        inner_process = self._inner_factory.create(value_type, *weight_type)
        steps = self._describe(inner_process, value_type, *(weight_type or (None,)))
        remedy = "Return wrapping.Steps(initialize, next)."
        checks.check_instance("What describe returns", steps, Steps, remedy=remedy)

        def weighted(state: Any, value: Any, weight: Any) -> Any:
            return _zipped(steps.next(state, value, weight))

        def unweighted(state: Any, value: Any) -> Any:
            return _zipped(steps.next(state, value, None))

        initialize_fn = compat.federated_computation(
            lambda: _at_server(steps.initialize())
        )
        next_fn = compat.federated_computation(
            weighted if weight_type else unweighted,
            initialize_fn.type_signature.result,
            *(
                compat.FederatedType(each, compat.CLIENTS)
                for each in (value_type, *weight_type)
            ),
        )
        return tff.templates.AggregationProcess(initialize_fn, next_fn)


class _WeightedFactory(_Factory, tff.aggregators.WeightedAggregationFactory):
    """See `wrap_factory`."""

    def create(
        self, value_type: compat.Type, weight_type: compat.Type
    ) -> tff.templates.AggregationProcess:
        return self._create(value_type, weight_type)


class _UnweightedFactory(_Factory, tff.aggregators.UnweightedAggregationFactory):
    """See `wrap_factory`."""

    def create(self, value_type: compat.Type) -> tff.templates.AggregationProcess:
        return self._create(value_type)


def _zipped(
    output: tff.templates.MeasuredProcessOutput,
) -> tff.templates.MeasuredProcessOutput:
    # What an inner process gave is a value with these names.
    if not all(hasattr(output, name) for name in ("state", "result", "measurements")):
        what = "What next of the Steps that describe returns"
        checks.check_instance(what, output, tff.templates.MeasuredProcessOutput)
    return tff.templates.MeasuredProcessOutput(
        state=_at_server(output.state),
        result=output.result,
        measurements=_at_server(output.measurements),
    )


def _at_server(values: Any) -> compat.Value:
    """One value of a structure of them; what an inner process gave is one."""
    if isinstance(getattr(values, "type_signature", None), compat.FederatedType):
        return values
    if not tree.flatten(values):
        # Of nothing TFF does not know the placement.
        return compat.federated_value((), compat.SERVER)
    return compat.federated_zip(values)


def call_next(
    process: tff.templates.AggregationProcess,
    state: compat.Value,
    value: compat.Value,
    weight: compat.Value | None,
) -> tff.templates.MeasuredProcessOutput:
    """Calls the `next` of a weighted process, or of one that takes no weights.

    Args:
      process: The process.
      state: Its state, at the server.
      value: The values, at the clients.
      weight: The weights, at the clients, or `None`.

    Returns:
      What `process.next` returns.
    """
    if weight is None:
        return process.next(state, value)
    return process.next(state, value, weight)


def parts_of(value: compat.Value) -> collections.OrderedDict[str, compat.Value]:
    """Returns the parts of a federated structure by name.

    Args:
      value: The structure.
    """
    names = compat.structure_names(value.type_signature.member)
    return collections.OrderedDict((name, value[name]) for name in names)


def join_measurements(
    own: Mapping[str, compat.Value], inner: compat.Value
) -> collections.OrderedDict[str, compat.Value]:
    """Returns measurements that hold those of the inner process next to our own.

    So a measurement is found under its name in any order of wrapping. Inner
    measurements that have no names, or of which one has a name of ours, go under
    the name 'inner' as they are.

    Args:
      own: The names of this aggregator's measurements to their values.
      inner: The inner process's measurements.

    Returns:
      The names of the measurements to their values, ours first.
    """
    joined = collections.OrderedDict(own)
    inner_type = inner.type_signature.member
    if not isinstance(inner_type, compat.StructType):
        joined["inner"] = inner
        return joined
    names = compat.structure_names(inner_type)
    if None in names or not joined.keys().isdisjoint(names):
        joined["inner"] = inner
    else:
        joined.update(parts_of(inner))
    return joined


def check_floats(name: str, value_type: compat.Type) -> None:
    """Raises unless `value_type` is the type of a structure of float tensors.

    Args:
      name: The type's name, for the message.
      value_type: The type to check.

    Raises:
      TypeError: If `value_type` is not a TFF type of tensors, or if one of them
        is not of a floating type.
    """
    kinds = (compat.TensorType, compat.StructType)
    what = "a tff.TensorType or a tff.StructType, without placement"
    checks.check_instance(name, value_type, kinds, what, "tff.to_type makes one.")
    if not compat.is_structure_of_floats(value_type):
        raise TypeError(
            f"{name} must hold tensors of float16, float32 or float64 only, because "
            f"they are scaled, found {checks.shortened(value_type)}. Cast the others "
            "to float32 on the clients, or aggregate them on their own."
        )


def sum_factory_or_default(
    name: str, sum_factory: tff.aggregators.UnweightedAggregationFactory | None
) -> tff.aggregators.UnweightedAggregationFactory:
    """Returns `sum_factory`, or TFF's plain sum if it is `None`.

    Args:
      name: The argument's name, for the message.
      sum_factory: The factory to check.

    Returns:
      A factory that sums.

    Raises:
      TypeError: If `sum_factory` is neither `None` nor an unweighted factory.
    """
    if sum_factory is None:
        return tff.aggregators.SumFactory()
    kind = tff.aggregators.UnweightedAggregationFactory
    what = (
        "an instance of tff.aggregators.UnweightedAggregationFactory that sums, such "
        "as tff.aggregators.SumFactory()"
    )
    checks.check_instance(name, sum_factory, kind, what)
    return sum_factory


def create_sum(
    name: str,
    sum_factory: tff.aggregators.UnweightedAggregationFactory,
    value_type: compat.Type,
) -> tff.templates.AggregationProcess:
    """Creates the process by which `sum_factory` sums values of `value_type`.

    Args:
      name: The argument's name, for the message.
      sum_factory: The factory.
      value_type: The type of what one client sends.

    Returns:
      An aggregation process whose result is of `value_type`.

    Raises:
      TypeError: If the factory refuses values of this type or averages them, or if
        the result would be of another type.
    """
    problem = (
        f"{name} must sum values of the type {checks.shortened(value_type)}, as "
        f"tff.aggregators.SumFactory() does, found {checks.shown(sum_factory)}, which "
    )
    try:
        process = sum_factory.create(value_type)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{problem}refuses them: {checks.shortened(error)}") from error
    result_type = process.next.type_signature.result.result.member
    if not value_type.is_assignable_from(result_type):
        raise TypeError(f"{problem}gives {checks.shortened(result_type)}.")
    if _averages(process):
        raise TypeError(
            f"{problem}averages them. Give a factory of sums: for differential privacy "
            "tff.aggregators.DifferentiallyPrivateFactory(query) of a query such as "
            "tensorflow_privacy.GaussianSumQuery."
        )
    return process


def refuse_clipping(model_aggregator: Any, remedy: str) -> None:
    """Raises if updates are clipped whose mean is set against their unclipped norms.

    The names in the state of its process tell, of TFF's factories and of this
    package's; another one that clips passes.

    Args:
      model_aggregator: A weighted or an unweighted factory; anything else passes.
      remedy: What to do, for the message.

    Raises:
      ValueError: If it clips what each client sends to a norm.
    """
    values, weights = compat.to_type([(np.float32, [1])]), compat.to_type(np.float32)
    try:
        if isinstance(model_aggregator, tff.aggregators.WeightedAggregationFactory):
            process = model_aggregator.create(values, weights)
        elif isinstance(model_aggregator, tff.aggregators.UnweightedAggregationFactory):
            process = model_aggregator.create(values)
        else:
            return
    except (TypeError, ValueError):  # It is for values of another type.
        return
    state_type = process.initialize.type_signature.result.member
    # The second is of private queries.
    if any({"clipping_norm", "l2_norm_clip"} & names for names in _names(state_type)):
        raise ValueError(
            "model_aggregator must not clip where the server sets the mean of the "
            "updates against the norms that they had before, found "
            f"{checks.shown(model_aggregator)}. {remedy}"
        )


def _names(type_spec: compat.Type) -> Iterator[set[str]]:
    """Yields the names in a structure, and in each of the structures within it."""
    if isinstance(type_spec, compat.StructType):
        yield set(compat.structure_names(type_spec))
        for _, element in compat.structure.iter_elements(type_spec):
            yield from _names(element)


def _averages(process: tff.templates.AggregationProcess) -> bool:
    """Whether a process is one of TFF's means, or wraps one.

    The names in its types tell, and the numbers by which private queries divide sums:
    TFF's wrappers do not show what they wrap.
    """
    output = process.next.type_signature.result
    state_type = output.state.member
    found = itertools.chain(_names(state_type), _names(output.measurements.member))
    # An unweighted mean measures both.
    if any({"mean_value", "mean_count"} <= names for names in found):
        return True
    if not any(_denominators(state_type)):
        return False
    initial = process.initialize()
    if inspect.iscoroutine(initial):  # Of an asynchronous context: unknown.
        initial.close()
        return True
    state = compat.structure.from_container(initial, recursive=True)
    return any(number != 1 for number in _denominators(state))


def _denominators(state: Any) -> Iterator[Any]:
    """Yields what private queries divide by, of a state, or their types, of its type.

    Args:
      state: A `tff.structure.Struct` or a type.
    """
    structures = (compat.structure.Struct, compat.StructType)
    if not isinstance(state, structures):
        return
    for name, element in compat.structure.iter_elements(state):
        is_query = name == "query_state" and isinstance(element, structures)
        if is_query and "denominator" in compat.structure_names(element):
            yield element.denominator
        else:
            yield from _denominators(element)
