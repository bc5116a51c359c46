"""Workers that die, stop or never were: another one steps in, or a clear error."""

import os
import signal
import socket
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.execution.local.support import call
from tests.execution.remote.conftest import addresses_of
from tff_drift import compat, execution

# How long a test waits for what should take a second or two.
PATIENCE = 60.0
FLOATS = compat.FederatedType(np.float32, compat.CLIENTS)
VALUES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]


@compat.federated_computation(FLOATS)
def total(values):
    return compat.federated_sum(values)


def start(context, values):
    """Computes the total in a thread, so that things can happen meanwhile."""
    outcome = {}

    def run():
        try:
            outcome["result"] = call(context, total, values)
        except execution.WorkerError as error:
            outcome["error"] = str(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


@pytest.mark.parametrize("signals", [[signal.SIGKILL], []])
def test_another_worker_steps_in_with_the_same_numbers(start_workers, signals):
    workers = start_workers(3)
    context = execution.create_remote_execution_context(
        addresses_of(workers),
        # A stopped worker is found by its silence, a killed one at once.
        heartbeat_seconds=PATIENCE if signals else 1.0,
    )
    expected = call(context, total, VALUES)
    np.testing.assert_allclose(expected, sum(VALUES), rtol=1e-6)
    # A stopped worker cannot finish its part before it is killed.
    os.kill(workers[1].pid, signal.SIGSTOP)
    thread, outcome = start(context, VALUES)
    time.sleep(0.5)
    for each in signals:
        os.kill(workers[1].pid, each)
    thread.join(PATIENCE)
    assert outcome == {"result": expected}
    # And from then on without it.
    assert call(context, total, VALUES) == expected


def test_a_worker_that_comes_back_is_used_again(start_workers):
    first, second = start_workers(2)
    context = execution.create_remote_execution_context(
        addresses_of([first, second]), connect_seconds=PATIENCE
    )
    expected = call(context, total, VALUES)
    for worker in (first, second):
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
    # None is left: the context waits for one.
    thread, outcome = start(context, VALUES)
    time.sleep(0.5)
    start_workers(1, [second.port])
    thread.join(PATIENCE)
    assert outcome == {"result": expected}


def test_without_any_worker_left_there_is_an_error_that_names_them(start_workers):
    workers = start_workers(2)
    context = execution.create_remote_execution_context(
        addresses_of(workers), connect_seconds=5.0
    )
    for worker in workers:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
    begin = time.monotonic()
    with pytest.raises(execution.WorkerError, match="No worker is left") as error:
        call(context, total, VALUES)
    assert time.monotonic() - begin < PATIENCE
    for address in addresses_of(workers):
        assert address in str(error.value)


def test_a_part_that_takes_too_long_is_an_error(start_workers):
    [worker] = start_workers(1)
    context = execution.create_remote_execution_context(
        addresses_of([worker]), part_seconds=1.0, max_retries=0
    )
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(execution.WorkerError, match="its part within 1 seconds"):
        call(context, total, VALUES)


def test_a_long_computation_shows_life(start_workers):
    [worker] = start_workers(1)
    context = execution.create_remote_execution_context(
        addresses_of([worker]), heartbeat_seconds=0.5, max_retries=0
    )

    @compat.tf_computation(np.int32)
    def count(number):
        return tf.while_loop(
            lambda i: i < number, lambda i: [i + 1], [0], parallel_iterations=1
        )[0]

    @compat.federated_computation(compat.FederatedType(np.int32, compat.CLIENTS))
    def count_all(numbers):
        return compat.federated_sum(compat.federated_map(count, numbers))

    number = 500_000
    seconds = 0.0
    while seconds < 0.8:
        begin = time.monotonic()
        assert call(context, count_all, [number]) == number
        seconds = time.monotonic() - begin
        number *= 2


def test_workers_that_do_not_answer_are_named_before_anything_runs(start_workers):
    [worker] = start_workers(1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        missing = f"127.0.0.1:{silent.getsockname()[1]}"
        begin = time.monotonic()
        with pytest.raises(execution.WorkerError) as error:
            execution.create_remote_execution_context(
                [*addresses_of([worker]), missing, "no-such-host.invalid:8000"],
                connect_seconds=2.0,
            )
    assert time.monotonic() - begin < PATIENCE
    message = str(error.value)
    assert f"No worker answered at {missing} within 2 seconds" in message
    assert "no-such-host.invalid:8000" in message
    assert addresses_of([worker])[0] not in message
    assert "python -m tff_drift.execution.start_worker" in message


@pytest.mark.parametrize(
    ("addresses", "kind", "message"),
    [
        ([], ValueError, "at least one"),
        ("localhost:8000", TypeError, "must be a list"),
        ([8000], TypeError, "found 8000"),
        (["localhost"], ValueError, "found 'localhost'"),
        (["localhost:"], ValueError, "'host:port'"),
        (["http://localhost:8000"], ValueError, "'http://localhost:8000'"),
        (["localhost:0"], ValueError, "from 1 to 65535"),
        (["localhost:65536"], ValueError, "from 1 to 65535"),
        (["fe80::1:8000"], ValueError, "'host:port'"),
        (["a:1", "b:1", "a:1"], ValueError, "'a:1' more than once"),
    ],
)
def test_bad_addresses_are_refused(addresses, kind, message):
    with pytest.raises(kind, match=message):
        execution.create_remote_execution_context(addresses)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connect_seconds", 0.0),
        ("heartbeat_seconds", -1.0),
        ("part_seconds", float("nan")),
        ("max_retries", -1),
    ],
)
def test_bad_limits_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        execution.create_remote_execution_context(["localhost:8000"], **{name: value})
