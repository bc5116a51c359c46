import tracemalloc

import hypothesis
from hypothesis import strategies

from tff_drift.simulation.records.metrics import MetricsTable

NUMBERS = strategies.one_of(
    strategies.integers(), strategies.just(2**64 - 1), strategies.floats()
)
ROWS = strategies.lists(
    strategies.dictionaries(strategies.text(max_size=3), NUMBERS, max_size=4)
)


@hypothesis.given(ROWS)
def test_rows_come_out_as_they_went_in(rows):
    table = MetricsTable(rows)
    # As text: 1 and 1.0 are different, and a value that is not a number equals itself.
    assert [repr(row) for row in table] == [repr(row) for row in rows]
    assert repr(table[1:]) == repr(rows[1:])
    assert len(table) == len(rows)
    if rows:
        assert repr(table[-1]) == repr(rows[-1])


def test_a_thousand_rows_take_less_than_a_megabyte():
    table = MetricsTable()
    tracemalloc.start()
    try:
        for number in range(1000):
            table.append(
                {"round": number, **{f"column_{i}": number / 7 + i for i in range(40)}}
            )
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 600_000
