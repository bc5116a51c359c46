"""Next-character prediction on 100 roles of Shakespeare's plays, with a GRU.

The task of Yao et al., Federated Learning with Unbiased Gradient Aggregation and
Controllable Meta Updating (2019, https://arxiv.org/abs/1910.08234), section 4.3:
characters are embedded into 256 dimensions and pass a GRU of 1,024 units. The paper
gives no batch size and no length of sequences; those of
`tasks.papers.shakespeare_character` are taken, whose preprocessing, loss and metrics
this task shares.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tasks import definitions, seeds
from tasks import options as shared
from tasks.papers import shakespeare_character
from tasks.registry import Option, TaskDefinition
from tasks.sources import official_data
from tff_drift.layers import GRU

_NAME = "shakespeare_character_gru"


def build_keras_model(seed: int, units: int = 1024) -> tf.keras.Model:
    """Returns the net: logits of 90 tokens at 80 positions.

    Args:
      seed: The seed of the initial weights.
      units: The units of the GRU; the paper has 1,024.

    Returns:
      An uncompiled Keras model.
    """
    layers, initializers = tf.keras.layers, tf.keras.initializers
    layer_seeds = seeds.initializer_seeds(seed, 4)
    return tf.keras.Sequential(
        [
            layers.Embedding(
                shakespeare_character.VOCABULARY_SIZE,
                256,
                mask_zero=True,
                input_length=shakespeare_character.SEQUENCE_LENGTH,
                embeddings_initializer=initializers.RandomUniform(seed=layer_seeds[0]),
            ),
            GRU(
                units,
                return_sequences=True,
                kernel_initializer=initializers.GlorotUniform(layer_seeds[1]),
                recurrent_initializer=initializers.Orthogonal(seed=layer_seeds[2]),
            ),
            layers.Dense(
                shakespeare_character.VOCABULARY_SIZE,
                kernel_initializer=initializers.GlorotUniform(layer_seeds[3]),
            ),
        ]
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
        shakespeare_character.DATA,
        shakespeare_character.preprocess,
        task_name=_NAME,
        cache_dir=cache_dir,
        seed=seed,
        options=options,
        drawn="roles",
    )
    return clients, shakespeare_character.build_model_fn(
        functools.partial(build_keras_model, seed, options["units"])
    )


TASK = TaskDefinition(
    "shakespeare_character_gru",
    "Next characters of Shakespeare's plays by 100 random roles (TFF "
    "Shakespeare), read by a GRU.",
    (
        *shared.batching(4),
        Option("units", "count", "Units of the GRU.", 1024),
        shared.num_clients(100, "Roles drawn by the seed."),
        *shared.OFFICIAL,
    ),
    build,
    files=("shakespeare.sqlite",),
)
