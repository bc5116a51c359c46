import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tff_drift import files
from tff_drift.simulation.records.metrics_file import (
    MetricsFile,
    MetricsFileError,
    read_rows,
    rows_until,
)

ROWS = [
    {"round": 0, "test_loss": 2.5},
    {"round": 1, "train_loss": 0.1, "train_num_examples": 20},
    {"round": 2, "train_loss": math.inf, "test_loss": -1e-300},
    {"round": 3, "train_loss": 16777216.0},
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.csv"


def _write(path, rows):
    file = MetricsFile(path)
    for row in rows:
        file.append(row)
    file.close()


def test_rows_come_back_with_their_types(path):
    _write(path, ROWS)
    columns, rows = read_rows(path)
    assert columns == ["round", "test_loss", "train_loss", "train_num_examples"]
    assert rows == ROWS
    assert [list(map(type, row.values())) for row in rows] == [
        [int, float],
        [int, float, int],
        [int, float, float],
        [int, float],
    ]


def test_text_is_plain_csv(path):
    _write(path, ROWS[:2])
    assert path.read_text() == (
        "round,test_loss,train_loss,train_num_examples\n0,2.5,,\n1,,0.1,20\n"
    )


def test_nan_is_a_value_and_not_a_gap(path):
    _write(path, [{"round": 1, "a": math.nan, "b": 1.0}])
    [row] = read_rows(path)[1]
    assert math.isnan(row["a"])


@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    values=st.lists(
        st.one_of(st.integers(), st.floats(allow_nan=False)), min_size=1, max_size=5
    )
)
def test_any_number_survives(path, values):
    rows = [{"round": i, f"column {i}": value} for i, value in enumerate(values)]
    _write(path, rows)
    assert read_rows(path)[1] == rows


def test_every_row_is_in_the_file_at_once(path):
    file = MetricsFile(path)
    for count, row in enumerate(ROWS, start=1):
        file.append(row)
        assert read_rows(path)[1] == ROWS[:count]
    file.close()


def test_half_a_last_line_is_left_out_at_every_length(path):
    _write(path, ROWS)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        if b"\n" not in whole[:length]:
            continue
        num_lines = whole[:length].count(b"\n")
        assert read_rows(path)[1] == ROWS[: num_lines - 1]


def test_resuming_drops_the_rows_after_the_checkpoint(path):
    _write(path, ROWS)
    with open(path, "ab") as file:
        file.write(b"4,1.")
    file = MetricsFile(path, rows_until(path, 2))
    assert read_rows(path)[1] == ROWS[:3]
    file.append(ROWS[3])
    file.close()
    assert read_rows(path)[1] == ROWS


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_failure_while_widening_leaves_the_old_file(path, monkeypatch, function):
    _write(path, ROWS[:2])
    file = MetricsFile(path, ROWS[:2])

    def fail(*args):
        raise OSError("no space")

    monkeypatch.setattr(files.os, function, fail)
    with pytest.raises(OSError, match="no space"):
        file.append({"round": 2, "new": 1.0})
    assert read_rows(path)[1] == ROWS[:2]


def test_missing_rows_are_an_error(path):
    _write(path, [ROWS[0], ROWS[1], ROWS[3]])
    with pytest.raises(MetricsFileError, match="has 2 of the rounds 1 to 3"):
        rows_until(path, 3)
    assert rows_until(path, 1) == ROWS[:2]


def test_missing_file_is_an_error_only_after_a_round(path):
    assert rows_until(path, 0) == []
    with pytest.raises(MetricsFileError, match="rounds 1 to 1"):
        rows_until(path, 1)


@pytest.mark.parametrize(
    "content",
    ["name,age\nann,3\n", "round,name\n1,ann\n", "\x00\xff\n", "no line break"],
)
def test_foreign_file_is_refused(path, content):
    path.write_text(content)
    with pytest.raises(MetricsFileError, match="not a metrics file of tff_drift"):
        read_rows(path)


def test_row_without_a_round_is_refused(path):
    path.write_text("round,a\n,1\n")
    with pytest.raises(MetricsFileError, match="row without a round number"):
        read_rows(path)
