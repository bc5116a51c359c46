"""What ends `train` early: interrupts, and a full disk."""

import json
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.experiments import programs
from tests.forks.programs import PATIENCE, Popen, python, wait_until


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


def _wait_for_rounds(process, path, rounds):
    def written():
        return path.exists() and len(path.read_text().splitlines()) > rounds + 1

    wait_until(written, f"{rounds} rounds in {path}", process)
