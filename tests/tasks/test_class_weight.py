"""Weights of classes on a user's own data, by classes as labels name them."""

import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tasks

# Whatever two of them are held out, some of each are left.
_LABELS = ["ill", "well"] * 4
_WEIGHTS = {"ill": 5.0, "well": 0.5}
_FRAME = pd.DataFrame({"o": "ann", "f": np.arange(8.0), "l": _LABELS})


def _from_frame(class_weight, **options):
    return tasks.from_frame(
        _FRAME,
        client_id="o",
        label="l",
        test=_FRAME,
        class_weight=class_weight,
        **options,
    )


def _write_parts(folder, write):
    for part in ("train", "test"):
        (folder / part).mkdir()
        write(folder / part)
    return folder


def _from_folder(folder, class_weight):
    _write_parts(
        folder, lambda part: _FRAME[["f", "l"]].to_csv(part / "ann.csv", index=False)
    )
    return tasks.from_folder(folder, label="l", class_weight=class_weight)


def _from_json(folder, class_weight):
    user = {"x": [[float(k)] for k in range(8)], "y": _LABELS}
    text = json.dumps({"user_data": {"ann": user}})
    _write_parts(folder, lambda part: (part / "a.json").write_text(text))
    return tasks.from_json(folder, class_weight=class_weight)


def _from_images(folder, class_weight):
    image = tf.io.encode_png(np.zeros((2, 2, 1), np.uint8)).numpy()

    def write(part):
        for number, label in enumerate(_LABELS):
            (part / "ann" / label).mkdir(parents=True, exist_ok=True)
            (part / "ann" / label / f"{number}.png").write_bytes(image)

    return tasks.from_image_folder(
        _write_parts(folder, write), class_weight=class_weight
    )


def _from_command_line(folder, class_weight):
    _FRAME.to_csv(folder / "all.csv", index=False)
    text = ",".join(f"{name}:{weight}" for name, weight in class_weight.items())
    return tasks.load(
        "own_data",
        data=str(folder / "all.csv"),
        client_column="o",
        label="l",
        test_fraction=0.25,
        class_weight=text,
    )


def _loss(task, training):
    """The loss of a client's examples, by a model that gives all classes 0."""
    model = task.model_fn()
    for variable in model.trainable_variables:
        variable.assign(tf.zeros_like(variable))
    [batch] = task.train.evaluation_batches("ann")
    return float(model.forward_pass(batch, training=training).loss), batch[1]


@pytest.mark.parametrize(
    "load",
    [
        lambda folder, weights: _from_frame(weights),
        _from_folder,
        _from_json,
        _from_images,
        _from_command_line,
    ],
    ids=["frame", "folder", "json", "images", "command line"],
)
def test_classes_weigh_in_training_alone(tmp_path, load):
    task = load(tmp_path, _WEIGHTS)
    trained, labels = _loss(task, training=True)
    # A class is as likely as the other; "ill" is the first of them.
    weights = np.where(labels == 0, 5.0, 0.5)
    np.testing.assert_allclose(trained, np.mean(weights) * np.log(2), rtol=1e-6)
    assert 0 < np.sum(labels == 0) < len(labels)
    np.testing.assert_allclose(_loss(task, training=False)[0], np.log(2), rtol=1e-6)


def test_numbers_of_classes_are_their_names_and_others_weigh_one(tmp_path):
    examples = {"x": [[1.0], [2.0], [3.0], [4.0]], "label": [2, 0, 0, 1]}
    path = tmp_path / "data.sqlite"
    clients = [("ann", examples)]
    tasks.write_sqlite(path, {"train": clients, "test": clients})
    task = tasks.from_sqlite(path, num_classes=3, class_weight={2: 4, np.int64(0): 0.5})
    expected = (4 + 0.5 + 0.5 + 1) / 4 * np.log(3)
    np.testing.assert_allclose(_loss(task, training=True)[0], expected, rtol=1e-6)
    assert task.options["class_weight"] == {0: 0.5, 2: 4}


