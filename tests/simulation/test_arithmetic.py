import math

import pytest

from tff_drift import simulation


# By hand from Table 4, with K = 7: what is beyond K (g + ns + nm).
@pytest.mark.parametrize(
    ("method", "sums", "products"),
    [
        ("fed_avg", 0, 0),
        ("scaffold_m", 14 + 2, 2),
        ("fed_dyn", 21 + 1, 7 + 1),
        ("adabest", 7 + 1, 1),
        # SCAFFOLD/m's, and c_i⁺ - c_i.
        ("scaffold", 14 + 2 + 1, 2),
    ],
)
def test_clients_of_table_4(method, sums, products):
    arithmetic = simulation.client_arithmetic(method, 7)
    assert arithmetic == (sums, products)
    assert arithmetic.total == sums + products


# By hand from Table 5, with M = 10 clients.
@pytest.mark.parametrize(
    ("method", "sums", "products"),
    [
        ("fed_avg", 10, 0),
        ("scaffold_m", 12, 2),
        ("fed_dyn", 13, 1),
        ("adabest", 12, 1),
        ("scaffold", 21, 1),
    ],
)
def test_servers_of_table_5(method, sums, products):
    assert simulation.server_arithmetic(method, 10) == (sums, products)


def test_steps_may_be_a_mean():
    low, middle, high = (
        simulation.client_arithmetic("fed_dyn", steps).total for steps in (2, 2.5, 3)
    )
    assert middle == (low + high) / 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fed_adam", 1), "method must be one of 'adabest', 'central', 'fed_avg'"),
        (("adabest", -1), "num_steps must be"),
        (("adabest", math.inf), "num_steps must be"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(ValueError, match=message):
        simulation.client_arithmetic(*arguments)
