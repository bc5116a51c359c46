"""Breaks the methods on purpose and shows which test of a paper notices.

    python -m tests.soak.mutations.check [--only PATTERN] [--part K/N] [--tested]

Each mutation is a mistake that published implementations have made, or could: a
change of one or two places in a temporary copy of the library, against which the
tests of the method's paper run until the first fails. A mutation that no test
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

from tests.soak.mutations.mutations import MUTATIONS, Mutation

ROOT = pathlib.Path(__file__).resolve().parents[3]
_COPIED = ("tff_drift", "tests/forks", "tests/paper")
_COPIED_FILES = (
    "pyproject.toml",
    "tests/conftest.py",
    "tests/models.py",
    "tests/stateful.py",
    "tests/tiers.py",
    "tests/with_tensorflow.py",
)
_TIMEOUT_SECONDS = 900


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
    """Copies what the tests of the papers need."""
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


def check(mutations: list[Mutation], is_tested: bool = False) -> list[tuple[str, str]]:
    """Runs the tests against every mutation.

    Prints a row for each as it goes.

    Args:
      mutations: The mutations to try.
      is_tested: Whether the tests are known to pass without any mutation.

    Returns:
      The mutations' names and the tests that noticed, '' where none did.

    Raises:
      MutationError: If the tests fail without any mutation.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        untouched = pathlib.Path(folder) / "untouched"
        copy_project(ROOT, untouched)
        tests = [] if is_tested else sorted({m.tests for m in mutations})
        failed = run_tests(untouched, tests) if tests else []
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
    parser.add_argument(
        "--tested",
        action="store_true",
        help="the tests have just passed: do not run them without a mutation",
    )
    flags = parser.parse_args()
    mutations = [m for m in MUTATIONS if re.search(flags.only, m.name)]
    mutations = part_of(mutations, *flags.part)
    if not mutations:
        parser.error(f"no mutation in part {flags.part} matches {flags.only!r}")
    start = time.monotonic()
    rows = check(mutations, flags.tested)
    noticed = sum(bool(test) for _, test in rows)
    minutes = (time.monotonic() - start) / 60
    print(f"{noticed} of {len(rows)} mutations noticed in {minutes:.0f} minutes.")
    return int(noticed < len(rows))


if __name__ == "__main__":
    sys.exit(main())
