"""A learning process with a step of the server's own after every round."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow_federated as tff

from tff_drift import checks, compat
from tff_drift.aggregators import wrapping
from tff_drift.algorithms.composition import ComposedLearningProcess
from tff_drift.algorithms.composition.server_state import (
    STATE_NAMES,
    Accessors,
    replace,
)

_BASE = "base"


class AppendedStep(NamedTuple):
    """A step that the server takes after every round.

    Attributes:
      name: The name of its part of state, hyperparameters and metrics.
      initial_state: Its state E before the first round, NumPy's scalars by name.
      hparams: Which entries of the state are hyperparameters.
      step: `(<W, E> -> <weights=W, state=E, metrics=...>)`.
      settings: What it was built with, in JSON values.
    """

    name: str
    initial_state: collections.OrderedDict[str, Any]
    hparams: tuple[str, ...]
    step: compat.Computation
    settings: Mapping[str, Any]


def append_step(
    process: tff.learning.templates.LearningProcess, appended: AppendedStep
) -> tff.learning.templates.LearningProcess:
    """Builds a process whose rounds are those of another, and a step after each.

    In the server state, `finalizer` is `<base=F, NAME=E>`, with `F` the finalizer's
    state of `process`. Hyperparameters and metrics have one more entry. What
    `process` has besides, if its clients keep a state, the new one has too.

    Args:
      process: What `check_process` takes.
      appended: The step.

    Returns:
      A process of the class of `process`, if it is one of this package, else a
      `LearningProcess`.
    """
    wrapper = _Wrapper(process, appended)
    initialize, next_fn = wrapper.initialize(), wrapper.next(process.next)
    accessors = wrapper.accessors()
    if isinstance(process, ComposedLearningProcess):
        return process.rebuilt(
            initialize,
            next_fn,
            accessors,
            wrapper.next_at_clients,
            {appended.name: dict(appended.settings)},
        )
    return tff.learning.templates.LearningProcess(
        initialize,
        next_fn,
        accessors.get_model_weights,
        accessors.set_model_weights,
        get_hparams_fn=accessors.get_hparams,
        set_hparams_fn=accessors.set_hparams,
    )


def check_process(process: Any, weights_type: compat.Type, name: str) -> None:
    """Raises unless a step can come after the rounds of a process.

    Args:
      process: The process, whose server state is a
        `tff.learning.templates.LearningAlgorithmState`.
      weights_type: W, the type of the weights that the step takes.
      name: The name of the step.

    Raises:
      TypeError: If `process` is no such process, of another model, or has the step
        already.
    """
    kind = tff.learning.templates.LearningProcess
    checks.check_instance("process", process, kind)
    state_type = process.initialize.type_signature.result.member
    names = tuple(compat.structure_names(state_type))
    if names != STATE_NAMES:
        raise TypeError(
            "process must have the server state of tff.learning.templates."
            f"LearningAlgorithmState, found one of {checks.shortened(names)}."
        )
    hparams_type = process.get_hparams.type_signature.result
    if name in compat.structure_names(hparams_type):
        raise TypeError(f"process has a {name} step already. Wrap a method only once.")
    if not weights_type.is_equivalent_to(state_type.global_model_weights):
        raise TypeError(
            "process must be of the model of model_fn, whose weights are "
            f"{checks.shortened(weights_type)}, found "
            f"{checks.shortened(state_type.global_model_weights)}."
        )


class _Wrapper:
    """The new process's computations, from the old one's."""

    def __init__(
        self, process: tff.learning.templates.LearningProcess, appended: AppendedStep
    ) -> None:
        self._process, self._appended = process, appended
        base_type = process.initialize.type_signature.result.member

        @compat.tf_computation(base_type)
        def initial(base: Any) -> Any:
            return self._wrapped(base, appended.initial_state)

        self._initial = initial
        self._state_type = state_type = initial.type_signature.result

        @compat.tf_computation(
            base_type,
            base_type.global_model_weights,
            state_type.finalizer[appended.name],
        )
        def finish(base: Any, weights: Any, own: Any) -> Any:
            return self._wrapped(replace(base, global_model_weights=weights), own)

        self._unwrap = compat.tf_computation(_unwrapped, state_type)
        self._finish = finish
        self._parameter_types = (
            compat.FederatedType(state_type, compat.SERVER),
            process.next.type_signature.parameter[1],
        )

    def _wrapped(self, base: Any, own: Any) -> Any:
        finalizer = collections.OrderedDict(
            [(_BASE, base.finalizer), (self._appended.name, own)]
        )
        return replace(base, finalizer=finalizer)

    def initialize(self) -> compat.Computation:
        """Returns `( -> S@SERVER)`."""

        @compat.federated_computation
        def initialize() -> Any:
            return compat.federated_map(self._initial, self._process.initialize())

        return initialize

    def next(self, base_next: compat.Computation) -> compat.Computation:
        """Returns the round of `base_next` with the step after it."""

        @compat.federated_computation(*self._parameter_types)
        def next_fn(state: Any, client_data: Any) -> Any:
            base = compat.federated_map(self._unwrap, state)
            return self._after_round(state, base_next(base, client_data))

        return next_fn

    def next_at_clients(self, base_next: compat.Computation) -> compat.Computation:
        """Returns the same with the new client states left at the clients."""

        @compat.federated_computation(*self._parameter_types)
        def next_at_clients(state: Any, client_data: Any) -> Any:
            base = compat.federated_map(self._unwrap, state)
            output, client_states = base_next(base, client_data)
            return self._after_round(state, output), client_states

        return next_at_clients

    def _after_round(self, state: Any, output: Any) -> Any:
        """Takes the step, within a federated computation."""
        name = self._appended.name
        stepped = compat.federated_map(
            self._appended.step,
            (output.state.global_model_weights, state.finalizer[name]),
        )
        metrics = wrapping.parts_of(output.metrics)
        metrics[name] = stepped["metrics"]
        new_state = compat.federated_map(
            self._finish, (output.state, stepped["weights"], stepped["state"])
        )
        return tff.learning.templates.LearningProcessOutput(
            new_state, compat.federated_zip(metrics)
        )

    def accessors(self) -> Accessors:
        """Returns the other computations."""
        process, appended, state_type = self._process, self._appended, self._state_type

        @compat.tf_computation(state_type)
        def get_model_weights(state: Any) -> Any:
            return process.get_model_weights(_unwrapped(state))

        @compat.tf_computation(state_type, get_model_weights.type_signature.result)
        def set_model_weights(state: Any, weights: Any) -> Any:
            base = process.set_model_weights(_unwrapped(state), weights)
            return self._wrapped(base, state.finalizer[appended.name])

        @compat.tf_computation(state_type)
        def get_hparams(state: Any) -> Any:
            hparams = collections.OrderedDict(process.get_hparams(_unwrapped(state)))
            own = state.finalizer[appended.name]
            hparams[appended.name] = collections.OrderedDict(
                (name, own[name]) for name in appended.hparams
            )
            return hparams

        @compat.tf_computation(state_type, get_hparams.type_signature.result)
        def set_hparams(state: Any, hparams: Any) -> Any:
            of_base = collections.OrderedDict(hparams)
            own = collections.OrderedDict(state.finalizer[appended.name])
            own.update(of_base.pop(appended.name))
            return self._wrapped(process.set_hparams(_unwrapped(state), of_base), own)

        control_variate = None
        if getattr(process, "control_variate", None) is not None:
            control_variate = compat.tf_computation(
                lambda state: process.control_variate(_unwrapped(state)), state_type
            )
        return Accessors(
            get_model_weights,
            set_model_weights,
            get_hparams,
            set_hparams,
            control_variate,
        )


def _unwrapped(state: Any) -> Any:
    return replace(state, finalizer=state.finalizer[_BASE])
