"""Run as a program: trains on three logical CPUs, which it names in its log."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
import tensorflow as tf

# Both have to come before TensorFlow is used for the first time.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 3,
)
tf.debugging.set_log_device_placement(True)

import tensorflow_federated as tff  # noqa: E402

from tests import models  # noqa: E402
from tff_drift import algorithms, execution  # noqa: E402


def main():
    process = algorithms.build_fed_avg(models.softmax_regression, 0.3)
    data = models.datasets(models.client_arrays([10, 7, 3], seed=3))
    tff.framework.set_default_context(execution.create_local_execution_context())
    state = process.initialize()
    expected = process.next(state, data)
    execution.set_local_execution_context(
        server_device="/CPU:0", client_devices=["/CPU:1", "/CPU:2"]
    )
    print("placements from here on", flush=True)
    output = process.next(state, data)
    models.assert_bit_equal(
        models.trainable(process, output.state),
        models.trainable(process, expected.state),
    )
    print("done", flush=True)


if __name__ == "__main__":
    main()
