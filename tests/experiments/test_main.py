"""What a user sees: help, errors and exit statuses."""

import errno
import io
import json
import logging
import os
import subprocess
import sys
import time

import pytest

import tff_drift
from experiments import terminal
from experiments.reports import writing
from experiments.training import runs
from tests.experiments import made_up_runs, programs
from tests.forks.programs import PATIENCE


def test_help_lists_and_mistakes_do_not_import_tensorflow():
    program = """
import sys
from experiments import main
statuses = [main.run(words.split()) for words in sys.argv[1:]]
slow = {"tensorflow", "tensorflow_federated", "pandas", "matplotlib"}
loaded = slow & set(sys.modules)
assert not loaded, loaded
print("statuses", statuses)
"""
    lines = ["--help", "train --help", "compare --help", "list", "train --task=digit"]
    process = subprocess.run(
        [sys.executable, "-c", program, *lines],
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert process.stdout.splitlines()[-1] == "statuses [0, 0, 0, 0, 2]", process.stderr
    assert process.stderr == (
        "tff-drift: error: --task: unknown task 'digit'. Did you mean digits?\n"
    )


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_overview(run_command, words):
    outcome = run_command(*words)
    assert outcome.status == 0
    assert outcome.stderr == ""
    for command in ("train", "compare", "list"):
        assert f"\n  {command} " in outcome.stdout


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "seconds", "told"),
    [
        (_Terminal, 0.2, "tff-drift: loading ...\n"),
        (_Terminal, 0.0, ""),
        (io.StringIO, 0.2, ""),
    ],
)
def test_a_terminal_is_told_what_takes_long(monkeypatch, stream, seconds, told):
    monkeypatch.setattr(terminal, "_SECONDS_OF_SILENCE", 0.1)
    monkeypatch.setattr(sys, "stderr", stream())
    with terminal.saying("loading"):
        time.sleep(seconds)
    time.sleep(0.15)
    assert sys.stderr.getvalue() == told


def test_notices_of_libraries_are_dropped_and_all_else_is_told(capfd):
    with terminal.importing():
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() is ...\n")
        os.write(2, b"I0000 00:00:1795668574.743279 port.cc:153] oneDNN ...\n")
        os.write(2, b"E0000 00:00:1795668574.743279 cuda.cc:31] no such card\n")
        print("a warning of Python", file=sys.stderr)
    os.write(2, b"I0000 afterwards\n")
    assert capfd.readouterr().err.splitlines() == [
        "a warning of Python",
        "E0000 00:00:1795668574.743279 cuda.cc:31] no such card",
        "I0000 afterwards",
    ]


def test_logs_that_are_set_up_during_imports_are_heard_afterwards(capfd):
    logger = logging.Logger("a library's")
    with terminal.importing():
        logger.addHandler(logging.StreamHandler())
        logger.warning("one")
    logger.warning("two")
    assert capfd.readouterr().err == "one\ntwo\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "unknown command 'trian'. Did you mean train?"),
        (["help", "trian"], "unknown command 'trian'. Did you mean train?"),
        (
            ["--task=digits"],
            "the command comes first: tff-drift diagnose|train|compare|",
        ),
        (["train", "--algorithm=fed_addam"], "Did you mean fed_adam"),
        (
            ["train", "--learning_rate=1"],
            "Did you mean --client_learning_rate or --server_learning_rate?",
        ),
        (["list", "--plugin"], "expected one argument. See tff-drift list --help."),
        (["train", "--epochs=1"], "Did you mean --client_epochs?"),
        (
            ["train", "--client_epochs=1000000000000"],
            "an integer from 1 to 10,000,000, found '1000000000000'",
        ),
        (["train", "--server_learning_rate=-1"], "greater than 0, found '-1'"),
    ],
)
def test_mistakes_in_words(run_command, words, message):
    outcome = run_command(*words)
    assert outcome.status == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("tff-drift: error: ")
    assert message in outcome.stderr
    assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["x" * 5000],
        [f"--{'x' * 5000}"],
        ["train", f"--{'x' * 5000}=1"],
        ["train", f"--task={'x' * 5000}"],
        ["train", f"--rounds={'9' * 5000}"],
        ["train", f"--plugin={'x/' * 2500}"],
        ["compare", f"--algorithms={'x,' * 2500}"],
        ["compare", f"--settings={'x' * 5000}"],
        ["analyze", "x" * 5000],
        ["report", "x" * 5000],
        ["sweep", f"{'x' * 5000}=1,2"],
    ],
    ids=lambda words: " ".join(word[:10] for word in words),
)
def test_mistakes_in_long_words_are_told_at_no_length(run_command, words):
    outcome = run_command(*words)
    assert outcome.status == 2
    assert outcome.stderr.startswith("tff-drift: error: ")
    assert outcome.stderr.count("\n") == 1
    assert len(outcome.stderr) <= len("tff-drift: error: \n") + 1200


