"""What a user's tables call their columns and hold, and what that must not hide."""

import numpy as np
import pandas as pd
import pytest

import tasks
from tasks.own import user_tables


def _write(folder, **files):
    for name, text in files.items():
        path = folder / f"{name}.csv"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    return folder


def _frame(**columns):
    return pd.DataFrame(
        {"owner": ["a", "a", "b"], "age": [1.0, 2.0, 3.0], "ill": [0, 1, 0], **columns}
    )


def _from_frame(frame, **options):
    return tasks.from_frame(frame, client_id="owner", label="ill", **options)


def test_columns_are_taken_by_name_whatever_a_files_order(tmp_path):
    _write(
        tmp_path / "train",
        ann="label,age,income\n0,30,1000\n1,31,1001\n",
        bob="income,label,age\n2000,1,40\n",
    )
    _write(tmp_path / "test", ann="age,income,label\n50,3000,0\n")

    task = tasks.from_folder(tmp_path)

    assert task.train.examples("ann")[0].tolist() == [[30, 1000], [31, 1001]]
    assert task.train.examples("bob")[0].tolist() == [[40, 2000]]
    assert task.train.examples("bob")[1].tolist() == [1]
    assert task.test.examples("ann")[0].tolist() == [[50, 3000]]


@pytest.mark.parametrize(
    ("header", "values"),
    [
        ("height,weight,label", "3,4,1"),
        ("age,label", "3,1"),
        ("age,x,y,label", "1,2,3,1"),
    ],
)
def test_raises_on_a_client_with_other_columns(tmp_path, header, values):
    _write(
        tmp_path,
        ann="age,income,label\n1,2,0\n3,4,1\n",
        bob=f"{header}\n{values}\n",
    )

    with pytest.raises(tasks.DataError) as caught:
        tasks.from_folder(tmp_path)

    message = str(caught.value)
    assert f"{tmp_path / 'bob.csv'}: client 'bob'" in message
    assert f"{header.split(',')[:-1]}" in message
    assert "['age', 'income']" in message
    assert "ann.csv" in message
    assert "features" in message


def test_columns_that_only_some_clients_have_may_be_left_out(tmp_path):
    _write(
        tmp_path,
        ann="age,income,label\n1,2,0\n3,4,1\n",
        bob="height,age,label\n5,6,1\n",
    )

    task = tasks.from_folder(tmp_path, features=["age"])

    assert task.train.examples("bob")[0].tolist() == [[6]]


def test_a_file_whose_rows_are_longer_than_its_header_is_refused(tmp_path):
    # pandas would take the first column for the names of the rows.
    _write(tmp_path, ann="age,label\n1,2,0\n3,4,1\n")

    with pytest.raises(tasks.DataError, match=r"ann\.csv.*Expected 2 fields.*saw 3"):
        tasks.from_folder(tmp_path)


def test_a_name_that_stands_twice_in_a_header_is_refused(tmp_path):
    # pandas would rename the second.
    _write(tmp_path, ann="age,age,label\n1,2,0\n3,4,1\n")

    with pytest.raises(tasks.DataError, match=r"ann\.csv.*'age' more than once"):
        tasks.from_folder(tmp_path)


def test_arrays_beside_tables_and_of_other_shapes_are_refused(tmp_path):
    np.savez(tmp_path / "ann.npz", x=np.zeros((3, 2)), label=[0, 1, 0])
    np.savez(tmp_path / "bob.npz", x=np.zeros((3, 4)), label=[0, 1, 0])
    with pytest.raises(tasks.DataError, match=r"bob\.npz.*\(4,\).*\(2,\).*ann\.npz"):
        tasks.from_folder(tmp_path)

    (tmp_path / "bob.npz").unlink()
    _write(tmp_path, bob="a,b,label\n1,2,0\n")
    with pytest.raises(tasks.DataError, match=r"bob\.csv.*ann\.npz"):
        tasks.from_folder(tmp_path)


def test_features_are_for_tables_alone(tmp_path):
    np.savez(tmp_path / "ann.npz", x=np.zeros((3, 2)), label=[0, 1, 0])

    with pytest.raises(ValueError, match=r"features.*ann\.npz"):
        tasks.from_folder(tmp_path, features=["x"])


def test_every_file_of_a_client_counts(tmp_path):
    _write(tmp_path, ann="age,label\n1,0\n2,1\n")
    (tmp_path / "ann.csv").rename(tmp_path / "ann.CSV")
    assert tasks.from_folder(tmp_path).train.client_ids == ("ann",)

    _write(tmp_path / "train", bob="age,label\n1,0\n2,1\n")
    with pytest.raises(ValueError, match=r"both in .*ann\.CSV.* and in its subfolder"):
        tasks.from_folder(tmp_path)


