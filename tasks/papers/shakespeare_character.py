"""Next-character prediction on Shakespeare's plays; a client is a role.

The task of Reddi et al., Adaptive Federated Optimization (2021,
https://arxiv.org/abs/2003.00295), and of Charles et al., On Large-Cohort Training
for Federated Learning (2021, https://arxiv.org/abs/2106.07820), as
`tff.simulation.baselines.shakespeare` builds it: two LSTMs of 256 units on
sequences of 80 characters, B = 4, E = 1.

The vocabulary is 86 characters and four tokens: 0 pads, 87 stands for other
characters, 88 opens a speech and 89 closes it. A speech becomes 88, its
characters and 89, padded to a multiple of 81 and cut into pieces of 81; the first
80 tokens of a piece are an input, the last 80 its labels.

The loss is the mean over all 80 positions, padding included, as in TFF's baseline
(whose Keras mask reaches the LSTMs but not the loss): the papers' learning rates
were tuned for it. The accuracy counts positions whose label is one of the 86
characters.

Training data shuffles sequences, where TFF's baseline shuffles whole speeches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import definitions, seeds
from tasks import options as shared
from tasks.models import masked_metrics
from tasks.models.unmasked_cross_entropy import UnmaskedCrossEntropy
from tasks.registry import Option, TaskDefinition
from tasks.sources import official_data
from tff_drift.layers import LSTM

_NAME = "shakespeare_character"

CHARACTERS = (
    "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]"
    "!%)-159\r"
)
SEQUENCE_LENGTH = 80
PAD = 0
OUT_OF_VOCABULARY = len(CHARACTERS) + 1
BEGIN = len(CHARACTERS) + 2
END = len(CHARACTERS) + 3
VOCABULARY_SIZE = len(CHARACTERS) + 4

BATCH_SPEC = (
    tf.TensorSpec((None, SEQUENCE_LENGTH), tf.int64),
    tf.TensorSpec((None, SEQUENCE_LENGTH), tf.int64),
)


def _build_token_table() -> np.ndarray:
    """Returns the token of each of the 256 bytes."""
    table = np.full(256, OUT_OF_VOCABULARY, np.int64)
    table[np.frombuffer(CHARACTERS.encode(), np.uint8)] = np.arange(
        1, len(CHARACTERS) + 1
    )
    return table


_TOKENS = _build_token_table()


def preprocess(features: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Turns a client's speeches into sequences of tokens.

    Args:
      features: The client's `snippets`, an array of `bytes`.

    Returns:
      Inputs and labels, each `int64[number of sequences, 80]`.
    """
    pieces = [np.zeros((0, SEQUENCE_LENGTH + 1), np.int64)]
    for snippet in features["snippets"]:
        characters = _TOKENS[np.frombuffer(snippet, np.uint8)]
        num_tokens = len(characters) + 2
        num_pieces = -(-num_tokens // (SEQUENCE_LENGTH + 1))
        tokens = np.full(num_pieces * (SEQUENCE_LENGTH + 1), PAD, np.int64)
        tokens[0] = BEGIN
        tokens[1 : num_tokens - 1] = characters
        tokens[num_tokens - 1] = END
        pieces.append(tokens.reshape(num_pieces, SEQUENCE_LENGTH + 1))
    sequences = np.concatenate(pieces)
    return sequences[:, :-1], sequences[:, 1:]


def build_keras_model(seed: int) -> tf.keras.Model:
    """Returns the net: 820,522 parameters, logits of 90 tokens at 80 positions.

    Args:
      seed: The seed of the initial weights.

    Returns:
      An uncompiled Keras model.
    """
    layers, initializers = tf.keras.layers, tf.keras.initializers
    layer_seeds = seeds.initializer_seeds(seed, 6)
    lstms = [
        LSTM(
            256,
            return_sequences=True,
            kernel_initializer=initializers.HeNormal(kernel_seed),
            recurrent_initializer=initializers.Orthogonal(seed=recurrent_seed),
        )
        for kernel_seed, recurrent_seed in (layer_seeds[1:3], layer_seeds[3:5])
    ]
    return tf.keras.Sequential(
        [
            layers.Embedding(
                VOCABULARY_SIZE,
                8,
                mask_zero=True,
                input_length=SEQUENCE_LENGTH,
                embeddings_initializer=initializers.RandomUniform(seed=layer_seeds[0]),
            ),
            *lstms,
            layers.Dense(
                VOCABULARY_SIZE,
                kernel_initializer=initializers.GlorotUniform(layer_seeds[5]),
            ),
        ]
    )


def build_model_fn(
    build_keras_model: Callable[[], tf.keras.Model],
) -> definitions.ModelFn:
    """Returns a model function with the loss and the metrics of this task.

    Args:
      build_keras_model: Builds a Keras model from scratch whose outputs are
        logits of 90 tokens at 80 positions.

    Returns:
      A function without arguments that builds a
      `tff.learning.models.VariableModel`.
    """

    def model_fn() -> tff.learning.models.VariableModel:
        return tff.learning.models.from_keras_model(
            build_keras_model(),
            loss=UnmaskedCrossEntropy(),
            input_spec=BATCH_SPEC,
            metrics=[
                masked_metrics.MaskedAccuracy((PAD, OUT_OF_VOCABULARY, BEGIN, END)),
                masked_metrics.NumTokens((PAD,)),
            ],
        )

    return model_fn


DATA = official_data.OfficialData(
    file_name="shakespeare.sqlite",
    train_split="train",
    test_split="test",
    element_spec={"snippets": tf.TensorSpec((), tf.string)},
    load_data=tff.simulation.datasets.shakespeare.load_data,
    get_synthetic=tff.simulation.datasets.shakespeare.get_synthetic,
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
    clients = official_data.load_clients(
        DATA,
        preprocess,
        task_name=_NAME,
        cache_dir=cache_dir,
        seed=seed,
        options=options,
        drawn="roles",
    )
    return clients, build_model_fn(functools.partial(build_keras_model, seed))


TASK = TaskDefinition(
    "shakespeare_character",
    "Next characters of Shakespeare's plays by role (TFF Shakespeare), two "
    "LSTMs of 256 units.",
    (
        *shared.batching(4),
        Option(
            "num_clients",
            "count",
            "Roles drawn by the seed; none takes all.",
            None,
            may_be_none=True,
        ),
        *shared.OFFICIAL,
    ),
    build,
    files=("shakespeare.sqlite",),
)
