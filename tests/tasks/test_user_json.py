"""Clients in JSON files of LEAF's layout."""

import json

import numpy as np
import pytest

import tasks


def _user(start, count, labels=None):
    x = [[float(start + k), 0.5] for k in range(count)]
    return {"x": x, "y": labels or [k % 2 for k in range(count)]}


def _write(path, users):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(user["y"]) for user in users.values()],
        "user_data": users,
    }
    path.write_text(json.dumps(content))
    return path


def _rows(datasets):
    return sorted(
        (client, *x.tolist(), y.item())
        for client in datasets.client_ids
        for x, y in zip(*datasets.examples(client), strict=True)
    )


def _expected(users):
    return sorted(
        (name, *x, y)
        for name, user in users.items()
        for x, y in zip(*user.values(), strict=True)
    )


_USERS = {"f01": _user(0, 10), "f02": _user(100, 5)}


def test_a_file_is_a_task_with_every_example_once(tmp_path):
    task = tasks.from_json(_write(tmp_path / "all_data.json", _USERS))

    assert task.train.client_ids == ("f01", "f02")
    assert task.test.num_examples("f01") == 2
    assert sorted(_rows(task.train) + _rows(task.test)) == _expected(_USERS)
    assert task.options["classes"] == (0, 1)
    assert task.train.element_spec[0].dtype.name == "float32"


def test_a_folder_has_many_files_to_train_and_to_test_on(tmp_path):
    other, tests = {"f03": _user(200, 3)}, {"f01": _user(50, 2)}
    _write(tmp_path / "train" / "all_data_0.json", _USERS)
    _write(tmp_path / "train" / "all_data_1.json", other)
    _write(tmp_path / "test" / "all_data_0.json", tests)
    (tmp_path / "train" / "README.txt").write_text("not read")

    task = tasks.from_json(tmp_path)

    assert _rows(task.train) == _expected({**_USERS, **other})
    assert _rows(task.test) == _expected(tests)


def test_images_keep_their_shape_and_numbers_may_be_predicted(tmp_path):
    images = np.arange(24).reshape(2, 3, 4).tolist()
    users = {"u": {"x": images, "y": [0.5, -1.5]}}
    _write(tmp_path / "train" / "a.json", users)
    _write(tmp_path / "test" / "a.json", users)
    task = tasks.from_json(tmp_path)
    x, y = task.train.examples("u")
    np.testing.assert_array_equal(x, images)
    assert (y.tolist(), task.options["target"]) == ([0.5, -1.5], "number")


