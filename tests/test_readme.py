"""What the first page shows runs, and names what is there."""

import pathlib
import re

import numpy as np

from tff_drift import algorithms

README = (pathlib.Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_example_trains():
    [code] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names = {}
    exec(code, names)
    result = names["result"]
    assert len(result.rows) == 10
    assert all(np.isfinite(row["train_loss"]) for row in result.rows)
    kernel, _ = result.model_weights.trainable
    assert np.shape(kernel) == (5, 2)


def test_the_table_says_what_the_rows_say():
    table = re.findall(r"^\|.*\| \[(.+), (\d{4})\]\((.+)\) \|$", README, re.MULTILINE)
    lines = re.findall(r"^\|.*`build_.*\|$", README, re.MULTILINE)
    assert len(lines) == len(table)
    rows, named = algorithms.methods(), []
    for line, (authors, year, url) in zip(lines, table):
        for name in re.findall(r"`build_(\w+)`", line):
            named.append(name)
            assert rows[name].paper.startswith(f"{authors} ({year})")
            assert rows[name].url == url
    assert len(named) > 10
    # A name that nobody has is no method, and none is told twice.
    assert len(named) == len(set(named))
