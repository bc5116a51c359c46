"""A user's data is known again as a whole, whatever is read of it later."""

import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tasks
from tff_drift import simulation

# Sixteen of twenty clients are looked at without their source, and not the fifth.
NAMES = [f"{number:02}" for number in range(20)]
ELSEWHERE = NAMES[4]


def clients(value):
    """Returns features and labels, with a value in the one that is not looked at."""
    return {
        name: (
            np.float32([[k, value if name == ELSEWHERE else 1] for k in range(4)]),
            np.arange(4) % 2,
        )
        for name in NAMES
    }


def of_frame(folder, value):
    tables = [
        pd.DataFrame({"who": name, "a": x[:, 0], "b": x[:, 1], "label": y})
        for name, (x, y) in clients(value).items()
    ]
    return tasks.from_frame(pd.concat(tables), client_id="who", label="label")


def of_folder(folder, value):
    for name, (x, y) in clients(value).items():
        np.savez(folder / f"{name}.npz", x=x, label=y)
    return tasks.from_folder(folder)


def of_json(folder, value):
    data = {
        name: {"x": x.tolist(), "y": y.tolist()}
        for name, (x, y) in clients(value).items()
    }
    (folder / "leaf.json").write_text(json.dumps({"user_data": data}))
    return tasks.from_json(folder / "leaf.json")


def of_images(folder, value):
    for name, (x, y) in clients(value).items():
        for k, (image, label) in enumerate(zip(x, y, strict=True)):
            path = folder / name / f"class {label}" / f"{k}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = image.astype(np.uint8).reshape(1, 2, 1)
            path.write_bytes(tf.io.encode_png(pixels).numpy())
    return tasks.from_image_folder(folder)


def of_sqlite(folder, value):
    split = [(name, {"x": x, "label": y}) for name, (x, y) in clients(value).items()]
    path = folder / "data.sqlite"
    tasks.write_sqlite(path, {"train": split, "test": split})
    return tasks.from_sqlite(path, num_classes=2)


@pytest.mark.parametrize("make", [of_frame, of_folder, of_json, of_images, of_sqlite])
def test_a_client_that_is_not_looked_at_counts(make, tmp_path):
    found = []
    for number, value in enumerate((1, 2, 1)):
        folder = tmp_path / str(number)
        folder.mkdir()
        task = make(folder, value)
        found.append((task.train.digest(), task.test.digest()))
    first, other, again = found
    assert first == again
    for before, after in zip(first, other, strict=True):
        changed = {name for name in before if before[name] != after[name]}
        assert changed == {"source_sha256"}


def test_options_of_training_are_not_of_the_data(tmp_path):
    task = of_folder(tmp_path, 1)
    sizes = task.train.replace(batch_size=3, epochs=2)
    assert sizes.digest() == task.train.digest()
    kept = tasks.from_folder(tmp_path, max_examples=2)
    assert kept.train.digest()["source_sha256"] == task.train.digest()["source_sha256"]


def test_public_examples_count(tmp_path):
    train = of_folder(tmp_path, 1).train
    public = train.examples(NAMES[0])
    other = (public[0] + 1, public[1])
    one, two = (
        simulation.share(train, each).digest()["source_sha256"]
        for each in (public, other)
    )
    assert one != two
    assert train.digest()["source_sha256"] not in (one, two)