def test_a_folder_with_tests_alone_is_refused(tmp_path):
    _write(tmp_path / "test", bob="age,label\n1,0\n2,1\n")

    with pytest.raises(FileNotFoundError, match="subfolder 'test', but none 'train'"):
        tasks.from_folder(tmp_path)


@pytest.mark.parametrize("kind", ["frame", "csv", "npz"])
def test_a_huge_label_takes_no_memory_and_is_named(tmp_path, kind):
    huge = 400_000_000

    def load():
        if kind == "frame":
            return _from_frame(_frame(ill=[0, 1, huge]))
        return tasks.from_folder(tmp_path, label="ill")

    if kind == "csv":
        _write(tmp_path, ann="age,ill\n1,0\n2,1\n", bob=f"age,ill\n1,{huge}\n")
    if kind == "npz":
        np.savez(tmp_path / "bob.npz", x=np.zeros((1, 2)), ill=[huge])

    with pytest.raises(tasks.DataError, match=f"'ill'.*{huge}.*1000000") as caught:
        load()
    where = "frame: client 'b'" if kind == "frame" else f"{tmp_path}/bob.{kind}"
    assert str(caught.value).startswith(where)


def test_codes_as_text_are_numbered():
    task = _from_frame(_frame(ill=["400000000", "17", "17"]))

    assert task.options["classes"] == ("17", "400000000")


def test_labels_of_two_kinds_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"'ill'.*of different kinds: .*'x'.*0"):
        _from_frame(_frame(ill=np.array([0, "x", 0], object)))
    _write(tmp_path, ann="age,ill\n1,0\n2,1\n", bob="age,ill\n1,x\n")
    with pytest.raises(ValueError, match=r"'ill'.*of different kinds: .*'x'.*0"):
        tasks.from_folder(tmp_path, label="ill")


def test_a_missing_label_among_arrays_is_named(tmp_path):
    np.savez(tmp_path / "bob.npz", x=np.zeros((2, 2)), label=[0, np.nan])

    with pytest.raises(tasks.DataError, match=r"'bob', field 'label', example 1"):
        tasks.from_folder(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_utf_16_is_named(tmp_path, encoding):
    (tmp_path / "ann.csv").write_bytes("age,label\n1,0\n2,1\n".encode(encoding))

    with pytest.raises(tasks.DataError, match=r"ann\.csv: client 'ann'.*UTF-16.*UTF-8"):
        tasks.from_folder(tmp_path)


def test_unsigned_integers_that_have_no_room_are_refused(tmp_path):
    path = tmp_path / "data.sqlite"
    big = np.array([[1], [2**63]], np.uint64)

    with pytest.raises(
        ValueError, match=r"'ann'.*'x', example 1: found 92233720368547"
    ):
        tasks.write_sqlite(path, {"train": [("ann", {"x": big, "label": [0, 1]})]})
    assert not path.exists()

    largest = np.array([[2**63 - 1]], np.uint64)
    tasks.write_sqlite(path, {"train": [("ann", {"x": largest, "label": [0]})]})
    # The file has room for it, a model's float32 has not.
    with pytest.raises(tasks.DataError, match=f"example 0: found {2**63 - 1}"):
        tasks.from_sqlite(path, num_classes=1, test_split="train")


def test_parquet_is_read_like_csv(tmp_path):
    frame = _frame().drop(columns="owner")
    for kind in ("csv", "parquet"):
        (tmp_path / kind).mkdir()
    frame.to_csv(tmp_path / "csv" / "ann.csv", index=False)
    frame.to_parquet(tmp_path / "parquet" / "ann.parquet", index=False)

    csv, parquet = (
        tasks.from_folder(tmp_path / kind, label="ill") for kind in ("csv", "parquet")
    )

    for a, b in zip(
        csv.train.examples("ann"), parquet.train.examples("ann"), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(tasks.DataError, match=r"has no column \['il'\]"):
        tasks.from_folder(tmp_path / "parquet", label="il")
    content = (tmp_path / "parquet" / "ann.parquet").read_bytes()
    (tmp_path / "parquet" / "ann.parquet").write_bytes(content[:-9])
    with pytest.raises(
        tasks.DataError, match=r"ann\.parquet: client 'ann' cannot be read as a Parquet"
    ) as caught:
        tasks.from_folder(tmp_path / "parquet", label="ill")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["all.csv", "all.csv.gz", "all.parquet"])
def test_own_data_reads_one_table_of_all_clients(tmp_path, name):
    path = tmp_path / name
    frame = _frame()
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)
    options = {"client_column": "owner", "label": "ill", "data": str(path)}

    task = tasks.load("own_data", **options)

    assert task.train.client_ids == ("a", "b")
    assert task.train.element_spec[0].shape == (None, 1)
    path.write_bytes(path.read_bytes()[:-20])
    if path.suffix != ".csv":
        with pytest.raises(tasks.DataError, match=rf"{name}.* cannot be read"):
            tasks.load("own_data", **options)


