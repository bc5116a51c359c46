"""Random runs of `run_training`, ended and resumed, whose clients may keep states."""

import contextlib
import dataclasses
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import strategies as st

from tests import methods
from tests.soak.fuzz import networks, processes
from tff_drift import algorithms, client_states, simulation
from tff_drift.simulation import callbacks

ROUNDS = 4
_METHODS = algorithms.methods()
_OPTIMIZERS = ("sgd", "momentum", "adam", "adagrad", "rmsprop")


@dataclasses.dataclass(frozen=True)
class RunCase:
    """A run.

    Attributes:
      network: The model.
      method: The method.
      optimizer: Of the clients, where the method takes one.
      by_examples: Whether clients count by their examples, rather than all alike.
      batching: Options of `ClientDatasets`, as pairs.
      sampling: Who takes part: "uniform", "growing", "doubling", "all" or "sometimes
        nobody".
      store: Where states are: "default", "ram" or "disk".
      stops: The rounds after which the run is ended, and resumed.
      rounds_per_checkpoint: Of the resumed run.
      cohorts: Of the only population the clients' examples.
    """

    network: networks.Network
    method: str
    optimizer: str
    by_examples: bool
    batching: tuple[tuple[str, object], ...]
    sampling: str
    store: str
    stops: tuple[int, ...]
    rounds_per_checkpoint: int
    cohorts: tuple[tuple[int, ...], ...]


_BATCHINGS = {
    "batch_size": (2, 3, 4, 1),
    "epochs": (1, 2, 3),
    "last_batch": ("short", "drop", "bootstrap"),
    "local_steps": (None, None, 3, 1, 7),
    "max_examples": (None, None, 5),
    "shuffle": (True, False),
    "seed": (0, 7),
}


@st.composite
def cases(draw):
    sizes = st.lists(st.sampled_from((4, 7, 1, 2, 9, 5, 13)), min_size=3, max_size=9)
    batching = {
        name: draw(st.sampled_from(values)) for name, values in _BATCHINGS.items()
    }
    if batching["local_steps"] is not None:
        del batching["epochs"]
    return RunCase(
        network=draw(networks.networks()),
        method=draw(st.sampled_from(tuple(_METHODS))),
        optimizer=draw(st.sampled_from(_OPTIMIZERS)),
        by_examples=draw(st.booleans()),
        batching=tuple(batching.items()),
        sampling=draw(
            st.sampled_from(
                ("uniform", "uniform", "growing", "doubling", "all", "sometimes nobody")
            )
        ),
        store=draw(st.sampled_from(("default", "ram", "disk"))),
        stops=tuple(sorted(draw(st.sets(st.integers(1, ROUNDS - 1), max_size=2)))),
        rounds_per_checkpoint=draw(st.sampled_from((1, 1, 2, 3))),
        cohorts=(tuple(draw(sizes)),),
    )


def clients(case, extra=0):
    """Returns the clients, with other examples for another `extra`."""
    (sizes,) = case.cohorts
    arrays = {
        f"client {k}": networks.examples(
            case.network, size, np.random.default_rng([extra, k])
        )
        for k, size in enumerate(sizes)
    }
    return simulation.ClientDatasets.from_arrays(arrays, **dict(case.batching))


def build(case):
    """Returns the process of a run."""
    method = _METHODS[case.method]
    train = clients(case)
    options = {"num_clients": len(train.client_ids)}
    weighting = tff.learning.ClientWeighting
    options["client_weighting"] = (
        weighting.NUM_EXAMPLES if case.by_examples else weighting.UNIFORM
    )
    if "total_examples" in method.needs and case.by_examples:
        options["total_examples"] = sum(
            map(train.num_examples_per_round, train.client_ids)
        )
    if "client_optimizer_fn" in method.parameters and case.optimizer != "sgd":
        options["client_learning_rate"] = processes.OPTIMIZERS[case.optimizer]()
    if {"meta_data", "shared_data"} & set(method.needs):
        examples = networks.examples(case.network, 4, np.random.default_rng(8))
        at_server = tf.data.Dataset.from_tensor_slices(examples).batch(2)
        for need in ("meta_data", "shared_data"):
            if need in method.needs:
                options[need] = at_server
    return methods.build(method, networks.model_fn(case.network), **options)


def _sampling(case, train):
    if case.sampling == "all" or _METHODS[case.method].needs_full_participation:
        return {"cohort_size": len(train.client_ids)}
    if case.sampling == "growing":
        sampling = simulation.build_growing_sampling(train, 1, [4, 15, 40], maximum=3)
        return {"sampling": sampling}
    if case.sampling == "doubling":
        size = simulation.doubling_cohorts(1, [1, 2], maximum=3)
        return {
            "sampling": simulation.build_uniform_sampling(train.client_ids, size, 3)
        }
    if case.sampling == "sometimes nobody":
        some = simulation.build_uniform_sampling(train.client_ids, 2, 5)
        return {"sampling": lambda number: [] if number % 3 == 1 else some(number)}
    return {"cohort_size": min(3, len(train.client_ids)), "seed": 4}


class _Ending(callbacks.Callback):
    """Ends a run in the midst of a round."""

    def __init__(self, round_number):
        self._round_number = round_number

    def after_round(self, round_number, state, row):
        if round_number == self._round_number:
            raise InterruptedError


def _rows(result):
    return [dict(simulation.without_timing(row)) for row in result.rows]


def run(case, process, initial_state, context, stops=()):
    """Returns what a run comes to: weights, rows, and the clients' states if known.

    Args:
      case: The case.
      process: The process.
      initial_state: The server state to begin with.
      context: The execution context.
      stops: In which rounds it is ended, and resumed; it has a folder then.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        tff.framework.get_context_stack().install(context),
    ):
        for stop in stops:
            with contextlib.suppress(InterruptedError):
                _run(case, process, initial_state, folder, stop)
        return _run(case, process, initial_state, folder if stops else None, None)


def _run(case, process, initial_state, folder, stop):
    output_dir = None
    if folder is not None:
        output_dir = simulation.OutputDir(
            f"{folder}/run", rounds_per_checkpoint=case.rounds_per_checkpoint
        )
    train = clients(case)
    evaluation = simulation.build_evaluation(
        networks.model_fn(case.network),
        clients(case, extra=1),
        accuracy_metric=None,
        batch_size=3,
    )
    with _store(case, process, folder) as store:
        result = simulation.run_training(
            process,
            train,
            rounds=ROUNDS,
            initial_state=initial_state,
            client_states=store,
            output_dir=output_dir,
            callbacks=[
                callbacks.PeriodicEvaluation(evaluation, rounds_per_evaluation=2),
                _Ending(stop),
            ],
            **_sampling(case, train),
        )
        states = []
        if store is not None:
            ids = store.client_ids()
            states = [store.gather([client_id])[0] for client_id in ids]
    weights = [result.model_weights.trainable, result.model_weights.non_trainable]
    return [weights, _rows(result), states]


def _store(case, process, folder):
    has_states = isinstance(process, algorithms.StatefulLearningProcess)
    if not has_states or case.store == "default":
        return contextlib.nullcontext()
    initial = process.initial_client_state
    if case.store == "disk" and folder is not None:
        return client_states.DiskClientStates(f"{folder}/states", initial)
    return client_states.InMemoryClientStates(initial)
