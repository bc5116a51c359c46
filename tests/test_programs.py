"""The programs beside the library, found in a checkout and in an installation."""

import shutil
import subprocess
import sys
import sysconfig

import pytest

from tests.experiments import programs
from tests.forks.programs import PATIENCE

ASK = """
import tff_drift.programs
tff_drift.programs.add_to_path()
import tasks, experiments
print(tasks.__file__)
"""


@pytest.fixture
def installation(tmp_path):
    """The folders as the wheel lays them out."""
    library = tmp_path / "tff_drift"
    shutil.copytree(programs.ROOT / "tff_drift", library)
    for name in ("tasks", "experiments"):
        ignore = shutil.ignore_patterns("results")
        shutil.copytree(
            programs.ROOT / name, library / "_programs" / name, ignore=ignore
        )
    return tmp_path


def run_in(folder, code, *flags):
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_a_checkout_has_them_at_its_top():
    process = run_in(programs.ROOT, ASK)
    assert process.stdout.strip() == str(programs.ROOT / "tasks" / "__init__.py")


def test_an_installation_has_them_in_a_folder_of_its_own(installation):
    folder = installation / "tff_drift" / "_programs"
    process = run_in(installation, ASK)
    assert process.stdout.strip() == str(folder / "tasks" / "__init__.py")
    command = "from tff_drift import programs; programs.run()"
    process = run_in(installation, command)
    assert process.stdout.startswith("tff-drift: "), process.stderr


def test_a_package_of_the_same_name_is_reported(installation):
    (installation / "tasks.py").write_text("")
    process = run_in(installation, f"import tasks\n{ASK}")
    assert process.stderr.splitlines()[-1].startswith(
        f"ImportError: the name 'tasks' is taken by {installation / 'tasks.py'}"
    )


def test_the_tasks_of_an_installation_are_found_after_tff_drift(installation):
    packages = sysconfig.get_paths()["purelib"]
    code = f"""
import sys; sys.path.append({packages!r})
import tff_drift, tasks
print(tasks.__file__)
"""
    # Without the checkout, which this environment's site module puts on the path.
    process = run_in(installation, code, "-S")
    expected = installation / "tff_drift" / "_programs" / "tasks" / "__init__.py"
    assert process.stdout.strip() == str(expected), process.stderr


def test_the_command_takes_its_own_before_a_users(installation):
    (installation / "tasks.py").write_text("")
    process = run_in(installation, ASK)
    expected = installation / "tff_drift" / "_programs" / "tasks" / "__init__.py"
    assert process.stdout.strip() == str(expected), process.stderr


def test_a_module_of_the_users_own_comes_first(installation):
    (installation / "tasks.py").write_text("")
    code = "import tff_drift, tasks; print(tasks.__file__)"
    process = run_in(installation, code)
    assert process.stdout.strip() == str(installation / "tasks.py")


def test_the_end_of_a_program_does_what_is_registered_and_no_more():
    code = """
import atexit
from tff_drift import programs

class Kept:
    def __del__(self):
        print("taken apart")

kept = Kept()
atexit.register(print, "registered")
print("printed")
programs.end(3)
"""
    process = run_in(programs.ROOT, code)
    assert process.returncode == 3, process.stderr
    assert process.stdout.split() == ["printed", "registered"]
