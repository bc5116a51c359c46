"""Simulated federated training: rounds, callbacks, records, resume."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import tensorflow_federated as tff

from tff_drift import checks, client_works, compat, signatures
from tff_drift.algorithms import StatefulLearningProcess
from tff_drift.client_states import ClientStates
from tff_drift.execution.round_runner import current_runner
from tff_drift.models import initial_weights_for, shared_values
from tff_drift.models.example_weights import CLIENT_WEIGHT
from tff_drift.simulation.data import client_weights
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.sampling import Sampling, build_uniform_sampling
from tff_drift.simulation.loop import identity
from tff_drift.simulation.loop.callbacks.base import Callback
from tff_drift.simulation.loop.callbacks.failure_watch import FailureWatch
from tff_drift.simulation.loop.callbacks.progress import Progress
from tff_drift.simulation.loop.callbacks.release import ReleaseRows
from tff_drift.simulation.loop.process_with_client_states import (
    ProcessWithClientStates,
    check_participation,
)
from tff_drift.simulation.loop.traffic import check_process
from tff_drift.simulation.loop.training_loop import TrainingLoop
from tff_drift.simulation.records import configuration as configurations
from tff_drift.simulation.records.output_dir import OutputDir
from tff_drift.simulation.records.results import TrainingResult
from tff_drift.simulation.records.run_directory import RunDirectory
from tff_drift.simulation.records.run_folder import CLIENT_STATES_FOLDER, own_folder
from tff_drift.simulation.records.run_store import InMemoryRunStore, RunStore

# What takes part in a run: TFF's release managers are given its rows.
Participant: TypeAlias = Callback | compat.ReleaseManager
Output = str | os.PathLike[str] | OutputDir | RunStore | None
# The same without paths.
_Kept = OutputDir | RunStore | None


@signatures.suggesting_names(
    num_rounds="rounds", clients_per_round="cohort_size", checkpoint_dir="output_dir"
)
def run_training(
    process: tff.learning.templates.LearningProcess,
    train: ClientDatasets,
    *,
    rounds: int,
    cohort_size: int | None = None,
    seed: int = 0,
    sampling: Sampling | None = None,
    client_states: ClientStates | None = None,
    initial_state: Any = None,
    initial_weights: Any = None,
    callbacks: Sequence[Participant] = (),
    output_dir: Output = None,
) -> TrainingResult:
    """Trains for some rounds and resumes an earlier run automatically.

    In every round the sampled cohort's datasets go through `process.next`. Any
    `tff.learning.templates.LearningProcess` of type
    `(<S@SERVER, {B*}@CLIENTS> -> <state=S@SERVER, metrics=M@SERVER>)` works, and
    the `StatefulLearningProcess`es of `tff_drift.algorithms`, whose clients' states
    are kept between the rounds and saved in step with the server state.

    With `output_dir` the run is kept in that folder, see `OutputDir`. A program that
    is killed at any moment and started again with the same arguments continues from the
    checkpoint, and ends with the same metrics (except for times) and bit-identical
    weights as one that was not killed, given that the process itself is
    deterministic. A finished run returns what it returned before, and its folder need
    not be writable, unless a callback ended it; with more `rounds` it is extended.

    A change of what the model does with its weights, such as another loss or other
    activations, of a `transform`, or of an aggregator without state is not noticed:
    give another folder then.

    The columns of a row, beyond those of the callbacks and those that
    `tff_drift.simulation.records.metrics` names after the process's metrics:

    * `round`: from 1; the row of the initial model, if a callback measures it, has 0;
    * `cohort_size`: the clients of this round;
    * `bytes_down`, `bytes_up`: what the cohort received and sent;
    * `total_examples`, `total_bytes`: sums over the rounds so far;
    * `seconds`: the wall-clock time of the training.

    Args:
      process: The learning process.
      train: The clients to train on.
      rounds: The number of rounds in all, those of an earlier run included.
      cohort_size: The clients per round, sampled uniformly without replacement;
        needed exactly if `sampling` is not given.
      seed: The seed of the sampling.
      sampling: A function of a round number (from 0) that returns the ids of the
        round's clients; it replaces uniform sampling. For a run that resumes
        identically it must depend on nothing else: a resumed run samples the last
        round once more, and is refused if that gives other clients.
      client_states: Where the clients' states are kept, if the process's clients have
        any: by default in RAM and in the checkpoint; on Ray at its actors, in the
        folder `client_states` of `output_dir`, which all nodes must see then. A
        `tff_drift.client_states.DiskClientStates` keeps them on disk; it is left open.
        States that a new run is to begin with belong to an `initial_state`; with
        `output_dir` an `InMemoryClientStates` has them, no other store.
      initial_state: The server state to begin with; by default the process's own
        initial state.
      initial_weights: What takes the place of the model in that state, such as
        pre-trained weights: a Keras model of the form of the process's model,
        whichever of its layers are frozen, the path of a saved one (`.keras`, `.h5`,
        or the folder of a SavedModel), a `tff.learning.models.ModelWeights`, or, of a
        model without non-trainable weights, a list of arrays. Of a process that is not
        of this library, and of a folder that Keras 3 exported, the same layers must be
        trainable.
      callbacks: What takes part in the run, see `tff_drift.simulation.callbacks`:
        `PeriodicEvaluation` evaluates the model, `EarlyStopping` ends a run that
        improves no more, `TensorBoard` writes events, `SoftInterrupt` handles Ctrl-C. A
        `FailureWatch` and a `Progress` are added if none is given. To a
        `tff.program.ReleaseManager` among them every row is released under its round
        number.
      output_dir: The folder of the run, as a path or an `OutputDir`; or a `RunStore`
        of your own. `None`, the default, writes nothing.

    Returns:
      The result of the whole run, including rounds of earlier programs.

    Raises:
      CheckpointError: If the checkpoint is damaged or does not fit the process.
      ClientStatesError: If the store of the clients' states is damaged, or does not
        belong to the run.
      KeyboardInterrupt: On Ctrl-C, at the latest after the round in progress; the
        rounds completed are kept in `output_dir`.
      MetricsFileError: If the metrics file is damaged.
      OutputDirError: If `output_dir` cannot be written, is in use, holds other
        files, or holds a run with another configuration, cohort size, seed, sampling,
        method, hyperparameters or settings of callbacks, or of other data: of arrays in
        RAM, and of what tasks on a user's own data hold, all values are compared, of
        other clients that are read on demand those of 16; of
        a process of TFF's own, and of aggregators, what their states say.
      TypeError: If an argument has the wrong type.
      ValueError: If a number is out of its range, `cohort_size` is above the number
        of clients, or below it for a method that needs all, the process was built for
        another number of them or of epochs, `rounds` is below the rounds completed, an
        argument is given without the one that it needs, `initial_weights` are not those
        of the process's model, clients have weights that the process ignores, or a
        callback gives a column that is there.
    """
    _check_process_and_data(process, train)
    checks.check_integer("rounds", rounds)
    train = _fitting(process, train)
    _check_weighting(process, train)
    if initial_weights is not None:
        if initial_state is not None:
            raise ValueError(
                "initial_state and initial_weights are both given. Give the state "
                "alone, process.set_model_weights(initial_state, weights)."
            )
        initial_weights = initial_weights_for(process, initial_weights)
        initial_weights = shared_values.shared(initial_weights)
    choose = _choose_sampling(train, cohort_size, seed, sampling)
    if sampling is None and cohort_size is not None:
        check_participation(process, cohort_size)
    participants = _with_defaults(callbacks)
    if not isinstance(output_dir, (OutputDir, RunStore, type(None))):
        output_dir = OutputDir(output_dir)
    with _with_store(process, client_states, output_dir) as (kept, states):
        training = identity.training_arguments(
            process,
            train,
            initial_state if initial_weights is None else initial_weights,
            participants,
        )
        training.update(rounds=int(rounds), seed=int(seed))
        training["cohort_size"] = None if cohort_size is None else int(cohort_size)
        training["sampling"] = getattr(sampling, "settings", None)
        run_store, rounds_per_checkpoint = _open_run_store(
            output_dir, training, train, states
        )
        with contextlib.closing(run_store):
            loop = TrainingLoop(
                kept, states, choose, run_store, participants, rounds_per_checkpoint
            )
            own = output_dir.configuration if isinstance(output_dir, OutputDir) else {}
            settings = {**training, "configuration": dict(own)}
            return loop.train(
                process, train, rounds, initial_state, initial_weights, settings
            )


@contextlib.contextmanager
def _with_store(
    process: Any, given: ClientStates | None, output_dir: _Kept
) -> Iterator[tuple[Any, ClientStates | None]]:
    """Gives a process beside the store of its clients' states, if they have any."""
    if not isinstance(process, StatefulLearningProcess):
        has_store = isinstance(process, ProcessWithClientStates)
        if given is not None:
            why = "has a store" if has_store else "has clients that keep no states"
            raise ValueError(f"client_states is given: process {why}. Leave it out.")
        yield process, process.client_states if has_store else None
        return
    opened = None
    if given is None:
        folder = None
        if isinstance(output_dir, OutputDir):
            folder = own_folder(pathlib.Path(output_dir.path), CLIENT_STATES_FOLDER)
        runner = current_runner()
        opened = runner.open_client_states(process.initial_client_state, folder)
    with contextlib.nullcontext(given) if opened is None else opened as states:
        process = ProcessWithClientStates(process, states)
        yield process, process.client_states


