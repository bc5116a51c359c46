"""Mime: the server's optimizer, imitated on the clients.

Karimireddy et al. (2020), Mime: Mimicking Centralized Stochastic Algorithms in
Federated Learning, Algorithm 1. https://arxiv.org/abs/2008.03606
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import autograph, client_works, optimizers
from tff_drift.algorithms.composition import compose
from tff_drift.algorithms.options import TrainingOptions, explicit_options, split
from tff_drift.algorithms.server_steps import (
    Cohort,
    OptimizerStep,
    ServerResult,
    ServerState,
    ServerStep,
    StepAround,
)
from tff_drift.method_specs import Cost, Method, register
from tff_drift.optimizers.scheduled import pass_round
from tff_drift.tensors import Tensors, from_vector, minus


class MimeLiteWork(client_works.LocalSgd):
    """The client's half: y <- y - η U(g(y), s), with the server's s fixed."""

    keeps_statistics = True
    needs_full_gradient = True

    def initial_optimizer_state(
        self, context: client_works.LocalContext, fresh: Any
    ) -> Any:
        """Returns the base optimizer with the server's statistics."""
        if not isinstance(fresh, Mapping):
            return context.server_message
        statistics = context.server_message if context.server_message else {}
        return collections.OrderedDict(fresh, **statistics)

    def update_client_state(
        self, context: client_works.LocalContext, local: client_works.LocalResult
    ) -> client_works.ClientOutput:
        """Returns ∇f_i(x) for the server."""
        del context
        return client_works.ClientOutput(message=local.full_gradient)


class MimeWork(MimeLiteWork):
    """The client's half of Mime: g(y) - g(x) + c in place of g(y)."""

    needs_full_gradient = False
    needs_cohort_gradient = True
    needs_initial_gradients = True
    # The gradients ∇f_i(x) were sent before training.
    has_client_output = False

    def correction(self, context: client_works.LocalContext) -> tf.Tensor:
        """Returns c."""
        return context.cohort_gradient

    def minibatch_gradient(self, step: client_works.Step) -> Tensors:
        """Returns g(y) - g(x), of the same minibatch."""
        return minus(step.gradients, step.initial_gradients)


