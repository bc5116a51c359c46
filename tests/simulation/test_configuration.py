import math

import numpy as np
import pytest

from tff_drift.simulation.records import configuration


def test_values_read_as_after_json():
    plain = configuration.to_json("configuration", {"a": (1, 2), "b": {"c": None}})
    assert plain == {"a": [1, 2], "b": {"c": None}}


@pytest.mark.parametrize("value", [np.float32(0.1), {1, 2}, len, {"deep": [object()]}])
def test_what_is_no_json_value_is_an_error(value):
    with pytest.raises(
        TypeError, match=r"configuration\['rate'\] must be a JSON value"
    ):
        configuration.to_json("configuration", {"rate": value})


def test_names_must_be_strings():
    with pytest.raises(TypeError, match="each name in configuration must be a string"):
        configuration.to_json("configuration", {1: 2})


def test_differences_name_every_field():
    old = {"a": 1, "b": {"c": [1], "gone": True}, "nan": math.nan}
    new = {"a": 1.0, "b": {"c": [2]}, "nan": math.nan, "new": "x"}
    assert configuration.differences(old, new) == [
        "a was 1 and is now 1.0",
        "b.c was [1] and is now [2]",
        "b.gone was true and is now absent",
        'new was absent and is now "x"',
    ]
    assert configuration.differences(old, old) == []


def test_what_is_none_may_be_absent():
    assert configuration.differences({"a": 1}, {"a": 1, "new": None}) == []
    assert configuration.differences({"a": 1, "b": {"c": None}}, {"a": 1}) == []
    (phrase,) = configuration.differences({"a": 0}, {"a": None})
    assert phrase == "a was 0 and is now null"
