"""`tff-drift install-tff` with and without TFF's worker, from made-up wheels."""

import hashlib
import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import tensorflow_federated as tff

from experiments.reports import doctor
from tff_drift import _tff_default, _tff_exit, execution, install, system

WORKER = "tensorflow_federated/data/worker_binary"
PLATFORM = "manylinux_2_31_x86_64"


def _wheel(folder, name, version, tag, files):
    """Writes a wheel, returns its line for a list of requirements."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\n"
        f"Version: {version}\nRequires-Python: <3.12\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\n"
        f"Root-Is-Purelib: false\nTag: {tag}\n",
    }
    lines = "".join(f"{each},,\n" for each in [*files, f"{info}/RECORD"])
    path = folder / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in {**files, f"{info}/RECORD": lines}.items():
            archive.writestr(each, text)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{name}=={version} --hash=sha256:{digest}\n"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Made-up wheels to install from, and the folder where they are installed."""
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    wheels.mkdir()
    site.mkdir()
    lines = _wheel(
        wheels,
        "tensorflow-federated",
        "0.87.0",
        f"py3-none-{PLATFORM}",
        {"tensorflow_federated/__init__.py": "", WORKER: "a program"},
    )
    lines += _wheel(
        wheels, "google-vizier", "0.1.11", "py3-none-any", {"vizier/__init__.py": ""}
    )
    listed = tmp_path / "tff.txt"
    listed.write_text(lines)
    options = ["--no-deps", "--require-hashes", "--no-index"]
    options += [f"--find-links={wheels}", f"--requirement={listed}"]
    monkeypatch.setattr(install, "_OPTIONS", options)
    monkeypatch.setattr(install.sysconfig, "get_path", lambda name: str(site))
    return site


def _versions(site):
    found = importlib.metadata.distributions(path=[str(site)])
    return {each.metadata["Name"]: each.version for each in found}


VERSIONS = {"tensorflow-federated": "0.87.0", "google-vizier": "0.1.11"}


@pytest.mark.parametrize("machine", ["Linux aarch64", "Darwin arm64", "Linux x86_64"])
def test_python_alone_is_installed(machine, site, monkeypatch):
    monkeypatch.setattr(system, "machine", lambda: machine)
    install.install_tff(False if machine == "Linux x86_64" else None)
    assert _versions(site) == VERSIONS
    assert (site / "tensorflow_federated/__init__.py").is_file()
    assert (site / "vizier/__init__.py").is_file()
    assert (site / WORKER).stat().st_size == 0
    (tff_there,) = importlib.metadata.distributions(
        name="tensorflow-federated", path=[str(site)]
    )
    listed = [str(file) for file in tff_there.files]
    assert WORKER in listed
    # What an installer would remove later is what is there.
    assert all((site / file).is_file() for file in listed)


def test_another_version_makes_way(site):
    old = site / "tensorflow_federated-0.80.0.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Name: tensorflow-federated\nVersion: 0.80.0\n")
    (old / "RECORD").write_text(
        f"{old.name}/METADATA,,\n{old.name}/RECORD,,\n{WORKER},,\n../../stays,,\n"
    )
    (site / WORKER).parent.mkdir(parents=True)
    (site / WORKER).write_text("old")
    outside = site.parent.parent / "stays"
    outside.write_text("")
    install.install_tff(worker=False)
    assert _versions(site) == VERSIONS
    assert (site / WORKER).stat().st_size == 0
    assert outside.exists()


def test_wheels_of_another_hash_are_not_installed(site, tmp_path):
    listed = tmp_path / "tff.txt"
    listed.write_text(listed.read_text().replace("sha256:", "sha256:0")[:-2] + "\n")
    with pytest.raises(RuntimeError, match="TensorFlow Federated was not installed"):
        install.install_tff(worker=False)
    assert list(site.iterdir()) == []


