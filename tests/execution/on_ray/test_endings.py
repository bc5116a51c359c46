"""Contexts whose actors have ended, by themselves or with Ray, say so at once."""

import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.execution.local.support import call
from tests.execution.on_ray.conftest import OPTIONS
from tff_drift import compat, execution
from tff_drift.execution.on_ray.actors import Call

total = compat.federated_computation(
    compat.federated_sum, compat.FederatedType(np.int32, compat.CLIENTS)
)


def test_a_closed_context_is_named(instance):
    context = execution.create_ray_execution_context(**OPTIONS)
    context.close()
    context.close()  # As often as one likes.
    with pytest.raises(execution.WorkerError, match="This context is closed"):
        call(context, total, [1, 2, 39])
    with pytest.raises(execution.WorkerError, match="This context is closed"):
        context.ask_actors()
    with pytest.raises(execution.WorkerError, match="This context is closed"):
        context.open_client_states({"seen": np.zeros(2, np.float32)})


def test_a_computation_that_takes_no_clients_has_the_default_number(instance):
    half = compat.tf_computation(lambda: np.float32(0.5))
    at_clients = compat.federated_computation(
        lambda: compat.federated_eval(half, compat.CLIENTS)
    )
    context = execution.create_ray_execution_context(**OPTIONS, default_num_clients=3)
    try:
        assert call(context, at_clients) == [0.5] * 3
        assert call(context, total, [1, 2]) == 3
        assert call(context, total, []) == 0
    finally:
        context.close()
    with pytest.raises(ValueError, match="default_num_clients must be at least 0"):
        execution.create_ray_execution_context(default_num_clients=-1)


@pytest.fixture
def default_as_before():
    """TFF's default context is after a test what it was before."""
    former = compat.default_context()
    yield
    compat.framework.set_default_context(former)


@pytest.mark.usefixtures("default_as_before")
def test_a_default_context_gives_way_to_the_next(instance):
    # There is no room for both.
    processors = int(instance.cluster_resources()["CPU"]) - 0.5
    options = {"num_actors": 1, "processors": processors}
    execution.set_ray_execution_context(**options, start_seconds=120.0)
    first = compat.default_context()
    try:
        # Mistakes in the options leave it as it was.
        for wrong, kind in (
            ({"num_actors": 0}, ValueError),
            ({"num_actor": 1}, TypeError),
            ({"address": "203.0.113.9:6379"}, execution.WorkerError),
            ({"num_actors": 1, "processors": 1000}, execution.WorkerError),
        ):
            with pytest.raises(kind):
                execution.set_ray_execution_context(**wrong)
        assert compat.default_context() is first
        assert total([1, 2, 39]) == 42
        execution.set_ray_execution_context(**options, start_seconds=60.0)
        assert total([3, 4]) == 7
        with pytest.raises(execution.WorkerError, match="This context is closed"):
            first.ask_actors()
        with pytest.raises(execution.WorkerError, match=r"default context.* is closed"):
            execution.set_ray_execution_context(**options, start_seconds=0.001)
        with pytest.raises(execution.WorkerError, match="This context is closed"):
            total([3, 4])
    finally:
        first.close()
        compat.default_context().close()


def compute_after_ray_ended():
    """Prints what a program sees that ends Ray, and then Ray's instance."""
    options = {**OPTIONS, "object_store_bytes": 100 * 2**20}
    execution.set_ray_execution_context(**options)
    print("at first", total([1, 2, 39]), flush=True)
    import ray

    context = compat.get_context_stack().current
    ray.shutdown()
    for calling in (lambda: total([1, 2, 39]), context.ask_actors):
        try:
            calling()
        except execution.WorkerError as error:
            print(error, flush=True)
    print("Ray runs:", ray.is_initialized(), flush=True)
    # Another instance, on which the old actors are not to be looked for.
    execution.set_ray_execution_context(**options)
    print("then", total([3, 4]), flush=True)
    try:
        context.invoke(total, [3, 4])
    except execution.WorkerError as error:
        print("old context:", error, flush=True)
    context.close()
    tell_what_actors_miss(compat.get_context_stack().current)
    ray.shutdown()


def tell_what_actors_miss(context):
    actors = context._actors
    actors.tell([Call(0, "forget", (f"key {number}",)) for number in range(400)])
    context.close()
    time.sleep(4)  # Ray would say so after a second or two.


@pytest.mark.no_smoke
def test_without_ray_a_context_starts_no_other_instance():
    pytest.importorskip("ray", reason="Ray, the optional extra, is not installed")
    environment = {
        name: value for name, value in os.environ.items() if "RAY_" not in name
    }
    found = subprocess.run(
        [sys.executable, "-m", __name__],
        cwd=pathlib.Path(__file__).parents[3],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = found.stdout.splitlines()
    assert lines[0] == "at first 42", found.stderr
    assert [each.partition(",")[0] for each in lines[1:4]] == [
        "Ray ended",
        "Ray ended",
        "Ray runs: False",
    ], found.stderr
    assert lines[4] == "then 7", found.stderr
    assert lines[5].startswith("old context: ")
    assert "Set another one by" in lines[5]
    assert "Actor.forget" not in found.stdout + found.stderr


if __name__ == "__main__":
    compute_after_ray_ended()
