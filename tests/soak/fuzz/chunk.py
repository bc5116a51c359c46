"""Some cases, one after the other; each outcome is printed as a line of JSON."""

import argparse
import dataclasses
import hashlib
import json
import os
import sys
import time
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
import hypothesis
import tensorflow as tf
from absl import logging

from tests.execution.local import support, test_pipelines
from tests.soak.fuzz import comparison, pipelines, processes, rows, runs, steps
from tff_drift import execution

# Of a placeholder that nothing needs, in some models of `functional_model_from_keras`.
_WORKER_FAILS = "You must feed a value for placeholder tensor"


def check_steps(case, native=None):
    """Compares a `StepCase` with TensorFlow alone, and with the native context."""
    outcome = comparison.Outcome()
    computation, error = comparison.attempt(steps.build, case)
    if error is not None:
        outcome.not_built = _first_line(error)
        return outcome
    for number, cohort in enumerate(case.cohorts):
        if native is None:
            expected = comparison.attempt(steps.expected, case, cohort)
        else:
            given = steps.arguments(cohort, native=True)
            expected = comparison.attempt(support.call, native, computation, *given)
        comparison.compare(
            outcome, number, computation, lambda c=cohort: steps.arguments(c), expected
        )
    return outcome


def check_process(case, native=None):
    """Compares the rounds of a `ProcessCase` with the native context, or one by one."""
    outcome = comparison.Outcome()
    one_by_one = comparison.local_contexts()["plain"]
    process, error = comparison.attempt(processes.build, case)
    if error is not None:
        outcome.not_built = _first_line(error)
        return outcome
    state, error = comparison.attempt(support.call, one_by_one, process.initialize)
    if error is not None:
        outcome.not_built = _first_line(error)
        return outcome
    state = processes.with_weights(process, state)
    is_secure = native is not None and case.aggregator == "secure"
    call_native = support.call_native if is_secure else support.call
    for number, cohort in enumerate(case.cohorts):
        data = processes.client_data(case, process, cohort, native=True)

        def expect(state=state, data=data):
            if native is None:
                return support.call(one_by_one, process.next, state, data)
            return call_native(native, process.next, state, data)

        def nudged(state=state, expect=expect):
            return expect(processes.nudged(process, state))

        expected = comparison.attempt(expect)
        if _WORKER_FAILS in str(expected[1]):
            outcome.not_built = _first_line(expected[1])
            return outcome

        def arguments(cohort=cohort, state=state):
            return state, processes.client_data(case, process, cohort)

        comparison.compare(outcome, number, process.next, arguments, expected, nudged)
        if expected[0] is not None:
            # What secure sums are replaced in has lost its classes.
            state = expected[0]["state"] if is_secure else expected[0].state
    return outcome


def check_pipeline(case, native=None):
    """Compares a `PipelineCase` with the native context, or with one by one."""
    outcome = comparison.Outcome()
    reference = native or comparison.local_contexts()["plain"]
    computation = test_pipelines.computation(case.way, case.step)
    made, error = comparison.attempt(
        lambda: [pipelines.datasets(case, cohort) for cohort in case.cohorts]
    )
    if error is not None:
        outcome.not_built = _first_line(error)
        return outcome
    # The first ones again, which may be kept.
    for number, data in enumerate([*made, made[0]]):
        expected = comparison.attempt(support.call, reference, computation, data)
        comparison.compare(
            outcome, number, computation, lambda data=data: (data,), expected
        )
    return outcome


# By default tables are larger.
_SMALL_TABLES = execution.Limits(small_table_bytes=1)


def check_rows(case, native=None):
    """Compares a `RowsCase` with TensorFlow alone."""
    del native
    outcome = comparison.Outcome()
    computation, error = comparison.attempt(rows.build, case)
    if error is not None:
        outcome.not_built = _first_line(error)
        return outcome
    for number, cohort in enumerate(case.cohorts):
        comparison.compare(
            outcome,
            number,
            computation,
            lambda cohort=cohort: rows.arguments(case, cohort),
            comparison.attempt(rows.expected, case, cohort),
            limits=_SMALL_TABLES,
        )
    return outcome


