"""FedMeta's data tells where the model goes, on real digits.

Yao et al. (2019), section 3.2.2. https://arxiv.org/abs/1910.08234
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tff_drift import algorithms, execution, simulation

RATE = 0.05
META_RATE = 0.03
ROUNDS = 8
DIGIT = 8


@pytest.fixture
def task(real_data):
    # The smaller of the task's nets.
    return tasks.load(
        "emnist_digits",
        cache_dir=real_data,
        seed=1,
        num_clients=40,
        batch_size=20,
        network="adabest",
    )


def examples_of(datasets, client_ids, keep=None):
    parts = [datasets.examples(client_id) for client_id in client_ids]
    features, labels = (np.concatenate(leaves) for leaves in zip(*parts, strict=True))
    rows = slice(None) if keep is None else labels == keep
    return features[rows], labels[rows]


def trained(task, process, clients):
    """The model after some rounds of some clients, all in every round."""
    local = execution.create_local_execution_context()
    with tff.framework.get_context_stack().install(local):
        result = simulation.run_training(
            process,
            task.train.subset(clients),
            rounds=ROUNDS,
            cohort_size=len(clients),
        )
    return result.model_weights


@pytest.mark.conformance
def test_the_model_moves_towards_one_class_or_one_group_of_writers(task):
    writers = task.train.client_ids
    clients, others = writers[:10], writers[10:]
    base = algorithms.build_fed_avg(task.model_fn, RATE)
    targets = {
        "one class": (
            examples_of(task.train, clients, keep=DIGIT),
            examples_of(task.test, writers, keep=DIGIT),
        ),
        # Writers that no client is.
        "other writers": (
            examples_of(task.train, others),
            examples_of(task.test, others),
        ),
    }
    without = trained(task, base, clients)
    for name, (meta, aimed_at) in targets.items():
        process = algorithms.add_meta_step(
            base,
            task.model_fn,
            tf.data.Dataset.from_tensor_slices(meta).batch(256),
            META_RATE,
        )
        evaluate = simulation.build_evaluation(
            task.model_fn,
            simulation.ClientDatasets.from_arrays({name: aimed_at}, batch_size=64),
        )
        before = evaluate(without)
        after = evaluate(trained(task, process, clients))
        assert after["loss"] < before["loss"]
        assert after["accuracy"] > before["accuracy"] + 0.05