def _check_process_and_data(process: Any, train: Any) -> None:
    check_process(process)
    remedy = "ClientDatasets.from_arrays makes one of arrays."
    checks.check_instance("train", train, ClientDatasets, remedy=remedy)
    num_clients = getattr(process, "num_clients", None)
    if num_clients not in (None, len(train)):
        raise ValueError(
            f"process was built with num_clients={num_clients}, but train has "
            f"{len(train)} clients in all. Build it with num_clients={len(train)}."
        )
    _check_epochs(process, train)


def _check_epochs(process: Any, train: ClientDatasets) -> None:
    """Raises unless datasets hold the epochs that a process takes them to hold."""
    settings = getattr(process, "settings", None) or {}
    work = settings.get("client_work", {})
    # A client work of a user's own may mean something else by it.
    counts = work.get("class") == client_works.KeepTraceSgd.__name__
    wanted = settings.get("share", work if counts else {}).get("local_epochs", 1)
    given = train.batching
    if given.local_steps is None and given.epochs % wanted:
        raise ValueError(
            f"process was built with local_epochs={wanted}, but train has "
            f"epochs={given.epochs}: give it train.replace(epochs={wanted}), or build "
            f"the process with local_epochs={given.epochs}."
        )


def _fitting(process: Any, train: ClientDatasets) -> ClientDatasets:
    """Returns the clients, whose examples are what the model of a process takes.

    Raises:
      TypeError: If they have another structure, shape or kind.
      ValueError: If a value would become another one.
    """
    try:
        clients = process.next.type_signature.parameter[1].member
    except (AttributeError, IndexError, TypeError):
        return train  # A process that is not a computation of TFF has no types.
    clients = getattr(clients, "examples", clients)
    if not isinstance(clients, compat.SequenceType):
        return train
    return train.fitting("train", clients.element)


