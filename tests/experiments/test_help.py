"""Help: what matters first, and everything when it is asked for."""

import pytest

from experiments.flags import declarations


@pytest.mark.parametrize("command", ["train", "compare", "sweep"])
@pytest.mark.parametrize("form", ["{} --help", "{} --rounds=5 -h", "help {}"])
def test_help_on_a_command_is_short(run_command, command, form):
    outcome = run_command(*form.format(command).split())
    assert outcome.status == 0
    assert outcome.stdout.startswith(f"usage: tff-drift {command}")
    for flag in ("task", "rounds", "client_learning_rate", "output_dir", "help-all"):
        assert f"\n  --{flag}" in outcome.stdout
    assert "--clipping_quantile" not in outcome.stdout
    lines = outcome.stdout.splitlines()
    # A sweep has flags of its own.
    assert len(lines) <= (80 if command == "sweep" else 61)
    assert max(map(len, lines)) <= 88


@pytest.mark.parametrize("command", ["train", "compare"])
@pytest.mark.parametrize("form", ["{} --help-all", "{} --rounds=5 --help-all"])
def test_help_shows_all_flags_when_asked_for(run_command, command, form):
    outcome = run_command(*form.format(command).split())
    assert outcome.status == 0
    for flag in declarations.flags_of(command):
        assert f"\n  --{flag}" in outcome.stdout
    assert max(map(len, outcome.stdout.splitlines())) <= 88
