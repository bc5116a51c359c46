"""What `--data` names, and which options it takes."""

import json

import numpy as np
import pytest
import tensorflow as tf

import tasks


def write_clients(folder, ending="csv"):
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("ann", "bob"):
        x, y = np.float32([[1], [2], [3]]), np.array([0, 1, 0])
        if ending == "npz":
            np.savez(folder / f"{name}.npz", x=x, label=y)
        else:
            rows = [f"{a},{label}" for (a,), label in zip(x, y, strict=True)]
            (folder / f"{name}.csv").write_text("\n".join(["a,label", *rows]))


def write_leaf(folder):
    folder.mkdir(parents=True, exist_ok=True)
    users = {name: {"x": [[1.0], [2.0]], "y": [0, 1]} for name in ("ann", "bob")}
    (folder / "leaf.json").write_text(json.dumps({"user_data": users}))


def write_images(folder):
    for client in ("ann", "bob"):
        for label in ("cat", "dog"):
            for k in range(2):
                path = folder / client / label / f"{k}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                image = tf.io.encode_png(np.full([2, 2, 1], k, np.uint8))
                path.write_bytes(image.numpy())


def write_sqlite(folder):
    clients = [("ann", {"x": np.ones([2, 1]), "label": [0, 1]})]
    tasks.write_sqlite(folder / "c.sqlite", {"train": clients, "test": clients})


def add_file(folder, name):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("{}")


STRAY = [
    "dataset-metadata.json",
    "._meta.json",
    "plots/old/",
    "plots/old/loss.png",
    ".git/objects/",
    "notes.txt",
]


@pytest.mark.parametrize("stray", STRAY)
@pytest.mark.parametrize("ending", ["csv", "npz"])
@pytest.mark.parametrize("part", [".", "train"])
def test_other_entries_beside_files_of_clients_are_left_out(
    tmp_path, stray, ending, part
):
    write_clients(tmp_path / part, ending)
    if part == "train":
        write_clients(tmp_path / "test", ending)
    if stray.endswith("/"):
        (tmp_path / stray).mkdir(parents=True)
    else:
        add_file(tmp_path, stray)
    task = tasks.load("own_data", data=str(tmp_path))
    assert task.train.client_ids == ("ann", "bob")
    assert task.train.element_spec[0].shape == (None, 1)


@pytest.mark.parametrize("stray", ["._leaf.json", "plots/old/loss.png", ".x/y/1.png"])
def test_other_entries_beside_json_are_left_out(tmp_path, stray):
    write_leaf(tmp_path)
    add_file(tmp_path, stray)
    task = tasks.load("own_data", data=str(tmp_path))
    assert task.train.client_ids == ("ann", "bob")


@pytest.mark.parametrize("stray", ["._leaf.json", ".ann.csv", ".x/y/1.png"])
def test_hidden_entries_beside_images_are_left_out(tmp_path, stray):
    write_images(tmp_path)
    add_file(tmp_path, stray)
    task = tasks.load("own_data", data=str(tmp_path))
    assert task.train.element_spec[0].shape == (None, 2, 2, 1)


def test_a_folder_of_hidden_entries_alone_has_no_clients(tmp_path):
    for name in ("._leaf.json", ".ann.csv", ".x/y/1.png"):
        add_file(tmp_path, name)
    with pytest.raises(FileNotFoundError, match="has no files of clients"):
        tasks.load("own_data", data=str(tmp_path))


WRITERS = {
    "a folder with a file per client": write_clients,
    "JSON": write_leaf,
    "a folder of images": write_images,
    "a SQLite file": write_sqlite,
}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((each, {"client_column": "who"}) for each in WRITERS),
        *((each, {"time_column": "day"}) for each in WRITERS),
        *((each, {"window": 2}) for each in WRITERS),
        *((each, {"features": "a"}) for each in list(WRITERS)[1:]),
        ("JSON", {"label": "sick"}),
        ("a folder of images", {"label": "sick"}),
        ("a folder of images", {"num_classes": 2}),
        ("a SQLite file", {"num_classes": 2, "test_fraction": 0.5}),
    ],
)
def test_an_option_without_meaning_is_refused_by_its_flag(tmp_path, kind, options):
    WRITERS[kind](tmp_path)
    path = tmp_path / "c.sqlite" if kind == "a SQLite file" else tmp_path
    flag = list(options)[-1]
    message = rf"^{flag} is for .*, but data is {kind}, '.*'\. Leave --{flag} out\.$"
    with pytest.raises(ValueError, match=message):
        tasks.load("own_data", data=str(path), **options)


