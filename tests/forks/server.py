"""Forks programs of a test session: `server.py ADDRESS SESSION`.

It imports TensorFlow and TFF and starts nothing of them: threads of a runtime would be
missing in what is forked. It ends with the process whose number SESSION is.

A forked program differs from one that Python starts in what it has imported, and in
nothing else that it could notice: it has standard streams, words, an environment, a
folder, a path for modules, signals, a session and a `__main__` of its own, and Python
ends it as it ends programs.
"""

import gc
import importlib
import io
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import struct
import sys
import types
import warnings

# TensorFlow and what uses it, none of the tests' own.
_IMPORTED = (
    "tff_drift",
    "tensorflow_federated",
    "tff_drift.execution",
    "tff_drift.simulation.callbacks",
    "experiments.training.comparison",
    "experiments.training.sweeps",
)


def serve(address, session):
    """Serves until the session ends.

    Returns:
      In each program that it forks, what was asked for.
    """
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(f"\0{address}")
    except OSError:  # Another process of the session has started one.
        os._exit(0)
    listening.listen(64)
    _import()
    # What is forked for a connection is nobody's to wait for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    ending = os.pidfd_open(session)
    while True:
        ready, _, _ = select.select([listening, ending], [], [])
        if ending in ready:
            os._exit(0)
        connection, _ = listening.accept()
        if _fork() == 0:
            listening.close()
            os.close(ending)
            return _start(connection)
        connection.close()


def _import():
    # Not by PYTHONPATH: what that names is not named again by an editable install.
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
    for name in _IMPORTED:
        importlib.import_module(name)
    # TFF's default context has a thread; each program gets another one.
    import tensorflow_federated as tff

    tff.test.set_no_default_context()
    gc.collect()
    # Pages that the collector does not write to stay shared.
    gc.freeze()


def _fork():
    # Python 3.12 and JAX warn of threads: those of OpenBLAS and jemalloc survive it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def _start(connection):
    """Starts a program and watches it; returns in the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    length, streams, _, _ = socket.recv_fds(connection, 8, 3)
    if not length or struct.unpack("3i", credentials)[1] != os.getuid():
        os._exit(0)
    message = connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    request = json.loads(message)
    program = _fork()
    if program == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        return request
    for number in (0, 1, 2, *streams):
        os.close(number)
    connection.sendall(program.to_bytes(8, "big"))
    ended = os.pidfd_open(program)
    ready, _, _ = select.select([connection, ended], [], [])
    if ended not in ready:  # Who asked for it is gone.
        os.kill(program, signal.SIGKILL)
    status = os.waitpid(program, 0)[1]
    if ended in ready:
        connection.sendall(status.to_bytes(8, "big"))
    os._exit(0)


def prepare(request, path):
    """Makes this process the program that was asked for, before its first line."""
    os.setsid()
    _open_standard_streams()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    added = os.environ.get("PYTHONPATH", "")
    sys.path[:] = [*filter(None, added.split(os.pathsep)), *path]
    importlib.invalidate_caches()

    import numpy as np
    import tensorflow_federated as tff

    from tff_drift import _tff_default

    np.random.seed()
    tff.backends.native.set_sync_local_cpp_execution_context()
    _tff_default.do_without_worker()


def _open_standard_streams():
    """Opens them as Python opened the server's, which were other files."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, f"__{name}__")
        stream = io.TextIOWrapper(
            open(  # noqa: SIM115  # To the end of the program.
                number,
                "wb" if number else "rb",
                0 if number and before.write_through else -1,
                closefd=False,
            ),
            encoding=before.encoding,
            errors=before.errors,
            line_buffering=before.line_buffering or os.isatty(number),
            write_through=before.write_through,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run(words):
    """Runs a program as `python WORD...` does."""
    first, *others = words
    if first == "-m":
        name, *others = others
        sys.path.insert(0, os.getcwd())
        sys.argv[:] = [name, *others]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif first == "-c":
        code, *others = others
        sys.path.insert(0, "")
        sys.argv[:] = ["-c", *others]
        _run_as_main(code, "<string>")
    elif first.startswith("-"):
        raise ValueError(f"No program can be forked with Python's flag {first}.")
    else:
        path = os.path.abspath(first)
        sys.path.insert(0, os.path.dirname(path))
        sys.argv[:] = words
        with open(path, "rb") as file:
            _run_as_main(file.read(), path, __file__=path)


def _run_as_main(code, name, **attributes):
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(main).update(attributes)
    exec(compile(code, name, "exec"), vars(main))


# The folders of Python and of its environment, behind this file's own.
_PATH = sys.path[1:]
_main = sys.modules["__main__"]
if __name__ == "__main__":
    _request = serve(sys.argv[1], int(sys.argv[2]))
    prepare(_request, _PATH)
    run(_request["words"])