def _check_weighting(process: Any, train: ClientDatasets) -> None:
    """Raises if clients have weights, and a process counts them by something else."""
    # Of TFF's processes, and of a user's own, it is not known.
    weighting = getattr(process, "settings", {}).get("client_weighting", CLIENT_WEIGHT)
    if weighting != CLIENT_WEIGHT and client_weights.are_in(train.element_spec):
        raise ValueError(
            "train has weights of clients, but process was built with client_weighting "
            f"{weighting.rpartition('.')[2]}, which ignores them. Build it with "
            f"client_weighting={CLIENT_WEIGHT!r}, which methods with client states do "
            "not take, or train on clients without weights."
        )


def _choose_sampling(
    train: ClientDatasets,
    cohort_size: int | None,
    seed: int,
    sampling: Sampling | None,
) -> Sampling:
    if sampling is not None:
        checks.check_callable("sampling", sampling, "a function of a round number")
        if cohort_size is not None:
            raise ValueError(
                "cohort_size must be None with sampling, which says how many clients a "
                f"round has, found {checks.shown(cohort_size)}. Leave one of them out."
            )
        checks.check_integer("seed", seed, at_least=0)
        return sampling
    if callable(cohort_size):
        raise TypeError(
            f"cohort_size must be an integer, found {checks.shown(cohort_size)}. Give "
            "sampling=build_uniform_sampling(train.client_ids, cohort_size, seed)."
        )
    checks.check_integer("cohort_size", cohort_size)
    return build_uniform_sampling(train.client_ids, cast(int, cohort_size), seed)


def _with_defaults(callbacks: Sequence[Participant]) -> list[Callback]:
    """Returns the callbacks of a run, the watch first and the progress last."""
    remedy = "Put it into one: callbacks=[...]."
    checks.check_instance("callbacks", callbacks, (list, tuple), "a list", remedy)
    participants: list[Callback] = []
    for callback in callbacks:
        if isinstance(callback, compat.ReleaseManager):
            callback = ReleaseRows(callback)
        what = "one of tff_drift.simulation.callbacks, or a tff.program.ReleaseManager"
        checks.check_instance("each of callbacks", callback, Callback, what)
        participants.append(callback)
    if not any(isinstance(callback, FailureWatch) for callback in participants):
        participants.insert(0, FailureWatch())
    if not any(isinstance(callback, Progress) for callback in participants):
        participants.append(Progress())
    return participants


def _open_run_store(
    output_dir: _Kept,
    training: Mapping[str, Any],
    train: ClientDatasets,
    client_states: ClientStates | None,
) -> tuple[RunStore, int]:
    """Returns where the run is kept, and the rounds from checkpoint to checkpoint."""
    if output_dir is None:
        return InMemoryRunStore(), 1
    if isinstance(output_dir, RunStore):
        return output_dir, 1
    # Read only here: without a folder nothing is compared.
    examples = train.digest()
    described = {**training, "train": {**training["train"], **examples}}
    configuration = configurations.to_json("configuration", output_dir.configuration)
    folder = RunDirectory(output_dir.path)
    arguments = configurations.to_json("training", described)
    folder.identify(configuration, arguments, client_states)
    return folder, output_dir.rounds_per_checkpoint
