"""Describes in words how a plan runs, and why."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tff_drift import checks
from tff_drift.execution.local.aggregation import Form
from tff_drift.execution.local.data.stacks import LockstepSteps
from tff_drift.execution.local.phases import RunnablePhase, RunnablePlan
from tff_drift.execution.local.planner import Leaf


def explain_plan(
    plan: RunnablePlan,
    arguments: Sequence[Any] | None,
    num_clients: int,
) -> Iterator[str]:
    """Yields what a plan does, line by line.

    Args:
      plan: The plan.
      arguments: The values of its parameters, None if they are not known.
      num_clients: The number of clients, if they are.
    """
    phases, placement = plan.phases(), plan.options.placement
    values: Mapping[Leaf, Any] | None = None
    cohort = "argument not given"
    if arguments is not None:
        values = dict(zip(plan.plan.parameters, arguments, strict=True))
        cohort = _counted(num_clients, "client")
    yield f"{_counted(len(phases), 'phase')}, {cohort}"
    yield f"server: {_device(placement.server_device)}"
    devices = ", ".join(placement.client_devices) or None
    at_a_time = placement.max_concurrent_clients
    yield f"clients: {_device(devices)}, {at_a_time} at a time unless said otherwise"
    for number, phase in enumerate(phases, 1):
        yield f"phase {number}"
        for line in _explain_phase(phase, values, num_clients):
            yield f"  {line}"


def _explain_phase(
    phase: RunnablePhase, values: Mapping[Leaf, Any] | None, num_clients: int
) -> Iterator[str]:
    if phase.server is not None:
        operations = _counted(len(phase.phase.server), "operation")
        yield f"server: one function of {operations}"
    if phase.clients is not None:
        operations = _counted(len(phase.phase.clients), "operation")
        yield f"clients: one function of {operations}"
        for line in _explain_clients(phase, values, num_clients):
            yield f"  {line}"
    for number, form in enumerate(phase.aggregator.forms, 1):
        yield f"aggregation {number}: {form.kind}, {_types(form)}"


def _explain_clients(
    phase: RunnablePhase, values: Mapping[Leaf, Any] | None, num_clients: int
) -> Iterator[str]:
    vectorized = phase.vectorized
    groups: Sequence[Any] = ()
    if vectorized is None:
        yield from _one_by_one(phase, phase.why_one_by_one)
    elif values is None or not vectorized.is_decided_by(values):
        condition = checks.shortened(vectorized.condition)
        yield f"vectorized in lockstep or one by one: {condition}"
        return
    else:
        groups, reason = vectorized.route(values, num_clients)
        if not groups:
            yield from _one_by_one(phase, reason)
        else:
            yield f"vectorized in lockstep: {checks.shortened(reason)}"
        for group in groups:
            yield f"  {_clients(group.clients)}: {_steps(group.lockstep_steps)}"
    advice = phase.advice(num_clients, len(groups))
    if advice is not None:
        yield advice


def _one_by_one(phase: RunnablePhase, reason: str) -> Iterator[str]:
    yield f"one by one: {checks.shortened(reason)}"
    assert phase.clients is not None
    why = phase.clients.why_as_imported
    if why is not None:
        why = checks.shortened(why)
        yield f"  as TFF's graph, not as a program of tensors: {why}"


def _clients(numbers: Sequence[int]) -> str:
    first, last = min(numbers), max(numbers)
    if last - first + 1 == len(numbers):
        return f"clients {first} to {last}"
    return _counted(len(numbers), "client")


def _steps(turns: Sequence[LockstepSteps]) -> str:
    taken: collections.Counter[int] = collections.Counter()
    for turn in turns:
        taken[turn.num_clients] += turn.num_steps
    parts = [
        f"{_counted(number, 'step')} of {_counted(size, 'client')}"
        for size, number in sorted(taken.items(), reverse=True)
    ]
    return ", ".join(parts) or "no steps"


def _device(name: str | None) -> str:
    return "where TensorFlow chooses" if name is None else f"on {name}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _types(form: Form) -> str:
    types = [str(leaf.type_signature) for leaf in form.aggregation.zeros]
    return f"<{checks.shortened(','.join(types))}>"
