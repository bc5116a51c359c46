"""What a user sees: help, lists, errors and exit statuses."""

import errno
import io
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
import tensorflow as tf

import tasks
import tff_drift
from experiments import terminal
from experiments.flags import declarations
from experiments.presets.catalogue import PRESETS
from experiments.training import runs
from tests.experiments import programs
from tests.forks.programs import PATIENCE, Popen, python, wait_until
from tff_drift import from_source, module_source


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


def test_list_shows_every_name_on_one_screen(run_command):
    outcome = run_command("list")
    assert outcome.status == 0
    lines = outcome.stdout.splitlines()
    assert len(lines) < 60
    assert max(map(len, lines)) <= 88
    for name in (*tasks.names(), *from_source.methods()):
        assert f"\n  {name} " in outcome.stdout
    words = set(outcome.stdout.replace(",", " ").split())
    assert set(PRESETS) <= words


def test_list_of_a_name_shows_all_of_it(run_command):
    names = (*tasks.names(), *from_source.methods(), *PRESETS)
    listed = run_command("list", *names).stdout
    for algorithm in from_source.methods().values():
        assert algorithm.url in listed
    for flag in declarations.flags_of("train").values():
        if flag.of:
            assert f"--{flag.name}=" in listed
    for preset in PRESETS.values():
        assert all(part in listed for part in preset.local.parts)
    assert listed.count("Needs no files.") == 2
    assert "Needs emnist_all.sqlite. --synthetic tries it without." in listed


def test_list_of_one_kind(run_command):
    assert "fed_adam" not in run_command("list", "tasks").stdout
    assert "Dirichlet" not in run_command("list", "algorithms").stdout
    for name in PRESETS:
        assert f"\n  {name} " in run_command("list", "presets").stdout
    outcome = run_command("list", "task")
    assert outcome.status == 2
    assert outcome.stderr == (
        "tff-drift: error: unknown name 'task'. Did you mean tasks?\n"
    )


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


def test_a_spec_that_cannot_be_read_is_one_line(run_command, monkeypatch):
    def read():
        raise module_source.UnreadableError("mine.py:3: NameError: no 'x'.")

    monkeypatch.setattr(from_source, "read", read)
    outcome = run_command("list")
    assert outcome.status == 1
    assert outcome.stderr == "tff-drift: error: mine.py:3: NameError: no 'x'.\n"
    assert run_command("--version").status == 0


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


@pytest.fixture
def refuse(run_command, tmp_path):
    """Runs a command that must be refused before it trains; returns its message."""

    def run(*words, folder=None):
        folder = tmp_path / "out" if folder is None else folder
        outcome = run_command(*words, f"--output_dir={folder}")
        assert outcome.status == 2
        assert outcome.stdout == ""
        assert outcome.stderr.startswith("tff-drift: error: ")
        assert outcome.stderr.count("\n") == 1
        assert not list(tmp_path.glob("out/**/metrics.csv"))
        return outcome.stderr

    return run


def test_cohort_larger_than_the_population(refuse):
    message = refuse("train", "--clients_per_round=51")
    assert "--clients_per_round is 51, but task digits has only 50" in message
    message = refuse("compare", "--seeds=1", "--num_clients=8", "--clients_per_round=9")
    assert "Choose at most 8." in message


def test_a_method_that_needs_all_clients_leaves_no_stragglers_out(refuse):
    message = refuse(
        "train", "--algorithm=scaffnew", "--task=quadratic", "--num_clients=5",
        "--clients_per_round=5", "--rounds=1", "--straggler_clock",
        "--straggler_left_out=0.4",
    )  # fmt: skip
    assert "--straggler_left_out is 0.4, but scaffnew needs all" in message


def test_cache_folder_without_the_data(refuse, tmp_path):
    cache_dir = tmp_path / "empty"
    cache_dir.mkdir()
    message = refuse("train", "--task=emnist_character", f"--cache_dir={cache_dir}")
    assert str(cache_dir / "emnist_all.sqlite") in message
    assert "download" in message
    assert "synthetic" in message


def test_a_file_that_is_not_the_data(refuse, tmp_path):
    (tmp_path / "shakespeare.sqlite").write_text("To be, or not to be")
    message = refuse(
        "compare", "--task=shakespeare_character", f"--cache_dir={tmp_path}"
    )
    assert "shakespeare.sqlite is not a SQLite file" in message


