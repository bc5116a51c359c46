"""What federated fine-tuning of a frozen transformer costs, against Keras' `fit`.

    python benchmarks/fine_tuning.py [--sizes 30,100] [--rounds 5] [--at_a_time 1]

On Python 3.12 or 3.13, under the local context. A BERT-like encoder of Keras' own
layers, with random weights, is frozen but for LoRA adapters of rank 4 and its head. Two
programs of their own take the same steps, on the same batches: `fit` of Keras with SGD,
and rounds of SCAFFOLD with two clients, one after the other unless `--at_a_time` says
otherwise: each that trains needs the RAM of a step of `fit`. Each program reports the
processor's time that it took, the first steps and later ones apart, and the most RAM
that it had, in all and without the pages of files, which are those of the libraries.
The federated one also reports what its checkpoints, its clients' states and its
messages are in bytes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_RANK, _CLASSES, _TOKENS, _BATCH = 4, 20, 64, 8
_CLIENTS, _COHORT, _STEPS, _RATE = 4, 2, 3, 0.01
# By millions of weights: vocabulary, width, hidden units, blocks, heads.
_SIZES = {
    3: (4_000, 256, 1024, 3, 4),
    30: (10_000, 512, 2048, 8, 8),
    100: (20_000, 768, 3072, 12, 12),
}


def _build_keras_model(size: int) -> Any:
    """Returns an encoder of which adapters and a head train alone."""
    import keras

    vocabulary, width, hidden, blocks, heads = _SIZES[size]
    layers = keras.layers
    keras.utils.set_random_seed(1)
    tokens = layers.Input([_TOKENS], dtype="int32")
    values = layers.Embedding(vocabulary, width)(tokens)
    for _ in range(blocks):
        attention = layers.MultiHeadAttention(heads, width // heads)
        values = layers.LayerNormalization()(values + attention(values, values))
        units = layers.Dense(hidden, activation="gelu")(values)
        units = layers.Dense(width)(units)
        values = layers.LayerNormalization()(values + units)
    pooled = layers.GlobalAveragePooling1D()(values)
    encoder = keras.Model(tokens, pooled)
    for layer in encoder.layers:
        layer.trainable = isinstance(layer, layers.MultiHeadAttention)
        if layer.trainable:
            layer.key_dense.trainable = layer.output_dense.trainable = False
            for each in (layer.query_dense, layer.value_dense):
                each.bias.trainable = False
                each.enable_lora(_RANK)
    inputs = layers.Input([_TOKENS], dtype="int32")
    head = layers.Dense(_CLASSES)(encoder(inputs))
    return keras.Model(inputs, head)


def _examples(size: int) -> dict[str, Any]:
    import numpy as np

    random = np.random.default_rng(1)
    count = _STEPS * _BATCH
    return {
        f"client {each}": (
            random.integers(0, _SIZES[size][0], [count, _TOKENS], np.int32),
            random.integers(0, _CLASSES, count, np.int32),
        )
        for each in range(_CLIENTS)
    }


def _ram() -> dict[str, int]:
    """Returns the most RAM so far, and what of the present one is of no file."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    (own,) = (line.split()[1] for line in lines if line.startswith("RssAnon:"))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"ram": most * 1024, "ram of no file": int(own) * 1024}


def _counts(keras_model: Any) -> dict[str, int]:
    import numpy as np

    trained = sum(int(np.prod(v.shape)) for v in keras_model.trainable_variables)
    return {"weights": keras_model.count_params(), "trained": trained}


def _fit(size: int, rounds: int) -> dict[str, Any]:
    import keras
    import numpy as np

    start = time.process_time()
    keras_model = _build_keras_model(size)
    keras_model.compile(
        keras.optimizers.SGD(_RATE),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
    )
    x, y = map(
        np.concatenate, zip(*list(_examples(size).values())[:_COHORT], strict=True)
    )
    build = time.process_time() - start
    seconds = []
    for _ in range(1 + rounds):
        start = time.process_time()
        keras_model.fit(x, y, batch_size=_BATCH, verbose=0)
        seconds.append(time.process_time() - start)
    return {
        "build": build,
        "first": seconds[0],
        "later": statistics.median(seconds[1:]),
        **_ram(),
        **_counts(keras_model),
    }