@pytest.mark.timeout(60)
def test_a_hundred_thousand_columns_are_not_compared_in_pairs():
    wide = pd.DataFrame(np.zeros((3, 100_000), np.float32)).add_prefix("gene ")
    wide = pd.concat([_frame(), wide], axis=1)
    user_tables.check_table("frame", wide)
    names = list(wide.columns)
    found = user_tables.feature_columns(
        names, {"client_id": "owner", "label": "ill"}, None, "frame"
    )
    assert found == ["age", *names[3:]]
    ill = {"label": "ill"}
    assert user_tables.feature_columns(names, ill, names[3:], "frame") == names[3:]
    with pytest.raises(tasks.DataError, match="and 99973 more") as caught:
        user_tables.feature_columns(names, {"label": "absent"}, None, "frame")
    assert len(str(caught.value)) < 1000
    with pytest.raises(tasks.DataError, match="column 'gene 7' more than once"):
        user_tables.check_table("frame", pd.concat([wide, wide[["gene 7"]]], axis=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "none"}, r"no file or folder '.*none'\. Give another by --data="),
        ({"data": "none.csv"}, r"no file '.*none\.csv'\. Give another by --data=FILE"),
        (
            {"client_column": "user"},
            r"no column 'user'; .* Give one by --client_column\.$",
        ),
        ({"label": "sick"}, r"no column 'sick'; .* Give one by --label\.$"),
        (
            {"label": "owner"},
            r"--label names the column 'owner', .*--client_column nam",
        ),
        ({"time_column": "ill"}, r"--time_column names .*'ill', which --label names"),
        ({"time_column": "day"}, r"no column 'day'; .* Give one by --time_column\.$"),
    ],
)
def test_what_is_not_there_is_told_with_its_flag(tmp_path, options, message):
    _frame().to_csv(tmp_path / "all.csv", index=False)
    given = {"data": "all.csv", "client_column": "owner", "label": "ill", **options}
    given["data"] = str(tmp_path / given["data"])
    with pytest.raises((OSError, ValueError), match=message):
        tasks.load("own_data", **given)


@pytest.mark.parametrize("other", ["", "test/"])
@pytest.mark.parametrize(
    ("first", "second"), [("1.1", "1.10"), ("01", "1"), ("10", "1e1"), ("True", "1")]
)
def test_labels_that_are_one_number_and_two_texts_are_refused(
    tmp_path, first, second, other
):
    _write(
        tmp_path,
        **{
            f"{other and 'train/'}ann": f"x,code\n1,{first}\n2,{first}\n",
            f"{other}bob": f"x,code\n1,{second}\n2,0\n",
        },
    )
    with pytest.raises(
        tasks.DataError,
        match=rf"bob.*'code': '{first}' of .*ann.* and '{second}' may be one label",
    ):
        tasks.from_folder(tmp_path, label="code")


def test_labels_of_one_file_that_are_one_number_and_two_texts_are_refused(tmp_path):
    _write(tmp_path, ann="x,code\n1,1.1\n2,1.10\n3,1.2\n")
    with pytest.raises(
        tasks.DataError, match=r"field 'code': '1\.1' and '1\.10' may be one label"
    ):
        tasks.from_folder(tmp_path, label="code")


_LARGE = 2**53 + 1


@pytest.mark.parametrize("data", ["folder", "table"])
@pytest.mark.parametrize(
    ("rows", "field"),
    [
        (f"1,0.5\n2,{_LARGE}\n", "load"),
        (f"1,7.0\n2, {_LARGE}\n", "load"),
        (f"0.5,1\n-{_LARGE},0\n", "x"),
        (f"1,1\n{2**64 + 1},0\n", "x"),
        (f"-1,1\n{2**63 + 1},0\n", "x"),
    ],
)
def test_an_integer_that_a_column_would_round_is_refused_with_its_row(
    tmp_path, data, rows, field
):
    lines = f"x,load\n{rows}".splitlines()
    _write(tmp_path, ann="\n".join(lines))
    _write(tmp_path / "table", all="\n".join(f"ann,{line}" for line in lines))
    own = {"client_column": "ann", "label": "load"}
    load = {
        "folder": lambda: tasks.from_folder(tmp_path, label="load"),
        "table": lambda: tasks.load(
            "own_data", data=str(tmp_path / "table/all.csv"), **own
        ),
    }[data]
    with pytest.raises(
        tasks.DataError, match=rf"\.csv.*, field '{field}', row 1: .*found .*\d{{16,}}"
    ):
        load()


