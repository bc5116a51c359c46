import io
import sys
import types
import warnings

import pytest
import rich.console
from absl import logging

from tff_drift.simulation.callbacks import Progress

ROW = {"round": 3, "train_loss": 0.51234, "train_accuracy": 0.875}


def _console(terminal):
    return rich.console.Console(
        file=io.StringIO(), force_terminal=terminal, width=80, color_system=None
    )


def _begin(shown, rounds, rounds_completed=0):
    run = types.SimpleNamespace(rounds=rounds, rounds_completed=rounds_completed)
    shown.before_training(run)


def _run(shown, rounds=4):
    _begin(shown, rounds)
    for round_ in range(rounds + 1):
        row = {**ROW, "round": round_}
        if round_ == 2:
            row["test_accuracy"] = 0.75
        shown.after_row(row)
    shown.after_training(None)


@pytest.fixture
def lines(monkeypatch):
    logged = []
    monkeypatch.setattr(
        logging, "info", lambda message, *values: logged.append(message % values)
    )
    return logged


def test_bar_shows_round_loss_accuracy_and_speed_on_a_terminal():
    console = _console(terminal=True)
    _run(Progress(console=console))
    text = console.file.getvalue()
    assert "4/4" in text
    assert "loss 0.512" in text
    assert "accuracy 0.875" in text
    # Known since round 2 and still shown.
    assert "test 0.75" in text
    assert "rounds/s" in text
    # One line holds it all.
    [last_line] = [line for line in text.splitlines() if "4/4" in line][-1:]
    assert "accuracy 0.875" in last_line
    assert "rounds/s" in last_line


def test_bar_begins_where_the_run_was():
    console = _console(terminal=True)
    shown = Progress(console=console)
    _begin(shown, 10, 7)
    shown.after_training(None)
    assert "7/10" in console.file.getvalue()


def test_headline_metric_has_any_name():
    console = _console(terminal=True)
    shown = Progress(accuracy_metric="recall", console=console)
    _begin(shown, 1)
    shown.after_row({"round": 1, "train_recall": 0.25})
    shown.after_training(None)
    assert "recall 0.25" in console.file.getvalue()


def test_no_terminal_gives_nothing_but_a_few_log_lines(lines):
    console = _console(terminal=False)
    _run(Progress(console=console), rounds=100)
    assert console.file.getvalue() == ""
    assert len(lines) == 20
    assert lines[0] == "round 5/100  loss 0.512  accuracy 0.875"


def test_false_shows_nothing_even_on_a_terminal(lines):
    console = _console(terminal=True)
    _run(Progress(False, console=console))
    assert console.file.getvalue() == ""
    assert lines == []


def test_true_draws_without_a_terminal():
    console = _console(terminal=False)
    _run(Progress(True, console=console))
    assert "4/4" in console.file.getvalue()


@pytest.fixture
def notebook(monkeypatch):
    """What a notebook without ipywidgets shows: each drawing of its outputs."""
    drawings = []

    def draw(table):
        console = rich.console.Console(
            file=io.StringIO(), force_jupyter=False, width=80, color_system=None
        )
        console.print(table)
        drawings.append(console.file.getvalue())

    def display(table, display_id):
        assert display_id is True
        draw(table)
        return types.SimpleNamespace(update=draw)

    module = types.SimpleNamespace(display=display)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(display=module))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    return drawings


def test_a_notebook_needs_no_widgets(notebook):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _run(Progress())
    assert "0/4" in notebook[0]
    for text in ("4/4", "loss 0.512", "accuracy 0.875", "test 0.75", "rounds/s"):
        assert text in notebook[-1]


def test_a_notebook_is_not_drawn_for_every_round(notebook):
    _run(Progress(), rounds=500)
    assert len(notebook) < 50
    assert "500/500" in notebook[-1]
