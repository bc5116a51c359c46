"""Breaks the methods on purpose and shows which test of a paper notices.

    python -m tests.paper.mutation_check [--only PATTERN] [--part K/N]

Each mutation is a mistake that published implementations have made, or could: a
change of one or two places in a temporary copy of the library, against which the
method's tests in this folder run until the first fails. A mutation that no test
notices, that breaks more than numbers, or whose place in the source is no longer
found exactly once fails the check.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
_COPIED = ("tff_drift", "tests/paper")
_COPIED_FILES = (
    "_tff_drift_startup.py",
    "pyproject.toml",
    "tests/conftest.py",
    "tests/models.py",
    "tests/stateful.py",
)
_TIMEOUT_SECONDS = 900

SCAFFOLD = "tff_drift/algorithms/scaffold.py"
SCAFFOLD_M = "tff_drift/algorithms/scaffold_m.py"
FED_DYN = "tff_drift/algorithms/fed_dyn.py"
ADABEST = "tff_drift/algorithms/adabest.py"
BETA = "tff_drift/algorithms/adabest_beta.py"
STEPS = "tff_drift/algorithms/server_steps.py"
CLIENT = "tff_drift/algorithms/stateful_client.py"
VARIATE = "tff_drift/aggregators/control_variate.py"
TRACE = "tff_drift/client_works/keep_trace.py"
PROXIMAL = "tff_drift/client_works/proximal.py"
APPENDED = "tff_drift/algorithms/appended_step.py"


class Change(NamedTuple):
    """In the file at `path`, `old` becomes `new`."""

    path: str
    old: str
    new: str


class Mutation(NamedTuple):
    """A mistake, the changes that make it, and the tests that should notice."""

    name: str
    tests: str
    changes: list[Change]


def _mutation(name: str, path: str, old: str, new: str, tests: str = "") -> Mutation:
    tests = tests or f"test_{pathlib.Path(path).stem}.py"
    return Mutation(name, tests, [Change(path, old, new)])


_CORRECTION = 'return context.server_message - context.client_state["control_variate"]'
_FLIPPED = 'return context.client_state["control_variate"] - context.server_message'
_FED_DYN_FIXED = "return -h_i - self._mu * theta"
_ALL = "share = tf.ones([], dtype)"
_SHARE = "share = tf.cast(cohort.num_clients, dtype) / self._num_clients"

MUTATIONS = [
    _mutation("SCAFFOLD: c_i - c for c - c_i", SCAFFOLD, _CORRECTION, _FLIPPED),
    _mutation(
        "SCAFFOLD: + c for - c in option II",
        SCAFFOLD,
        "new_c_i = c_i - c + mean_direction",
        "new_c_i = c_i + c + mean_direction",
    ),
    _mutation(
        "SCAFFOLD: -∇f_i for ∇f_i in option I",
        SCAFFOLD,
        "new_c_i = local.full_gradient + self.client_weight_decay * x",
        "new_c_i = -local.full_gradient + self.client_weight_decay * x",
    ),
    _mutation(
        "SCAFFOLD: ∇f_i at y_i for at x in option I",
        CLIENT,
        "run_gradient(weights, ",
        "run_gradient(tff.learning.models.ModelWeights(tf.nest.pack_sequence_as("
        "weights.trainable, outcome.trainable), weights.non_trainable), ",
        tests="test_scaffold.py",
    ),
    Mutation(
        "SCAFFOLD: |S| for N",
        "test_scaffold.py",
        [
            Change(
                VARIATE,
                'wrapping.create_sum("sum_factory", self._sum_factory, value_type)',
                "tff.aggregators.UnweightedMeanFactory().create(value_type)",
            ),
            Change(
                VARIATE, "c + total / tf.cast(self._num_clients, c.dtype)", "c + total"
            ),
        ],
    ),
    _mutation(
        "SCAFFOLD: epochs (two) for K",
        SCAFFOLD,
        "local.pseudo_gradient, local.num_steps * rate",
        "local.pseudo_gradient, 2 * rate",
    ),
    _mutation(
        "SCAFFOLD: clients send c_i, not its change",
        SCAFFOLD,
        "change = new_c_i - c_i",
        "change = new_c_i",
    ),
    _mutation(
        "SCAFFOLD: changes of c_i without their weights",
        SCAFFOLD,
        "change *= local.num_examples",
        "change *= 1",
    ),
    _mutation(
        "SCAFFOLD: no weight decay in option I's c_i",
        SCAFFOLD,
        "new_c_i = local.full_gradient + self.client_weight_decay * x",
        "new_c_i = local.full_gradient",
    ),
    _mutation("SCAFFOLD/m: h_i - h for h - h_i", SCAFFOLD_M, _CORRECTION, _FLIPPED),
    _mutation(
        "SCAFFOLD/m: + h for - h in h_i",
        SCAFFOLD_M,
        "control_variate=h_i - h + mean_direction",
        "control_variate=h_i + h + mean_direction",
    ),
    _mutation("SCAFFOLD/m: |S| for N", SCAFFOLD_M, _SHARE, _ALL),
    _mutation(
        "SCAFFOLD/m: epochs (two) for K on clients",
        SCAFFOLD_M,
        "local.pseudo_gradient, local.num_steps * rate",
        "local.pseudo_gradient, 2 * rate",
    ),
    _mutation(
        "SCAFFOLD/m: epochs (two) for K on the server",
        SCAFFOLD_M,
        "cohort.mean_steps * tf.cast(",
        "2 * tf.cast(",
    ),
    _mutation(
        "SCAFFOLD/m: h without (N - M) / N",
        SCAFFOLD_M,
        "(1 - share) * h",
        "h",
    ),
    _mutation(
        "FedDyn: + h_i for - h_i",
        FED_DYN,
        _FED_DYN_FIXED,
        "return h_i - self._mu * theta",
    ),
    _mutation(
        "FedDyn: μ twice",
        FED_DYN,
        _FED_DYN_FIXED,
        "return -self._mu * (h_i + theta)",
    ),
    _mutation("FedDyn: |S| for N", FED_DYN, _SHARE, _ALL),
    Mutation(
        "FedDyn: the pull to θ with the wrong sign",
        "test_fed_dyn.py",
        [
            Change(FED_DYN, _FED_DYN_FIXED, "return -h_i + self._mu * theta"),
            Change(FED_DYN, "d + self._mu * theta_i", "d - self._mu * theta_i"),
        ],
    ),
    _mutation("FedDyn: θ̄ + h for θ̄ - h", FED_DYN, "model - old for", "model + old for"),
    _mutation(
        "FedDyn: θ̄ - h of the round before",
        FED_DYN,
        "in zip(aggregate, h)",
        "in zip(aggregate, before)",
    ),
    _mutation(
        "FedDyn: Theorem 3.1 without the 2",
        FED_DYN,
        "growth_bound=-0.5 * share",
        "growth_bound=-share",
    ),
    _mutation("AdaBest: + h_i for - h_i", ADABEST, "return -h_i", "return h_i"),
    _mutation("AdaBest: μ twice", ADABEST, "return -h_i", "return -h_i * self._mu"),
    _mutation(
        "AdaBest: no (t - t'_i)",
        ADABEST,
        "decayed = h_i / tf.cast(rounds_since, h_i.dtype)",
        "decayed = h_i",
    ),
    _mutation(
        "AdaBest: t - t'_i however old the server state",
        ADABEST,
        "tf.maximum(context.round_number - last_round, 1)",
        "context.round_number - last_round",
    ),
    _mutation(
        "AdaBest: t'_i stays",
        ADABEST,
        "last_round=context.round_number",
        'last_round=context.client_state["last_round"]',
    ),
    _mutation(
        "AdaBest: θ̄ + h for θ̄ - h", ADABEST, "model - step for", "model + step for"
    ),
    _mutation(
        "AdaBest: θ for θ̄ in h",
        ADABEST,
        'zip(state["aggregate_model"], aggregate)',
        "zip(trainable, aggregate)",
    ),
    _mutation(
        "AdaBest: β twice",
        ADABEST,
        "tf.cast(beta, new.dtype) *",
        "tf.cast(beta * beta, new.dtype) *",
    ),
    _mutation(
        "AdaBest: μ n_i for μ / n_i",
        ADABEST,
        "mu = tf.math.divide_no_nan(mu, local.num_examples)",
        "mu *= local.num_examples",
    ),
    _mutation(
        "AdaBest: μ / n_i without n̄",
        ADABEST,
        "h_i *= tf.cast(context.server_message, h_i.dtype)",
        "h_i *= 1",
    ),
    _mutation(
        "AdaBest: M for M - 1 in the automatic β",
        BETA,
        "cohort.num_clients - 1.0",
        "cohort.num_clients",
        tests="test_adabest.py",
    ),
    _mutation(
        "AdaBest: a plateau one round late",
        BETA,
        "rounds_since >= rule.patience",
        "rounds_since > rule.patience",
        tests="test_adabest.py",
    ),
    _mutation(
        "FedDyn and AdaBest: the cloud model is deployed",
        STEPS,
        'del trainable\n        return tuple(state["aggregate_model"])',
        "return trainable",
        tests="test_adabest.py",
    ),
    _mutation(
        "UGA: the gradient at the end, not through the steps",
        TRACE,
        "return vector",
        "return gradient",
        tests="test_uga.py",
    ),
    _mutation(
        "UGA: I + ηH for I - ηH",
        TRACE,
        "_scaled_step(rate, vector, product)",
        "_scaled_step(-rate, vector, product)",
        tests="test_uga.py",
    ),
    _mutation(
        "UGA: other dropout masks where steps are differentiated",
        TRACE,
        "*batches.read(index),\n",
        "batches.read(index)[0], batches.read(index)[1] + 1,\n",
        tests="test_uga.py",
    ),
    _mutation(
        "FedProx: x - y for y - x",
        PROXIMAL,
        "(local - server)",
        "(server - local)",
        tests="test_fed_prox.py",
    ),
    _mutation(
        "FedMeta: the gradient at the model before the round",
        APPENDED,
        "federated_map(self._weights_of, output.state)",
        "federated_map(self._weights_of, compat.federated_map(self._unwrap, state))",
        tests="test_fed_meta.py",
    ),
]


class MutationError(Exception):
    """A mutation that does not fit the source, or a run that tells nothing."""


def mutated(root: pathlib.Path, mutation: Mutation) -> dict[str, str]:
    """Returns the new text of each file that the mutation changes.

    Raises:
      MutationError: If a place to change is not there exactly once.
    """
    texts: dict[str, str] = {}
    for change in mutation.changes:
        text = texts.get(change.path) or (root / change.path).read_text("utf-8")
        found = text.count(change.old)
        if found != 1:
            raise MutationError(
                f"{mutation.name}: {change.path} has {change.old!r} {found} times, "
                "not once. Fit the mutation to the source."
            )
        texts[change.path] = text.replace(change.old, change.new)
    return texts


def copy_project(source: pathlib.Path, destination: pathlib.Path) -> None:
    """Copies what the tests of this folder need."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in _COPIED:
        shutil.copytree(source / name, destination / name, ignore=ignored)
    for name in _COPIED_FILES:
        shutil.copy(source / name, destination / name)


