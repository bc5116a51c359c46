"""The code of docs/keras3.md."""

import pathlib
import re

import numpy as np

from tests import keras3_models

pytestmark = keras3_models.needed

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "keras3.md"


def test_the_code_of_the_document_trains_and_saves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        exec(block, names)
    assert len(names["result"].rows) == 10
    assert all(np.isfinite(row["train_loss"]) for row in names["result"].rows)
    weights = names["result"].model_weights.trainable
    for saved, trained in zip(names["again"].get_weights(), weights, strict=True):
        np.testing.assert_array_equal(saved, trained)
