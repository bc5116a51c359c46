"""The clients that a user's tables name."""

import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tasks


def _frame(**columns):
    return pd.DataFrame(
        {"owner": ["a", "a", "b"], "age": [1.0, 2.0, 3.0], "ill": [0, 1, 0], **columns}
    )


def _from_frame(frame, **options):
    return tasks.from_frame(frame, client_id="owner", label="ill", **options)


@pytest.mark.parametrize(
    ("other", "dtype"),
    [
        *[(each, object) for each in ("1", 1.0, True, "1.0")],
        ("1", "category"),
    ],
)
def test_clients_are_not_merged_when_their_ids_read_alike(other, dtype):
    owner = pd.Series([1, other, "b"], dtype=object).astype(dtype)

    with pytest.raises(
        tasks.DataError, match=r"frame, column 'owner': .*astype\(str\)"
    ):
        _from_frame(_frame(owner=owner))

    task = _from_frame(_frame(owner=[str(1), str(other), "b"]), test=_frame())
    assert sum(map(task.train.num_examples, task.train.client_ids)) == 3


@pytest.mark.parametrize(
    "other", [pd.Timestamp("2024-05-01"), (1, 2), 1j], ids=["date", "tuple", "complex"]
)
def test_clients_of_kinds_that_do_not_sort_are_refused(other):
    owner = pd.Series([1, other, 1], dtype=object)
    with pytest.raises(
        tasks.DataError,
        match=r"frame, column 'owner': .* cannot be sorted .*astype\(str\)",
    ):
        _from_frame(_frame(owner=owner))


def test_a_space_around_an_id_makes_no_other_client():
    with pytest.raises(tasks.DataError, match=r"'a' and 'a ' may be .*str\.strip"):
        _from_frame(_frame(owner=["a", "a", "a "]))


_COMPOSED, _DECOMPOSED = "caf\u00e9", "cafe\u0301"


def test_forms_of_one_character_make_no_other_client():
    with pytest.raises(
        tasks.DataError, match=r"may be one client .*Unicode.*\.str\.normalize\('NFC'\)"
    ):
        _from_frame(_frame(owner=[_COMPOSED, _COMPOSED, _DECOMPOSED]))
    owner = pd.Series([_COMPOSED, _COMPOSED, _DECOMPOSED]).str.normalize("NFC")
    assert _from_frame(_frame(owner=owner)).train.client_ids == (_COMPOSED,)


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("kind", ["json", "table", "images"])
@pytest.mark.parametrize(
    ("first", "second", "remedy"),
    [
        ("a", "a ", r"without spaces .*\.str\.strip\(\) "),
        (_COMPOSED, _DECOMPOSED, r"in one form of Unicode.*\.str\.normalize\('NFC'\) "),
    ],
)
def test_clients_of_files_that_read_alike_are_refused(
    tmp_path, kind, part, first, second, remedy
):
    owners = [("train", first), (part, second), ("test", first)]
    for folder, owner in owners:
        _write_client(tmp_path / folder, kind, owner)
    load = {
        "json": tasks.from_json,
        "table": tasks.from_folder,
        "images": tasks.from_image_folder,
    }[kind]
    with pytest.raises(
        tasks.DataError, match=rf"may be one client or two\. Write all alike, {remedy}"
    ) as caught:
        load(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))


@pytest.mark.parametrize("kind", ["json", "table", "images"])
def test_clients_of_files_that_are_one_number_are_two(tmp_path, kind):
    for owner in ("1", "01"):
        _write_client(tmp_path, kind, owner)
    path = {"data": str(tmp_path)}
    assert set(tasks.load("own_data", **path).train.client_ids) == {"1", "01"}


def _write_client(folder, kind, owner):
    """Writes two examples of a client."""
    folder.mkdir(exist_ok=True)
    if kind == "json":
        users = {owner: {"x": [[1.0], [2.0]], "y": [0, 1]}}
        name = f"{len(list(folder.iterdir()))}.json"
        (folder / name).write_text(json.dumps({"user_data": users}))
    elif kind == "table":
        (folder / f"{owner}.csv").write_text("x,label\n1,0\n2,1\n")
    else:
        image = tf.io.encode_png(np.zeros([2, 2, 1], np.uint8)).numpy()
        for label in ("cat", "dog"):
            (folder / owner / label).mkdir(parents=True, exist_ok=True)
            (folder / owner / label / "1.png").write_bytes(image)


