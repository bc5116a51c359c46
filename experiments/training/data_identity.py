"""The identity of a run's data, to compare with what its folder holds."""

from __future__ import annotations

import pathlib
import weakref
from typing import Any

import tensorflow as tf
import tree

import tasks
from experiments.flags.settings import RunSettings
from experiments.training import server_data
from tff_drift import client_works, models, simulation
from tff_drift.algorithms.composition.settings import digest_of
from tff_drift.simulation.evaluation import client_evaluation
from tff_drift.simulation.loop import identity

# Runs of one task have the same clients, and arrays in RAM are hashed as a whole.
_digests: weakref.WeakKeyDictionary[simulation.ClientDatasets, dict[str, Any]] = (
    weakref.WeakKeyDictionary()
)


def data_arguments(settings: RunSettings, task: tasks.Task) -> dict[str, Any]:
    """Returns those arguments of a run's training that say of which data it is.

    Of batches too: the task of a user's file may have made others then.

    `tff_drift.simulation.run_training` compares all arguments. For these no process
    has to be built, so that finished runs can be compared, too.

    Args:
      settings: The run.
      task: Its task, loaded.

    Returns:
      JSON values by name, in the structure of the arguments.
    """
    configuration = settings.configuration
    test = client_evaluation.evaluated_clients(
        task.test, configuration["max_evaluation_clients"], settings.seed
    )
    arguments: dict[str, Any] = {
        "train": {**identity.batching_of(task.train), **_digest(task.train)},
        "callbacks": {"PeriodicEvaluation": {"evaluation": _digest(test)}},
    }
    if _is_there(configuration["meta_file"]):
        examples = server_data.choose("meta", configuration, task, task.train)
        digest = digest_of(tf.nest.flatten(examples))
        arguments["method"] = {"meta": {"examples_sha256": digest}}
    weights = configuration["initial_weights"]
    if _is_there(weights):
        spec = client_works.build_model_spec(task.model_fn)
        start = models.initial_weights_of(
            weights, spec.weights_type, spec.weight_places
        )
        arguments["initial_state_sha256"] = digest_of(tree.flatten(start))
    return arguments


def _digest(clients: simulation.ClientDatasets) -> dict[str, Any]:
    if clients not in _digests:
        _digests[clients] = clients.digest()
    return _digests[clients]


def _is_there(path: str | None) -> bool:
    """Whether there is a file that a run names: one that ended does without."""
    return path is not None and pathlib.Path(path).exists()