def test_options_with_meaning_are_taken(tmp_path):
    for number, write in enumerate((write_clients, write_leaf, write_images)):
        folder = tmp_path / str(number)
        write(folder)
        options = {"test_fraction": 0.5}
        if write is not write_images:
            options["num_classes"] = 3
        assert len(tasks.load("own_data", data=str(folder), **options).train) == 2
    write_sqlite(tmp_path)
    path = str(tmp_path / "c.sqlite")
    assert len(tasks.load("own_data", data=path, num_classes=2).train) == 1


def _write_table(folder, kind, text):
    """Writes a table of ann's and bob's rows, or a file of these for each."""
    header, *rows = text.splitlines()
    names = ("ann", "bob")
    if kind == "table":
        lines = [
            f"client,{header}",
            *(f"{each},{row}" for each in names for row in rows),
        ]
        (folder / "all.csv").write_text("\n".join(lines))
        return folder / "all.csv"
    for each in names:
        (folder / f"{each}.csv").write_text(text)
    return folder


_BESIDE = """\
id,a,day,"b, kg",label
p1,1,2024-05-01,5,0
p2,2,2024-05-02,6,1
p3,3,2024-05-03,7,0
"""


@pytest.mark.parametrize("kind", ["table", "folder"])
@pytest.mark.parametrize(
    ("features", "expected"),
    [("a", [[1], [2], [3]]), ('"b, kg",a', [[5, 1], [6, 2], [7, 3]])],
)
def test_features_are_the_columns_to_predict_from(tmp_path, kind, features, expected):
    path = _write_table(tmp_path, kind, _BESIDE)
    task = tasks.load("own_data", data=str(path), features=features)
    parts = [part.examples("bob")[0] for part in (task.train, task.test)]
    assert sorted(np.concatenate(parts).tolist()) == expected
    with pytest.raises(
        tasks.DataError, match=r"'p1'.*others by features \(--features\)"
    ):
        tasks.load("own_data", data=str(path))


@pytest.mark.parametrize("kind", ["table", "folder"])
@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("a,age", r"no column \[?'age'\]?; its columns are .*--features\b"),
        ("a,label", r"features names the column 'label', which (--)?label names"),
        ("a,a", r"features names the column 'a', which (--)?features names"),
        ("", r"features is empty\. Name a column"),
        ("id", r"'id', row 0: expected numbers, found 'p1'"),
    ],
)
def test_features_that_are_none_are_refused(tmp_path, kind, features, message):
    path = _write_table(tmp_path, kind, _BESIDE)
    with pytest.raises(ValueError, match=message) as caught:
        tasks.load("own_data", data=str(path), features=features)
    assert "\n" not in str(caught.value)


def test_the_columns_of_clients_and_times_are_no_features(tmp_path):
    path = _write_table(tmp_path, "table", _BESIDE)
    for option, name in (("client_column", "client"), ("time_column", "day")):
        message = f"^--features names the column '{name}', which --{option} names"
        given = {"features": f"a,{name}", "time_column": "day"}
        with pytest.raises(ValueError, match=message):
            tasks.load("own_data", data=str(path), **given)


def test_a_table_that_lacks_a_column_is_told_with_its_flags(tmp_path):
    write_clients(tmp_path)
    message = r"Name those to use by label \(--label\), features \(--features\)\.$"
    with pytest.raises(tasks.DataError, match=message):
        tasks.load("own_data", data=str(tmp_path), label="ill")
    (tmp_path / "all.csv").write_text(",client,a,label\n0,ann,1,0\n1,ann,2,1\n")
    given = {"data": str(tmp_path / "all.csv")}
    with pytest.raises(tasks.DataError, match=r"to use by features \(--features\)\.$"):
        tasks.load("own_data", **given)
    assert len(tasks.load("own_data", **given, features="a").train) == 1


@pytest.mark.parametrize("kind", ["table", "folder"])
@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("a;label\n1;0\n2;1\n", r"sep=';'\) reads"),
        ("a;b;label\r1,5;2;0\r2,5;3;1\r", r"sep=';', decimal=','\) reads"),
        ("\n \na\tlabel\n1.5\t0\n", r"sep='\\t'\) reads"),
    ],
)
def test_a_table_without_commas_is_told_its_separator(tmp_path, kind, text, call):
    path = tmp_path / "ann.csv"
    path.write_text(text)
    given = path if kind == "table" else tmp_path
    with pytest.raises(
        tasks.DataError, match=rf"ann\.csv.* is separated by '.*commas.*{call}\.$"
    ):
        tasks.load("own_data", data=str(given))


@pytest.mark.parametrize("text", ["a;b,label\n1,0\n2,1\n", "a,label\n1,u;v\n2,u\n"])
def test_a_table_with_commas_may_have_semicolons(tmp_path, text):
    (tmp_path / "ann.csv").write_text(text)
    assert tasks.from_folder(tmp_path).train.client_ids == ("ann",)


