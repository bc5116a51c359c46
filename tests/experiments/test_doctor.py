"""What `tff-drift doctor` finds, and what it advises."""

import importlib.metadata
import subprocess
import sys

import pytest

from experiments.reports import doctor
from tests.experiments import programs
from tff_drift import _tff_exit, install, system


@pytest.mark.skipif(
    not system.runs_tff_worker() and sys.version_info < (3, 12),
    reason="Where TFF's worker does not run, older Pythons are not in order",
)
def test_a_machine_in_order(run_command):
    outcome = run_command("doctor")
    assert outcome.status == 0, outcome.stderr
    assert "ok     tensorflow-federated: 0.87.0\n" in outcome.stdout
    assert "ok     a computation in this process (local)" in outcome.stdout
    worker = "ok     a computation in TFF's worker (native)"
    if not _tff_exit.has_worker():
        worker = "note   a computation in TFF's worker (native): no worker"
    assert worker in outcome.stdout
    assert doctor.FAILED not in outcome.stdout


def test_without_tff_it_names_the_command_that_installs_it(monkeypatch, capsys):
    version = importlib.metadata.version

    def version_without_tff(name):
        if name == "tensorflow-federated":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor.metadata, "version", version_without_tff)
    assert doctor.examine() == ["tensorflow-federated"]
    *_, finding, remedy = capsys.readouterr().out.splitlines()
    assert finding == "FAILED tensorflow-federated: not installed"
    assert remedy.endswith("Install it: tff-drift install-tff")


def test_python_without_docstrings_is_told():
    process = subprocess.run(
        [sys.executable, "-OO", "-m", "experiments", "doctor"],
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 2
    *_, finding, remedy = process.stdout.splitlines()
    assert finding.endswith("without docstrings, which TensorFlow needs")
    assert remedy.endswith("Leave out -OO, and PYTHONOPTIMIZE=2.")


def test_an_installation_that_fails_is_told(monkeypatch):
    monkeypatch.setattr(install, "_OPTIONS", ["--requirement", "absent.txt"])
    with pytest.raises(RuntimeError, match="TensorFlow Federated was not installed"):
        install.install_tff()


@pytest.mark.parametrize("name", ["tff-pinned.txt", "tff-modern.txt"])
def test_the_lists_of_tff_pin_every_package_with_a_hash_for_any_installer(name):
    folder = install.TFF_REQUIREMENTS.parent
    own = (folder / name).read_text()
    assert "\n-r tff.txt\n" in own
    text = own.replace("-r tff.txt\n", (folder / "tff.txt").read_text())
    lines = [
        line
        for line in text.replace("\\\n", " ").splitlines()
        if not line.startswith("#")
    ]
    assert any(line.startswith("tensorflow-federated==0.87.0 ") for line in lines)
    assert all("==" in line and "--hash=sha256:" in line for line in lines)
    # uv is told of another Python than the one at hand, and would apply its markers.
    assert not any(";" in line for line in lines)


def test_both_environments_hold_tff():
    for name, packages in (
        ("requirements.txt", "tff-pinned.txt"),
        ("requirements-modern.txt", "tff-modern.txt"),
    ):
        text = (programs.ROOT / name).read_text()
        assert f"\n-r tff_drift/install/{packages}\n" in text
    modern = sys.version_info >= (3, 12)
    assert (
        install.TFF_REQUIREMENTS.name == f"tff-{'modern' if modern else 'pinned'}.txt"
    )
