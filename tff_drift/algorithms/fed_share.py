"""FedShare: federated averaging on clients that share public data.

Zhao et al. (2018), Federated Learning with Non-IID Data, section 4.
https://arxiv.org/abs/1806.00582
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import client_works, compat, optimizers
from tff_drift.algorithms import fed_avg
from tff_drift.algorithms.options import TrainingOptions
from tff_drift.method_rows import Method, register

if TYPE_CHECKING:
    from typing_extensions import Unpack


def build_fed_share(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    shared_data: tf.data.Dataset | None,
    server_optimizer_fn: optimizers.OptimizerOrRate = 1.0,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds FedShare: FedAvg whose clients also train on a public data set.

    Zhao et al. (2018), section 4. https://arxiv.org/abs/1806.00582

    ```
    D_i <- D_i ∪ G;   then a round of FedAvg
    ```

    with G = `shared_data`. Every client trains on the batches of its own dataset and
    then on those of G, in the order given, once a round whatever the number of local
    epochs; the examples of G count in its weight. Without examples in G it is FedAvg,
    bit for bit.

    For clients' data in a `tff_drift.simulation.ClientDatasets`, whose epochs are
    shuffled, `tff_drift.simulation.share` mixes G into every epoch, and can cut G up
    among the clients; `shared_data` is `None` then. G is drawn from the clients,
    reproducibly, by `tff_drift.simulation.sample_examples`, which states the rule:

        public = sample_examples(train, 0.01, seed)
        shared_data = tf.data.Dataset.from_tensor_slices(public).batch(20)

    G is part of the clients' computation: it takes its own size in RAM.

    The type signatures and metrics are those of `build_fed_avg`.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: As in `build_fed_avg`.
      shared_data: G, batches as clients have them, read once, or `None` if the
        clients' own datasets hold it already.
      server_optimizer_fn: As in `build_fed_avg`.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type, or the batches of `shared_data`
        are not of the type that the model takes; the message names it.
      ValueError: As in `build_fed_avg`.
    """
    process = fed_avg.build_fed_avg(
        model_fn, client_optimizer_fn, server_optimizer_fn, **options
    )
    if shared_data is None:
        return process
    data_type = client_works.build_model_spec(model_fn).data_type
    client_works.check_batches("shared_data", shared_data, data_type)
    batches = list(shared_data.as_numpy_iterator())
    if not batches:
        return process

    @compat.tf_computation(data_type)
    def add_shared(own: tf.data.Dataset) -> tf.data.Dataset:
        return functools.reduce(_concatenate, batches, own)

    return tff.simulation.compose_dataset_computation_with_learning_process(
        add_shared, process
    )


def _concatenate(dataset: tf.data.Dataset, batch: Any) -> tf.data.Dataset:
    return dataset.concatenate(tf.data.Dataset.from_tensors(batch))


METHOD = register(
    Method(
        name="fed_share",
        builder=build_fed_share,
        paper="Zhao et al. (2018), Federated Learning with Non-IID Data",
        url="https://arxiv.org/abs/1806.00582",
        needs=("shared_data",),
    )
)