def test_one_number_per_example_is_one_column(tmp_path):
    path = _write(tmp_path / "a.json", {"u": {"x": [1, 2, 3], "y": ["a", "b", "a"]}})
    task = tasks.from_json(path)
    assert task.train.element_spec[0].shape == (None, 1)
    assert task.options["classes"] == ("a", "b")


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (
            {"x": [[1, 2], [3]], "y": [0, 1]},
            r"field 'x': row 1 has the shape \(1,\), row 0 has \(2,\).*pad_sequences",
        ),
        (
            {"x": [["a"], ["b"]], "y": [0, 1]},
            r"field 'x': expected numbers, found .*'a'",
        ),
        (
            {"x": [[1], [None]], "y": [0, 1]},
            r"field 'x', example 1: there is no number",
        ),
        ({"x": [[1.0], [float("nan")]], "y": [0, 1]}, r"'x', example 1: found nan"),
        ({"x": [[1], [2]], "y": [0]}, r"field 'y': expected 2 labels, found the shape"),
        ({"x": [[1], [2]], "y": [0, None]}, r"field 'y', example 1: there is no label"),
        (
            {"x": [[1, 2], [3, 4]], "y": [0, -1]},
            r"field 'y', example 1: found the label -1",
        ),
        ({"x": 3, "y": [0, 1]}, r"field 'x': expected a list"),
        ({"x": [], "y": []}, "has no examples"),
        (
            {"inputs": [[1], [2]], "y": [0, 1]},
            r"must have the fields 'x' and 'y', found",
        ),
        ([[1], [2]], r"must have the fields 'x' and 'y', found"),
        ({"x": [[1, 2, 3], [1, 2, 3]], "y": [0, 1]}, r"of shape \(3,\), but \(2,\)"),
    ],
)
def test_a_bad_user_is_named_with_its_file(tmp_path, user, message):
    users = {"good": _user(0, 4), "bad": user}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"user_data": users}))
    with pytest.raises(tasks.DataError, match=message) as caught:
        tasks.from_json(path)
    assert f"{path}: client 'bad'" in str(caught.value)
    assert len(str(caught.value)) < 1200
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("[1, 2]", "is not in LEAF's layout"),
        ('{"user_data": {}}', "is not in LEAF's layout"),
        ('{"users": ["a"], "user_data": {"b": {}}}', "'users' names others than"),
        ('{"user_data": {"a": {"x": [1], "y": [0]}, "a": {}}}', "has 'a' twice"),
        ('{"user_data": {"a": {"x": [1], "y": [0], "y": [1]}}}', "has 'y' twice"),
        (
            '{"users": ["a", "eve"], "user_data": {"a": {"x": [1], "y": [0]}}}',
            "has examples of: 'eve' has none in 'user_data'",
        ),
        (
            '{"users": ["a", "a"], "user_data": {"a": {"x": [1], "y": [0]}}}',
            "has examples of: 'a' is named more than once",
        ),
        (
            '{"users": [], "user_data": {"a": {"x": [1], "y": [0]}}}',
            "has examples of: 'a' of 'user_data' is not in 'users'",
        ),
        (
            '{"num_samples": [2], "user_data": {"a": {"x": [1], "y": [0]}}}',
            "client 'a' has 1 labels, and 2 in 'num_samples'",
        ),
        (
            '{"num_samples": [], "user_data": {"a": {"x": [1], "y": [0]}}}',
            "'num_samples' must have a number for each of 1 users",
        ),
    ],
)
def test_a_bad_file_is_named(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(tasks.DataError, match=message) as caught:
        tasks.from_json(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1200


@pytest.mark.parametrize("options", [{}, {"target": "number"}])
@pytest.mark.parametrize(
    ("x", "y", "field"),
    [
        ([[0.5], [2**53 + 1]], [0, 1], "x"),
        ([[1], [2**63 + 1]], [0, 1], "x"),
        ([[1], [2**64]], [0, 1], "x"),
        ([[1], [2]], [0.5, 2**53 + 1], "y"),
        ([[1], [2]], [-1, 2**63 + 1], "y"),
        ([[1], [2]], [0, 2**64], "y"),
    ],
)
def test_an_integer_that_would_be_rounded_is_refused_with_its_row(
    tmp_path, x, y, field, options
):
    path = _write(tmp_path / "a.json", {"f01": {"x": x, "y": y}})
    with pytest.raises(tasks.DataError, match=f"'{field}': row 1 has the integer"):
        tasks.from_json(path, **options)


def test_parts_of_different_shapes_are_refused(tmp_path):
    _write(tmp_path / "train" / "a.json", _USERS)
    longer = {"x": [[1.0, 2.0, 3.0]], "y": [0]}
    path = _write(tmp_path / "test" / "a.json", {"new": longer})
    with pytest.raises(
        tasks.DataError, match=r"found examples of shape \(3,\), but \(2,\) of the"
    ) as caught:
        tasks.from_json(tmp_path)
    assert f"{path}: client 'new', field 'x'" in str(caught.value)


def test_a_user_in_two_files_is_refused(tmp_path):
    for name in ("a.json", "b.json"):
        _write(tmp_path / name, _USERS)
    with pytest.raises(
        tasks.DataError, match=r"b\.json: client 'f01' is in .*a\.json too"
    ):
        tasks.from_json(tmp_path)


def test_missing_files_say_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file or folder .*x\.json"):
        tasks.from_json(tmp_path / "x.json")
    with pytest.raises(FileNotFoundError, match=r"no files of clients.*leaf\.json"):
        tasks.from_json(tmp_path)
