"""The arithmetic of a method beyond gradients per round, in units of the model."""

from __future__ import annotations

from tff_drift import algorithms, checks
from tff_drift.algorithms import Arithmetic, Cost


def client_arithmetic(method: str, num_steps: float) -> Arithmetic:
    """Returns what a client computes in a round beyond its K steps of SGD.

    Varno et al. (2022), AdaBest, Table 4. https://arxiv.org/abs/2204.13170. With s
    and m the costs of one sum and one product and g that of a gradient, K steps of
    SGD are K (g + ns + nm). Beyond them,

    | method | beyond SGD |
    |---|---|
    | FedAvg | 0 |
    | SCAFFOLD/m | 2Kns + 2n(s + m) |
    | SCAFFOLD | 2Kns + 3ns + 2nm, which the paper does not list |
    | FedDyn | 3Kns + Knm + n(s + m) |
    | AdaBest | Kns + n(s + m) |

    These are the algorithms as written. An implementation may do less, as ours does
    where it computes c - c_i once and not at every step.

    Args:
      method: The name of a method whose row has a `client_cost`.
      num_steps: K, the client's local steps in the round, or their mean.

    Returns:
      The operations, in units of n.

    Raises:
      TypeError: If `num_steps` is not a number.
      ValueError: If the method is unknown or nobody has counted its operations, or
        `num_steps` is negative or not finite.
    """
    checks.check_non_negative("num_steps", num_steps)
    return _cost(method, "client_cost").times(num_steps)


def server_arithmetic(method: str, cohort_size: float) -> Arithmetic:
    """Returns what the server computes in a round.

    Varno et al. (2022), AdaBest, Table 5. https://arxiv.org/abs/2204.13170. With M
    clients in the cohort,

    | method | operations |
    |---|---|
    | FedAvg | Mns |
    | SCAFFOLD/m | Mns + 2ns + 2nm |
    | SCAFFOLD | 2Mns + ns + nm, which the paper does not list |
    | FedDyn | Mns + 3ns + nm |
    | AdaBest | Mns + 2ns + nm |

    Args:
      method: The name of a method whose row has a `server_cost`.
      cohort_size: M.

    Returns:
      The operations, in units of n.

    Raises:
      TypeError: If `cohort_size` is not a number.
      ValueError: If the method is unknown or nobody has counted its operations, or
        `cohort_size` is negative or not finite.
    """
    checks.check_non_negative("cohort_size", cohort_size)
    return _cost(method, "server_cost").times(cohort_size)


def _cost(method: str, side: str) -> Cost:
    costs = {name: getattr(row, side) for name, row in algorithms.methods().items()}
    known = {name: cost for name, cost in costs.items() if cost is not None}
    checks.check_one_of("method", method, known)
    return known[method]
