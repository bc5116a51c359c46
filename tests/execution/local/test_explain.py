"""What the local context says of itself."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_drift
from tests import models, tiers
from tests.execution.local.support import call, training
from tff_drift import execution, system
from tff_drift.execution.local import phases
from tff_drift.execution.local.runners import sequential

CLIENTS = tff.CLIENTS


@pytest.mark.no_smoke
def test_a_round_is_told_phase_by_phase():
    process = models.fed_avg()
    context = execution.create_local_execution_context(
        server_device="/CPU:0", client_devices=["/CPU:0"], max_concurrent_clients=3
    )
    data = models.datasets(models.client_arrays([8] * 10))
    told = context.explain(process.next, (call(context, process.initialize), data))
    lines = told.splitlines()
    assert lines[:4] == [
        "2 phases, 10 clients",
        "server: on /CPU:0",
        "clients: on /CPU:0, 3 at a time unless said otherwise",
        "phase 1",
    ]
    assert lines[6:8] == [
        "    vectorized in lockstep: 20 steps come in 2 lockstep steps, at least 4 "
        "together on average",
        "      clients 0 to 9: 2 steps of 10 clients",
    ]
    # Loss and accuracy; clients rejected; the pseudo-gradients; their weights.
    assert any(
        line.startswith("  aggregation ")
        and line.endswith(": summed, <float32[3,4],float32[4]>")
        for line in lines
    )
    assert lines[-2] == "phase 2"
    assert lines[-1].startswith("  server: one function of ")


def test_without_an_argument_the_condition_is_told(fast):
    process = models.fed_avg()
    assert fast.explain(process.next).startswith("2 phases, argument not given\n")
    assert training(fast, process.next) == [
        "vectorized in lockstep or one by one: vectorized if there are at least 4 "
        "clients, or 40 steps, and state and convolutions are small"
    ]


def test_computations_without_clients_are_one_phase_of_the_server(fast):
    process = models.fed_avg()
    told = fast.explain(process.initialize).splitlines()
    assert told[0] == "1 phase, 0 clients"
    assert told[3] == "phase 1"
    assert [line for line in told if "clients:" in line] == [told[2]]


def _map(function):
    return tff.federated_computation(
        lambda x: tff.federated_map(function, x),
        tff.FederatedType(function.type_signature.parameter, CLIENTS),
    )


SUM = tff.tensorflow.computation(
    lambda data: data.reduce(tf.constant(0), lambda total, x: total + x),
    tff.SequenceType(np.int32),
)
DRAW = tff.tensorflow.computation(
    lambda data: (
        data.reduce(
            tf.constant(0),
            lambda total, x: total + tf.random.uniform([], maxval=x, dtype=tf.int32),
        )
        + tf.random.uniform([], maxval=5, seed=3, dtype=tf.int32)
    ),
    tff.SequenceType(np.int32),
)


@pytest.mark.parametrize(
    ("function", "value", "reason"),
    [
        (
            tff.tensorflow.computation(lambda x: x + 1, np.int32),
            1,
            "the clients bring no datasets",
        ),
        (
            DRAW,
            [1],
            "the clients share a seeded stream of random numbers, or a named resource, "
            "and use it in their order",
        ),
        (
            SUM,
            [1, 2],
            "4 steps come in 2 lockstep steps, fewer than 4 together on average",
        ),
    ],
)
def test_reasons_not_to_stack(function, value, reason, fast):
    assert training(fast, _map(function), [value, value]) == [f"one by one: {reason}"]


def test_a_reason_of_another_library_is_short(monkeypatch):
    def fail(function):
        raise ValueError("long " * 2_000)

    monkeypatch.setattr(sequential, "_functionalized", fail)
    context = execution.create_local_execution_context(max_concurrent_clients=1)
    told = context.explain(_map(SUM), [[1, 2], [1, 2]])
    (line,) = (each for each in told.splitlines() if "as TFF's graph" in each)
    assert "ValueError: long long" in line
    assert len(line) < 500


def test_explaining_runs_nothing_and_is_what_a_run_does(fast):
    @tff.tensorflow.computation(np.int32)
    def fail(x):
        with tf.control_dependencies([tf.debugging.Assert(False, ["it has run"])]):
            return tf.identity(x)

    assert "clients:" in fast.explain(_map(fail), [1, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="it has run"):
        call(fast, _map(fail), [1, 2])


def test_explaining_refuses_what_a_run_refuses(fast):
    with pytest.raises(TypeError, match="int32"):
        fast.explain(_map(tff.tensorflow.computation(lambda x: x, np.int32)), ["a"])
    with pytest.raises(NotImplementedError, match=r"tff\.jax"):
        fast.explain(tff.jax.computation(lambda x: x + 1, np.int32))


def test_the_asynchronous_context_explains_too():
    context = execution.create_async_local_execution_context(server_device="/CPU:0")
    told = context.explain(tff.tensorflow.computation(lambda: 1))
    assert told.splitlines()[:2] == ["1 phase, 0 clients", "server: on /CPU:0"]


@pytest.mark.documents
def test_the_document_shows_what_is_told(capsys):
    text = (pathlib.Path(__file__).parents[3] / "docs" / "execution.md").read_text()
    section = text[text.index("### What it will do") :]
    code, shown = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)[:2]
    process = models.fed_avg()
    names = {
        "tff_drift": tff_drift,
        "process": process,
        "state": process.initialize(),
        "data": models.datasets(models.client_arrays([8] * 20 + [5])),
    }
    exec(code, names)
    lines = capsys.readouterr().out.splitlines()
    # The document shortens what is wider than its column.
    for line, in_document in zip(lines, shown.splitlines(), strict=True):
        assert re.fullmatch(re.escape(in_document).replace(r"\.\.\.", ".*"), line)


ADVICE = (
    "{} keep the 2 processors busy, and TensorFlow splits each operation among these "
    "besides: operation_threads=1, which the context takes before TensorFlow's first "
    "operation, saves that"
)


@pytest.mark.parametrize(
    ("clients", "options", "advice"),
    tiers.first(
        [0, 3],
        [
            (16, {"limits": execution.Limits(many_clients=8)}, "2 groups"),
            (16, {"limits": execution.Limits(many_clients=16)}, None),
            (8, {"batch_clients": False}, "8 clients"),
            (7, {"batch_clients": False}, None),
            (8, {"batch_clients": False, "max_concurrent_clients": 1}, None),
        ],
    ),
)
def test_one_thread_for_each_operation_is_named_where_it_pays(
    monkeypatch, clients, options, advice
):
    monkeypatch.setattr(system, "processors", lambda: 2)
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS")
    context = execution.create_local_execution_context(**options)
    process = models.fed_avg()
    data = models.datasets(models.client_arrays([8] * clients))
    argument = call(context, process.initialize), data
    told = training(context, process.next, *argument)
    advised = [line for line in told if "operation_threads" in line]
    assert advised == ([ADVICE.format(advice)] if advice else [])
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
    told = training(context, process.next, *argument)
    assert not [line for line in told if "operation_threads" in line]


def test_a_slow_round_names_it_once(monkeypatch, caplog):
    monkeypatch.setattr(system, "processors", lambda: 2)
    monkeypatch.setattr(phases, "_SLOW_SECONDS", 0)
    context = execution.create_local_execution_context(batch_clients=False)
    process = models.fed_avg()
    data = models.datasets(models.client_arrays([8] * 8))
    state = call(context, process.initialize)
    call(context, process.next, state, data)
    assert not caplog.messages
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS")
    for _ in range(2):
        call(context, process.next, state, data)
    assert caplog.messages == [f"A faster round: {ADVICE.format('8 clients')}."]
