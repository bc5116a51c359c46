"""Who has what, as a table and as a picture."""

import matplotlib.figure
import numpy as np
import pandas as pd
import pytest

import tasks
from tff_drift.simulation import ClientDatasets, label_counts, plot_labels


def make(clients, **names):
    return ClientDatasets.from_arrays(clients, batch_size=2, **names)


def client(*labels, dtype=np.int64):
    return np.zeros((len(labels), 3), np.float32), np.array(labels, dtype)


_X = np.zeros((2, 3), np.float32)
CLIENTS = {"ann": client(7, 2, 7), "bob": client(2)}


def test_each_class_is_counted_at_each_client():
    table = label_counts(make(CLIENTS))
    assert table.to_dict("index") == {"ann": {2: 1, 7: 2}, "bob": {2: 1, 7: 0}}
    assert (table.index.name, table.columns.name) == ("client", "class")
    column = {name: (x, y.reshape(-1, 1)) for name, (x, y) in CLIENTS.items()}
    pd.testing.assert_frame_equal(label_counts(make(column)), table)
    named = {name: {"x": x, "y": y} for name, (x, y) in CLIENTS.items()}
    pd.testing.assert_frame_equal(label_counts(make(named)), table)


def test_a_partition_is_counted():
    labels = np.arange(600) % 3
    frame = pd.DataFrame({"x": 0.5, "label": labels})
    frame["owner"] = tasks.partition(frame["label"], 6, classes_per_client=1)
    task = tasks.from_frame(frame, client_id="owner", label="label", test_fraction=0.1)
    table = label_counts(task.train)
    assert table.shape == (6, 3)
    assert ((table > 0).sum(axis=1) == 1).all()
    assert table.to_numpy().sum() == sum(map(task.train.num_examples, table.index))


@pytest.mark.parametrize(
    ("examples", "found"),
    [
        (client(0.5, dtype=np.float32), r"float32 of shape \(1,\)"),
        ((_X, np.zeros((2, 3), np.int64)), r"int64 of shape \(2, 3\)"),
        (_X, "no single array"),
        ({"input_ids": np.zeros((2, 3), np.int64)}, "no single array"),
        ((_X, {"a": np.zeros(2, np.int64), "b": np.zeros(2)}), "no single array"),
        ((_X, (np.zeros(2, np.int64),) * 2), "no single array"),
    ],
)
def test_labels_that_are_no_classes_are_refused(examples, found):
    message = f"datasets must have an integer as the label .* found {found}.* Give"
    with pytest.raises(TypeError, match=message):
        label_counts(make({"ann": examples}))


def test_the_picture_has_a_column_for_each_client():
    axes = matplotlib.figure.Figure().subplots()
    assert plot_labels(make(CLIENTS), axes) is axes
    [image] = axes.images
    assert image.get_array().tolist() == [[1, 1], [2, 0]]
    assert [each.get_text() for each in axes.get_xticklabels()] == ["ann", "bob"]
    assert [each.get_text() for each in axes.get_yticklabels()] == ["2", "7"]
