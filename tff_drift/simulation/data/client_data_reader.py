"""Reading of clients from a `tff.simulation.datasets.ClientData`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from absl import logging

from tff_drift import checks
from tff_drift.simulation.data import batched, quoted_ids
from tff_drift.simulation.data.examples import Examples

# What an assertion in the graph says, and what TensorFlow says.
_ENDLESS = "tff_drift: repeated without end"
_AMBIGUOUS = "tff_drift: batches or sequences"
_EMPTY = "Dataset was empty"
_SHAPES = re.compile(
    r"different shapes.*?had shape (\[[\d,]*\]) and element \d+ had shape (\[[\d,]*\])"
)
_UNBATCHED = (
    "client_data holds batches: they are taken apart into examples, of which "
    "batch_size= makes batches anew. What its preprocessing repeats is there as often."
)


class ClientDataReader:
    """Stacks the elements of a client's dataset, given the client's id.

    It can be sent to other processes if its parts can.
    """

    def __init__(
        self,
        client_data: tff.simulation.datasets.ClientData,
        preprocess: Callable[[Examples], Examples] | None,
    ) -> None:
        """Initializes the reader.

        Args:
          client_data: The clients and their datasets of single examples.
          preprocess: What to do with a client's stacked examples; `None` is nothing.

        Raises:
          TypeError: If an argument has the wrong type.
        """
        kind, remedy = tff.simulation.datasets.ClientData, "See from_arrays for arrays."
        checks.check_instance("client_data", client_data, kind, remedy=remedy)
        _check_dense(client_data.element_type_structure)
        if preprocess is not None:
            checks.check_callable("preprocess", preprocess, "a function of examples")
        self._client_data = client_data
        self._preprocess = preprocess
        self._read = self._build()

    def _build(self) -> Any:
        # One traced function for all clients. `create_tf_dataset_for_client` would
        # trace the data's parsing functions anew for every client, which takes longer
        # than reading it, and TensorFlow keeps part of every trace.
        self._quoted = quoted_ids.with_quoted_ids(self._client_data)

        @tf.function(input_signature=[tf.TensorSpec((), tf.string)])
        def read(client_id: tf.Tensor) -> Any:
            dataset = self._quoted.serializable_dataset_fn(client_id)
            _check_dense(dataset.element_spec)
            is_endless = dataset.cardinality() == tf.data.INFINITE_CARDINALITY
            dataset, times = batched.unbatched(dataset)
            with tf.control_dependencies(
                [
                    tf.debugging.Assert(~is_endless, [_ENDLESS]),
                    tf.debugging.Assert(times is not None, [_AMBIGUOUS]),
                ]
            ):
                dataset = dataset.take(-1)
            if times:
                logging.warning(_UNBATCHED)
            # More than any client holds: one batch has them all.
            return dataset.batch(2**40).get_single_element()

        return read

    def __getstate__(self) -> tuple[Any, Any]:
        return self._client_data, self._preprocess

    def __setstate__(self, state: tuple[Any, Any]) -> None:
        self._client_data, self._preprocess = state
        self._read = self._build()

    def __call__(self, client_id: str) -> Examples:
        """Returns the structure of arrays of a client's examples.

        Raises:
          ValueError: If there are none, or they cannot be read.
        """
        self._check_query(client_id)
        try:
            tensors = self._read(tf.constant(client_id))
        except tf.errors.InvalidArgumentError as error:
            raise self._explained(client_id, str(error)) from error
        examples = tf.nest.map_structure(lambda tensor: tensor.numpy(), tensors)
        if self._preprocess is None:
            return examples
        try:
            return self._preprocess(examples)
        except AttributeError as error:
            if error.obj is examples and hasattr(tf.data.Dataset, error.name):
                raise TypeError(
                    "preprocess must be a function of the arrays of a client, and uses "
                    f"{error.name} of a tf.data.Dataset. In place of client_data give "
                    "client_data.preprocess(function), without batches."
                ) from error
            raise

    def _explained(self, client_id: str, complaint: str) -> ValueError:
        """Returns TensorFlow's complaint of a client in words of use to its owner."""
        if _ENDLESS in complaint:
            what = (
                "has examples without end: client_data repeats them. Leave repeat() "
                "out of its preprocessing: epochs= does that."
            )
        elif _AMBIGUOUS in complaint:
            what = (
                "has batches, or sequences: which, cannot be seen. Take batches apart "
                "with client_data.preprocess(lambda dataset: dataset.unbatch()). Give "
                "sequences a length with tf.ensure_shape, and where flat_map or "
                "interleave takes apart what they are made of, use unbatch() instead."
            )
        elif _EMPTY in complaint:
            what = "has no examples. Leave it out."
        elif shapes := _SHAPES.search(complaint):
            what = (
                f"has examples of different shapes, such as {shapes[1]} and "
                f"{shapes[2]}. Give all one shape: padded_batch with padded_shapes= "
                "that are given fills up short ones."
            )
        else:
            found = checks.shortened(complaint)
            what = f"cannot be read ({found}). Check client_data and its preprocessing."
        return ValueError(f"Client {checks.shown(client_id)} {what}")

    def _check_query(self, client_id: str) -> None:
        """Raises if the id would be more than an id in a query of SQLite."""
        ends = [] if self._quoted is not self._client_data else [("an apostrophe", "'")]
        for name, character in [*ends, ("a null character", "\0")]:
            if character not in client_id:
                continue
            if quoted_ids.queries_sqlite(self._read.get_concrete_function()):
                raise ValueError(
                    f"client_data cannot read the client {checks.shown(client_id)}: "
                    f"queries of SQLite take {name} for the end of the id. Leave it "
                    "out, or rename it in the file."
                )


def _check_dense(spec: Any) -> None:
    """Raises unless the elements of a dataset consist of tensors."""
    for leaf in tf.nest.flatten(spec):
        if not isinstance(leaf, tf.TensorSpec):
            raise TypeError(
                f"client_data has elements with a {type(leaf).__name__}. Make them "
                "dense tensors, by to_tensor(shape=...) or tf.sparse.to_dense."
            )