def test_a_column_that_is_not_used_may_have_codes(tmp_path):
    _write(tmp_path, ann=f"x,code,load\n1,{_LARGE},0\n2,0.5,1\n")
    task = tasks.from_folder(tmp_path, label="load", features=["x"])
    assert task.options["classes"] == (0, 1)


@pytest.mark.parametrize("data", ["folder", "table"])
def test_numbers_to_predict_may_be_written_in_any_way(tmp_path, data):
    rows = "1,1.5,a\n2,1.50,a\n3,0.0,a\n4,-0.0,a\n"
    path = _write(tmp_path, ann=f"x,load,owner\n{rows}")
    if data == "folder":
        task = tasks.from_folder(
            path, label="load", features=["x"], target="number", test_fraction=0.25
        )
    else:
        path = path / "ann.csv"
        options = {"client_column": "owner", "label": "load"}
        task = tasks.load("own_numbers", data=str(path), **options)
    labels = [part.examples(part.client_ids[0])[1] for part in (task.train, task.test)]
    assert sorted(np.concatenate(labels)) == [0, 0, 1.5, 1.5]


def test_numbers_that_python_writes_are_one_label(tmp_path):
    _write(tmp_path, ann="x,code\n1,1\n2,2\n", bob="x,code\n1,1.0\n2,2.0\n")
    task = tasks.from_folder(tmp_path, label="code")
    assert task.options["classes"] == (0, 1, 2)
    for name in ("ann", "bob"):
        assert set(task.train.examples(name)[1]) <= {1, 2}


def test_a_compressed_table_is_a_clients_too(tmp_path):
    _frame().to_csv(tmp_path / "ann.csv", index=False)
    _frame().to_csv(tmp_path / "bob.csv.gz", index=False)
    task = tasks.from_folder(tmp_path, label="ill", features=["age"])
    assert task.train.client_ids == ("ann", "bob")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int8])
def test_a_label_beyond_the_classes_is_refused(tmp_path, dtype):
    inputs = np.zeros((4, 2), np.float32)
    np.savez(tmp_path / "ann.npz", x=inputs, y=np.array([1, 2, 26, 26], dtype))
    with pytest.raises(tasks.DataError, match="label 26"):
        tasks.from_folder(tmp_path, label="y", num_classes=26)


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (
            ["1.5", "True", "n.a.", "2", "no"],
            "'a', field 'a', row 2: expected numbers, found 'n.a.'",
        ),
        (
            ["1.5", None, 3.0, 2, "no"],
            "'b', field 'a', row 4: expected numbers, found 'no'",
        ),
    ],
)
def test_the_first_word_among_numbers_is_named_with_its_row(column, named):
    frame = pd.DataFrame(
        {"client": list("aaabb"), "a": column, "label": [0, 1] * 2 + [0]}
    )
    with pytest.raises(ValueError, match=f"^frame: client {named}"):
        tasks.from_frame(frame, client_id="client", label="label")


@pytest.mark.parametrize("name", ["own_numbers", "own_data"])
def test_a_word_in_a_file_is_named_with_file_and_row(tmp_path, name):
    path = tmp_path / "all.csv"
    path.write_text("client,a,label\nann,-1.5,2\nann,2,3\nbob,n.a. yet,4\n")
    message = f"^data: {path}: client 'bob', field 'a', row 2: .*, found 'n.a. yet'"
    with pytest.raises(ValueError, match=message):
        tasks.load(name, data=str(path), client_column="client")


def test_a_word_among_numbers_to_predict_is_named(tmp_path):
    path = tmp_path / "all.csv"
    path.write_text("client,a,label\nann,-1.5,-2.5\nann,2,3\nbob,1,dear\n")
    where = f"data: {path}: client 'bob', field 'label', row 2"
    with pytest.raises(ValueError, match=f"^{where}: .*'dear'.*--task=own_data"):
        tasks.load("own_numbers", data=str(path), client_column="client")
    folder = tmp_path / "clients"
    folder.mkdir()
    (folder / "ann.csv").write_text("a,label\n1,-2.5\n2,dear\n3,4\n")
    with pytest.raises(ValueError, match="example 1: found the label 'dear'"):
        tasks.from_folder(folder, target="number")
    (folder / "ann.csv").write_text("a,label\n1,-2.5\n2,3\nfar,4\n")
    with pytest.raises(ValueError, match="row 2: expected numbers, found 'far'"):
        tasks.from_folder(folder, target="number")
