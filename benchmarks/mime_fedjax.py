"""Mime and MimeLite beside FedJAX's, on the same batches.

    FEDJAX_PYTHON benchmarks/mime_fedjax.py FILE.npz
    python benchmarks/mime_fedjax.py FILE.npz --compare

The first runs in an environment of FedJAX's own (`pip install fedjax`), trains a
softmax regression by FedJAX's `mime` and `mime_lite`, with momentum and with Adam for
their base optimizers, and keeps every client's batches and every round's weights. The
second trains this library's on these batches, and tells the largest difference of a
weight. Adam has nearly no ε: the two add it at other places.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

ROUNDS, COHORT, BATCH, FEATURES, CLASSES = 5, 4, 8, 12, 5
RATE, MOMENTUM, EPSILON = 0.05, 0.9, 1e-12
METHODS, BASES = ("mime", "mime_lite"), ("momentum", "adam")


def clients() -> list[dict[str, np.ndarray]]:
    """Returns clients of unequal sizes, whose examples follow models of their own.

    Sizes are whole batches: FedJAX fills the last one with examples it has had.
    """
    random = np.random.default_rng(7)
    made = []
    for size in (BATCH * batches for batches in (1, 5, 2, 1, 4, 3)):
        x = random.normal(size=(size, FEATURES)).astype(np.float32)
        model = random.normal(size=(FEATURES, CLASSES))
        made.append({"x": x, "y": np.argmax(x @ model, axis=1).astype(np.int32)})
    return made


def cohort(round_number: int) -> list[int]:
    """Returns the clients of a round."""
    drawn = np.random.default_rng(round_number).permutation(len(clients()))[:COHORT]
    return [int(client) for client in drawn]


def of_fedjax(path: str) -> None:
    """Trains by FedJAX, and writes batches and weights."""
    import jax

    # FedJAX 0.0.17 calls names that JAX has dropped.
    jax.tree_map, jax.tree_leaves = jax.tree_util.tree_map, jax.tree_util.tree_leaves
    jax.numpy.NINF = -jax.numpy.inf
    import fedjax

    def loss(params: Any, batch: Any, rng: Any) -> Any:
        del rng
        logits = jax.nn.log_softmax(batch["x"] @ params["w"] + params["b"])
        return -jax.numpy.take_along_axis(logits, batch["y"][:, None], axis=1)[:, 0]

    bases = {
        "momentum": fedjax.optimizers.sgd(RATE, MOMENTUM),
        "adam": fedjax.optimizers.adam(RATE, eps=EPSILON),
    }
    batching = fedjax.ShuffleRepeatBatchHParams(BATCH, num_epochs=1, seed=3)
    whole = fedjax.PaddedBatchHParams(batch_size=64)
    data = [fedjax.ClientDataset(each) for each in clients()]
    kept = {
        f"batch/{client}/{step}/{name}": batch[name]
        for client, each in enumerate(data)
        for step, batch in enumerate(each.shuffle_repeat_batch(batching))
        for name in ("x", "y")
    }
    start = np.random.default_rng(1).normal(size=(FEATURES, CLASSES))
    for method in METHODS:
        builder = getattr(getattr(fedjax.algorithms, method), method)
        for base in BASES:
            algorithm = builder(loss, bases[base], batching, whole, 1.0)
            params = {
                "w": jax.numpy.asarray(start, "float32"),
                "b": jax.numpy.zeros(CLASSES),
            }
            state = algorithm.init(params)
            for round_number in range(ROUNDS):
                chosen = [
                    (b"%d" % client, data[client], jax.random.PRNGKey(client))
                    for client in cohort(round_number)
                ]
                state, _ = algorithm.apply(state, chosen)
                for name, value in state.params.items():
                    kept[f"{method}/{base}/{round_number}/{name}"] = np.asarray(value)
    np.savez(path, start=start.astype(np.float32), **kept)


def compare(path: str) -> None:
    """Trains by this library on FedJAX's batches, and prints the differences."""
    import tff_drift  # noqa: F401 (before TensorFlow Federated)

    # isort: split
    import tensorflow as tf
    import tensorflow_federated as tff

    from tff_drift import algorithms, execution

    found = dict(np.load(path))
    spec = (
        tf.TensorSpec([None, FEATURES], tf.float32),
        tf.TensorSpec([None], tf.int32),
    )

    def model_fn() -> tff.learning.models.VariableModel:
        initializer = tf.keras.initializers.Constant(found["start"])
        net = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(
                    CLASSES, kernel_initializer=initializer, input_shape=[FEATURES]
                )
            ]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return tff.learning.models.from_keras_model(net, loss, spec)

    def batches(client: int) -> tf.data.Dataset:
        steps = sum(key.startswith(f"batch/{client}/") for key in found) // 2

        def generate() -> Any:
            for step in range(steps):
                yield tuple(found[f"batch/{client}/{step}/{name}"] for name in "xy")

        return tf.data.Dataset.from_generator(generate, output_signature=spec)

    execution.set_local_execution_context()
    bases = {
        "momentum": tff.learning.optimizers.build_sgdm(RATE, MOMENTUM),
        "adam": tff.learning.optimizers.build_adam(RATE, epsilon=EPSILON),
    }
    builders = {"mime": algorithms.build_mime, "mime_lite": algorithms.build_mime_lite}
    for method in METHODS:
        for base in BASES:
            process = builders[method](model_fn, bases[base])
            state, worst, moved = process.initialize(), 0.0, 0.0
            for number in range(ROUNDS):
                data = [batches(client) for client in cohort(number)]
                state = process.next(state, data).state
                kernel, bias = state.global_model_weights.trainable
                for name, ours in (("w", kernel), ("b", bias)):
                    theirs = found[f"{method}/{base}/{number}/{name}"]
                    worst = max(worst, float(np.abs(ours - theirs).max()))
                moved = float(np.abs(kernel - found["start"]).max())
            print(f"{method}, {base}: {worst:.1e} after a way of {moved:.2f}")


if __name__ == "__main__":
    (compare if "--compare" in sys.argv else of_fedjax)(sys.argv[1])
