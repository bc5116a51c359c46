"""Clients' states that actors keep: those of one process, whatever is killed."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models
from tests.execution.on_ray.conftest import OPTIONS
from tests.execution.on_ray.test_data import SIZES, assert_close, in_ram
from tests.execution.on_ray.test_failures import datasets, kill_self
from tff_drift import algorithms, execution, simulation
from tff_drift.simulation import callbacks
from tff_drift.simulation.records import checkpoint

METHODS = {
    "scaffold": (algorithms.build_scaffold, {"num_clients": len(SIZES)}),
    "fed_dyn": (algorithms.build_fed_dyn, {"num_clients": len(SIZES)}),
    "adabest": (algorithms.build_adabest, {}),
}
ROUNDS = 4


def build(name="scaffold"):
    build_method, options = METHODS[name]
    return build_method(models.softmax_regression, 0.1, **options)


class Gather(callbacks.Callback):
    """Keeps all states of the last round, and does something after each."""

    def __init__(self, after=lambda round_: None):
        self._after = after

    def before_training(self, run):
        self._store = run.client_states
        return {}

    def after_round(self, round_, state, metrics):
        self.store, self.ids = self._store, self._store.client_ids()
        self.states = self._store.gather(self.ids)
        self._after(round_)
        return {}


def train(
    context, data, name="scaffold", rounds=ROUNDS, after=lambda round_: None, **more
):
    found = Gather(after)
    with tff.framework.get_context_stack().install(context):
        result = simulation.run_training(
            build(name), data, rounds=rounds, cohort_size=5, callbacks=[found], **more
        )
    return result, found


def assert_equal(one, other):
    models.assert_bit_equal(
        one[0].model_weights.trainable, other[0].model_weights.trainable
    )
    assert one[1].ids == other[1].ids
    tf.nest.map_structure(np.testing.assert_array_equal, one[1].states, other[1].states)


@pytest.mark.parametrize("name", METHODS)
def test_states_are_those_of_one_process(two, name):
    ours = train(two, in_ram(batch_size=4), name)
    theirs = train(
        execution.create_local_execution_context(), in_ram(batch_size=4), name
    )
    assert_close(ours[0], theirs[0])
    assert ours[1].ids == theirs[1].ids
    for one, other in zip(ours[1].states, theirs[1].states, strict=True):
        tf.nest.map_structure(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
            one,
            other,
        )
        assert any(np.any(leaf != 0) for leaf in tf.nest.flatten(one))
    assert type(ours[1].store) is not type(theirs[1].store)
    assert_equal(ours, train(two, in_ram(batch_size=4), name))


def test_no_state_is_lost_with_an_actor(two, tmp_path):
    expected = train(two, datasets(tmp_path / "never"))
    context = execution.create_ray_execution_context(**OPTIONS)

    def kill(round_):
        if round_ == 2:
            for actor in context.actors:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(actor["pid"], signal.SIGKILL)

    try:
        found = train(context, datasets(tmp_path / "once", kill_self), after=kill)
    finally:
        context.close()
    assert (tmp_path / "once").exists()
    assert_equal(found, expected)


def test_a_run_goes_on_with_other_actors_from_its_checkpoint(two, tmp_path):
    def stop(round_):
        if round_ == 3:
            raise InterruptedError

    output_dir = simulation.OutputDir(tmp_path / "run", rounds_per_checkpoint=2)
    data = in_ram(batch_size=4)
    with pytest.raises(InterruptedError):
        train(two, data, after=stop, output_dir=output_dir)
    # The states of round 3 are there, but are those of no checkpoint.
    three = execution.create_ray_execution_context(**{**OPTIONS, "num_actors": 3})
    try:
        found = train(three, data, output_dir=output_dir)
    finally:
        three.close()
    whole = train(execution.create_local_execution_context(), data)
    assert_close(found[0], whole[0])
    assert found[1].ids == whole[1].ids
    for one, other in zip(found[1].states, whole[1].states, strict=True):
        np.testing.assert_allclose(
            one["control_variate"], other["control_variate"], rtol=1e-4, atol=1e-6
        )


PROGRAM = """
import sys
from tests.execution.on_ray import test_client_states as tests
from tff_drift import execution, simulation
context = execution.create_ray_execution_context(
    **tests.OPTIONS, object_store_bytes=100 * 2**20
)
tests.train(
    context,
    tests.in_ram(batch_size=4),
    rounds=1000,
    after=lambda round_: print("round", round_, flush=True),
    output_dir=simulation.OutputDir(sys.argv[1], rounds_per_checkpoint=2),
)
"""


def test_a_program_that_is_killed_resumes_with_the_states_of_its_checkpoint(
    two, tmp_path
):
    environment = {
        name: value for name, value in os.environ.items() if "RAY_" not in name
    }
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        lines = iter(program.stdout.readline, "")
        last = f"round {random.randrange(5, 9)}"
        assert any(line.startswith(last) for line in lines)
        time.sleep(random.random() / 10)
    finally:
        program.kill()
        program.wait()
    completed = checkpoint.load_checkpoint(tmp_path / "run" / "checkpoint.npz")
    rounds = completed.rounds_completed + 3
    print(f"Killed after {last}; the checkpoint is of {completed.rounds_completed}.")
    found = train(
        two,
        in_ram(batch_size=4),
        rounds=rounds,
        output_dir=simulation.OutputDir(tmp_path / "run", rounds_per_checkpoint=2),
    )
    assert_equal(found, train(two, in_ram(batch_size=4), rounds=rounds))