@pytest.mark.parametrize("name", [1, 1.0, True, np.int64(1), np.float32(1), "1", "1.0"])
@pytest.mark.parametrize("dtype", [int, float, bool, "Int64", "Float64"])
def test_a_class_that_is_a_number_is_named_by_any_that_equals_it(name, dtype):
    frame = _FRAME.assign(l=pd.Series([0, 1] * 4).astype(dtype))
    weights = {"client_id": "o", "label": "l", "class_weight": {name: 5.0}}
    task = tasks.from_frame(frame, test=frame, **weights)
    assert task.options["class_weight"] == {1: 5.0}


def test_classes_that_are_floats_weigh_as_in_keras():
    frame = _FRAME.assign(l=[0.0, 1.0, 1.0, 1.0] * 2)
    weights = {"client_id": "o", "label": "l", "class_weight": {1: 5.0}}
    task = tasks.from_frame(frame, test=frame, **weights)
    # As in `fit` with these weights and labels: the mean of 1, 5, 5 and 5.
    expected = 4 * np.log(2)
    np.testing.assert_allclose(_loss(task, training=True)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("name", [1, np.int64(1), "1"])
def test_a_class_that_is_a_text_is_named_by_what_is_written_so(name):
    frame = _FRAME.assign(l=["0", "1"] * 4)
    weights = {"client_id": "o", "label": "l", "class_weight": {name: 5.0}}
    task = tasks.from_frame(frame, test=frame, **weights)
    assert task.options["class_weight"] == {"1": 5.0}


def test_a_model_of_keras_3_is_weighted_too():
    keras = pytest.importorskip("keras", minversion="3.0")

    def build():
        return keras.Sequential([keras.layers.Input([1]), keras.layers.Dense(2)])

    task = _from_frame(_WEIGHTS, build_keras_model=build)
    trained, labels = _loss(task, training=True)
    weights = np.where(labels == 0, 5.0, 0.5)
    np.testing.assert_allclose(trained, np.mean(weights) * np.log(2), rtol=1e-6)


@pytest.mark.parametrize(
    ("class_weight", "options", "message"),
    [
        ({"sick": 1.0}, {}, "names 'sick', but the classes are 'ill', 'well'"),
        ({1: 1.0}, {}, "names 1, but the classes are 'ill', 'well'"),
        (
            {2: 1.0, "2.0": 3.0},
            {"target": "class"},
            "the class 2 twice, 2 and '2.0'",
        ),
        ({"ill": -1.0}, {}, r"class_weight\['ill'\] must be .* -1.0"),
        ({"ill": np.nan}, {}, r"class_weight\['ill'\] must be .* nan"),
        ({}, {}, "class_weight is empty"),
        ({1.0: 2.0}, {"label": "f", "target": "number"}, "but a number is predicted"),
    ],
)
def test_weights_of_what_is_no_class_are_refused(class_weight, options, message):
    frame = _FRAME.assign(l=_FRAME["l"] if not options else 2.0)
    arguments = {"client_id": "o", "label": "l", "test": _FRAME, **options}
    if options:
        arguments.update(features=["g"], test=None)
        frame = frame.assign(g=2.0)
    with pytest.raises(ValueError, match=message):
        tasks.from_frame(frame, class_weight=class_weight, **arguments)


@pytest.mark.parametrize("text", ["ill", "ill:many", "ill:5,", ":", "ill:1, ill:5"])
def test_weights_that_are_not_written_as_pairs_of_each_class_are_refused(
    tmp_path, text
):
    _FRAME.to_csv(tmp_path / "all.csv", index=False)
    with pytest.raises(ValueError, match="such as --class_weight=0:1,1:20, found"):
        tasks.load("own_data", data=str(tmp_path / "all.csv"), class_weight=text)
