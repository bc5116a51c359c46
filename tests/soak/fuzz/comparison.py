"""A case in every mode of the local context, against what is expected."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from tests.execution.local import support
from tff_drift import execution

# Sums of float32 in another order; steps are few and rates are small.
TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}
# Roundings add up to another size than one change of a last bit, but of its order.
_TIMES = 10


@dataclasses.dataclass(frozen=True)
class Difference:
    """What went wrong.

    Attributes:
      mode: Of the local context.
      cohort: The number of the cohort.
      text: What.
    """

    mode: str
    cohort: int
    text: str


@dataclasses.dataclass
class Outcome:
    """What comparing a case has shown.

    Attributes:
      compared: How many results were compared, or errors that both sides had.
      vectorized: How many of them were of vectorized clients.
      refused: How many of them were errors.
      ill_conditioned: How many of them differ by no more than what is expected does
        when its weights change in their last bit.
      not_built: Why there is nothing to compare, if TFF or Keras refuses the case, or
        TFF's worker fails.
      differences: Those that differ.
    """

    compared: int = 0
    vectorized: int = 0
    refused: int = 0
    ill_conditioned: int = 0
    not_built: str = ""
    differences: list[Difference] = dataclasses.field(default_factory=list)


@functools.cache
def local_contexts(limits=None):
    """The modes of the local context, made once for a program."""
    return {
        name: execution.create_local_execution_context(**options, limits=limits)
        for name, options in support.MODES.items()
    }


def attempt(function, *args):
    """Returns a function's result, or the error that it raises."""
    try:
        return function(*args), None
    except Exception as error:  # Whatever TensorFlow and TFF raise.
        return None, error


def compare(
    outcome, number, computation, arguments, expected, nudged=None, limits=None
):
    """Runs a computation in every mode.

    Args:
      outcome: What is added to.
      number: Of the cohort.
      computation: The computation.
      arguments: Makes its arguments anew.
      expected: The result and the error to expect, one of them None.
      nudged: Makes the result to expect of arguments that differ in their last bit.
      limits: Of the local contexts.
    """
    for mode, context in local_contexts(limits).items():
        found = attempt(support.call, context, computation, *arguments())
        judge(outcome, mode, number, found, expected, nudged)
        if expected[1] is None and mode != "plain":
            told, _ = attempt(support.training, context, computation, *arguments())
            outcome.vectorized += bool(told and told[0].startswith("vectorized"))


def judge(outcome, mode, number, found, expected, nudged=None):
    """Notes whether a result, or an error, is what is expected.

    Args:
      outcome: What is added to.
      mode: Of the local context.
      number: Of the cohort.
      found: The result and the error, one of them None.
      expected: The result and the error to expect, one of them None.
      nudged: As in `compare`.
    """
    (ours, own_error), (result, error) = found, expected
    outcome.compared += 1
    text = None
    if (own_error is None) != (error is None):
        wanted, got = (
            "a result" if each is None else f"{type(each).__name__}: {each}"
            for each in (error, own_error)
        )
        text = f"expected {wanted}, found {got}"
    elif error is None:
        _, difference = attempt(_assert_same, ours, result)
        if difference is not None and nudged is not None:
            nudged_result, _ = attempt(nudged)
            if _is_within(ours, result, nudged_result):
                outcome.ill_conditioned += 1
                difference = None
        text = difference and str(difference)
    else:
        outcome.refused += 1
    if text:
        outcome.differences.append(Difference(mode, number, text[:2000]))


def _assert_same(actual, expected):
    for leaf in support.leaves(actual):
        np.asarray(leaf)
    support.assert_same(actual, expected, **TOLERANCE)


def _is_within(actual, expected, nudged):
    """Whether results are as near to each other as those of a change in a last bit.

    A batch normalization of one example, for instance, divides rounding by rounding.
    Then no two programs agree to more than some times what a last bit does.
    """
    given = [support.leaves(each) for each in (actual, expected, nudged)]
    if len({len(each) for each in given}) > 1:
        return False
    for ours, theirs, other in zip(*given, strict=True):
        ours, theirs, other = map(np.asarray, (ours, theirs, other))
        if ours.shape != theirs.shape or other.shape != theirs.shape:
            return False
        if not np.issubdtype(theirs.dtype, np.inexact):
            if not np.array_equal(ours, theirs):
                return False
            continue
        room = _TIMES * np.max(np.abs(other - theirs), initial=0.0)
        tolerance = {**TOLERANCE, "atol": TOLERANCE["atol"] + room}
        if not np.allclose(ours, theirs, **tolerance, equal_nan=True):
            return False
    return True
