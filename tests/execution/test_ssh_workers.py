"""The command that starts workers through SSH, with another program in SSH's place."""

import os
import sys

import pytest

from tff_drift.execution import ssh_workers
from tff_drift.execution.worker import WorkerError

# It checks its own words, as SSH would, and says what a worker says.
_SSH = """#!/bin/sh
while [ "$1" != -- ]; do last=$1; shift; done
case "$last" in 127.0.0.1:*:127.0.0.1:8000) ;; *) exit 2;; esac
echo "$2 on $3" > "$SSH_TEST_LOG.$2"
%s
"""


@pytest.fixture
def in_place_of_ssh(tmp_path, monkeypatch):
    """Puts a script into SSH's place; returns what it was asked for, by host."""

    def put(script):
        path = tmp_path / "ssh"
        path.write_text(_SSH % script)
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("SSH_TEST_LOG", str(tmp_path / "log"))
        return lambda host: (tmp_path / f"log.{host}").read_text()

    return put


def _started():
    return ssh_workers.started(["ann@one", "two"], 8000, "/opt/my python/bin/python")


def test_workers_start_and_end_with_their_connections(in_place_of_ssh):
    asked = in_place_of_ssh(
        "echo TFF worker listens on port 8000 and trains; exec sleep 100"
    )
    with _started() as workers:
        assert len({worker.address for worker in workers}) == 2
        for worker in workers:
            assert worker.address.startswith("localhost:")
            worker.check()
    for worker in workers:
        with pytest.raises(WorkerError, match=worker.host):
            worker.check()
    assert asked("ann@one") == (
        "ann@one on '/opt/my python/bin/python' -m "
        "tff_drift.execution.start_worker --port=8000\n"
    )


def test_a_machine_that_refuses_is_named_with_its_words(in_place_of_ssh):
    in_place_of_ssh("echo Permission denied; exit 255")
    expected = r"ann@one .*code 255.*Permission denied"
    with pytest.raises(WorkerError, match=expected), _started():
        pass


def test_a_worker_that_ends_ends_the_command(in_place_of_ssh, capsys):
    in_place_of_ssh("echo TFF worker listens on port 8000; sleep 1")
    assert ssh_workers.main(["two"]) == 1
    said = capsys.readouterr()
    assert "--workers=localhost:" in said.out
    assert "The worker on two ended" in said.err


@pytest.mark.parametrize("words", [[], ["-oProxyCommand=x"], ["a", "--port=0"]])
def test_other_words_are_refused(words):
    with pytest.raises(SystemExit):
        ssh_workers.main(words)


def test_an_option_of_ssh_is_no_host():
    with pytest.raises(SystemExit):
        ssh_workers.main(["--", "-oProxyCommand=x"])


def test_it_runs_the_python_that_is_named():
    words = ssh_workers.ssh_words("host", 1, 2, sys.executable)
    assert words[-2:] == [
        "host",
        f"{sys.executable} -m tff_drift.execution.start_worker --port=2",
    ]
