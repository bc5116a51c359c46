"""Installing TensorFlow Federated beside tff_drift.

No package index can resolve TFF 0.87's own metadata today. The metadata of
tff_drift names what TFF needs; TFF itself comes without its dependencies, in the
versions and with the hashes of the lists beside this module.

TFF's one wheel is for Linux on x86-64. All that is compiled in it is the worker, a
program of 301 MB that the native execution context starts. On other machines TFF's
Python is installed alone, and computations run in the local context.
"""

from __future__ import annotations

import importlib.util
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib import metadata

from tff_drift import system

TFF_REQUIREMENTS = pathlib.Path(__file__).with_name(
    "tff-modern.txt" if sys.version_info >= (3, 12) else "tff-pinned.txt"
)
_OPTIONS = ["--no-deps", "--require-hashes", "--requirement", str(TFF_REQUIREMENTS)]
# What TFF's wheel declares to support; the wheels listed hold no code that is compiled
# for one version of Python. uv takes every wheel and marker for this version's.
_TFF_PYTHON = "3.11"
# The platform that TFF's wheel is for, as pip and as uv call it.
_PIP_PLATFORM, _UV_PLATFORM = "manylinux_2_31_x86_64", "x86_64-manylinux_2_31"
_WORKER = "tensorflow_federated/data/worker_binary"


def install_tff(worker: bool | None = None) -> None:
    """Installs TensorFlow Federated 0.87.0 into the environment of this Python.

    Uses pip, or uv where the environment has no pip. The hash of every wheel is
    checked.

    Args:
      worker: Whether TFF's worker comes along, 301 MB on disk, which only the native
        execution context needs. By default it does where it runs: on Linux on x86-64.
        It is downloaded in any case.

    Raises:
      RuntimeError: If there is neither pip nor uv, if the installation fails, or if
        the worker is asked for where it does not run.
    """
    if worker and not system.runs_tff_worker():
        raise RuntimeError(
            "TFF's worker is a program for Linux on x86-64, and this is "
            f"{system.machine()}. Install TFF without it: tff-drift install-tff"
        )
    if worker is False or not system.runs_tff_worker():
        _install_without_worker()
    else:
        _run(_installer())


def _installer(folder: pathlib.Path | None = None) -> list[str]:
    """Returns the command that installs TFF.

    Args:
      folder: Where to, for the platform of TFF's wheel whatever this one is; by default
        into the environment.
    """
    where = [] if folder is None else ["--target", str(folder)]
    if importlib.util.find_spec("pip") is not None:
        where += ["--platform", _PIP_PLATFORM] if where else []
        return [
            *(sys.executable, "-m", "pip", "install", "--quiet"),
            *("--disable-pip-version-check", "--only-binary=:all:"),
            *("--ignore-requires-python", *where, *_OPTIONS),
        ]
    if shutil.which("uv") is not None:
        where += ["--python-platform", _UV_PLATFORM] if where else []
        return [
            *("uv", "pip", "install", "--quiet", "--python", sys.executable),
            *("--only-binary=:all:", "--python-version", _TFF_PYTHON),
            *(*where, *_OPTIONS),
        ]
    raise RuntimeError(
        "There is neither pip nor uv to install TensorFlow Federated with. "
        f"Install one of them: {sys.executable} -m ensurepip"
    )


def _run(command: list[str]) -> None:
    status = subprocess.run(command, check=False).returncode
    if status != 0:
        raise RuntimeError(
            f"TensorFlow Federated was not installed: {command[0]} ended with status "
            f"{status}. Its message is above."
        )


def _install_without_worker() -> None:
    """Unpacks checked wheels elsewhere, and moves all but the worker."""
    site = pathlib.Path(sysconfig.get_path("purelib"))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        _run(_installer(folder))
        # TFF looks for a file there when it is imported.
        (folder / _WORKER).write_bytes(b"")
        new = list(metadata.distributions(path=[name]))
        for distribution in new:
            _remove_former(distribution.metadata["Name"], site)
        for record in folder.glob("tensorflow_federated-*.dist-info/RECORD"):
            _forget_worker(record)
        shutil.copytree(folder, site, dirs_exist_ok=True)


def _remove_former(name: str, site: pathlib.Path) -> None:
    """Removes the files of a distribution that is there already, as installers do."""
    for distribution in metadata.distributions(name=name, path=[str(site)]):
        for file in distribution.files or ():
            # A list may name files elsewhere, by way of "..".
            path = pathlib.Path(str(file.locate())).resolve()
            if site.resolve() in path.parents:
                path.unlink(missing_ok=True)
                # An empty one of metadata would go on to count as a distribution.
                folder = path.parent
                if folder.suffix == ".dist-info" and not any(folder.iterdir()):
                    folder.rmdir()


def _forget_worker(record: pathlib.Path) -> None:
    """Removes the worker's size and hash from the list of a distribution's files."""
    lines = record.read_text().splitlines(keepends=True)
    own = f"{_WORKER},"
    record.write_text("".join(f"{own},\n" if x.startswith(own) else x for x in lines))
