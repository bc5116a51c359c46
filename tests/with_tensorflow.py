"""What tests share where they run: TensorFlow, and the native execution context.

`conftest.py` makes a plugin of it.
"""

import ctypes
import functools
import gc
import logging
import os
import sys

# Before TensorFlow, whose import then collects no garbage.
from tff_drift import _tff_exit, execution

# isort: split
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.eager import context as eager_context
from tensorflow.python.util import tf_stack
from tensorflow_federated.proto.v0 import computation_pb2
from tensorflow_federated.python.core.impl.execution_contexts import compiler_pipeline
from tensorflow_federated.python.core.impl.types import type_serialization


def _read_types_once():
    """Keeps the types that TFF reads anew for every part of a computation.

    They do not change, and reading takes an eighth of the time in which a process is
    built and runs its first round.
    """
    read = type_serialization.deserialize_type

    @functools.lru_cache(maxsize=10_000)
    def known(serialized):
        return read(computation_pb2.Type.FromString(serialized))

    type_serialization.deserialize_type = lambda proto: known(
        proto.SerializeToString(deterministic=True)
    )


def pytest_collection_finish(session):
    if session.config.getoption("--no-grappler"):
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        # The stack that every operation keeps, for TensorFlow's own errors, took a
        # fifteenth of the tests' time: theirs is deep, and most graphs run once.
        here = tf_stack.extract_stack()
        tf_stack.extract_stack = lambda stacklevel=1: here
        _read_types_once()
    # TensorFlow's million objects live to the end: the collector, which took an eighth
    # of the tests' time, need not look at them again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


_MEGABYTE = 2**20
# By how much a process may grow from one look at its garbage to the next.
_GROWTH = 120 * _MEGABYTE
_kept = 0
# What tests share that keep processes, of which other modules use other ones.
_WITH_CACHES = ("tests.methods", "tests.stateful")


def _memory(process="self"):
    """The RAM of a process in bytes, or none where the system does not tell."""
    try:
        with open(f"/proc/{process}/statm") as file:
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
    for module in (request.module, *map(sys.modules.get, _WITH_CACHES)):
        for value in vars(module).values() if module else ():
            if getattr(value, "__module__", None) == module.__name__:
                getattr(value, "cache_clear", lambda: None)()
    if _memory() > _kept + _GROWTH:
        # The last 128 computations, which TFF keeps and no public name clears.
        compiler_pipeline.CompilerPipeline.compile.cache_clear()
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


_native = None
# A worker keeps what it has run, some two megabytes for each process.
_LARGE_WORKER = 200 * _MEGABYTE


@pytest.fixture(scope="module", autouse=True)
def native_context():
    """Runs every TFF computation in one native worker for many modules.

    Where its worker does not run, in the local context.
    """
    global _native
    workers = _tff_exit.child_workers()
    if _native is None or any(_memory(each) > _LARGE_WORKER for each in workers):
        if _tff_exit.has_worker():
            _native = execution.create_native_execution_context()
        else:
            _native = _TakesDatasets()
        tff.framework.set_default_context(_native)
        gc.collect()  # The worker of the context before ends with it.
    return _native


@pytest.fixture(autouse=True)
def default_context(native_context):
    """Undoes what a test did to the default context, which is the process's."""
    yield
    tff.framework.set_default_context(native_context)
