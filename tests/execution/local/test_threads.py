"""Functions that several threads call, and kernels that they cannot share."""

import os
import subprocess
import threading
import time

import pytest
import tensorflow as tf

from tests import tiers
from tests.experiments import programs
from tests.forks.programs import PATIENCE, python
from tff_drift.execution.local.graphs import functions

# Clients whose batches have 1 to 9 rows, which are the channels of a layer
# normalization. Without the lock nearly every run of it crashes.
PROGRAM = """
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tff_drift import algorithms, execution

def build():
    layers = [tf.keras.layers.LayerNormalization(input_shape=(4,))]
    layers += [tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.LayerNormalization()]
    layers += [tf.keras.layers.Dense(2)]
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential(layers),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=(
            tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([None], tf.int32)
        ),
    )

random = np.random.default_rng(1)
clients = [
    [
        (random.normal(size=(rows, 4)).astype(np.float32), np.ones(rows, np.int32))
        for _ in range(40)
    ]
    for rows in (1, 9, 2, 8, 3, 7)
]
process = BUILT
found = []
for threads in (1, 2):
    execution.set_local_execution_context(
        max_concurrent_clients=threads, batch_clients=BATCHED
    )
    state = found[0][0] if found else process.initialize()
    last = state
    for _ in range(4):
        last = process.next(last, clients).state
    weights = process.get_model_weights(last).trainable
    found.append((state, [np.asarray(each) for each in weights]))
for one, two in zip(found[0][1], found[1][1]):
    np.testing.assert_array_equal(one, two)
print("equal")
"""


OURS = "algorithms.build_fed_avg(build, 0.1)"
# A loop over `iter`, which runs as TFF made it.
OF_TFF = """tff.learning.algorithms.build_weighted_fed_avg(
    build,
    tff.learning.optimizers.build_sgdm(0.1),
    loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
)"""


@pytest.mark.no_smoke
@pytest.mark.parametrize(
    ("built", "batched"),
    tiers.first(
        ["vectorized"],
        [(OURS, False), (OURS, True), (OF_TFF, False)],
        ["one by one", "vectorized", "as TFF made it"],
    ),
)
def test_layer_normalization_on_several_threads(built, batched):
    program = PROGRAM.replace("BUILT", built).replace("BATCHED", str(batched))
    outcome = subprocess.run(
        [*python(), "-c", program],
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    assert outcome.stdout.split()[-1] == "equal"


class _Traced:
    """Stands for a TensorFlow function, and tells how many calls there were at once."""

    def __init__(self, make):
        self.graph = tf.Graph()
        with self.graph.as_default():
            make()
        self.most = self._now = 0
        self._lock = threading.Lock()

    def __call__(self):
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.05)
        with self._lock:
            self._now -= 1


def _normalization(data_format):
    def make():
        tf.raw_ops.FusedBatchNormV3(
            x=tf.zeros([1, 2, 3, 4]),
            scale=tf.ones([2 if data_format == "NCHW" else 4]),
            offset=tf.zeros([2 if data_format == "NCHW" else 4]),
            mean=tf.zeros([0]),
            variance=tf.zeros([0]),
            data_format=data_format,
        )

    return make


@pytest.mark.parametrize(
    ("make", "of_clients", "most"),
    [
        (_normalization("NCHW"), False, 1),
        (_normalization("NHWC"), True, 1),
        # The first of the four calls is made before the others.
        (_normalization("NHWC"), False, 3),
        (lambda: tf.zeros([2]), True, 3),
    ],
)
def test_threads_wait_where_they_have_to(make, of_clients, most):
    traced = _Traced(make)
    run = functions.for_threads(traced, of_clients)
    callers = [_started(run) for _ in range(4)]
    for caller in callers:
        caller.join()
    assert traced.most == most


def test_a_first_call_that_fails_is_made_again():
    traced = _Traced(lambda: tf.zeros([2]))
    failures = [ValueError("no memory")]

    def call():
        if failures:
            raise failures.pop()
        return traced()

    call.graph = traced.graph
    run = functions.for_threads(call)
    with pytest.raises(ValueError, match="no memory"):
        run()
    callers = [_started(run) for _ in range(3)]
    for caller in callers:
        caller.join()
    assert traced.most == 2


def _started(run):
    thread = threading.Thread(target=run)
    thread.start()
    return thread


FIRST = """
import tensorflow as tf
from tff_drift import execution
LINES
print(tf.config.threading.get_intra_op_parallelism_threads())
"""


@pytest.mark.parametrize(
    ("lines", "given", "told"),
    [
        ("execution.create_local_execution_context(operation_threads=3)", None, "3\n"),
        # Who asks for what is so already may ask at any time.
        (
            "execution.create_local_execution_context(operation_threads=3)\n"
            "tf.constant(1) + 1\n"
            "execution.create_local_execution_context(operation_threads=3)",
            None,
            "3\n",
        ),
        (
            "tf.constant(1) + 1\n"
            "execution.create_local_execution_context(operation_threads=2)",
            "2",
            "0\n",
        ),
        (
            "tf.constant(1) + 1\n"
            "try:\n"
            "    execution.create_local_execution_context(operation_threads=3)\n"
            "except RuntimeError as error:\n"
            "    print(error)",
            "2",
            "operation_threads=3 comes too late: TensorFlow has run operations "
            "already. Create the context before anything else, or set "
            "TF_NUM_INTRAOP_THREADS=3 in the environment of the program.\n0\n",
        ),
    ],
)
def test_threads_of_operations_are_set_before_the_first(lines, given, told):
    environment = {k: v for k, v in os.environ.items() if k != "TF_NUM_INTRAOP_THREADS"}
    if given:
        environment["TF_NUM_INTRAOP_THREADS"] = given
    process = subprocess.run(
        [*python(), "-c", FIRST.replace("LINES", lines)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (process.stdout, process.returncode) == (told, 0), process.stderr
