"""Prediction of the tags of Stack Overflow posts, by logistic regression.

The task "SO LR" of Reddi et al., Adaptive Federated Optimization (2021,
https://arxiv.org/abs/2003.00295), as `tff.simulation.baselines.stackoverflow` builds
it: the words of a sentence and of its question's title, as frequencies of the
10,000 most frequent words, predict which of the 500 most frequent tags the question
has; B = 100; at most 1,000 examples of a training client.

A batch's loss is a sum: over examples, of the mean binary cross-entropy over tags.
The paper's client learning rate is for it, and it grows with the batch. Methods that
take the gradient of a client's whole data need `loss="mean"`, whose gradient does not
depend on how the data is cut into batches; a rate for it is one for the sum, times the
batch size. The headline
metric is recall at 5: of all tags of all examples, the share that is among the five
ranked highest for its example.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import definitions
from tasks import options as shared
from tasks.models import nets
from tasks.registry import Option, TaskDefinition
from tasks.sources import stackoverflow_data

_NAME = "stackoverflow_tag"
_METRIC = "recall_at_5"


def build_preprocess(
    words: Sequence[str], tags: Sequence[str]
) -> Callable[[Mapping[str, np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """Returns the function that turns a client's posts into bags of words.

    Args:
      words: The words that count.
      tags: The tags to predict.

    Returns:
      A function of the client's `tokens`, `title` and `tags`, arrays of `bytes`,
      that returns the share of each word among the words that count
      (`float32[examples, words]`; zeros where none counts) and how often each
      example has each tag (`float32[examples, tags]`, 0 or 1 in the official data).
    """
    word_numbers = {word.encode(): number for number, word in enumerate(words)}
    tag_numbers = {tag.encode(): number for number, tag in enumerate(tags)}

    def preprocess(
        features: Mapping[str, np.ndarray],
    ) -> tuple[np.ndarray, np.ndarray]:
        texts = zip(features["tokens"], features["title"], strict=True)
        bags = _count((b" ".join(text).split() for text in texts), word_numbers)
        totals = bags.sum(axis=1, keepdims=True)
        np.divide(bags, totals, out=bags, where=totals > 0)
        return bags, _count(
            (each.split(b"|") for each in features["tags"]), tag_numbers
        )

    return preprocess


def _count(texts: Any, numbers: Mapping[bytes, int]) -> np.ndarray:
    """Returns how often each of the numbered words occurs in each text."""
    found = [[numbers[word] for word in text if word in numbers] for text in texts]
    counts = np.zeros((len(found), len(numbers)), np.float32)
    for row, columns in zip(counts, found, strict=True):
        np.add.at(row, columns, 1)
    return counts


def build_keras_model(num_words: int, num_tags: int, seed: int) -> tf.keras.Model:
    """Returns the model: 5,000,500 parameters with 10,000 words and 500 tags.

    Args:
      num_words: The number of words.
      num_tags: The number of tags.
      seed: The seed of the initial weights.

    Returns:
      An uncompiled Keras model whose outputs are probabilities of tags.
    """
    tags = tf.keras.layers.Dense(num_tags, activation="sigmoid")
    return nets.build_sequential((num_words,), [tags], seed)


def _build_model(
    num_words: int, num_tags: int, seed: int, loss: str
) -> tff.learning.models.VariableModel:
    return tff.learning.models.from_keras_model(
        build_keras_model(num_words, num_tags, seed),
        loss=tf.keras.losses.BinaryCrossentropy(reduction=nets.reduction(loss)),
        input_spec=(
            tf.TensorSpec((None, num_words), tf.float32),
            tf.TensorSpec((None, num_tags), tf.float32),
        ),
        metrics=[tf.keras.metrics.Recall(top_k=5, name=_METRIC)],
    )


def build(
    cache_dir: str | None, seed: int, options: Mapping[str, Any]
) -> tuple[definitions.Clients, definitions.ModelFn]:
    """Builds the task.

    Args:
      cache_dir: The folder with the data files, see `tasks.load`.
      seed: The seed of everything that is drawn.
      options: The value of every option of the task.

    Returns:
      The clients and the model function.
    """
    words = stackoverflow_data.load_words(_NAME, cache_dir, options)
    tags = stackoverflow_data.load_tags(_NAME, cache_dir, options)
    clients = stackoverflow_data.load_clients(
        ("tokens", "title", "tags"),
        build_preprocess(words, tags),
        task_name=_NAME,
        cache_dir=cache_dir,
        seed=seed,
        options=options,
    )
    return clients, functools.partial(
        _build_model, len(words), len(tags), seed, options["loss"]
    )


TASK = TaskDefinition(
    "stackoverflow_tag",
    "Tags of questions from bags of words by user (TFF Stack Overflow), "
    "logistic regression.",
    (
        *shared.batching(100, max_examples=1000),
        shared.LOSS,
        Option("num_tags", "count", "Tags to predict, the most frequent ones.", 500),
        *shared.STACKOVERFLOW,
    ),
    build,
    files=(
        "stackoverflow.sqlite",
        "stackoverflow.word_count",
        "stackoverflow.tag_count",
    ),
    accuracy_metric="recall_at_5",
)
