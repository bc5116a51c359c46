"""A program that is forked cannot tell that it is: it is one that Python starts."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.forks import programs
from tests.forks.programs import PATIENCE, Popen, python, wait_until

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="programs are forked on Linux alone"
)

# What a program finds.
LOOK = """
import json, os, signal, sys
import stream_of_lines
sys.stderr.write("to the other stream\\n")
ours = {"TFF_DRIFT_TEST_SESSION", "SHLVL", "_", "LC_CTYPE"}
print(json.dumps({
    "argv": sys.argv,
    "name": __name__,
    "file": globals().get("__file__"),
    "module": stream_of_lines.__file__,
    "folder": os.getcwd(),
    "environment": {k: v for k, v in os.environ.items() if k not in ours},
    "path": [each for each in sys.path if each],
    "signals": [str(signal.getsignal(each)) for each in signal.valid_signals()],
    "blocked": [int(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "streams": [
        [each.encoding, each.errors, each.line_buffering, each.isatty(), each.fileno()]
        for each in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "read": sys.stdin.read(),
    "main": vars(sys.modules["__main__"]) is globals(),
}))
"""


def run(start, words, **options):
    return subprocess.run(
        [*start, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **options,
    )


def as_script(folder):
    return ["look.py"]


def as_module(folder):
    return ["-m", "look"]


def as_code(folder):
    return ["-c", (folder / "look.py").read_text()]


@pytest.mark.parametrize("way", [as_script, as_module, as_code])
def test_it_finds_what_python_gives_a_program(way, tmp_path):
    (tmp_path / "look.py").write_text(LOOK)
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "stream_of_lines.py").touch()
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "library"),
        "A_WORD": "of my own",
    }
    found, expected = (
        run(
            start,
            [*way(tmp_path), "--flag=x y", "ü"],
            cwd=tmp_path,
            env=environment,
            input="what is written to it",
        )
        for start in (python(), [sys.executable])
    )
    assert expected.returncode == 0, expected.stderr
    assert found.returncode == 0, found.stderr
    assert found.stderr == expected.stderr == "to the other stream\n"
    assert json.loads(found.stdout) == json.loads(expected.stdout)


ENDINGS = {
    "the end": "print('done')",
    "a status": "import sys; sys.exit(3)",
    "a message": "import sys; sys.exit('enough')",
    "an error": "1 / 0",
    "an interrupt": "raise KeyboardInterrupt",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "at exit": "import atexit; atexit.register(print, 'registered')",
    "a thread": "import threading, time\n"
    "threading.Timer(0.2, lambda: print('from it')).start()",
}


@pytest.mark.parametrize("code", ENDINGS.values(), ids=ENDINGS)
def test_it_ends_as_a_program_ends(code):
    found, expected = (
        run(start, ["-c", code]) for start in (python(), [sys.executable])
    )
    assert found.returncode == expected.returncode
    assert found.stdout == expected.stdout
    # Of a traceback, the error.
    assert found.stderr.splitlines()[-1:] == expected.stderr.splitlines()[-1:]


# Of short sleeps: a signal that comes just before one does not end it.
WAIT = """
import os, time
try:
    print(os.getpid(), flush=True)
    while True:
        time.sleep(0.1)
finally:
    print("told", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signals_reach_it_and_end_it_before_wait_returns(number):
    program = Popen(["-c", WAIT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    pid = int(program.stdout.readline())
    program.send_signal(number)
    assert program.wait(PATIENCE) == -number
    assert not pathlib.Path(f"/proc/{pid}").exists()
    told = program.stdout.read()
    program.stdout.close()
    assert told == (b"told\n" if number == signal.SIGINT else b"")


def test_it_ends_with_whoever_started_it():
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        subprocess.run(
            [*python(), "-c", WAIT], stdout=subprocess.PIPE, timeout=3, check=False
        )
    pid = int(caught.value.stdout.split()[0])
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "its end")


@pytest.mark.conformance
def test_the_server_ends_with_its_session(monkeypatch):
    session = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1)
    monkeypatch.setenv("TFF_DRIFT_TEST_SESSION", str(session.pid))
    monkeypatch.setattr(programs, "_server", None)
    address = f"tff_drift-tests-{session.pid}"
    programs._start(address, session.pid)
    server = programs._server
    session.kill()
    session.wait()
    server.wait(PATIENCE)
    assert not programs._listens(address)


def test_a_flag_of_pythons_is_refused():
    assert "flag -O" in run(python(), ["-O", "-c", "pass"]).stderr
