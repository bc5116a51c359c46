"""Series of devices: in the order of time, cut into windows, without leaks."""

import numpy as np
import pandas as pd
import pytest

import tasks

_LENGTHS = {"a": 10, "b": 20}


def _frame():
    """Rows in no order, whose features tell device and time."""
    rows = [
        {"device": device, "t": time, "x": 100.0 * (device == "b") + time, "y": time}
        for device, length in _LENGTHS.items()
        for time in range(length)
    ]
    frame = pd.DataFrame(rows).sample(frac=1, random_state=0, ignore_index=True)
    return frame.assign(y=frame["y"] + 0.5)


def _load(frame, **options):
    return tasks.from_frame(frame, client_id="device", label="y", time="t", **options)


def _as_dates(frame):
    return frame.assign(t=pd.Timestamp("2020") + pd.to_timedelta(frame["t"], "h"))


def _indexed_by(*names):
    """An index may have the names of columns."""
    return lambda frame: frame.set_index(list(names), drop=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame,
        _as_dates,
        _indexed_by("t"),
        _indexed_by("device"),
        _indexed_by("t", "device", "y"),
    ],
)
def test_the_last_examples_of_each_client_are_held_out(change):
    task = _load(change(_frame()), test_fraction=0.2)

    for device, length in _LENGTHS.items():
        start = 100.0 * (device == "b")
        times = np.arange(length)
        held_out = length // 5
        for data, expected in (
            (task.train, times[:-held_out]),
            (task.test, times[-held_out:]),
        ):
            x, y = data.examples(device)
            np.testing.assert_array_equal(x[:, 0], start + expected)
            np.testing.assert_array_equal(y, expected + 0.5)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame,
        lambda frame: frame.astype({"t": "Int64"}),
        lambda frame: _as_dates(frame).assign(t=lambda d: d["t"].dt.tz_localize("UTC")),
        _indexed_by("t"),
    ],
)
@pytest.mark.parametrize(
    ("times", "num_train"),
    [
        # Of 10 rows, 3 are to be held out, from the eighth on.
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 7),
        ([0, 1, 2, 3, 4, 5, 6, 6, 8, 9], 6),
        ([0, 1, 2, 3, 4, 4, 4, 4, 8, 9], 8),
        ([0, 1, 2, 3, 4, 6, 6, 6, 6, 9], 5),
        ([0, 1, 1, 1, 1, 1, 1, 1, 1, 1], 1),
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 9),
    ],
)
def test_rows_of_one_time_are_in_one_part(times, num_train, change):
    numbers = np.arange(10.0)
    frame = pd.DataFrame({"device": "a", "t": times, "x": numbers, "y": numbers + 0.5})
    other = frame.assign(device="b", t=5)  # Nothing of it can be held out.
    both = pd.concat([frame[::-1], other], ignore_index=True)
    task = _load(change(both), test_fraction=0.3)
    found = [part.examples("a")[0][:, 0] for part in (task.train, task.test)]
    assert sorted(found[0]) == list(numbers[:num_train])
    assert sorted(found[1]) == list(numbers[num_train:])
    assert task.test.client_ids == ("a",)
    assert task.train.num_examples("b") == 10


def test_windows_are_counted_where_rows_of_one_time_are_in_one_part():
    times = [0, 1, 2, 2, 4, 5]  # Rows 3 and 4 go together: to the tests.
    frame = pd.DataFrame({"device": "a", "t": times, "x": 1.0, "y": 0.5})
    task = _load(frame, test_fraction=0.5, window=2)
    assert (task.train.num_examples("a"), task.test.num_examples("a")) == (1, 3)


def test_rows_of_a_single_time_cannot_be_held_out():
    with pytest.raises(tasks.DataError, match="examples of more than one time"):
        _load(_frame().assign(t=3))


def test_windows_end_at_their_label_and_lie_in_one_part_each():
    task = _load(_frame(), window=3, test_fraction=0.3)

    assert task.train.element_spec[0].shape == (None, 3, 1)
    x, y = task.train.examples("a")  # Of times 0 to 6.
    expected = [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]
    np.testing.assert_array_equal(x[:, :, 0], expected)
    np.testing.assert_array_equal(y, [2.5, 3.5, 4.5, 5.5, 6.5])
    x, y = task.test.examples("a")  # Of times 7 to 9.
    np.testing.assert_array_equal(x[:, :, 0], [[7, 8, 9]])
    np.testing.assert_array_equal(y, [9.5])
    rows = [set(part.examples("b")[0].ravel()) for part in (task.train, task.test)]
    assert rows == [set(range(100, 114)), set(range(114, 120))]
    # One layer on all numbers of a window.
    assert task.model_fn().trainable_variables[0].shape == (3, 1)