def check_run(case, native=None):
    """Compares a `RunCase` with the native context, or with one by one."""
    outcome = comparison.Outcome()
    contexts = comparison.local_contexts()
    process, error = comparison.attempt(runs.build, case)
    if error is not None:
        outcome.not_built = _first_line(error)
        return outcome
    state, error = comparison.attempt(
        support.call, contexts["plain"], process.initialize
    )
    if error is not None:
        outcome.not_built = _first_line(error)
        return outcome
    state = processes.with_weights(process, state)

    def expect(state=state):
        return runs.run(case, process, state, native or contexts["plain"])

    expected = comparison.attempt(expect)
    if _WORKER_FAILS in str(expected[1]):
        outcome.not_built = _first_line(expected[1])
        return outcome
    for mode, context in contexts.items():
        found = comparison.attempt(runs.run, case, process, state, context)
        comparison.judge(
            outcome,
            mode,
            0,
            found,
            expected,
            lambda: expect(processes.nudged(process, state)),
        )
        if case.stops and mode == "fast" and found[1] is None:
            resumed = comparison.attempt(
                runs.run, case, process, state, context, case.stops
            )
            comparison.judge(outcome, "resumed", 0, resumed, found)
            if resumed[1] is None and not _bits_are_equal(resumed[0], found[0]):
                outcome.differences.append(
                    comparison.Difference("resumed", 0, "other bits")
                )
    return outcome


def _bits_are_equal(one, other):
    _, difference = comparison.attempt(support.assert_same, one, other)
    return difference is None


def _first_line(error):
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


FAMILIES = {
    "steps": (steps.cases, check_steps),
    "processes": (processes.cases, check_process),
    "pipelines": (pipelines.cases, check_pipeline),
    "rows": (rows.cases, check_rows),
    "runs": (runs.cases, check_run),
}


def identity(case):
    """Returns what names a case, from program to program.

    Hypothesis draws cases that differ in their cohorts alone: most of the time of a
    case goes into building its functions, so one of them has to do.
    """
    program = dataclasses.replace(case, cohorts=())
    return hashlib.sha256(repr(program).encode()).hexdigest()[:16]


def run(family, number, count, known, native, report):
    """Draws cases and checks those that are new.

    Args:
      family: A name of `FAMILIES`.
      number: Of the chunk, from which its cases follow.
      count: How many cases to draw.
      known: Identities of cases that are not checked again.
      native: TFF's native context to compare with, None for the cheaper comparison.
      report: Called with what is known of each case.
    """
    strategy, check = FAMILIES[family]

    @hypothesis.seed(number)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy())
    def each(case):
        name = identity(case)
        if name in known:
            return
        known.add(name)
        started = time.monotonic()
        report({"started": name, "case": repr(case)})
        outcome = check(case, native)
        report(
            {
                "case": name,
                "compared": outcome.compared,
                "vectorized": outcome.vectorized,
                "refused": outcome.refused,
                "ill_conditioned": outcome.ill_conditioned,
                "not_built": outcome.not_built,
                "differences": [
                    [each.mode, each.cohort, each.text] for each in outcome.differences
                ],
                "seconds": round(time.monotonic() - started, 1),
            }
        )

    each()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("number", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--known", default="")
    args = parser.parse_args()
    logging.set_verbosity(logging.ERROR)
    warnings.simplefilter("ignore")
    tf.get_logger().setLevel("ERROR")
    native = execution.create_native_execution_context() if args.native else None
    known = set()
    if args.known:
        with open(args.known) as file:
            known = set(file.read().split())

    def report(value):
        sys.stdout.write("case " + json.dumps(value) + "\n")
        sys.stdout.flush()

    run(args.family, args.number, args.count, known, native, report)


if __name__ == "__main__":
    main()
