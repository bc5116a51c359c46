"""The methods of the library, with what the command line prepares for them.

What a method is, its row says: see `tff_drift.algorithms.Method`. Here is only what
the command line adds: the data that methods need besides the clients' own, drawn
from the clients, and the options of the draw.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from experiments import server_data
from tff_drift import algorithms, optimizers
from tff_drift.algorithms import Option
from tff_drift.simulation import ClientDatasets

# Of local training, for all methods whose clients take local steps, with defaults.
_LOCAL: dict[Option, Any] = {
    Option(
        "client_weight_decay", "non_negative", "Weight decay λ of local training."
    ): 0.0,
    Option(
        "gradient_clipping_norm",
        "positive",
        "Largest norm of a local gradient.",
        may_be_none=True,
    ): None,
}
# Of the data that a method needs, by the need: the options of the draw, and defaults.
_DRAWS: dict[str, dict[Option, Any]] = {
    "meta_data": {
        Option(
            "meta_fraction",
            "fraction",
            "Share of the clients' examples that the server's data is drawn as.",
        ): 0.01
    },
    "shared_data": {
        Option(
            "share_fraction",
            "probability",
            "Share of the clients' examples that is drawn to be public.",
        ): 0.01,
        Option(
            "share_split",
            "flag",
            "Cut the public examples up rather than give all to every client.",
        ): True,
    },
}


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """A method that the command line can train.

    Attributes:
      method: Its row.
    """

    method: algorithms.Method

    @property
    def options(self) -> dict[Option, Any]:
        """The options that only some algorithms have, with defaults."""
        method = self.method
        own = {option: method.defaults[option.name] for option in method.options}
        drawn = [_DRAWS.get(need, {}) for need in method.needs]
        return {
            **own,
            **self._local,
            **{k: v for draw in drawn for k, v in draw.items()},
        }

    @property
    def _local(self) -> Mapping[Option, Any]:
        return _LOCAL if self.method.has_client_rate else {}

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The defaults of `options` by name."""
        return {option.name: default for option, default in self.options.items()}

    def training_data(
        self, own: ClientDatasets, seed: int, hyperparameters: Mapping[str, Any]
    ) -> ClientDatasets:
        """Returns the data that clients train on.

        Args:
          own: The clients' own.
          seed: The seed of whatever is drawn.
          hyperparameters: Values for some of `hyperparameters`.

        Returns:
          The clients' own data, and the public examples where the method shares any.

        Raises:
          TypeError: If a hyperparameter has the wrong type.
          ValueError: If a hyperparameter is out of its range.
        """
        if "shared_data" not in self.method.needs:
            return own
        values = {**self.hyperparameters, **hyperparameters}
        return server_data.share_examples(
            own,
            seed,
            share_fraction=values["share_fraction"],
            share_split=values["share_split"],
        )

    def build(
        self,
        model_fn: Callable[[], Any],
        *,
        num_clients: int,
        total_examples: Callable[[], int],
        local_epochs: int,
        draw_meta_data: Callable[[float], tf.data.Dataset],
        client_learning_rate: float | None,
        client_rate_schedule: optimizers.Schedule | None = None,
        server_learning_rate: float | None,
        server_rate_schedule: optimizers.Schedule | None = None,
        hyperparameters: Mapping[str, Any],
        **options: Any,
    ) -> tff.learning.templates.LearningProcess:
        """Builds the learning process.

        Args:
          model_fn: Builds the model.
          num_clients: The population.
          total_examples: Counts the examples of all clients in one round.
          local_epochs: The epochs that a client's data holds.
          draw_meta_data: Draws a share of the examples for the server.
          client_learning_rate: The rate of the clients' SGD, `None` without one.
          client_rate_schedule: Its schedule.
          server_learning_rate: The rate of the server's step, `None` without one.
          server_rate_schedule: Its schedule.
          hyperparameters: Values for some of `hyperparameters`.
          **options: `client_weighting` and `model_aggregator`.

        Returns:
          The learning process.

        Raises:
          TypeError: If an argument has the wrong type.
          ValueError: If an argument is out of its range.
        """
        method = self.method
        values = {**self.hyperparameters, **hyperparameters}
        by_examples = options["client_weighting"] == _BY_EXAMPLES
        prepare: dict[str, Callable[[], Any]] = {
            "num_clients": lambda: num_clients,
            "total_examples": lambda: total_examples() if by_examples else None,
            "local_epochs": lambda: local_epochs,
            "meta_data": lambda: draw_meta_data(values["meta_fraction"]),
            # The clients' datasets hold it, see `training_data`.
            "shared_data": lambda: None,
        }
        chosen = {*method.parameters, *(option.name for option in self._local)}
        arguments: dict[str, Any] = {
            **options,
            **{name: values[name] for name in values if name in chosen},
            **{need: prepare[need]() for need in method.needs},
        }
        if method.has_client_rate:
            arguments["client_rate_schedule"] = client_rate_schedule
        if method.has_server_rate:
            arguments["server_rate_schedule"] = server_rate_schedule
        return method.build(
            model_fn,
            client_learning_rate=client_learning_rate,
            server_learning_rate=server_learning_rate,
            **arguments,
        )


_BY_EXAMPLES = tff.learning.ClientWeighting.NUM_EXAMPLES

ALGORITHMS: dict[str, Algorithm] = {
    name: Algorithm(method) for name, method in algorithms.methods().items()
}
