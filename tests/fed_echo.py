"""A method of one's own, in a file of one's own: FedEcho, which is no paper's.

Nothing else names it. `tff-drift train --plugin=tests/fed_echo.py --algorithm=fed_echo`
trains it, and `tests/test_method_from_outside.py` puts it under every property.
"""

import collections

from tff_drift import algorithms, checks, client_works
from tff_drift.algorithms import options


class FedEchoWork(client_works.LocalSgd):
    """The client's half: y_i <- y_i - η (g(y_i) - ρ e_i), then e_i <- x - y_i."""

    def __init__(self, client_optimizer_fn, rho, **local):
        super().__init__(client_optimizer_fn, **local)
        checks.check_probability("rho", rho)
        self._rho = rho

    def initial_client_state(self, zeros):
        return collections.OrderedDict(echo=zeros)

    def correction(self, context):
        return -self._rho * context.client_state["echo"]

    def update_client_state(self, context, local):
        return client_works.ClientOutput(
            collections.OrderedDict(echo=local.pseudo_gradient)
        )


def build_fed_echo(
    model_fn, client_optimizer_fn, server_optimizer_fn=1.0, *, rho=0.1, **keywords
):
    """Builds FedEcho, whose clients keep their last pseudo-gradient e_i.

    Nobody et al. (2026), section 1. https://example.org/fed_echo

    The process is a `StatefulLearningProcess` with `C = <echo=float32[n]>`.

    Args:
      model_fn: As in `build_fed_avg`.
      client_optimizer_fn: As in `build_fed_avg`.
      server_optimizer_fn: As in `build_fed_avg`.
      rho: ρ, from 0, which is FedAvg, to 1.
      **keywords: See `tff_drift.algorithms.StatefulOptions`.

    Returns:
      A `StatefulLearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If an argument is out of its range; the message names it.
    """
    local, shared = options.split(keywords, algorithms.StatefulOptions)
    work = FedEchoWork(client_optimizer_fn, rho, **local)
    return algorithms.compose(model_fn, work, server_optimizer_fn, **shared)


METHOD = algorithms.register(
    algorithms.Method(
        name="fed_echo",
        builder=build_fed_echo,
        paper="Nobody et al. (2026), Echoes",
        url="https://example.org/fed_echo",
        weighting="uniform",
        client_cost=algorithms.Cost(repeated_sums=1, products=1),
        server_cost=algorithms.Cost(repeated_sums=1),
        options=(
            algorithms.Option(
                "rho",
                "probability",
                "Share of the last pseudo-gradient.",
            ),
        ),
    )
)