@pytest.mark.conformance
def test_a_client_whose_data_is_bad(run_command, tmp_path):
    """Found when the client's turn comes, and told as plainly as other mistakes."""
    path = tmp_path / "shakespeare.sqlite"
    clients = [("HAMLET", {"snippets": ["To be"]})]
    tasks.write_sqlite(path, {"train": clients, "test": clients})
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE examples SET serialized_example_proto = CAST(replace("
            "serialized_example_proto, 'be', CAST(x'ffff' AS TEXT)) AS BLOB)"
        )
    outcome = run_command(
        "train",
        "--task=shakespeare_character",
        "--clients_per_round=1",
        f"--cache_dir={tmp_path}",
        f"--output_dir={tmp_path / 'out'}",
    )
    assert outcome.status == 2
    assert "Traceback" not in outcome.stderr
    assert (
        f"tff-drift: error: {path}: client 'HAMLET' of split 'test' has other examples "
        "than were written"
    ) in outcome.stderr


@pytest.mark.parametrize("command", ["train", "compare"])
def test_initial_weights_that_are_none_are_refused(refuse, tmp_path, command):
    message = refuse(command, f"--initial_weights={tmp_path / 'none.keras'}")
    assert "initial_weights: there is no file" in message
    other = tmp_path / "other.keras"
    tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=[5])]).save(other)
    message = refuse(command, f"--initial_weights={other}")
    assert "initial_weights has 2 trainable weights, and the model of" in message


def test_values_that_the_builders_refuse(refuse):
    message = refuse("train", "--algorithm=scaffold", "--option=III")
    assert "--option: unknown value 'III'. Did you mean II?" in message
    message = refuse("train", "--algorithm=adabest", "--beta=-1")
    assert "beta must be" in message
    message = refuse("train", "--num_clients=360")
    assert "num_clients must be at most 359, found 360" in message


@pytest.mark.parametrize("command", ["train", "compare"])
def test_output_folder_that_cannot_be_written(refuse, tmp_path, command):
    (tmp_path / "file").touch()
    message = refuse(command, folder=tmp_path / "file" / "out")
    assert "output_dir" in message
    assert "cannot be written" in message


@pytest.mark.parametrize("command", ["train", "compare"])
def test_output_folder_of_others(refuse, tmp_path, command):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "thesis.tex").touch()
    message = refuse(command, folder=folder)
    assert "output_dir" in message
    assert "thesis.tex" in message
    assert os.listdir(folder) == ["thesis.tex"]