class MimeStep(StepAround):
    """The server's half: s <- V(c, s), and another step for x.

    Args:
      base: The base optimizer, of which s are the statistics.
      weight_decay: λ of the clients' loss, which c lacks.
      step: The step that moves the model.
    """

    def __init__(
        self,
        base: tff.learning.optimizers.Optimizer,
        weight_decay: float,
        step: ServerStep,
    ) -> None:
        super().__init__(step)
        self._base, self._weight_decay = base, weight_decay

    def initial_state(self, trainable: Tensors) -> ServerState:
        """Returns the statistics of an optimizer that has taken no step."""
        specs = tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in trainable)
        return collections.OrderedDict(
            step=self._step.initial_state(trainable), base=self._base.initialize(specs)
        )

    def message(self, state: ServerState) -> Any:
        """Returns s, without the hyperparameters, which clients have."""
        base = state["base"]
        if not isinstance(base, Mapping):
            return base
        hparams = self._base.get_hparams(base)
        statistics = [(name, base[name]) for name in base if name not in hparams]
        return collections.OrderedDict(statistics) if statistics else ()

    def next(
        self,
        state: ServerState,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes the inner step and renews s."""
        result = self.next_of_step(state, trainable, pseudo_gradient, cohort)
        c = from_vector(cohort.message, trainable)
        if self._weight_decay:
            c = tuple(
                g + self._weight_decay * x for g, x in zip(c, trainable, strict=True)
            )
        base = self._with_hparams_of_clients(state["base"], cohort)
        base, _ = autograph.of_user(self._base.next)(base, trainable, c)
        return result._replace(
            state=collections.OrderedDict(step=result.state, base=base)
        )

    def pass_round(self, state: ServerState) -> ServerState:
        """Returns the state with a schedule of either optimizer at the next round."""
        base = pass_round(self._base, state["base"])
        return collections.OrderedDict(super().pass_round(state), base=base)

    def _with_hparams_of_clients(self, base: Any, cohort: Cohort) -> Any:
        """Returns the base optimizer's state at the hyperparameters of its clients."""
        hparams = collections.OrderedDict(
            (name, tf.cast(cohort.client_hparams[name], value.dtype))
            for name, value in self._base.get_hparams(base).items()
        )
        return autograph.of_user(self._base.set_hparams)(base, hparams)


def compose_mime(
    work_class: type[MimeLiteWork],
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    server_optimizer_fn: optimizers.OptimizerOrRate,
    message_aggregator: Any,
    options: Any,
) -> tff.learning.templates.LearningProcess:
    """Composes Mime or MimeLite of the arguments of their builders.

    Args:
      work_class: The client's half.
      model_fn: See `build_mime`, as the others.
      client_optimizer_fn: Likewise.
      server_optimizer_fn: Likewise.
      message_aggregator: Likewise.
      options: Likewise.

    Returns:
      A `tff.learning.templates.LearningProcess`.
    """
    local, shared = split(options, TrainingOptions)
    work = work_class(client_optimizer_fn, **local)
    server_optimizer = optimizers.as_optimizer(
        "server_optimizer_fn", server_optimizer_fn
    )
    base = optimizers.as_optimizer("client_optimizer_fn", client_optimizer_fn)
    step = OptimizerStep(server_optimizer)
    return compose(
        model_fn,
        work,
        MimeStep(base, work.client_weight_decay, step),
        message_aggregator=message_aggregator,
        **shared,
    )


@explicit_options(TrainingOptions)
def build_mime(
    model_fn: client_works.ModelFn,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    server_optimizer_fn: optimizers.OptimizerOrRate = 1.0,
    *,
    message_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds Mime, whose clients take the steps that one optimizer on all data would.

    Karimireddy et al. (2020), Algorithm 1. https://arxiv.org/abs/2008.03606

    The base optimizer (U, V) can be any, such as momentum or Adam. Its statistics s,
    such as a momentum, are the server's, and fixed while clients train:

    ```
    server:  c = Σ p_i ∇f_i(x)                     of this round's cohort
    client:  y_i <- y_i - η U(g_i(y_i) - g_i(x) + c, s)
    server:  s <- V(c, s);  x <- ServerOpt(x, Σ p_i (x - y_i))
    ```

    with ∇f_i the gradient of the client's whole loss, and both g_i of the same
    minibatch.

    | paper | argument |
    |---|---|
    | U, V, η | `client_optimizer_fn`, an optimizer, or the rate of SGD |
    | p_i | `client_weighting`; equal for all clients in the paper |
    | – | `server_optimizer_fn`; in the paper x is the mean of the y_i, the rate 1 |

    Degenerate cases: with one local step on all data of all clients, it is the base
    optimizer in one place. With a single client, its first local step is that of the
    base optimizer.

    A round has two exchanges: clients send ∇f_i(x) before they train. Each example
    costs three gradients, of which FedAvg takes one.

    The type signatures and metrics are those of `build_fed_avg`, except that
    `aggregator` is `<model=..., message=...>`. The traffic is 2n down and the size of
    s, and 2n up, for n weights of one float dtype.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: The base optimizer, as in `build_fed_avg`.
      server_optimizer_fn: As in `build_fed_avg`.
      message_aggregator: How the mean c is taken, a factory such as for
        `model_aggregator`; by default the mean with the weights of the updates.
      **options: See `tff_drift.algorithms.TrainingOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    return compose_mime(
        MimeWork,
        model_fn,
        client_optimizer_fn,
        server_optimizer_fn,
        message_aggregator,
        options,
    )


METHOD = register(
    Method(
        name="mime",
        builder=build_mime,
        paper=(
            "Karimireddy et al. (2020), Mime: Mimicking Centralized Stochastic "
            "Algorithms in Federated Learning"
        ),
        url="https://arxiv.org/abs/2008.03606",
        traffic=(2, 2),
        second_gradients=True,
        client_cost=Cost(repeated_sums=3, repeated_products=1, products=1),
        server_cost=Cost(repeated_sums=2),
    )
)
