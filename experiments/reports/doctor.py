"""Checks what works on this machine, and says what to do about the rest."""

from __future__ import annotations

import dataclasses
import platform
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import tff_drift
from experiments import terminal
from tff_drift import system

OK, NOTE, FAILED = "ok", "note", "FAILED"

_TFF = "0.87.0"
# Distributions whose versions are reported, beside TFF's.
_TOLD = (
    "tensorflow",
    "tf-keras",
    "keras",
    "tensorflow-probability",
    "tensorflow-privacy",
    "numpy",
    "jax",
    "protobuf",
    "grpcio",
)
_NATIVE_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Finding:
    """The finding of one check.

    Attributes:
      state: `OK`, `NOTE` for what not every run needs, or `FAILED`.
      name: The thing.
      found: What was found.
      remedy: What to do, if anything.
    """

    state: str
    name: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{self.state:7}{self.name}: {self.found}"
        return f"{line}\n{'':7}{self.remedy}" if self.remedy else line


def examine() -> list[str]:
    """Prints what was found, as it is found.

    Returns:
      The names of the things that have failed.
    """
    failures = []
    for check in (_system, _python, _versions, _tff, _data):
        for finding in check():
            print(finding, flush=True)
            if finding.state == FAILED:
                failures.append(finding.name)
        if failures:
            break  # What comes next needs this.
    return failures


# Where all but TFF's worker runs, on Pythons for which jaxlib has wheels there.
_WITHOUT_WORKER = ("Linux aarch64", "Darwin arm64")
_PYTHON_WITHOUT_WORKER = (3, 12)


def _system() -> Iterator[Finding]:
    yield Finding(OK, "tff-drift", f"{tff_drift.__version__}, {tff_drift.__path__[0]}")
    machine = system.machine()
    found = f"{machine}, {system.processors()} processors for this process"
    if system.runs_tff_worker():
        yield Finding(OK, "system", found)
    elif machine not in _WITHOUT_WORKER:
        yield Finding(
            FAILED,
            "system",
            machine,
            "tff_drift runs on Linux on x86-64 and ARM and on macOS on Apple silicon: "
            "use such a machine, a container or Colab.",
        )
    elif sys.version_info < _PYTHON_WITHOUT_WORKER:
        yield Finding(
            FAILED,
            "system",
            f"{machine} with Python {platform.python_version()}",
            "Use Python 3.12 or 3.13: jaxlib has no wheels for older ones here.",
        )
    else:
        yield Finding(
            OK, "system", f"{found}; everything but TFF's worker (native) runs here"
        )


def _python() -> Iterator[Finding]:
    support = "TFF 0.87's own"
    if sys.version_info >= (3, 12):
        support = "which TFF 0.87 does not declare, and tff_drift makes it run on"
    found = f"{platform.python_version()}, {support}"
    if sys.flags.optimize < 2:
        yield Finding(OK, "Python", found)
    else:
        yield Finding(
            FAILED,
            "Python",
            f"{found}, without docstrings, which TensorFlow needs",
            "Leave out -OO, and PYTHONOPTIMIZE=2.",
        )


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _versions() -> Iterator[Finding]:
    installed = {name: _version(name) for name in _TOLD}
    yield Finding(
        OK,
        "versions",
        ", ".join(f"{name} {version or '-'}" for name, version in installed.items()),
    )
    found = _version("tensorflow-federated")
    if found == _TFF:
        yield Finding(OK, "tensorflow-federated", found)
    else:
        yield Finding(
            FAILED,
            "tensorflow-federated",
            found or "not installed",
            f"tff_drift needs {_TFF}. Install it: tff-drift install-tff",
        )


def _tff() -> Iterator[Finding]:
    try:
        with terminal.importing():
            import tensorflow as tf
            import tensorflow_federated
    except Exception as error:
        yield Finding(
            FAILED,
            "import of tensorflow_federated",
            f"{type(error).__name__}: {' '.join(str(error).split())}",
            "Install the environment anew; docs/install.md says how.",
        )
        return
    del tensorflow_federated
    yield Finding(OK, "Keras of TFF", tf.keras.Model.__module__.partition(".")[0])
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        yield Finding(OK, "GPUs", ", ".join(gpu.name for gpu in gpus))
    else:
        yield Finding(
            NOTE,
            "GPUs",
            "TensorFlow sees none",
            "Runs use the processors. With an NVIDIA card and Python 3.12 or newer: "
            'pip install "tff-drift[cuda]"',
        )
    from tff_drift import execution

    contexts: dict[str, Callable[[], Any]] = {
        "this process (local)": execution.create_local_execution_context,
        "TFF's worker (native)": lambda: execution.create_native_execution_context(
            startup_seconds=_NATIVE_SECONDS
        ),
    }
    for name, create in contexts.items():
        try:
            context = create()
        except execution.WorkerError as error:
            yield Finding(NOTE, f"a computation in {name}", "no worker", str(error))
            continue
        yield _computation(name, context)


def _computation(name: str, context: Any) -> Finding:
    import numpy as np

    from tff_drift import compat

    name = f"a computation in {name}"

    @compat.tf_computation(np.int32)
    def increment(value: Any) -> Any:
        return value + 1

    try:
        with compat.get_context_stack().install(context):
            result = increment(1)
    except Exception as error:
        # TFF and TensorFlow raise what they like; all of it is reported.
        return Finding(FAILED, name, f"{type(error).__name__}: {error}")
    if result != 2:
        return Finding(FAILED, name, f"1 + 1 gave {result}")
    return Finding(OK, name, "1 + 1 gave 2")


def _data() -> Iterator[Finding]:
    from tasks import inventory

    findings = inventory.inspect(None)
    missing = [each.name for each in findings if each.state == inventory.MISSING]
    there = [each.name for each in findings if each.state != inventory.MISSING]
    if there:
        yield Finding(OK, "data in ~/.tff", ", ".join(there))
    if missing:
        yield Finding(
            NOTE,
            "data missing in ~/.tff",
            ", ".join(missing),
            "The task digits needs none. Others: tff-drift data fetch --task=NAME; "
            "data elsewhere: --cache_dir=FOLDER",
        )