def test_a_comparison_into_the_folder_of_a_run(refuse, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text('{"format": "tff_drift run"}')
    message = refuse("compare", folder=folder)
    assert "holds files, but no comparison of tff-drift: config.json" in message


def test_a_comparison_into_the_folder_of_one_on_another_task(refuse, tmp_path):
    folder = tmp_path / "comparison"
    folder.mkdir()
    config = {"format": "tff_drift comparison", "runs": [{"task": "quadratic"}]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "table.md").write_text("theirs")
    message = refuse("compare", folder=folder)
    assert "holds a comparison on quadratic, whose files one on digits would" in message
    assert json.loads((folder / "config.json").read_text()) == config
    assert (folder / "table.md").read_text() == "theirs"


def test_one_bad_run_stops_a_comparison_before_it_trains(refuse, tmp_path):
    folder = tmp_path / "out" / "fed_adam" / "seed_2"
    folder.mkdir(parents=True)
    (folder / "notes.txt").touch()
    config = tmp_path / "out" / "config.json"
    config.write_text('{"format": "tff_drift comparison"}')
    message = refuse("compare", "--algorithms=fed_avg,fed_adam", "--seeds=1,2")
    assert "notes.txt" in message


def test_changed_configuration(run_command, comparison):
    folder = comparison.folder / "fed_adam" / "seed_5"
    flags = [
        "--algorithm=fed_adam",
        "--seed=5",
        "--rounds=3",
        "--clients_per_round=4",
        "--rounds_per_evaluation=2",
        "--num_clients=8",
        "--adaptive_clipping",
        "--cohort_measurements",
        f"--output_dir={folder}",
    ]
    outcome = run_command("train", *flags, "--tau=0.02", "--alpha=0.5")
    assert outcome.status == 2
    assert "tau was 0.01 and is now 0.02; alpha was 0.3 and is now 0.5" in (
        outcome.stderr
    )
    assert outcome.stderr.count("\n") == 1


def test_fewer_rounds_than_completed(run_command, comparison):
    words = [
        word for word in programs.COMPARE_FLAGS if not word.startswith("--rounds=")
    ]
    outcome = run_command(
        "compare", *words, "--rounds=2", f"--output_dir={comparison.folder}"
    )
    assert outcome.status == 2
    assert "--rounds is 2, but the run in" in outcome.stderr
    assert "has completed 3" in outcome.stderr


def test_unexpected_errors_keep_their_traceback(run_command, monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "Runs", lambda runs: [][0])
    with pytest.raises(IndexError):
        run_command("train", f"--output_dir={tmp_path / 'out'}")


def test_more_dimensions_than_ram_holds(refuse):
    message = refuse("train", "--task=quadratic", "--dimension=1000000000")
    assert "dimension 1000000000 and num_clients 10 make" in message
    assert "Choose a dimension of at most 5181, or fewer clients." in message


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


def test_a_file_that_must_not_be_read(capsys):
    def program():
        raise PermissionError(errno.EACCES, "Permission denied", "summary.json")

    assert terminal.call(program) == 1
    assert capsys.readouterr().err == (
        "tff-drift: error: [Errno 13] Permission denied: 'summary.json'. "
        "Change its permissions, or choose another.\n"
    )


def test_a_reader_that_has_seen_enough():
    process = subprocess.run(
        f"{sys.executable} -m experiments list | head -n 1",
        shell=True,
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert process.stdout.startswith("Tasks (--task)")
    assert process.stderr == ""


def test_a_disk_that_is_full_during_a_run(tmp_path):
    program = """
import resource, sys
from experiments import main
resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
sys.exit(main.run(sys.argv[1:]))
"""
    words = ["train", "--task=digits", "--rounds=2", f"--output_dir={tmp_path / 'out'}"]
    process = subprocess.run(
        [*python(), "-c", program, *words],
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    *_, last = process.stderr.splitlines()
    assert last.startswith("tff-drift: error: ")
    assert "File too large" in last


def test_version(run_command):
    assert run_command("--version").stdout == f"tff-drift {tff_drift.__version__}\n"


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_interrupted_and_continued(tmp_path, number, expected):
    folder = tmp_path / "run"
    words = ["train", "--task=quadratic", "--rounds=100000", f"--output_dir={folder}"]
    with open(tmp_path / "stderr", "w+") as err:
        process = Popen(
            ["-m", "experiments", *words],
            cwd=programs.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
        try:
            _wait_for_rounds(process, folder / "metrics.csv", 3)
            process.send_signal(number)
            status = process.wait(PATIENCE)
        finally:
            process.kill()
    stderr = (tmp_path / "stderr").read_text()
    assert status == expected
    assert "Traceback" not in stderr
    again = f"tff-drift: interrupted. To continue: tff-drift {' '.join(words)}\n"
    assert stderr.endswith(again)
    circumstances = json.loads((folder / "config.json").read_text())["circumstances"]
    assert circumstances["output_dir"] == str(folder)


# At the beginning, and in the middle, of the imports.
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("loaded", ["/numpy/", "/libtensorflow_framework"])
def test_interrupted_before_anything_has_begun(tmp_path, loaded):
    words = ["train", f"--output_dir={tmp_path / 'run'}"]
    with open(tmp_path / "stderr", "w+") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "experiments", *words],
            cwd=programs.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
        files = pathlib.Path(f"/proc/{process.pid}/maps")
        try:
            wait_until(lambda: loaded in files.read_text(), loaded, process)
            process.send_signal(signal.SIGINT)
            status = process.wait(PATIENCE)
        finally:
            process.kill()
    assert status == 130
    assert (tmp_path / "stderr").read_text() == (
        f"tff-drift: interrupted. To continue: tff-drift {' '.join(words)}\n"
    )


@pytest.mark.parametrize("where", ["terminal.importing", "parser.plugins"])
def test_an_interrupt_that_an_import_swallows_ends_the_program(where):
    program = f"""
import contextlib, signal, sys
from experiments import main, terminal
from experiments.flags import parser

def swallow(*words):
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGINT)
    print("went on")
    return contextlib.nullcontext()

{where} = swallow
sys.argv = ["tff-drift", "list"]
main.run()
"""
    outcome = subprocess.run(
        [sys.executable, "-c", program], cwd=programs.ROOT, capture_output=True
    )
    assert outcome.returncode == 130
    assert outcome.stdout == b""
    assert outcome.stderr == (b"tff-drift: interrupted. To continue: tff-drift list\n")


def _wait_for_rounds(process, path, rounds):
    def written():
        return path.exists() and len(path.read_text().splitlines()) > rounds + 1

    wait_until(written, f"{rounds} rounds in {path}", process)