def test_the_worker_is_refused_where_it_does_not_run(monkeypatch):
    monkeypatch.setattr(system, "machine", lambda: "Darwin arm64")
    with pytest.raises(RuntimeError, match="for Linux on x86-64, and this is Darwin"):
        install.install_tff(worker=True)


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        ("Darwin arm64", "Linux on x86-64 only, and this is Darwin arm64"),
        ("Linux x86_64", "left out: tff-drift install-tff --worker=true adds it"),
    ],
)
def test_the_native_context_says_why_not_in_one_line(machine, why, monkeypatch):
    monkeypatch.setattr(system, "machine", lambda: machine)
    nowhere = pathlib.Path("/nowhere/worker_binary")
    monkeypatch.setattr(_tff_exit, "worker_path", lambda: nowhere)
    with pytest.raises(execution.WorkerError) as caught:
        execution.set_native_execution_context()
    assert why in str(caught.value)
    assert "set_local_execution_context()" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("machine", "python", "failures", "told"),
    [
        ("Linux aarch64", (3, 13, 1), [], "everything but TFF's worker (native) runs"),
        ("Darwin arm64", (3, 12, 0), [], "everything but TFF's worker (native) runs"),
        ("Darwin arm64", (3, 11, 9), ["system"], "Use Python 3.12 or 3.13"),
        ("Darwin x86_64", (3, 13, 1), ["system"], "Linux on x86-64 and ARM and on"),
    ],
)
def test_doctor_knows_the_machine(machine, python, failures, told, monkeypatch, capsys):
    monkeypatch.setattr(system, "machine", lambda: machine)
    monkeypatch.setattr(doctor.sys, "version_info", python)
    findings = list(doctor._system())
    assert [each.name for each in findings if each.state == doctor.FAILED] == failures
    assert told in str(findings[-1])


def test_doctor_notes_a_worker_that_is_left_out(monkeypatch):
    nowhere = pathlib.Path("/nowhere/worker_binary")
    monkeypatch.setattr(_tff_exit, "worker_path", lambda: nowhere)
    native = list(doctor._tff())[-1]
    assert native.state == doctor.NOTE
    assert "--worker=true" in native.remedy


@tff.tensorflow.computation(np.int32)
def _increment(value):
    return value + 1


def test_without_a_worker_the_local_context_is_the_default(monkeypatch, tmp_path):
    monkeypatch.setattr(_tff_exit, "worker_path", lambda: tmp_path / "worker_binary")
    _tff_default.do_without_worker()
    stack = tff.framework.get_context_stack()
    assert _increment(1) == 2
    assert type(stack.current) is type(execution.create_local_execution_context())


def test_with_a_worker_the_default_stays(monkeypatch, tmp_path):
    there = tmp_path / "worker_binary"
    there.write_text("a program")
    monkeypatch.setattr(_tff_exit, "worker_path", lambda: there)
    before = tff.framework.get_context_stack().current
    _tff_default.do_without_worker()
    assert tff.framework.get_context_stack().current is before


def test_the_module_takes_the_same_switch():
    command = [sys.executable, "-m", "tff_drift.install", "--worker=perhaps"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert "--worker" in outcome.stderr


PROGRAM = """
import tff_drift
import tensorflow_federated as tff
import numpy as np
from tff_drift import execution

assert tff.__file__.startswith(FOLDER), tff.__file__

@tff.tensorflow.computation(np.int32)
def increment(value):
    return value + 1

print(increment(1))
try:
    execution.set_native_execution_context()
except execution.WorkerError as error:
    print(error)
"""


@pytest.mark.conformance
def test_tff_is_imported_and_computes_without_its_worker(tmp_path):
    installed = pathlib.Path(tff.__file__).parent
    copy = tmp_path / "tensorflow_federated"
    shutil.copytree(
        installed, copy, ignore=shutil.ignore_patterns("worker_binary", "__pycache__")
    )
    (tmp_path / WORKER).parent.mkdir(exist_ok=True)
    (tmp_path / WORKER).write_bytes(b"")
    here = pathlib.Path(__file__).parents[1]
    outcome = subprocess.run(
        [sys.executable, "-c", f"FOLDER = {str(tmp_path)!r}" + PROGRAM],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{here}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    result, refusal = outcome.stdout.splitlines()
    assert result == "2"
    assert "--worker=true" in refusal
