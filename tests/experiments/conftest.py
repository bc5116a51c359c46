"""The command line, run in this process and in processes of its own."""

import pytest

from experiments import main
from tests.experiments import programs
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
