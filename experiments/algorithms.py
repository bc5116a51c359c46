"""The algorithms by name, as the command line offers them.

A new method is a line in `ALGORITHMS`: its hyperparameters and their defaults are
read from the signature of its builder. Afterwards write the catalogue anew, see
`experiments.catalogue`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow_federated as tff

from tff_drift import algorithms

_CLIENT_OPTIMIZER = "client_optimizer_fn"
_SERVER_RATE = "server_learning_rate"

# What the builders' keyword arguments mean, for help texts.
HYPERPARAMETERS = {
    "momentum": "Momentum β₁ of the server step, in [0, 1).",
    "beta_1": "Decay β₁ of the server's first moment per round, in [0, 1).",
    "beta_2": "Decay β₂ of the server's second moment per round, in [0, 1).",
    "tau": "Degree of adaptivity τ: the smaller, the more adaptive.",
    "weight_decay": "Weight decay λ of the server step, at least 0.",
    "epsilon": "Bound ε of a layer's trust ratio, at least 0.",
    "initial_accumulator": "What the server's second moment starts from, at least 0.",
}


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """A method that the command line can train.

    Attributes:
      name: Its name.
      builder: Builds its learning process. It takes `model_fn`, perhaps
        `client_optimizer_fn`, `server_learning_rate` or `server_optimizer_fn`,
        hyperparameters as keyword arguments with defaults, and the options of
        `tff_drift.algorithms.ProcessOptions`.
      paper: Authors, year and title of the paper that defines it.
      url: The paper's address.
    """

    name: str
    builder: Callable[..., tff.learning.templates.LearningProcess]
    paper: str
    url: str

    @property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.builder).parameters

    @property
    def trains_on_clients(self) -> bool:
        """Whether clients take local steps, at a learning rate of their own."""
        return _CLIENT_OPTIMIZER in self._parameters

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The hyperparameters that only some algorithms have, with defaults."""
        return {
            parameter.name: parameter.default
            for parameter in self._parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
            and parameter.default is not inspect.Parameter.empty
        }

    def build(
        self,
        model_fn: Callable[[], Any],
        client_learning_rate: float | None,
        server_learning_rate: float,
        hyperparameters: Mapping[str, Any],
        **options: Any,
    ) -> tff.learning.templates.LearningProcess:
        """Builds the learning process.

        Args:
          model_fn: Builds the model.
          client_learning_rate: The rate of the clients' SGD; `None` if they do
            not train.
          server_learning_rate: The rate of the server step.
          hyperparameters: Values for some of `hyperparameters`.
          **options: As `tff_drift.algorithms.TrainingOptions`, or
            `ProcessOptions` if clients do not train.

        Returns:
          The learning process.

        Raises:
          TypeError: If an argument has the wrong type.
          ValueError: If an argument is out of its range.
        """
        arguments: dict[str, Any] = {**hyperparameters, **options}
        if self.trains_on_clients:
            arguments[_CLIENT_OPTIMIZER] = client_learning_rate
        if _SERVER_RATE in self._parameters:
            arguments[_SERVER_RATE] = server_learning_rate
        else:
            arguments["server_optimizer_fn"] = tff.learning.optimizers.build_sgdm(
                server_learning_rate
            )
        return self.builder(model_fn, **arguments)


_MCMAHAN = (
    "McMahan et al. (2017), Communication-Efficient Learning of Deep Networks from "
    "Decentralized Data",
    "https://arxiv.org/abs/1602.05629",
)
_HSU = (
    "Hsu et al. (2019), Measuring the Effects of Non-Identical Data Distribution for "
    "Federated Visual Classification",
    "https://arxiv.org/abs/1909.06335",
)
_REDDI = (
    "Reddi et al. (2021), Adaptive Federated Optimization",
    "https://arxiv.org/abs/2003.00295",
)
_CHARLES = (
    "Charles et al. (2021), On Large-Cohort Training for Federated Learning",
    "https://arxiv.org/abs/2106.07820",
)

ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("fed_avg", algorithms.build_fed_avg, *_MCMAHAN),
        Algorithm("fed_avgm", algorithms.build_fed_avgm, *_HSU),
        Algorithm("fed_adagrad", algorithms.build_fed_adagrad, *_REDDI),
        Algorithm("fed_adam", algorithms.build_fed_adam, *_REDDI),
        Algorithm("fed_yogi", algorithms.build_fed_yogi, *_REDDI),
        Algorithm("fed_lars", algorithms.build_fed_lars, *_CHARLES),
        Algorithm("fed_lamb", algorithms.build_fed_lamb, *_CHARLES),
        Algorithm("normalized_fed_avg", algorithms.build_normalized_fed_avg, *_CHARLES),
        Algorithm("fed_sgd", algorithms.build_fed_sgd, *_MCMAHAN),
    )
}