def test_unexpected_errors_keep_their_traceback(run_command, monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "Runs", lambda runs: [][0])
    with pytest.raises(IndexError):
        run_command("train", f"--output_dir={tmp_path / 'out'}")


@pytest.mark.parametrize("words", [["list"], ["train", "--help"]])
def test_an_output_that_cannot_be_written(words):
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "experiments", *words],
            cwd=programs.ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
    assert process.returncode == 1
    assert process.stderr == (
        "tff-drift: error: the output cannot be written: "
        "[Errno 28] No space left on device\n"
    )


@pytest.mark.parametrize("words", ["list", "nosuch", "train --task=digit"])
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed(words, closed):
    command = f"{sys.executable} -m experiments {words}"
    usual, found = (
        subprocess.run(
            ["sh", "-c", f"{command} {streams}"],
            cwd=programs.ROOT,
            capture_output=True,
            timeout=PATIENCE,
        )
        for streams in ("", closed)
    )
    assert found.returncode == usual.returncode
    assert found.stdout == (b"" if ">&-" in closed.split() else usual.stdout)
    assert found.stderr == (b"" if "2>&-" in closed else usual.stderr)


def test_a_file_that_must_not_be_read(capsys):
    with terminal.ending() as end:
        raise PermissionError(errno.EACCES, "Permission denied", "summary.json")

    assert end.status == 1
    assert capsys.readouterr().err == (
        "tff-drift: error: [Errno 13] Permission denied: 'summary.json'. "
        "Change its permissions, or choose another.\n"
    )


def test_version(run_command):
    assert run_command("--version").stdout == f"tff-drift {tff_drift.__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--rounds=1"),
        ("compare", "--rounds=1", "--seeds=1"),
        ("sweep", "rounds=1"),
        ("diagnose",),
        ("analyze", "{runs}"),
        ("report", "{runs}"),
    ],
    ids=lambda words: words[0],
)
def test_a_folder_that_cannot_be_written_is_a_mistake_of_the_user(
    words, run_command, tmp_path
):
    made_up_runs.write(tmp_path / "runs" / "a", [0.1, 0.5])
    (tmp_path / "file").touch()
    told = [word.format(runs=tmp_path / "runs") for word in words]
    for place, problem in (("file/x", "Not a directory"), ("file", "File exists")):
        folder = str(tmp_path / place)
        outcome = run_command(*told, f"--output_dir={folder}")
        assert outcome.status == 2
        assert f"output_dir {folder!r} cannot be written: [Errno" in outcome.stderr
        assert problem in outcome.stderr
        assert "Choose a folder that" in outcome.stderr
        assert outcome.stderr.count("\n") == 1


def test_a_full_disk_is_a_failure_of_the_machine(run_command, tmp_path, monkeypatch):
    made_up_runs.write(tmp_path / "runs" / "a", [0.1, 0.5])

    def fail(*given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(writing, "write_bytes", fail)
    for words in (
        ("diagnose", "--task=quadratic", "--num_clients=3", "--clients_per_round=2"),
        ("analyze", tmp_path / "runs"),
        ("sweep", "rounds=1"),
    ):
        outcome = run_command(*words, f"--output_dir={tmp_path / words[0]}")
        assert outcome.status == 1, outcome.stderr
        assert "error: the output cannot be written: [Errno 28]" in outcome.stderr


def test_a_folder_whose_name_is_no_text_holds_a_whole_run(run_command, tmp_path):
    folder = tmp_path / os.fsdecode(b"o\xe9x")
    words = ("--task=quadratic", "--num_clients=3", "--clients_per_round=2")
    for rounds in (1, 2):
        outcome = run_command(
            "train", *words, f"--rounds={rounds}", f"--output_dir={folder}"
        )
        assert outcome.status == 0, outcome.stderr
    content = json.loads((folder / "config.json").read_text())
    assert content["circumstances"]["output_dir"] == str(folder)
    assert {"summary.json", "curves.png"} <= set(os.listdir(folder))
