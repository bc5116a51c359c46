"""A table's rows by client: what each client has, and which client an error names."""

import numpy as np
import pandas as pd
import pytest

import tasks
from tasks.own import user_tables

_ROWS = 40
_NUMBER = np.random.default_rng(3).integers(0, 7, _ROWS)
_LETTER = np.array(list("gfedcba"))[_NUMBER]

_OWNERS = {
    "integers": _NUMBER,
    "floats": _NUMBER / np.float32(4),
    "truths": _NUMBER > 3,
    "texts": _LETTER.astype(object),
    "dates": pd.to_datetime(_NUMBER, unit="D"),
    "nullable": pd.array(_NUMBER, "Int64"),
    "categories": pd.Categorical(_LETTER, categories=list("xcabgefdz")),
}


def _frame(owners):
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "owner": owners,
            "x": rng.integers(-9, 9, _ROWS),
            "t": rng.integers(0, 6, _ROWS) / 2,
            "z": pd.array(rng.normal(size=_ROWS), "Float64"),
            "y": np.array(["no", "yes"])[rng.integers(0, 2, _ROWS)],
        },
        index=rng.integers(0, 5, _ROWS),
    )


@pytest.mark.parametrize("time", [None, "t"])
@pytest.mark.parametrize("kind", _OWNERS)
def test_clients_have_their_rows_in_order(kind, time):
    frame = _frame(_OWNERS[kind])
    found = user_tables.client_examples(
        frame, frame["owner"], ["z", "x"], "y", "frame", time
    )
    categories = getattr(frame["owner"], "cat", None)
    owners = sorted(set(frame["owner"])) if categories is None else list("cabgefd")
    assert list(found) == list(map(str, owners))
    for owner in owners:
        rows = [row for _, row in frame.iterrows() if row["owner"] == owner]
        rows.sort(key=lambda row: 0 if time is None else row[time])  # Stable.
        x, y = found[str(owner)]
        assert (x.dtype, x.flags.c_contiguous) == (np.float32, True)
        expected = np.array([[row["z"], row["x"]] for row in rows], np.float32)
        np.testing.assert_array_equal(x, expected, strict=True)
        assert y.tolist() == [row["y"] for row in rows]


def test_changes_are_counted_by_client():
    owners = pd.Series(["b", "a", "b", "b", "a", "b"])
    times = pd.Series([2.5, 1.0, 0.0, 2.5, 1.0, -1.0])
    changes = user_tables.changes(times, owners)
    assert {owner: found.tolist() for owner, found in changes.items()} == {
        "a": [],
        "b": [1, 2],
    }


def test_the_first_clients_error_is_told_whatever_rows_and_columns_come_before():
    frame = pd.DataFrame(
        {
            "owner": ["b", "c", "a", "a"],
            "t": [0.0, np.inf, 2.0, 1.0],
            "x": [np.nan, 1.0, 2.0, 3.0],
            "z": [1.0, 2.0, np.inf, -np.inf],
            "y": [None, "no", "yes", "no"],
        },
        index=[10, 20, 30, 40],
    )
    for time, row in ((None, 30), ("t", 40)):
        with pytest.raises(
            tasks.DataError, match=rf"^frame: client 'a', field 'z', row {row}: found"
        ):
            tasks.from_frame(
                frame, client_id="owner", label="y", features=["x", "z"], time=time
            )
