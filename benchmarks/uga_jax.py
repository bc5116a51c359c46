"""UGA in JAX, apart from the library: what becomes of the model that is sent.

    python benchmarks/uga_jax.py FILE.npz --write
    JAX_PYTHON benchmarks/uga_jax.py FILE.npz

The first writes the digits of 100 writers, as the task `emnist_digits` draws them with
its seed 1 and `network="adabest"` has them, standardised. The second needs JAX and
NumPy alone (`pip install jax`). It trains two dense layers of 100 units by UGA (Yao et
al., 2019, https://arxiv.org/abs/1910.08234, Algorithm 1; E = 5, B = 64, 10 of 100
writers, η = 0.0128 that falls by 0.992 a round, η_g = 0.2), with an η_g that falls as
η does, and by UGA of first order, which takes the local steps' gradients for constants,
and so sends ∇L(ω⁽ᴷ⁾; D_k) without the Hessians. It tells the accuracy on test examples
of the server's model, and of the clients' models after their local steps, of all 100
writers.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

CLIENTS, COHORT, EPOCHS, BATCH, ROUNDS = 100, 10, 5, 64, 120
RATE, DECAY, SERVER_RATE = 0.0128, 0.992, 0.2
UNITS, FEATURES, CLASSES = 100, 784, 10
# Room for a writer's local batches and for all examples; what is over weighs nothing.
STEPS, EXAMPLES = 12, 192
# Whether of first order, and the factor by which η_g falls in a round.
KINDS = {"UGA": (False, 1.0), "η_g falls": (False, DECAY), "first order": (True, 1.0)}


def write(path: str) -> None:
    """Writes every writer's examples, one after the other."""
    import tasks

    task = tasks.load("emnist_digits", cache_dir="data", seed=1, network="adabest")
    arrays = {}
    for split, data in (("train", task.train), ("test", task.test)):
        parts = [data.examples(client) for client in data.client_ids]
        arrays[f"{split}_x"] = np.concatenate([x.reshape(len(x), -1) for x, _ in parts])
        arrays[f"{split}_y"] = np.concatenate([np.ravel(y) for _, y in parts])
        arrays[f"{split}_of"] = np.repeat(
            np.arange(CLIENTS), [len(x) for x, _ in parts]
        )
    np.savez_compressed(path, **arrays)


def padded(rows: Any, room: int, data: Any) -> tuple[np.ndarray, ...]:
    """Returns a batch of some rows of the training data and its examples' weights."""
    x = np.zeros((room, FEATURES), np.float32)
    y, weights = np.zeros(room, np.int32), np.zeros(room, np.float32)
    x[: len(rows)], y[: len(rows)] = data["train_x"][rows], data["train_y"][rows]
    weights[: len(rows)] = 1
    return x, y, weights


def epochs(rows: Any, random: np.random.Generator, data: Any) -> list[np.ndarray]:
    """Returns the batches of the E - 1 epochs of local training, in room for more."""
    orders = [random.permutation(rows) for _ in range(EPOCHS - 1)]
    batches = [
        order[start : start + BATCH]
        for order in orders
        for start in range(0, len(order), BATCH)
    ]
    batches += [rows[:0]] * (STEPS - len(batches))
    parts = [padded(batch, BATCH, data) for batch in batches]
    return [np.stack(part) for part in zip(*parts, strict=True)]


def initial(random: np.random.Generator) -> list[np.ndarray]:
    """Returns Glorot's uniform weights, and biases of 0."""
    weights = []
    for ins, outs in ((FEATURES, UNITS), (UNITS, UNITS), (UNITS, CLASSES)):
        bound = np.sqrt(6 / (ins + outs))
        weights.append(random.uniform(-bound, bound, (ins, outs)).astype(np.float32))
        weights.append(np.zeros(outs, np.float32))
    return weights


def train(data: Any, seed: int, kind: str) -> None:
    """Trains, and prints the accuracies."""
    import jax
    from jax import numpy as jnp

    is_first_order, server_decay = KINDS[kind]

    def logits(weights: Any, x: Any) -> Any:
        w_1, b_1, w_2, b_2, w_3, b_3 = weights
        hidden = jax.nn.relu(jax.nn.relu(x @ w_1 + b_1) @ w_2 + b_2)
        return hidden @ w_3 + b_3

    def loss(weights: Any, x: Any, y: Any, of: Any) -> Any:
        each = -jnp.take_along_axis(
            jax.nn.log_softmax(logits(weights, x)), y[:, None], axis=1
        )[:, 0]
        return (each * of).sum() / jnp.maximum(of.sum(), 1)

    def after(weights: Any, batches: Any, rate: Any) -> Any:
        def step(weights: Any, batch: Any) -> Any:
            gradients = jax.grad(loss)(weights, *batch)
            if is_first_order:
                gradients = jax.lax.stop_gradient(gradients)
            return [w - rate * g for w, g in zip(weights, gradients, strict=True)], None

        return jax.lax.scan(step, weights, batches)[0]

    local = jax.jit(after)
    gradient = jax.jit(
        jax.grad(lambda w, batches, rate, whole: loss(after(w, batches, rate), *whole))
    )
    random = np.random.default_rng(seed)
    weights = initial(random)
    rows_of = [np.flatnonzero(data["train_of"] == k) for k in range(CLIENTS)]

    def is_right(weights: Any, x: Any, y: Any) -> Any:
        return np.argmax(logits(weights, x), axis=1) == y

    for round_number in range(1, ROUNDS + 1):
        rate = RATE * DECAY ** (round_number - 1)
        cohort = random.choice(CLIENTS, COHORT, replace=False)
        total = sum(len(rows_of[k]) for k in cohort)
        mean = [np.zeros_like(w) for w in weights]
        for k in cohort:
            batches = epochs(rows_of[k], random, data)
            whole = padded(rows_of[k], EXAMPLES, data)
            sent = gradient(weights, batches, rate, whole)
            mean = [
                m + len(rows_of[k]) / total * g for m, g in zip(mean, sent, strict=True)
            ]
        server_rate = SERVER_RATE * server_decay ** (round_number - 1)
        weights = [w - server_rate * m for w, m in zip(weights, mean, strict=True)]
        if round_number % 30:
            continue
        server = is_right(weights, data["test_x"], data["test_y"]).mean()
        clients = []
        for k, rows in enumerate(rows_of):
            its = data["test_of"] == k
            trained = local(weights, epochs(rows, random, data), rate)
            clients.extend(is_right(trained, data["test_x"][its], data["test_y"][its]))
        print(
            f"{kind}, seed {seed}, round {round_number}: server {server:.1%}, "
            f"after local steps {np.mean(clients):.1%}",
            flush=True,
        )


if __name__ == "__main__":
    if "--write" in sys.argv:
        write(sys.argv[1])
    else:
        examples = dict(np.load(sys.argv[1]))
        for given_seed in (1, 2, 3):
            for each in KINDS:
                train(examples, given_seed, each)
