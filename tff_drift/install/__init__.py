"""Installing TensorFlow Federated beside tff_drift.

No package index can resolve TFF 0.87's own metadata today. The metadata of
tff_drift names what TFF needs; TFF itself comes without its dependencies, in the
versions and with the hashes of the lists beside this module.
"""

from __future__ import annotations

import importlib.util
import pathlib
import shutil
import subprocess
import sys

TFF_REQUIREMENTS = pathlib.Path(__file__).with_name(
    "tff-modern.txt" if sys.version_info >= (3, 12) else "tff-pinned.txt"
)
_OPTIONS = ["--no-deps", "--require-hashes", "--requirement", str(TFF_REQUIREMENTS)]
# What TFF's wheel declares to support; the wheels listed hold no code that is compiled
# for one version of Python. uv takes every wheel and marker for this version's.
_TFF_PYTHON = "3.11"


def install_tff() -> None:
    """Installs TensorFlow Federated 0.87.0 into the environment of this Python.

    Uses pip, or uv where the environment has no pip.

    Raises:
      RuntimeError: If there is neither, or if the installation fails.
    """
    if importlib.util.find_spec("pip") is not None:
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet"),
            *("--disable-pip-version-check", "--only-binary=:all:"),
            *("--ignore-requires-python", *_OPTIONS),
        ]
    elif shutil.which("uv") is not None:
        command = [
            *("uv", "pip", "install", "--quiet", "--python", sys.executable),
            *("--only-binary=:all:", "--python-version", _TFF_PYTHON, *_OPTIONS),
        ]
    else:
        raise RuntimeError(
            "There is neither pip nor uv to install TensorFlow Federated with. "
            f"Install one of them: {sys.executable} -m ensurepip"
        )
    status = subprocess.run(command, check=False).returncode
    if status != 0:
        raise RuntimeError(
            f"TensorFlow Federated was not installed: {command[0]} ended with status "
            f"{status}. Its message stands above."
        )
