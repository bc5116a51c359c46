"""One command, run twice."""

import sys

import pytest

from tests.experiments import programs
from tff_drift import compat, execution, simulation
from tff_drift.simulation.records.checkpoint import load_checkpoint

# A comparison is trained for it.
pytestmark = pytest.mark.no_smoke

_WORDS = [
    word.replace("algorithms=fed_avg,", "algorithm=").replace("seeds=5,", "seed=")
    for word in programs.COMPARE_FLAGS
]


def _end(folder):
    _, rows = simulation.read_rows(folder / "metrics.csv")
    leaves = load_checkpoint(folder / "checkpoint.npz").leaves["server_state"]
    return (
        [simulation.without_timing(row) for row in rows],
        {name: leaf.tobytes() for name, leaf in leaves.items()},
    )


@pytest.mark.conformance
def test_two_runs_are_bit_identical(comparison, run_command, tmp_path):
    # The other one ran in a process of its own, after other runs, with other threads.
    context = execution.create_local_execution_context(max_concurrent_clients=3)
    with compat.get_context_stack().install(context):
        outcome = run_command("train", *_WORDS, f"--output_dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.stderr
    rows, leaves = _end(tmp_path / "run")
    expected_rows, expected = _end(comparison.folder / "fed_adam" / "seed_6")
    assert rows == expected_rows
    assert leaves == expected
    assert len(leaves) > 3


@pytest.mark.conformance
def test_a_program_that_begins_from_nothing_gives_the_bits_of_a_fork(
    comparison, tmp_path
):
    folder = tmp_path / "run"
    outcome = programs.run_process(
        tmp_path, "train", *_WORDS, f"--output_dir={folder}", python=[sys.executable]
    )
    assert outcome.status == 0, outcome.stderr
    assert _end(folder) == _end(comparison.folder / "fed_adam" / "seed_6")
