"""The command line, run in this process and in processes of its own."""

import pytest

from experiments import analysis, main
from experiments.reports import analysis as tables
from tests.experiments import made_up_runs, programs
from tff_drift import execution


@pytest.fixture
def run_command(capsys, monkeypatch):
    """Runs the command in this process, on the session's execution context."""
    for name in ("set_native_execution_context", "set_local_execution_context"):
        monkeypatch.setattr(execution, name, lambda **options: None)

    def run(*words):
        status = main.run([str(word) for word in words])
        captured = capsys.readouterr()
        return programs.Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def comparison(tmp_path_factory):
    """A small comparison, made once by the program itself; not to be changed."""
    logs = tmp_path_factory.mktemp("logs")
    folder = tmp_path_factory.mktemp("comparison")
    outcome = programs.run_process(
        logs, "compare", *programs.COMPARE_FLAGS, f"--output_dir={folder}"
    )
    assert outcome.status == 0, outcome.stderr
    return programs.Comparison(folder, outcome)


@pytest.fixture
def no_figures(monkeypatch):
    """Draws no figures of runs, which take most of the time of a report."""
    monkeypatch.setattr(tables, "figures", lambda *_, **__: iter(()))


@pytest.fixture
def sweep(tmp_path):
    """A sweep of three points with two seeds each, all of whose runs are made up."""
    sweep = programs.sweep(
        "tau=0.1,1,10", "--algorithm=fed_adam", "--seeds=1,2", "--rounds=4",
        f"--output_dir={tmp_path / 'out'}",
    )  # fmt: skip
    ends = {0.1: (0.5, 0.7), 1.0: (0.8, 0.6), 10.0: (0.9, 0.9)}
    for point in sweep.grid():
        for run, end in zip(sweep.runs(point), ends[point["tau"]], strict=True):
            made_up_runs.write(run.folder, [0.1, 0.1, end, end, end], seed=run.seed)
    return sweep


@pytest.fixture
def runs(tmp_path):
    """Two methods with two seeds each."""
    made_up_runs.write(tmp_path / "a1", [0.1, 0.5, 0.7, 0.6, 0.8])
    made_up_runs.write(tmp_path / "a2", [0.1, 0.3, 0.5, 0.7, 0.6], seed=2)
    slow = {"algorithm": "fed_adam"}
    made_up_runs.write(tmp_path / "b1", [0.1, 0.2, 0.3, 0.4, 0.5], **slow)
    made_up_runs.write(tmp_path / "b2", [0.1, 0.2, 0.1, 0.3, 0.7], seed=2, **slow)
    return analysis.read(tmp_path)
