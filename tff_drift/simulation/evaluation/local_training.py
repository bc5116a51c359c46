"""The training of a model on single clients, which keep what comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import client_works, compat
from tff_drift.models import ModelFn
from tff_drift.simulation.cohorts import Cohort, clients_alone, run_round
from tff_drift.simulation.data import label_errors
from tff_drift.simulation.data.client_datasets import ClientDatasets


class LocalTraining:
    """Trains a client's own copy of a model, as in a round of FedAvg.

    What the model sets itself, such as the moving averages of BatchNormalization, is
    the client's too. It runs under the execution context that is set.
    """

    def __init__(
        self,
        model_fn: ModelFn,
        model_weights: Any,
        train: ClientDatasets,
        optimizer: Any,
    ) -> None:
        """Builds the computation.

        Args:
          model_fn: The model.
          model_weights: Where each client begins.
          train: The clients' data.
          optimizer: The optimizer of the local steps, or a learning rate.

        Raises:
          TypeError: If an argument has the wrong type, or clients cannot train weights
            of the model's dtypes.
          ValueError: If an argument is out of its range, or the examples are not those
            of the model.
        """
        work = client_works.LocalSgd(optimizer)
        spec = client_works.build_model_spec(model_fn)
        work.check_model(spec)

        def prepare() -> Any:
            model = spec.build()

            def trained(weights: Any, dataset: Any) -> Any:
                x = tuple(tf.nest.flatten(weights.trainable))
                context = client_works.LocalContext(
                    x, work.initial_hparams(), tf.constant(0)
                )
                outcome = client_works.run_local_work(
                    work,
                    model,
                    weights,
                    dataset,
                    context,
                    loop_implementation=spec.loop_implementation,
                )
                own = tff.learning.models.ModelWeights(
                    list(map(tf.subtract, x, outcome.update)),
                    list(model.non_trainable(weights)),
                )
                return own, outcome.rejected

            return trained

        self._process = clients_alone(spec, spec.data_type, prepare)
        self._clients = train.fitting("train", spec.data_type.element)
        specs = compat.type_to_tf_tensor_specs(spec.weights_type)
        self._weights = tff.learning.models.ModelWeights(
            _cast(model_weights.trainable, specs.trainable),
            _cast(model_weights.non_trainable, specs.non_trainable),
        )

    def __call__(self, client_id: str) -> tuple[tff.learning.models.ModelWeights, bool]:
        """Returns a client's own model, and if its training stayed finite.

        Where it did not, the model is the one that the client began with.

        Args:
          client_id: The client.
        """
        cohort = Cohort(0, [client_id], self._clients)
        with label_errors.naming_bad_labels(self._clients, [client_id]):
            ((own, rejected),) = run_round(self._process, self._weights, cohort)
        return (self._weights, False) if rejected else (own, True)


def _cast(weights: Any, like: Any) -> list[np.ndarray]:
    """Returns weights in the dtypes of others, as they are evaluated."""
    return [
        np.asarray(value, own.dtype.as_numpy_dtype)
        for value, own in zip(weights, tf.nest.flatten(like), strict=True)
    ]