def run_tests(root: pathlib.Path, tests: list[str]) -> list[str]:
    """Runs tests of a copy until the first fails; returns the names of failed ones.

    Raises:
      MutationError: If a test ends by anything else than a failed assertion.
    """
    report, log = root / "report.xml", root / "log.txt"
    with log.open("wb") as output:
        process = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"),
                f"--junitxml={report}",
                *(f"tests/paper/{name}" for name in tests),
            ],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    cases = ElementTree.parse(report).iter("testcase") if report.exists() else []
    failed = []
    for case in cases:
        for failure in case.findall("failure"):
            if failure.get("message", "").startswith(("AssertionError", "assert ")):
                failed.append(f"{case.get('classname')}::{case.get('name')}")
    if process.returncode != bool(failed):
        tail = log.read_text("utf-8", errors="replace")[-2000:]
        raise MutationError(f"pytest ended with {process.returncode}:\n{tail}")
    return failed


def check(mutations: list[Mutation]) -> list[tuple[str, str]]:
    """Runs the tests against every mutation.

    Prints a row for each as it goes.

    Args:
      mutations: The mutations to try.

    Returns:
      The mutations' names and the tests that noticed, '' where none did.

    Raises:
      MutationError: If the tests fail without any mutation.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        untouched = pathlib.Path(folder) / "untouched"
        copy_project(ROOT, untouched)
        failed = run_tests(untouched, sorted({m.tests for m in mutations}))
        if failed:
            raise MutationError(f"Without any mutation, {failed[0]} fails.")
        for number, mutation in enumerate(mutations):
            copy = pathlib.Path(folder) / str(number)
            copy_project(untouched, copy)
            for path, text in mutated(copy, mutation).items():
                (copy / path).write_text(text, "utf-8")
            try:
                noticed = "".join(run_tests(copy, [mutation.tests]))
            except MutationError as error:
                print(f"{mutation.name}: {error}", file=sys.stderr)
                noticed = ""
            rows.append((mutation.name, noticed))
            print(f"{mutation.name:50}  {noticed or 'NOT NOTICED'}", flush=True)
    return rows


def part_of(mutations: list[Mutation], number: int, parts: int) -> list[Mutation]:
    """Returns one of equal parts, in which every method has about its share.

    Args:
      mutations: All mutations, those of a method beside each other.
      number: Which part; numbers that go on and on, such as days, take turns.
      parts: How many parts there are.
    """
    return mutations[number % parts :: parts]


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/([1-9]\d*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N, such as 3/7")
    return int(match[1]), int(match[2])


def main() -> int:
    """Prints the table; returns 0 if every mutation was noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", default="", help="mutations whose name this regular expression finds"
    )
    parser.add_argument(
        "--part",
        type=_part,
        default=(0, 1),
        metavar="K/N",
        help="of N parts the one with the number K modulo N, such as a day's",
    )
    flags = parser.parse_args()
    mutations = [m for m in MUTATIONS if re.search(flags.only, m.name)]
    mutations = part_of(mutations, *flags.part)
    if not mutations:
        parser.error(f"no mutation in part {flags.part} matches {flags.only!r}")
    start = time.monotonic()
    rows = check(mutations)
    noticed = sum(bool(test) for _, test in rows)
    minutes = (time.monotonic() - start) / 60
    print(f"{noticed} of {len(rows)} mutations noticed in {minutes:.0f} minutes.")
    return int(noticed < len(rows))


if __name__ == "__main__":
    sys.exit(main())
