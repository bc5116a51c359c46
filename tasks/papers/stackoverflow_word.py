"""Next-word prediction on Stack Overflow.

The task of Reddi et al., Adaptive Federated Optimization (2021,
https://arxiv.org/abs/2003.00295), and of Charles et al., On Large-Cohort Training
for Federated Learning (2021, https://arxiv.org/abs/2106.07820), as
`tff.simulation.baselines.stackoverflow` builds it: sentences of up to 20 words, an
LSTM of 670 units; at most 1,000 sentences of a training client; B = 16 in the one,
32 in the other.

The vocabulary is the 10,000 most frequent words and four tokens: 0 pads, 10,001
stands for other words, 10,002 opens a sentence and 10,003 closes one that is
shorter than 20 words. The loss is the mean over all 20 positions, padding included,
as in TFF's baseline. The accuracy counts positions whose label is one of the 10,000
words.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import definitions, seeds
from tasks import options as shared
from tasks.models import masked_metrics
from tasks.models.unmasked_cross_entropy import UnmaskedCrossEntropy
from tasks.registry import TaskDefinition
from tasks.sources import stackoverflow_data
from tff_drift.layers import LSTM

_NAME = "stackoverflow_word"

SEQUENCE_LENGTH = 20
PAD = 0

BATCH_SPEC = (
    tf.TensorSpec((None, SEQUENCE_LENGTH), tf.int64),
    tf.TensorSpec((None, SEQUENCE_LENGTH), tf.int64),
)


def build_preprocess(
    words: Sequence[str],
) -> Callable[[Mapping[str, np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """Returns the function that turns a client's sentences into tokens.

    Args:
      words: The vocabulary without the four tokens.

    Returns:
      A function of the client's `tokens`, an array of `bytes`, that returns inputs
      and labels, each `int64[number of sentences, 20]`.
    """
    numbers = {word.encode(): number for number, word in enumerate(words, start=1)}
    other, begin, end = (len(words) + extra for extra in (1, 2, 3))

    def preprocess(
        features: Mapping[str, np.ndarray],
    ) -> tuple[np.ndarray, np.ndarray]:
        sentences = features["tokens"]
        sequences = np.full((len(sentences), SEQUENCE_LENGTH + 1), PAD, np.int64)
        for sequence, sentence in zip(sequences, sentences, strict=True):
            tokens = [
                numbers.get(word, other)
                for word in sentence.split(b" ")[:SEQUENCE_LENGTH]
            ]
            if len(tokens) < SEQUENCE_LENGTH:
                tokens.append(end)
            sequence[0] = begin
            sequence[1 : 1 + len(tokens)] = tokens
        return sequences[:, :-1], sequences[:, 1:]

    return preprocess


def build_keras_model(num_words: int, seed: int) -> tf.keras.Model:
    """Returns the net: 4,050,748 parameters with 10,000 words.

    Args:
      num_words: The number of words in the vocabulary, without the four tokens.
      seed: The seed of the initial weights.

    Returns:
      An uncompiled Keras model whose outputs are logits of words and tokens.
    """
    layers, initializers = tf.keras.layers, tf.keras.initializers
    layer_seeds = seeds.initializer_seeds(seed, 5)
    size = num_words + 4
    return tf.keras.Sequential(
        [
            layers.Embedding(
                size,
                96,
                mask_zero=True,
                input_length=SEQUENCE_LENGTH,
                embeddings_initializer=initializers.RandomUniform(seed=layer_seeds[0]),
            ),
            LSTM(
                670,
                return_sequences=True,
                kernel_initializer=initializers.GlorotUniform(layer_seeds[1]),
                recurrent_initializer=initializers.Orthogonal(seed=layer_seeds[2]),
            ),
            layers.Dense(
                96, kernel_initializer=initializers.GlorotUniform(layer_seeds[3])
            ),
            layers.Dense(
                size, kernel_initializer=initializers.GlorotUniform(layer_seeds[4])
            ),
        ]
    )


def _build_model(num_words: int, seed: int) -> tff.learning.models.VariableModel:
    tokens = (PAD, num_words + 1, num_words + 2, num_words + 3)
    return tff.learning.models.from_keras_model(
        build_keras_model(num_words, seed),
        loss=UnmaskedCrossEntropy(),
        input_spec=BATCH_SPEC,
        metrics=[
            masked_metrics.MaskedAccuracy(tokens),
            masked_metrics.NumTokens((PAD,)),
        ],
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
    clients = stackoverflow_data.load_clients(
        ("tokens",),
        build_preprocess(words),
        task_name=_NAME,
        cache_dir=cache_dir,
        seed=seed,
        options=options,
    )
    return clients, functools.partial(_build_model, len(words), seed)


TASK = TaskDefinition(
    "stackoverflow_word",
    "Next words of questions and answers by user (TFF Stack Overflow), an "
    "LSTM of 670 units.",
    (
        *shared.batching(32, max_examples=1000),
        *shared.STACKOVERFLOW,
    ),
    build,
    files=("stackoverflow.sqlite", "stackoverflow.word_count"),
)
