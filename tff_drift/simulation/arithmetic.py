"""What a method computes in a round beyond gradients, in units of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tff_drift import checks


class Arithmetic(NamedTuple):
    """Operations on vectors of the model's n trainable weights.

    Attributes:
      sums: Additions and subtractions, in units of n.
      products: Multiplications and divisions, in units of n.
    """

    sums: float
    products: float

    @property
    def total(self) -> float:
        """All operations, in units of n."""
        return self.sums + self.products


class _Costs(NamedTuple):
    """Of K local steps on a client, and of M clients in the cohort on the server."""

    client: Callable[[float], Arithmetic]
    server: Callable[[float], Arithmetic]


# Varno et al. (2022), AdaBest, https://arxiv.org/abs/2204.13170, Tables 4 and 5.
# SCAFFOLD is counted in the same way, line by line of its Algorithm 1 with option II.
_COSTS = {
    "fed_avg": _Costs(
        client=lambda steps: Arithmetic(0, 0),
        server=lambda cohort: Arithmetic(cohort, 0),
    ),
    "scaffold": _Costs(
        # As SCAFFOLD/m, and the change of c_i that is sent.
        client=lambda steps: Arithmetic(2 * steps + 3, 2),
        # Models and changes are summed; the sum of changes is scaled and added to c.
        server=lambda cohort: Arithmetic(2 * cohort + 1, 1),
    ),
    "scaffold_m": _Costs(
        client=lambda steps: Arithmetic(2 * steps + 2, 2),
        server=lambda cohort: Arithmetic(cohort + 2, 2),
    ),
    "fed_dyn": _Costs(
        client=lambda steps: Arithmetic(3 * steps + 1, steps + 1),
        server=lambda cohort: Arithmetic(cohort + 3, 1),
    ),
    "adabest": _Costs(
        client=lambda steps: Arithmetic(steps + 1, 1),
        server=lambda cohort: Arithmetic(cohort + 2, 1),
    ),
}
ARITHMETIC_METHODS = tuple(_COSTS)


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
      method: One of `ARITHMETIC_METHODS`.
      num_steps: K, the client's local steps in the round, or their mean.

    Returns:
      The operations, in units of n.

    Raises:
      TypeError: If `num_steps` is not a number.
      ValueError: If the method is unknown, or `num_steps` negative or not finite.
    """
    checks.check_one_of("method", method, ARITHMETIC_METHODS)
    checks.check_non_negative("num_steps", num_steps)
    return _COSTS[method].client(num_steps)


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
      method: One of `ARITHMETIC_METHODS`.
      cohort_size: M.

    Returns:
      The operations, in units of n.

    Raises:
      TypeError: If `cohort_size` is not a number.
      ValueError: If the method is unknown, or `cohort_size` is negative or not finite.
    """
    checks.check_one_of("method", method, ARITHMETIC_METHODS)
    checks.check_non_negative("cohort_size", cohort_size)
    return _COSTS[method].server(cohort_size)
