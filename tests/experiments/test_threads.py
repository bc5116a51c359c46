"""When a command gives each of TensorFlow's operations one thread."""

import pytest
import tensorflow as tf

from experiments.training import contexts
from tests.experiments.programs import resolve
from tff_drift import execution, system


@pytest.fixture
def asked(monkeypatch):
    """The numbers of threads asked for, on a machine of two processors."""
    numbers = []
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setattr(system, "processors", lambda: 2)
    monkeypatch.setattr(execution, "set_local_execution_context", lambda **_: None)
    monkeypatch.setattr(
        tf.config.threading, "set_intra_op_parallelism_threads", numbers.append
    )
    return numbers


def _set_context(cohort):
    run = resolve(f"--clients_per_round={cohort}")
    contexts.set_execution_context("local", cohort, run.circumstances)


@pytest.mark.parametrize(("cohort", "expected"), [(8, [1]), (7, [])])
def test_one_where_clients_keep_the_processors_busy(asked, cohort, expected):
    _set_context(cohort)
    assert asked == expected


def test_what_the_environment_says_stays(asked, monkeypatch):
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")
    _set_context(8)
    assert asked == []


def test_where_tensorflow_runs_already_it_goes_on_as_it_is(asked, monkeypatch):
    def refuse(number):
        asked.append(number)
        raise RuntimeError("Intra op parallelism cannot be modified")

    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", refuse)
    _set_context(8)
    assert asked == [1]