def test_options_of_numbers_are_refused_too(tmp_path):
    write_leaf(tmp_path)
    with pytest.raises(ValueError, match=r"^label is for .*, but data is JSON, "):
        tasks.load("own_numbers", data=str(tmp_path), label="sick")


def _with_weights(folder, kind, name):
    arrays = {"x": [[1.0], [2.0]], "label": [0, 1], name: [9.0, 1.0]}
    if kind == "npz":
        np.savez(folder / "ann.npz", **arrays)
    elif kind == "json":
        user = {"x": arrays["x"], "y": [0, 1], name: arrays[name]}
        text = json.dumps({"user_data": {"ann": user}})
        (folder / "leaf.json").write_text(text)
    elif kind == "sqlite":
        clients = [("ann", {key: np.array(each) for key, each in arrays.items()})]
        splits = {"train": clients, "test": clients}
        tasks.write_sqlite(folder / "c.sqlite", splits)
        return folder / "c.sqlite"
    else:
        (folder / kind).write_text(f"client,x,label,{name}\nann,1,0,9\nann,2,1,1\n")
        return folder if kind == "ann.csv" else folder / kind
    return folder


@pytest.mark.parametrize("name", ["sample_weight", "client_weight"])
@pytest.mark.parametrize("kind", ["npz", "json", "sqlite", "ann.csv", "all.csv"])
def test_weights_are_neither_dropped_nor_a_feature(tmp_path, kind, name):
    path = _with_weights(tmp_path, kind, name)
    options = {"client_column": "client"} if kind == "all.csv" else {}
    if kind == "sqlite":
        options["num_classes"] = 2
    with pytest.raises(
        tasks.DataError, match=rf"{path.name}.* has '{name}', .*from_arrays\(\{{client"
    ) as caught:
        tasks.load("own_data", data=str(path), **options)
    assert "\n" not in str(caught.value)


def test_a_column_that_is_named_as_a_feature_is_no_weight(tmp_path):
    path = _with_weights(tmp_path, "ann.csv", "sample_weight")
    task = tasks.from_folder(path, features=["sample_weight"])
    x = np.concatenate([data.examples("ann")[0] for data in (task.train, task.test)])
    assert sorted(x.ravel()) == [1.0, 9.0]


def _with_labels(folder, kind, of_ann, of_bob):
    """Writes two examples of each of two clients."""
    labels = {"ann": of_ann, "bob": of_bob}
    if kind == "json":
        users = {
            name: {"x": [[1.0], [2.0]], "y": each} for name, each in labels.items()
        }
        (folder / "leaf.json").write_text(json.dumps({"user_data": users}))
    elif kind == "all.csv":
        rows = [f"{name},1,{each}" for name in labels for each in labels[name]]
        (folder / kind).write_text("\n".join(["client,x,label", *rows]))
        return folder / kind
    for name, each in labels.items():
        if kind == "npz":
            np.savez(folder / f"{name}.npz", x=[[1.0], [2.0]], label=each)
        elif kind == "csv":
            (folder / f"{name}.csv").write_text("\n1,".join(["x,label", *each]))
        elif kind == "images":
            for label in each:
                (folder / name / label).mkdir(parents=True)
                image = tf.io.encode_png(np.zeros([2, 2, 1], np.uint8))
                (folder / name / label / "1.png").write_bytes(image.numpy())
    return folder


@pytest.mark.parametrize("kind", ["npz", "json", "csv", "all.csv", "images"])
def test_a_space_around_a_label_makes_no_other_class(tmp_path, kind):
    options = {"client_column": "client"} if kind == "all.csv" else {}
    path = _with_labels(tmp_path, kind, ["no", "yes"], ["no", " yes"])
    with pytest.raises(
        tasks.DataError, match=r"bob.*: 'yes' of .*ann.* and ' yes' may be one class"
    ) as caught:
        tasks.load("own_data", data=str(path), **options)
    assert "\n" not in str(caught.value)
    assert "frame" not in str(caught.value)


@pytest.mark.parametrize("kind", ["npz", "json", "csv", "all.csv", "images"])
def test_forms_of_one_character_make_no_other_class(tmp_path, kind):
    options = {"client_column": "client"} if kind == "all.csv" else {}
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    path = _with_labels(tmp_path, kind, ["no", composed], ["no", decomposed])
    with pytest.raises(
        tasks.DataError, match=r"may be one class .*Unicode.*\.str\.normalize\('NFC'\)"
    ):
        tasks.load("own_data", data=str(path), **options)


def test_letters_of_two_cases_are_two_classes(tmp_path):
    path = _with_labels(tmp_path, "npz", ["a", "A"], ["a", "A"])
    assert tasks.from_folder(path).options["classes"] == ("A", "a")
