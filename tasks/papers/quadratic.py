"""Strongly convex quadratics whose global optimum is known exactly.

After the simulated experiments of Karimireddy et al., SCAFFOLD (2020,
https://arxiv.org/abs/1910.06378): client i minimises
f_i(w) = (w - b_i)' A_i (w - b_i) / 2, whose curvatures (the eigenvalues of A_i)
lie between 0.5 and 2 along directions of its own. With b_i that differ between
clients, local steps drift away from the minimum of the mean of the f_i.

The quadratic is written as linear regression: a client has d examples (x_j, y_j),
and f_i is the mean over them of (x_j'w - y_j)^2 / 2. A batch of d examples gives
the exact gradient, a smaller one a stochastic gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import definitions, partitioners, seeds
from tasks import options as shared
from tasks.registry import Option, TaskDefinition
from tff_drift.simulation import ClientDatasets

_CURVATURES = (0.5, 2.0)
# The numbers of all clients' examples, 4 bytes each.
_MOST_NUMBERS = 2**28


def draw_clients(
    num_clients: int, dimension: int, heterogeneity: float, seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Draws the clients' examples.

    Args:
      num_clients: The number of clients.
      dimension: The number d of weights, and of examples per client.
      heterogeneity: The standard deviation of the clients' optima b_i in each
        coordinate; with 0 all clients share one optimum, and nothing drifts.
      seed: The seed of the draw.

    Returns:
      Each client's x (`float32[d, d]`) and y (`float32[d, 1]`).
    """
    rng = seeds.generator(seed, "quadratics")
    centre = rng.standard_normal(dimension)
    clients = {}
    for client_id in partitioners.client_ids(num_clients):
        curvatures = rng.uniform(*_CURVATURES, size=dimension)
        directions, _ = np.linalg.qr(rng.standard_normal((dimension, dimension)))
        optimum = centre + heterogeneity * rng.standard_normal(dimension)
        # x'x / d = A_i = Q diag(curvatures) Q', for d examples.
        x = np.sqrt(dimension * curvatures)[:, np.newaxis] * directions.T
        x = x.astype(np.float32)
        y = (x @ optimum)[:, np.newaxis].astype(np.float32)
        clients[client_id] = (x, y)
    return clients


def global_optimum(clients: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Returns the minimum of the mean of all clients' losses.

    Args:
      clients: Each client's x and y.

    Returns:
      A `float64[d]` array.
    """
    xs = [x.astype(np.float64) for x, _ in clients.values()]
    ys = [y.astype(np.float64)[:, 0] for _, y in clients.values()]
    curvature = sum(x.T @ x for x in xs)
    return np.linalg.solve(curvature, sum(x.T @ y for x, y in zip(xs, ys, strict=True)))


class HalfSquaredError(tf.keras.losses.Loss):
    """The mean over examples of half the squared error.

    The half makes the Hessian of a client's loss its A_i.
    """

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns one loss per example."""
        return 0.5 * tf.reduce_sum(tf.math.squared_difference(y_pred, y_true), -1)


def _build_model(optimum: np.ndarray, seed: int) -> tff.learning.models.VariableModel:
    dimension = len(optimum)
    (initializer_seed,) = seeds.initializer_seeds(seed, 1)
    linear = tf.keras.layers.Dense(
        1,
        use_bias=False,
        kernel_initializer=tf.keras.initializers.RandomNormal(
            stddev=1.0, seed=initializer_seed
        ),
        input_shape=(dimension,),
    )
    keras_model = tf.keras.Sequential([linear])
    target = optimum[:, np.newaxis].astype(np.float32)

    def distance(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        del y_pred  # The distance is one of weights, not of predictions.
        return tf.norm(linear.kernel - target) * tf.ones_like(y_true[:, 0])

    return tff.learning.models.from_keras_model(
        keras_model,
        loss=HalfSquaredError(),
        input_spec=(
            tf.TensorSpec((None, dimension), tf.float32),
            tf.TensorSpec((None, 1), tf.float32),
        ),
        metrics=[
            functools.partial(
                tf.keras.metrics.MeanMetricWrapper, distance, name="distance"
            )
        ],
    )


def build(
    cache_dir: str | None, seed: int, options: Mapping[str, Any]
) -> tuple[definitions.Clients, definitions.ModelFn]:
    """Builds the task.

    Args:
      cache_dir: The folder with the data files, see `tasks.load`.
      seed: The seed of everything that is drawn.
      options: The value of every option of the task.

    Returns:
      The clients and the model function.
    """
    del cache_dir  # The data is drawn.
    num_clients, dimension = options["num_clients"], options["dimension"]
    numbers = num_clients * dimension**2
    if numbers > _MOST_NUMBERS:
        raise ValueError(
            f"dimension {dimension} and num_clients {num_clients} make "
            f"{4e-9 * numbers:,.0f} GB of examples, dimension x dimension numbers for "
            "each client. Choose a dimension of at most "
            f"{int((_MOST_NUMBERS / num_clients) ** 0.5)}, or fewer clients."
        )
    clients = draw_clients(num_clients, dimension, options["heterogeneity"], seed)
    datasets = ClientDatasets.from_arrays(
        clients,
        batch_size=options["batch_size"] or dimension,
        epochs=options["epochs"],
        seed=seed,
    )
    model_fn = functools.partial(_build_model, global_optimum(clients), seed)
    return definitions.Clients(datasets, datasets), model_fn


TASK = TaskDefinition(
    "quadratic",
    "Synthetic quadratics, one per client, with a known common optimum: "
    "shows client drift in seconds.",
    (
        Option(
            "batch_size",
            "count",
            "Examples in a batch; none takes all, for exact gradients.",
            None,
            may_be_none=True,
        ),
        Option("epochs", "batches", "Passes over the data per round.", 10),
        shared.num_clients(10, "Clients, a quadratic each."),
        Option("dimension", "count", "Weights of the model.", 10),
        Option(
            "heterogeneity",
            "non_negative",
            "Standard deviation of the clients' optima.",
            1.0,
        ),
    ),
    build,
    accuracy_metric="distance",
    higher_is_better=False,
)
