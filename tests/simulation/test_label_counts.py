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
    "clients",
    [
        {"ann": client(0.5, dtype=np.float32)},
        {"ann": (np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int64))},
        {"ann": np.zeros((2, 3), np.float32)},
        {"ann": {"input_ids": np.zeros((2, 3), np.int64)}},
    ],
)
def test_labels_that_are_no_classes_are_refused(clients):
    with pytest.raises(TypeError, match="datasets must have an integer as the label"):
        label_counts(make(clients))


def test_the_picture_has_a_column_for_each_client():
    axes = matplotlib.figure.Figure().subplots()
    assert plot_labels(make(CLIENTS), axes) is axes
    [image] = axes.images
    assert image.get_array().tolist() == [[1, 1], [2, 0]]
    assert [each.get_text() for each in axes.get_xticklabels()] == ["ann", "bob"]
    assert [each.get_text() for each in axes.get_yticklabels()] == ["2", "7"]