@pytest.mark.parametrize(
    "ids", [("a b", "a  b"), tuple("x" * 120 + each + "x" * 120 for each in "12")]
)
def test_labels_of_clients_that_messages_show_alike_all_count(ids):
    frame = pd.DataFrame(
        {
            "owner": [ids[0]] * 4 + [ids[1]] * 4,
            "age": np.arange(8.0),
            "ill": ["u", "v"] * 2 + ["w", "w", "u", "w"],
        }
    )
    assert _from_frame(frame).options["classes"] == ("u", "v", "w")
    # Numbers with fractions at the first client alone make all of them numbers.
    frame["ill"] = [0.5, 1.0] * 2 + [1.0, 2.0] * 2
    assert _from_frame(frame).options["target"] == "number"


def test_ids_of_one_kind_become_texts():
    task = _from_frame(_frame(owner=[10, 10, 9]), test=_frame(owner=["10", "10", "9"]))

    assert task.train.client_ids == ("9", "10")
    assert set(task.test.client_ids) == {"9", "10"}


@pytest.mark.parametrize(
    ("ids", "of_tests"),
    [
        ([0, 0, 1], [0.0, 0.0, 1.0]),
        ([0.0, 0.0, 1.0], [0, 0, 1]),
        (["0", "0", "1"], [0.0, 0.0, 1.0]),
        (["0.0", "0.0", "1.0"], [0, 0, 1]),
        ([0, 0, 1], [" 0", " 0", "1"]),
        (["a", "a", "b"], ["a", "a ", "b"]),
        ([0, 0, 1], pd.Categorical([0.0, 0.0, 1.0])),
        ([0, 0, 1], pd.array([0, 0, 1], dtype="Float64")),
        ([0, 0, 1], [False, False, True]),
    ],
)
def test_clients_of_two_tables_are_not_parted_by_how_they_are_written(ids, of_tests):
    with pytest.raises(
        tasks.DataError,
        match=r"test, column 'owner': \S+ of frame and .* may be one client or two",
    ):
        _from_frame(_frame(owner=ids), test=_frame(owner=of_tests))


@pytest.mark.parametrize(
    ("ids", "of_tests"),
    [
        (np.array([2, 2, 1], np.int32), np.array([2, 2, 1], np.int64)),
        ([2, 2, 1], pd.array([2, 2, 1], dtype="Int64")),
        ([2, 2, 1], pd.Categorical([2, 2, 1])),
        ([2.5, 2.5, 1.0], [2.5, 2.5, 1.0]),
        ([2**53, 2**53, 2**53 + 1], [str(2**53)] * 2 + [str(2**53 + 1)]),
    ],
)
def test_clients_of_two_tables_that_are_written_alike_are_the_same(ids, of_tests):
    task = _from_frame(_frame(owner=ids), test=_frame(owner=of_tests))
    assert task.train.client_ids == task.test.client_ids
    assert set(task.train.client_ids) == set(map(str, ids))


@pytest.mark.parametrize(("large", "dtype"), [(2**53, float), (2**24, np.float32)])
def test_clients_that_floats_may_have_made_one_are_refused(large, dtype):
    owner = np.array([large + 1, large, 1], dtype)
    with pytest.raises(
        tasks.DataError, match=rf"'owner': the client {large}\.0 is a fl"
    ):
        _from_frame(_frame(owner=owner))


@pytest.mark.parametrize("ids", [("007", "7"), ("1.1", "1.10"), ("1e2", "100")])
def test_ids_of_a_table_are_the_texts_that_are_written(tmp_path, ids):
    rows = "".join(f"{client},{k},{k % 2}\n" for client in ids for k in range(4))
    (tmp_path / "all.csv").write_text(f"owner,x,ill\n{rows}")
    options = {"client_column": "owner", "label": "ill"}
    task = tasks.load("own_data", data=str(tmp_path / "all.csv"), **options)
    assert task.train.client_ids == tuple(sorted(ids))


def test_a_row_without_a_client_is_refused(tmp_path):
    (tmp_path / "all.csv").write_text("owner,x,ill\na,1,0\n,2,1\n")
    options = {"client_column": "owner", "label": "ill"}
    with pytest.raises(tasks.DataError, match="no client in column 'owner' of row 1"):
        tasks.load("own_data", data=str(tmp_path / "all.csv"), **options)