def _federated(size: int, rounds: int, at_a_time: int) -> dict[str, Any]:
    import tff_drift  # noqa: F401 (before TensorFlow Federated)

    # isort: split
    import keras

    from tff_drift import algorithms, execution, models, simulation

    execution.set_local_execution_context(max_concurrent_clients=at_a_time)
    start = time.process_time()
    keras_model = _build_keras_model(size)
    train = simulation.ClientDatasets.from_arrays(_examples(size), batch_size=_BATCH)

    def model_fn() -> Any:
        return models.from_keras3(
            keras_model,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            train.element_spec,
            [keras.metrics.SparseCategoricalAccuracy("accuracy")],
        )

    process = algorithms.build_scaffold(model_fn, _RATE, num_clients=len(train))
    build = time.process_time() - start
    client_state = sum(each.nbytes for each in process.initial_client_state.values())
    times, sizes, seen = [], [], set()

    class Watch(simulation.callbacks.Callback):  # type: ignore[misc]
        def before_training(self, run: Any) -> None:
            self.run = run

        def after_row(self, row: Any) -> None:
            times.append(time.process_time())
            seen.update(self.run.cohort)
            sizes.append(_checkpoint_bytes(pathlib.Path(folder)))

    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        result = simulation.run_training(
            process,
            train,
            rounds=1 + rounds,
            cohort_size=_COHORT,
            output_dir=simulation.OutputDir(folder, rounds_per_checkpoint=1),
            callbacks=[Watch()],
        )
        sizes.append(_checkpoint_bytes(pathlib.Path(folder)))
    seconds = [
        after - before for before, after in zip([start, *times], times, strict=False)
    ]
    row = result.rows[-1]
    return {
        "build": build,
        "first": seconds[0],
        "later": statistics.median(seconds[1:]),
        **_ram(),
        "checkpoint": sizes[-1],
        "checkpoint without clients": sizes[-1] - len(seen) * client_state,
        "client state": client_state,
        "bytes_down": int(row["bytes_down"]) // _COHORT,
        "bytes_up": int(row["bytes_up"]) // _COHORT,
        **_counts(keras_model),
    }


def _checkpoint_bytes(folder: pathlib.Path) -> int:
    return (folder / "checkpoint.npz").stat().st_size


def _in_a_program(kind: str, size: int, rounds: int, at_a_time: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--program", kind]
    command += ["--at_a_time", str(at_a_time)]
    command += ["--sizes", str(size), "--rounds", str(rounds)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(output.stdout.splitlines()[-1])


def main() -> None:
    """Prints a table for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="30,100")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--at_a_time", type=int, default=1, help="clients")
    parser.add_argument("--program", choices=["fit", "federated"])
    arguments = parser.parse_args()
    sizes = [int(each) for each in arguments.sizes.split(",")]
    if arguments.program is not None:
        given = sizes[0], arguments.rounds
        if arguments.program == "fit":
            print(json.dumps(_fit(*given)))
        else:
            print(json.dumps(_federated(*given, arguments.at_a_time)))
        return
    print(f"{datetime.date.today()}, {os.cpu_count()} processors")
    for size in sizes:
        programs = [
            _in_a_program(kind, size, arguments.rounds, arguments.at_a_time)
            for kind in ("fit", "federated")
        ]
        fit, federated = programs
        print(f"\n{fit['weights']:,} weights, of which {fit['trained']:,} train")
        for name in ("build", "first", "later", "ram", "ram of no file"):
            ratio = federated[name] / fit[name]
            print(f"  {name}: {fit[name]:,.2f}, {federated[name]:,.2f}, x {ratio:.2f}")
        for name in (
            "checkpoint",
            "checkpoint without clients",
            "client state",
            "bytes_down",
            "bytes_up",
        ):
            ratio = federated[name] / (4 * federated["trained"])
            print(f"  {name}: {federated[name]:,}, x {ratio:.2f} of what trains")


if __name__ == "__main__":
    main()
