"""What `tff-drift list` shows."""

import subprocess
import sys

import tasks
from experiments.flags import declarations
from experiments.presets.catalogue import PRESETS
from tests.experiments import programs
from tests.forks.programs import PATIENCE
from tff_drift import from_source, module_source


def test_list_shows_every_name_on_one_screen(run_command):
    outcome = run_command("list")
    assert outcome.status == 0
    lines = outcome.stdout.splitlines()
    assert len(lines) < 60
    assert max(map(len, lines)) <= 88
    for name in (*tasks.names(), *from_source.methods()):
        assert f"\n  {name} " in outcome.stdout
    words = set(outcome.stdout.replace(",", " ").split())
    assert set(PRESETS) <= words


def test_list_of_a_name_shows_all_of_it(run_command):
    names = (*tasks.names(), *from_source.methods(), *PRESETS)
    listed = run_command("list", *names).stdout
    for algorithm in from_source.methods().values():
        assert algorithm.url in listed
    for flag in declarations.flags_of("train").values():
        if flag.of:
            assert f"--{flag.name}=" in listed
    for preset in PRESETS.values():
        assert all(part in listed for part in preset.local.parts)
    assert listed.count("Needs no files.") == 2
    assert "Needs emnist_all.sqlite. --synthetic tries it without." in listed


def test_list_of_one_kind(run_command):
    assert "fed_adam" not in run_command("list", "tasks").stdout
    assert "Dirichlet" not in run_command("list", "algorithms").stdout
    presets = run_command("list", "presets").stdout
    for name in PRESETS:
        assert f"\n  {name} " in presets
    outcome = run_command("list", "task")
    assert outcome.status == 2
    assert outcome.stderr == (
        "tff-drift: error: unknown name 'task'. Did you mean tasks?\n"
    )


def test_a_spec_that_cannot_be_read_is_one_line(run_command, monkeypatch):
    def read():
        raise module_source.UnreadableError("mine.py:3: NameError: no 'x'.")

    monkeypatch.setattr(from_source, "read", read)
    outcome = run_command("list")
    assert outcome.status == 1
    assert outcome.stderr == "tff-drift: error: mine.py:3: NameError: no 'x'.\n"
    assert run_command("--version").status == 0


def test_a_reader_that_has_seen_enough():
    process = subprocess.run(
        f"{sys.executable} -m experiments list | head -n 1",
        shell=True,
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert process.stdout.startswith("Tasks (--task)")
    assert process.stderr == ""
