"""The papers' tasks train on the losses of TFF's baselines in this library, too."""

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tests import tiers
from tff_drift import models

# Small, and with as much padding as the full ones.
SEQUENCES: dict[str, dict[str, int]] = {
    "shakespeare_character": {},
    "shakespeare_character_gru": {"units": 8},
    "stackoverflow_word": {"vocabulary_size": 10},
}


# A classifier, several labels at a time, and words.
FIRST = ["emnist_character", "stackoverflow_tag", "stackoverflow_word"]
SMALL = {**SEQUENCES, "stackoverflow_tag": {"vocabulary_size": 10, "num_tags": 5}}
PAPERS = [
    name
    for name in tasks.names()
    if any(option.name == "synthetic" for option in tasks.describe(name).options)
]


@pytest.mark.parametrize("name", tiers.first(FIRST, PAPERS))
def test_models_train_on_the_loss_that_tff_gives_them(name):
    task = tasks.load(name, synthetic=True, **SMALL.get(name, {}))
    examples = task.train.examples(task.train.client_ids[0])
    batch = tuple(tf.constant(array[:4]) for array in examples)

    trained, of_tff = models.build_variable_model(task.model_fn), task.model_fn()

    loss, expected = (
        model.forward_pass(batch, training=False).loss for model in (trained, of_tff)
    )
    assert expected > 0.01
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


@pytest.mark.parametrize("name", SEQUENCES)
def test_padding_counts(name):
    task = tasks.load(name, synthetic=True, **SEQUENCES[name])
    x, y = (array[:4] for array in task.train.examples(task.train.client_ids[0]))
    is_padding = y == 0
    assert 0.1 < is_padding.mean() < 1

    batch = tf.constant(x), tf.constant(y)
    trained, of_tff = models.build_variable_model(task.model_fn), task.model_fn()
    of_batch = trained.forward_pass(batch, training=True)

    # By TFF's model, and by NumPy: a mask would leave the padding out.
    np.testing.assert_allclose(
        of_batch.loss, of_tff.forward_pass(batch).loss, rtol=1e-6
    )
    logits = of_batch.predictions.numpy().astype(float)
    log_sums = np.log(np.exp(logits).sum(-1))
    losses = log_sums - np.take_along_axis(logits, y[..., np.newaxis], -1)[..., 0]
    np.testing.assert_allclose(of_batch.loss, losses.mean(), rtol=1e-5)
    assert abs(losses[~is_padding].mean() / losses.mean() - 1) > 1e-4
