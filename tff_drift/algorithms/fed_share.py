"""FedShare: federated averaging on clients that share public data.

Zhao et al. (2018), Federated Learning with Non-IID Data, section 4.
https://arxiv.org/abs/1806.00582
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import autograph, checks, client_works, compat, optimizers
from tff_drift.algorithms import fed_avg
from tff_drift.algorithms.composition.server_state import Accessors
from tff_drift.algorithms.composition.settings import digest_of
from tff_drift.algorithms.options import TrainingOptions, explicit_options
from tff_drift.client_works import keep_trace
from tff_drift.method_specs import Method, register

# Each is an operation of the clients' computation.
_MOST_BATCHES = 10_000


@explicit_options(TrainingOptions)
def build_fed_share(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    shared_data: tf.data.Dataset | None,
    server_optimizer_fn: optimizers.OptimizerOrRate = 1.0,
    *,
    local_epochs: int = 1,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds FedShare: FedAvg whose clients also train on a public data set.

    Zhao et al. (2018), section 4. https://arxiv.org/abs/1806.00582

    ```
    D_i <- D_i ∪ G;   then a round of FedAvg
    ```

    with G = `shared_data`. In each of its local epochs, a client trains on the batches
    of its own data and then on those of G, in the order given; the examples of G count
    in its weight. Every client's dataset holds its epochs, as it does for the other
    methods; `local_epochs` says how many there are. A dataset whose batches are not as
    many in every epoch ends the round with an `InvalidArgumentError` that says so.
    Without examples in G it is FedAvg, bit for bit.

    For clients' data in a `tff_drift.simulation.ClientDatasets`, whose epochs are
    shuffled, `tff_drift.simulation.share` mixes G into every epoch, and can cut G up
    among the clients; `shared_data` is `None` then. G is drawn from the clients,
    reproducibly, by `tff_drift.simulation.sample_examples`, which states the rule:

        public = sample_examples(train, 0.01, seed)
        shared_data = tf.data.Dataset.from_tensor_slices(public).batch(20)

    G is part of the clients' computation: it takes its own size in RAM, and at most
    1 GB in 10,000 batches.

    The type signatures and metrics are those of `build_fed_avg`.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: As in `build_fed_avg`.
      shared_data: G, batches as clients have them, read once, or `None` if the
        clients' own datasets hold it already.
      server_optimizer_fn: As in `build_fed_avg`.
      local_epochs: The epochs that the clients' datasets hold, at least 1.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type, or the batches of `shared_data`
        are not of the type that the model takes; the message names it.
      ValueError: As in `build_fed_avg`, or if `shared_data` is endless or too large, or
        `local_epochs` below 1.
    """
    checks.check_integer("local_epochs", local_epochs)
    batches = []
    if shared_data is not None:
        data_type = client_works.build_model_spec(model_fn).data_type
        client_works.check_batches("shared_data", shared_data, data_type)
        batches = client_works.read_batches("shared_data", shared_data, _MOST_BATCHES)
    process = fed_avg.build_fed_avg(
        model_fn, client_optimizer_fn, server_optimizer_fn, **options
    )
    if not batches:
        return process

    @compat.tf_computation(data_type)
    def add_shared(own: tf.data.Dataset) -> tf.data.Dataset:
        if local_epochs == 1:
            return functools.reduce(_concatenate, batches, own)
        return _add_to_every_epoch(own, batches, local_epochs)

    sharing = tff.simulation.compose_dataset_computation_with_learning_process(
        add_shared, process
    )
    sizes = [len(tf.nest.flatten(batch)[0]) for batch in batches]
    digest = digest_of([sizes, *tf.nest.flatten(batches)])
    return process.rebuilt(
        sharing.initialize,
        sharing.next,
        Accessors(
            sharing.get_model_weights,
            sharing.set_model_weights,
            sharing.get_hparams,
            sharing.set_hparams,
        ),
        more_settings={
            "share": {"local_epochs": local_epochs, "batches_sha256": digest}
        },
    )


def _concatenate(dataset: tf.data.Dataset, batch: Any) -> tf.data.Dataset:
    return dataset.concatenate(tf.data.Dataset.from_tensors(batch))


def _add_to_every_epoch(
    own: tf.data.Dataset, batches: list[Any], local_epochs: int
) -> tf.data.Dataset:
    """Returns the dataset with the batches after each of its epochs."""
    first, *others = batches
    shared = functools.reduce(_concatenate, others, tf.data.Dataset.from_tensors(first))
    count = own.reduce(
        np.int64(0), autograph.as_written(lambda count, batch: count + 1)
    )
    with tf.control_dependencies([keep_trace.assert_divisible(count, local_epochs)]):
        own_in_an_epoch = tf.identity(count // local_epochs)
    in_an_epoch = own_in_an_epoch + len(batches)

    @autograph.as_written
    def choose(position: tf.Tensor) -> tf.Tensor:
        return tf.cast(position % in_an_epoch >= own_in_an_epoch, tf.int64)

    return tf.data.Dataset.choose_from_datasets(
        [own, shared.repeat(local_epochs)],
        tf.data.Dataset.range(local_epochs * in_an_epoch).map(choose),
        stop_on_empty_dataset=False,
    )


METHOD = register(
    Method(
        name="fed_share",
        builder=build_fed_share,
        paper="Zhao et al. (2018), Federated Learning with Non-IID Data",
        url="https://arxiv.org/abs/1806.00582",
        needs=("shared_data",),
    )
)