def test_a_table_of_its_own_is_cut_into_windows_too():
    frame = _frame()
    task = _load(frame, test=frame[frame["t"] >= 6], window=4)
    assert task.train.num_examples("a") == 7
    assert task.test.examples("a")[0][:, :, 0].tolist() == [[6, 7, 8, 9]]


def test_clients_that_are_too_short():
    # Of the 10 rows of "a", 2 are for tests: too few for a window.
    task = _load(_frame(), window=4)
    assert (task.train.client_ids, task.test.client_ids) == (("a", "b"), ("b",))
    with pytest.raises(tasks.DataError, match="window is 9, but client 'a' has 8 rows"):
        _load(_frame(), window=9)
    with pytest.raises(tasks.DataError, match="client 'a' has 2 rows to test on"):
        _load(_frame(), window=5)


def test_only_the_first_windows_may_be_kept():
    x, _ = _load(_frame(), window=3, max_examples=2).train.examples("a")
    np.testing.assert_array_equal(x[:, :, 0], [[0, 1, 2], [1, 2, 3]])


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (lambda t: t.astype(str), r"'t': expected times.*to_datetime"),
        (lambda t: t.where(t != 3, np.nan), r"'t', row \d+: there is no time"),
        (lambda t: t > 3, r"'t': expected times, found bool"),
        (
            lambda t: t.astype(float).replace(3, np.inf),
            r"'t', row \d+: found inf\. Replace",
        ),
        (
            lambda t: t.astype("Float32").replace(3, -np.inf),
            r"'t', row \d+: found -inf\. Replace",
        ),
    ],
)
def test_times_that_are_none_are_refused(times, message):
    frame = _frame()
    with pytest.raises(tasks.DataError, match=message):
        _load(frame.assign(t=times(frame["t"])))


def test_a_bad_value_is_found_by_its_row_also_where_rows_are_put_in_order():
    frame = _frame()
    row = int(frame.index[(frame["device"] == "a") & (frame["t"] == 3)][0])
    assert row != 3
    for column, message in (("y", "there is no label"), ("x", "found nan")):
        with pytest.raises(tasks.DataError, match=f"'{column}', row {row}: {message}"):
            _load(frame.assign(**{column: frame[column].where(frame.index != row)}))


def test_windows_need_time():
    with pytest.raises(
        ValueError, match=r"window is 3.*column of time by time \(--time_column\)"
    ):
        tasks.from_frame(_frame(), client_id="device", label="y", window=3)


def _load_table(path, *times):
    rows = "".join(f"a,{time},{k},{k + 0.5}\n" for k, time in enumerate(times))
    path.write_text(f"device,t,x,y\n{rows}")
    options = {"client_column": "device", "label": "y", "time_column": "t"}
    return tasks.load("own_numbers", data=str(path), test_fraction=0.25, **options)


def test_texts_with_offsets_are_in_the_order_of_utc(tmp_path):
    task = _load_table(
        tmp_path / "all.csv",
        "2024-10-27 02:30:00+01:00",  # Winter: the clock was put back.
        "2024-10-27T02:45+0200",
        "2024-10-27T00:50Z",
        "2024-10-27 02:30:00+02",
    )
    assert task.train.examples("a")[0].tolist() == [[3], [1], [2]]
    assert task.test.examples("a")[0].tolist() == [[0]]
    x, _ = _load_table(
        tmp_path / "all.csv", "2024-10-27", "2024-10-26 13:00", "20241028", "2024-10-30"
    ).test.examples("a")
    assert x.tolist() == [[3]]


def test_texts_some_of_which_have_an_offset_are_refused(tmp_path):
    with pytest.raises(
        tasks.DataError,
        match=r"field 't': '2024-10-27 02:30\+02:00' has an offset .* '2024-10-27 0",
    ):
        _load_table(
            tmp_path / "all.csv", "2024-10-27 02:30+02:00", "2024-10-27 02:30", "2025"
        )
