"""The algorithms by name, as the command line offers them.

A new method is a line in `ALGORITHMS`: which arguments it takes and what their
defaults are is read from the signature of its builder. A hyperparameter with a new
name is a line in `HYPERPARAMETERS`. Afterwards write the catalogue anew, see
`experiments.catalogue`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from experiments import server_data
from tff_drift import algorithms, optimizers
from tff_drift.simulation import ClientDatasets


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
    """A keyword argument of builders that the command line offers as a flag.

    Attributes:
      kind: What values the flag takes, see `experiments.command_line`.
      help: One sentence on what it is.
      may_be_none: Whether `None` is a value too.
    """

    kind: str
    help: str
    may_be_none: bool = False


# A builder's keyword argument with a default is a hyperparameter if it is here.
HYPERPARAMETERS = {
    "momentum": Hyperparameter("rate", "Momentum β₁ of the server's step."),
    "beta_1": Hyperparameter("rate", "Decay β₁ of the server's first moment."),
    "beta_2": Hyperparameter("rate", "Decay β₂ of the server's second moment."),
    "tau": Hyperparameter(
        "positive", "Degree of adaptivity τ: the smaller, the more adaptive."
    ),
    "initial_accumulator": Hyperparameter(
        "non_negative", "What the server's second moment starts from."
    ),
    "epsilon": Hyperparameter("non_negative", "Bound ε of a layer's trust ratio."),
    "weight_decay": Hyperparameter(
        "non_negative", "Weight decay λ, of the server's step or of local training."
    ),
    "gradient_clipping_norm": Hyperparameter(
        "positive", "Largest norm of a local gradient.", may_be_none=True
    ),
    "option": Hyperparameter("text", "How control variates are computed: I or II."),
    "mu": Hyperparameter("non_negative", "Strength μ of the local correction."),
    "beta": Hyperparameter("number or auto", "Strength β of the server's correction."),
    "beta_decay": Hyperparameter("fraction", "Factor of β where ‖h‖ has plateaued."),
    "plateau_patience": Hyperparameter("count", "Rounds that make a plateau of ‖h‖."),
    "meta_fraction": Hyperparameter(
        "fraction", "Share of the clients' examples that the server's data is drawn as."
    ),
    "meta_learning_rate": Hyperparameter(
        "non_negative",
        "Rate η_meta of the step on the server's data; none is the clients' rate.",
        may_be_none=True,
    ),
    "meta_rate_decay": Hyperparameter(
        "fraction",
        "Factor of η_meta per round; none is the clients' schedule.",
        may_be_none=True,
    ),
    "share_fraction": Hyperparameter(
        "probability", "Share of the clients' examples that is drawn to be public."
    ),
    "share_split": Hyperparameter(
        "flag", "Cut the public examples up rather than give all to every client."
    ),
}


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """A method that the command line can train.

    Attributes:
      name: Its name.
      builder: Builds its learning process. Of its arguments, `model_fn` comes first;
        by their names, the clients' rate is passed as `client_optimizer_fn` or
        `client_learning_rate`, the server's as `server_optimizer_fn` or
        `server_learning_rate`, the population as `num_clients`, the epochs as
        `local_epochs`, a function of a fraction that draws data for the server as
        `draw_meta_data`; and it takes the options `client_weighting` and
        `model_aggregator`.
      paper: Authors, year and title of the paper that defines it.
      url: The paper's address.
      weighting: How clients are weighted by default.
      change_data: Returns the data that clients train on, given their own, a seed
        and hyperparameters by name; `None` if it is their own.
    """

    name: str
    builder: Callable[..., tff.learning.templates.LearningProcess]
    paper: str
    url: str
    weighting: str = "num_examples"
    change_data: Callable[..., ClientDatasets] | None = None

    @property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.builder).parameters

    @property
    def _data_parameters(self) -> Mapping[str, inspect.Parameter]:
        if self.change_data is None:
            return {}
        return inspect.signature(self.change_data).parameters

    @property
    def has_client_rate(self) -> bool:
        """Whether clients take local steps, at a learning rate of their own."""
        return bool(
            {"client_optimizer_fn", "client_learning_rate"} & set(self._parameters)
        )

    @property
    def has_server_rate(self) -> bool:
        """Whether the server's step has a learning rate."""
        return bool(
            {"server_optimizer_fn", "server_learning_rate"} & set(self._parameters)
        )

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The hyperparameters that only some algorithms have, with defaults."""
        return {
            parameter.name: parameter.default
            for parameter in (
                *self._parameters.values(),
                *self._data_parameters.values(),
            )
            if parameter.name in HYPERPARAMETERS
        }

    def training_data(
        self, own: ClientDatasets, seed: int, hyperparameters: Mapping[str, Any]
    ) -> ClientDatasets:
        """Returns the data that clients train on.

        Args:
          own: The clients' own.
          seed: The seed of whatever is drawn.
          hyperparameters: Values for some of `hyperparameters`.

        Returns:
          The clients' own data, but for methods that change it.

        Raises:
          TypeError: If a hyperparameter has the wrong type.
          ValueError: If a hyperparameter is out of its range.
        """
        if self.change_data is None:
            return own
        known = self._data_parameters
        arguments = {
            name: value for name, value in hyperparameters.items() if name in known
        }
        return self.change_data(own, seed, **arguments)

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
        known = self._parameters
        arguments: dict[str, Any] = {**options}
        arguments.update(
            (name, value) for name, value in hyperparameters.items() if name in known
        )
        if self.has_client_rate:
            arguments["client_rate_schedule"] = client_rate_schedule
        for name in ("client_optimizer_fn", "client_learning_rate"):
            if name in known:
                arguments[name] = client_learning_rate
        if "server_learning_rate" in known:
            arguments["server_learning_rate"] = server_learning_rate
            arguments["server_rate_schedule"] = server_rate_schedule
        elif "server_optimizer_fn" in known:
            arguments["server_optimizer_fn"] = _server_sgd(
                server_learning_rate, server_rate_schedule
            )
        for name, value in (
            ("num_clients", num_clients),
            ("local_epochs", local_epochs),
            ("draw_meta_data", draw_meta_data),
        ):
            if name in known:
                arguments[name] = value
        weighting = options["client_weighting"]
        if "total_examples" in known and weighting == _BY_EXAMPLES:
            arguments["total_examples"] = total_examples()
        return self.builder(model_fn, **arguments)


_BY_EXAMPLES = tff.learning.ClientWeighting.NUM_EXAMPLES


def _server_sgd(
    learning_rate: float | None, schedule: optimizers.Schedule | None
) -> tff.learning.optimizers.Optimizer:
    optimizer = tff.learning.optimizers.build_sgdm(learning_rate)
    return (
        optimizer
        if schedule is None
        else optimizers.build_scheduled(optimizer, schedule)
    )


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
_KARIMIREDDY = (
    "Karimireddy et al. (2020), SCAFFOLD: Stochastic Controlled Averaging for "
    "Federated Learning",
    "https://arxiv.org/abs/1910.06378",
)
_VARNO = (
    "Varno et al. (2022), AdaBest: Minimizing Client Drift in Federated Learning via "
    "Adaptive Bias Estimation",
    "https://arxiv.org/abs/2204.13170",
)
_ACAR = (
    "Acar et al. (2021), Federated Learning Based on Dynamic Regularization",
    "https://arxiv.org/abs/2111.04263",
)
_LI = (
    "Li et al. (2020), Federated Optimization in Heterogeneous Networks",
    "https://arxiv.org/abs/1812.06127",
)
_ZHAO = (
    "Zhao et al. (2018), Federated Learning with Non-IID Data",
    "https://arxiv.org/abs/1806.00582",
)
_YAO = (
    "Yao et al. (2019), Federated Learning with Unbiased Gradient Aggregation and "
    "Controllable Meta Updating",
    "https://arxiv.org/abs/1910.08234",
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
        Algorithm("fed_prox", algorithms.build_fed_prox, *_LI),
        Algorithm(
            "fed_share",
            server_data.build_fed_share,
            *_ZHAO,
            change_data=server_data.share_examples,
        ),
        Algorithm("uga", algorithms.build_uga, *_YAO),
        Algorithm("fed_meta", server_data.build_fed_meta, *_YAO),
        Algorithm("fed_meta_uga", server_data.build_fed_meta_uga, *_YAO),
        Algorithm("scaffold", algorithms.build_scaffold, *_KARIMIREDDY, "uniform"),
        Algorithm("scaffold_m", algorithms.build_scaffold_m, *_VARNO, "uniform"),
        Algorithm("fed_dyn", algorithms.build_fed_dyn, *_ACAR, "uniform"),
        Algorithm("adabest", algorithms.build_adabest, *_VARNO, "uniform"),
    )
}
