"""What the first page shows runs, and names what is there."""

import pathlib
import re

import numpy as np
import pytest

from tff_drift import algorithms

README = (pathlib.Path(__file__).parents[1] / "README.md").read_text("utf-8")


@pytest.mark.no_smoke
def test_the_example_trains():
    [code] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names = {}
    exec(code, names)
    result = names["result"]
    assert len(result.rows) == 10
    assert all(np.isfinite(row["train_loss"]) for row in result.rows)
    kernel, _ = result.model_weights.trainable
    assert np.shape(kernel) == (5, 2)


def test_the_methods_are_counted_and_named():
    section = README.split("## Methods\n")[1].split(":")[0]
    count, names = re.fullmatch(r"\s*(\d+) methods, from (.+)", section, re.S).groups()
    # Training in one place is no federated method.
    assert int(count) == len(algorithms.methods()) - 1
    known = {name.replace("_", "") for name in algorithms.methods()}
    assert {name.lower() for name in re.split(r", | and | to ", names)} <= known


def test_it_fits_two_screens():
    assert len(README.splitlines()) <= 90
