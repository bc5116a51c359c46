"""Examples by names of their own, those of Hugging Face's datasets among them."""

import collections

import numpy as np
import pytest

import tasks
from tff_drift.simulation import ClientDatasets

TOKENS = np.arange(12, dtype=np.int32).reshape(6, 2)
MASK = np.ones((6, 2), np.int32)
LABELS = np.array([0, 1, 0, 1, 1, 0], np.int32)
CLIENTS = {
    "ann": {"input_ids": TOKENS[:4], "mask": MASK[:4], "labels": LABELS[:4]},
    "bob": {"labels": LABELS[4:], "input_ids": TOKENS[4:], "mask": MASK[4:]},
}


def make(**options):
    return ClientDatasets.from_arrays(CLIENTS, batch_size=3, **options)


def test_inputs_and_labels_by_name():
    x, y = make(x="input_ids", y="labels").examples("bob")
    np.testing.assert_array_equal(x, TOKENS[4:])
    np.testing.assert_array_equal(y, LABELS[4:])
    train = make(x="input_ids", y="labels")
    x, y = next(iter(train.training_data("ann", 0)))
    assert x.shape == (3, 2)
    assert y.shape == (3,)


def test_several_inputs_stay_a_mapping():
    x, _ = make(x=["input_ids", "mask"], y="labels").examples("ann")
    assert isinstance(x, collections.OrderedDict)
    assert list(x) == ["input_ids", "mask"]
    np.testing.assert_array_equal(x["input_ids"], TOKENS[:4])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"x": "input_ids"}, ValueError, "x is given without y"),
        ({"y": "labels"}, ValueError, "y is given without x"),
        (
            {"x": "tokens", "y": "labels"},
            ValueError,
            "x names 'tokens', but client 'ann' has 'input_ids', 'mask', 'labels'",
        ),
        ({"x": 3, "y": "labels"}, TypeError, "x must be a string"),
        ({"x": ["input_ids", 3], "y": "labels"}, TypeError, "x must be a string"),
    ],
)
def test_mistakes(options, error, message):
    with pytest.raises(error, match=message):
        make(**options)


@pytest.mark.parametrize("name", ["sample_weight", "client_weight"])
def test_weights_are_not_left_out_silently(name):
    weights = np.arange(6, dtype=np.float32)
    arrays = {"inp": TOKENS, "lab": LABELS, name: weights}
    with pytest.raises(ValueError, match=f"client 'ann' has '{name}', which") as caught:
        ClientDatasets.from_arrays({"ann": arrays}, batch_size=3, x="inp", y="lab")
    assert "\n" not in str(caught.value)

    # The remedy, and weights that are an input of the model.
    arrays = {"x": TOKENS, "y": LABELS, name: weights}
    found = ClientDatasets.from_arrays({"ann": arrays}, batch_size=3).examples("ann")
    np.testing.assert_array_equal(found[name], weights)
    train = ClientDatasets.from_arrays(
        {"ann": arrays}, batch_size=3, x=["x", name], y="y"
    )
    np.testing.assert_array_equal(train.examples("ann")[0][name], weights)


def test_names_for_examples_that_have_none():
    with pytest.raises(TypeError, match="the examples of client 'ann' are a tuple"):
        ClientDatasets.from_arrays(
            {"ann": (TOKENS, LABELS)}, batch_size=3, x="input_ids", y="labels"
        )


@pytest.fixture
def hugging_face():
    datasets = pytest.importorskip(
        "datasets", reason="Hugging Face's datasets is not installed"
    )
    return datasets.Dataset.from_dict(
        {
            "user": ["ann"] * 4 + ["bob"] * 2,
            "input_ids": TOKENS.tolist(),
            "labels": LABELS.tolist(),
            "length": [float(i) for i in range(6)],
        }
    )


def test_hugging_face_tokens(hugging_face):
    """As tasks/README.md has it."""
    arrays = hugging_face.with_format("numpy")
    users = np.asarray(hugging_face["user"])
    clients = {
        str(user): arrays.select(np.flatnonzero(users == user))[:]
        for user in np.unique(users)
    }
    train = ClientDatasets.from_arrays(clients, x="input_ids", y="labels", batch_size=3)
    for name, examples in CLIENTS.items():
        x, y = train.examples(name)
        np.testing.assert_array_equal(x, examples["input_ids"])
        np.testing.assert_array_equal(y, examples["labels"])


def test_a_hugging_face_table(hugging_face):
    task = tasks.from_frame(
        hugging_face.to_pandas(),
        client_id="user",
        label="labels",
        features=["length"],
        test_fraction=0.5,
    )
    assert list(task.train.client_ids) == ["ann", "bob"]
    assert sum(map(task.train.num_examples, task.train.client_ids)) == 3
