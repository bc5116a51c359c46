"""FedAvg, which other methods are in degenerate cases: built once for all papers."""

import functools

from tests import stateful
from tff_drift import algorithms


@functools.cache
def _process(**options):
    return algorithms.build_fed_avg(
        stateful.LinearRegression,
        0.1,
        client_weighting=stateful.UNIFORM,
        **options,
    )


def fed_avg(clients, rate, **options):
    """Rounds by hand of FedAvg with uniform weights.

    Args:
      clients: See `stateful.Driver`.
      rate: That of the clients.
      **options: What `build_fed_avg` takes besides.
    """
    return stateful.Driver(_process(**options), clients, learning_rate=rate)
