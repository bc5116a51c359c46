"""What all tests share: a quiet TensorFlow and the native execution context."""

import argparse
import ctypes
import gc
import logging
import os
import re
import signal
import sys

# Started in the background of a shell, the tests would ignore interrupts, and so would
# the programs that they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# TensorFlow and gRPC read these when they are loaded.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# The tests run side by side: threads for single operations would only wait.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

# Before anything of ours is imported, see there.
if os.environ.get("TFF_DRIFT_ELSEWHERE") == "1":
    from tests import elsewhere

    elsewhere.take_linux_away()

import tff_drift  # noqa: E402, F401 (before TensorFlow Federated)

# isort: split
import pytest  # noqa: E402
import tensorflow_federated as tff  # noqa: E402
from tensorflow.python.eager import context as eager_context  # noqa: E402

from tests.forks import programs  # noqa: E402
from tff_drift import _tff_exit, execution  # noqa: E402

programs.own_session()


def pytest_addoption(parser):
    parser.addoption(
        "--smoke",
        action="store_true",
        help="run the first test of every file that starts no programs which train",
    )

    parser.addoption(
        "--part",
        type=_part,
        default=(0, 1),
        metavar="K/N",
        help="of N parts of the files the one with the number K modulo N, such as a "
        "day's",
    )


def _part(text):
    match = re.fullmatch(r"(\d+)/([1-9]\d*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N, such as 3/7")
    return int(match[1]), int(match[2])


@pytest.hookimpl(trylast=True)  # Of the tests that markers choose.
def pytest_collection_modifyitems(config, items):
    number, parts = config.getoption("--part")
    files = list(dict.fromkeys(item.path for item in items))
    # Neighbours share what takes long to build.
    bounds = [len(files) * k // parts for k in (number % parts, number % parts + 1)]
    of_part = set(files[slice(*bounds)])
    chosen = {item for item in items if item.path in of_part}
    if config.getoption("--smoke"):
        quick = [
            item for item in items if not item.get_closest_marker("whole_programs")
        ]
        chosen &= set({item.path: item for item in reversed(quick)}.values())
    config.hook.pytest_deselected(items=[each for each in items if each not in chosen])
    items[:] = [each for each in items if each in chosen]


def pytest_collection_finish():
    # TensorFlow's million objects live to the end: the collector, which took an eighth
    # of the tests' time, need not look at them again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


_MEGABYTE = 2**20
# By how much a process may grow from one look at its garbage to the next.
_GROWTH = 200 * _MEGABYTE
_kept = 0


def _memory():
    """The RAM of this process in bytes, or none where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@pytest.fixture(autouse=True, scope="module")
def garbage(request):
    """Gives back what a module's tests have used.

    Processes and contexts that its tests share are the module's own. Graphs are
    circles of objects, and TensorFlow keeps the kernels of functions that nobody calls
    any more.
    """
    global _kept
    yield
    for value in vars(request.module).values():
        if getattr(value, "__module__", None) == request.module.__name__:
            getattr(value, "cache_clear", lambda: None)()
    if _memory() > _kept + _GROWTH:
        gc.collect()
        eager_context.context().clear_kernel_cache()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
        _kept = _memory()


@pytest.fixture(autouse=True)
def log_of_absl():
    """Undoes what a command did to absl's log, which `caplog` would not hear then."""
    logger = logging.getLogger("absl")
    logger.handlers, logger.propagate = [], True
    logger.setLevel(logging.NOTSET)


class _Falls(logging.Handler):
    """Keeps the warnings of the local context that vectorized clients have failed."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []

    def emit(self, record):
        message = record.getMessage()
        if "train one by one from now on" in message:
            self.messages.append(message)


@pytest.fixture
def may_fall():
    """For tests in which vectorized clients fail, and train one by one from then on."""


@pytest.fixture(autouse=True)
def no_falls(request, log_of_absl):
    """Fails tests with such clients, whose results are right, if they do not ask."""
    falls, logger = _Falls(), logging.getLogger("absl")
    logger.addHandler(falls)
    yield
    logger.removeHandler(falls)
    assert "may_fall" in request.fixturenames or not falls.messages


@pytest.fixture(scope="session")
def real_data():
    """The folder with the unpacked SQLite files of TFF's data sets."""
    folder = os.environ.get("TFF_DRIFT_DATA")
    if not folder:
        pytest.skip("TFF_DRIFT_DATA names no folder with TFF's SQLite files")
    return folder


class _TakesDatasets(tff.framework.SyncContext):
    """The local context, with no more than TFF's have."""

    def __init__(self):
        self._local = execution.create_local_execution_context()

    def invoke(self, comp, arg):
        return self._local.invoke(comp, arg)


@pytest.fixture(scope="session")
def worker():
    """Skips tests that need TFF's worker where it does not run."""
    if not _tff_exit.has_worker():
        pytest.skip("TFF's worker does not run here")


@pytest.fixture(scope="session", autouse=True)
def native_context():
    """Runs every TFF computation in one native worker for the whole session.

    Where its worker does not run, in the local context.
    """
    if _tff_exit.has_worker():
        context = execution.create_native_execution_context()
    else:
        context = _TakesDatasets()
    tff.framework.set_default_context(context)
    return context


@pytest.fixture(autouse=True)
def default_context(native_context):
    """Undoes what a test did to the default context, which is the process's."""
    yield
    tff.framework.set_default_context(native_context)
