import math

import pytest

from experiments.reports import texts
from tests.experiments import programs


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("accuracy", 0.8123, "81.23 %"),
        ("accuracy", math.nan, "-"),
        ("accuracy", None, "-"),
        ("loss", 0.123456, "0.1235"),
        ("distance", 1e-6, "1e-06"),
    ],
)
def test_metric(name, value, text):
    assert texts.metric(name, value) == text


def test_metric_with_deviation():
    assert texts.metric_with_deviation("accuracy", 0.8, 0.0123) == "80.00 ± 1.23 %"
    assert texts.metric_with_deviation("accuracy", 0.8, math.nan) == "80.00 %"
    assert texts.metric_with_deviation("loss", 1.5, 0.25) == "1.5 ± 0.25"
    assert texts.metric_with_deviation("loss", math.nan, 0.25) == "-"


@pytest.mark.parametrize(
    ("value", "deviation", "text"),
    [
        (2.5, 0.7071, "2.5 ± 0.7"),
        (3.0, 1.0, "3 ± 1"),
        (12_300.5, 400.4, "12,300 ± 400"),
        (2.5, math.nan, "2.5"),
        (7, math.nan, "7"),
        (math.nan, math.nan, "-"),
    ],
)
def test_count(value, deviation, text):
    assert texts.count(value, deviation) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (2e6, "2 MB"),
        (3e15, "3e+03 TB"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
    ],
)
def test_size(num_bytes, text):
    assert texts.size(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (61, "1 min 1 s"), (7500, "2 h 5 min")],
)
def test_duration(seconds, text):
    assert texts.duration(seconds) == text


def test_markdown_table():
    table = texts.markdown_table(["name", "x"], [["a", "1"], ["b", "2"]])
    assert table == "| name | x |\n| :-- | --: |\n| a | 1 |\n| b | 2 |\n"


def test_a_table_that_nobody_reads_is_a_closed_pipe_as_of_print():
    with pytest.raises(BrokenPipeError), programs.closed_output():
        texts.print_table(["name"], [["one"]])
