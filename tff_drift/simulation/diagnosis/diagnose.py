"""A few rounds of FedAvg, and what they say of drift."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, client_works, optimizers, signatures, tensors
from tff_drift.models import ModelFn, initial_weights_of
from tff_drift.optimizers.conversion import is_sgd
from tff_drift.simulation.data import client_weights
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.sampling import build_uniform_sampling
from tff_drift.simulation.diagnosis import statistics
from tff_drift.simulation.diagnosis.labels import label_distances
from tff_drift.simulation.diagnosis.passes import CorrectedSgd, Pass, halved
from tff_drift.simulation.diagnosis.report import Diagnosis
from tff_drift.simulation.diagnosis.statistics import Estimate

# The local steps after which drift is measured, up to half of those of a round: more
# would tell what the round itself does, and cost most.
_LADDER = [factor * 10**power for power in range(8) for factor in (1, 2, 5)]


@signatures.suggesting_names(
    train_data="train",
    clients_per_round="cohort_size",
    num_rounds="rounds",
    client_learning_rate="client_optimizer_fn",
    learning_rate="client_optimizer_fn",
    server_optimizer_fn="server_learning_rate",
)
def diagnose(
    model_fn: ModelFn,
    train: ClientDatasets,
    *,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    cohort_size: int,
    rounds: int = 2,
    max_clients: int = 20,
    server_learning_rate: float = 1.0,
    client_weighting: tff.learning.ClientWeighting = (
        tff.learning.ClientWeighting.NUM_EXAMPLES
    ),
    initial_weights: Any = None,
    seed: int = 0,
    race: Callable[[Sequence[str]], Any] | None = None,
) -> Diagnosis:
    """Measures whether clients drift, what it costs, and says what would help.

    Trains a few rounds of FedAvg. At the start and at the end each of a sample of
    clients computes the gradient of its whole loss on two random halves of its
    examples. At the end it also trains locally, for as many steps as in a round and for
    1, 2, 5, 10, ... up to half of them, as it is and with SCAFFOLD's control variates.
    From these follow, with intervals over clients:

    *   how different clients are: the mean squared length of their gradients beyond
        that of their mean, G² = Σ p_i ‖∇f_i‖² - ‖∇f‖², and the ratio of the two, B², as
        in Karimireddy et al. (2020), SCAFFOLD, https://arxiv.org/abs/1910.06378,
        assumption A1, and Li et al. (2020), FedProx, https://arxiv.org/abs/1812.06127.
        Inner products of halves take the noise of small clients out;
    *   how far their labels are from everyone's, and how far chance would put them;
    *   how far they drift: ‖y_i - x‖, the cosine of a client's update and the mean of
        the others', and the bias of the mean update: what of it is not along the mean
        of corrected updates, which no server rate mends, as local steps grow;
    *   what limits a round: that bias, the noise of drawing a cohort, or the noise of
        minibatches, and how much of them variates take away. The cohort at which its
        noise equals the update is the noise scale of McCandlish et al. (2018),
        https://arxiv.org/abs/1812.06162, for clients.

    Clients are measured under the execution context that is set, as they are trained.
    The cost is that of the rounds, and of about seven rounds of `max_clients` clients.

    Args:
      model_fn: A function that builds a `tff.learning.models.VariableModel`, or a
        `tff.learning.models.FunctionalModel`.
      train: The clients, with the batches and epochs that they are to train on.
      client_optimizer_fn: The optimizer of the local steps, or its learning rate: the
        one that FedAvg is to be trained with.
      cohort_size: The clients per round.
      rounds: The rounds of FedAvg before the last measurement. Clients that agree at
        the start may disagree later: 0 measures at the start alone.
      max_clients: How many clients to measure, drawn once of those that have two
        examples or more; fewer are cheaper, and give wider intervals.
      server_learning_rate: The rate η_g of the server's steps.
      client_weighting: A client's weight p_i in the mean, see
        `tff_drift.algorithms.ProcessOptions`.
      initial_weights: What to begin with, as in `run_training`; by default what the
        model is initialized with.
      seed: The seed of all that is drawn.
      race: Called with the names of the methods that follow, FedAvg first, it trains
        them and returns a table, which becomes `Diagnosis.race`.
        `experiments.training.race.of_task` makes one.

    Returns:
      The report.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range, clients have weights, fewer than
        three of them two examples, or updates are not finite.
    """
    checks.check_instance("train", train, ClientDatasets)
    # The noise of a cohort is told of one size: functions of rounds have many.
    checks.check_integer("cohort_size", cohort_size)
    checks.check_integer("rounds", rounds, at_least=0)
    checks.check_integer("max_clients", max_clients, at_least=3)
    checks.check_positive("server_learning_rate", server_learning_rate)
    if race is not None:
        checks.check_callable("race", race, "a function of the names of methods")
    weightings = tff.learning.ClientWeighting
    checks.check_instance("client_weighting", client_weighting, weightings)
    optimizer = optimizers.as_optimizer("client_optimizer_fn", client_optimizer_fn)
    sampling = build_uniform_sampling(train.client_ids, cohort_size, seed)
    spec = client_works.build_model_spec(model_fn)
    wanted = spec.data_type.element
    train = train.fitting("train", wanted)
    if client_weights.are_in(train.element_spec):
        raise ValueError(
            "train must be clients without weights: a diagnosis would ignore them. "
            "Leave with_client_weights out, and give client_weighting."
        )
    ids = _to_measure(train, max_clients, seed)
    halves = halved(train, ids, seed, wanted)
    sizes = np.array([train.num_examples(each) for each in ids])
    take_gradients = Pass(spec, client_works.FullGradient())
    train_locally = Pass(spec, CorrectedSgd(optimizer))

    def weigh(names: Sequence[str]) -> np.ndarray:
        if client_weighting == weightings.UNIFORM:
            return np.ones(len(names))
        return np.array([train.num_examples_per_round(each) for each in names], float)

    def mean(rows: Sequence[np.ndarray], names: Sequence[str]) -> np.ndarray:
        weights = weigh(names)
        shares = (weights / weights.sum()).tolist()
        weighted = (share * row for share, row in zip(shares, rows, strict=True))
        return sum(weighted, np.zeros_like(rows[0]))

    def gradients(model: Any) -> tuple[list[np.ndarray], np.ndarray]:
        of_halves = take_gradients(model, halves, halves.client_ids, whole=train)
        halves_of = of_halves[: len(ids)], of_halves[len(ids) :]
        shares = ((sizes + 1) // 2 / sizes).tolist()
        whole = [
            share * first + (1 - share) * second
            for share, first, second in zip(shares, *halves_of, strict=True)
        ]
        return whole, statistics.of_pairs(*halves_of)

    model = spec.initial_weights()
    if initial_weights is not None:
        places = spec.weight_places
        model = initial_weights_of(initial_weights, spec.weights_type, places)
    found = {0: gradients(model)}
    for number in range(rounds):
        cohort = sampling(number)
        updates = train_locally(model, train, cohort, number)
        model = _moved(model, server_learning_rate * mean(updates, cohort))
    if rounds:
        found[rounds] = gradients(model)
    weights = weigh(ids)

    def trained(clients: ClientDatasets) -> Mapping[str, Estimate]:
        steps = np.array([len(clients.batch_sizes(each)) for each in ids])
        updates = train_locally(model, clients, ids, rounds)
        again = train_locally(model, clients, ids, rounds + 1)
        directions, _ = found[rounds]
        if is_sgd(optimizer):
            scales = _scales(optimizer, steps)
            directions = [row / scale for row, scale in zip(again, scales, strict=True)]
        of_all = mean(directions, ids)
        variates = [of_all - each for each in directions]
        corrected = train_locally(model, clients, ids, rounds, variates)
        came_to = statistics.Training(updates, again, corrected, variates, steps)
        return statistics.drift(came_to, weights, len(train), cohort_size)

    steps = np.array([len(train.batch_sizes(each)) for each in ids])
    rungs = [k for k in _LADDER if 2 * k <= np.average(steps, weights=weights)]
    report = Diagnosis(
        clients=len(train),
        cohort_size=int(cohort_size),
        sizes=sizes,
        steps=steps,
        labels=label_distances(train, ids, seed),
        differences={
            number: statistics.dissimilarity(*each, weights, len(train))
            for number, each in found.items()
        },
        drift={k: trained(train.replace(local_steps=k, epochs=1)) for k in rungs},
        as_trained=trained(train),
    )
    if race is not None:
        report.race = race(["fed_avg", *report.methods])
    return report


def _to_measure(train: ClientDatasets, count: int, seed: int) -> list[str]:
    """Returns clients that are drawn of those with two halves."""
    drawn = build_uniform_sampling(train.client_ids, len(train), seed)(0)
    with_two = (each for each in drawn if train.num_examples(each) > 1)
    ids = list(itertools.islice(with_two, count))
    if len(ids) < 3:
        raise ValueError(
            f"train has {len(ids)} clients of two examples or more. Give three: fewer "
            "do not tell a difference from the noise of few examples."
        )
    return ids


def _scales(optimizer: Any, steps: np.ndarray) -> np.ndarray:
    """Returns what SGD makes of so many gradients of 1."""
    state, place = optimizer.initialize(tf.TensorSpec([], tf.float32)), tf.constant(0.0)
    places = [place]
    for _ in range(int(steps.max())):
        state, place = optimizer.next(state, place, tf.constant(1.0))
        places.append(place)
    return -np.array(places, np.float32)[steps]


def _moved(model: Any, way: np.ndarray) -> Any:
    """Returns a model from which a vector is subtracted."""
    weights = tuple(map(tf.constant, tf.nest.flatten(model.trainable)))
    parts = tensors.from_vector(tf.constant(way, weights[0].dtype), weights)
    moved = list(map(tf.subtract, weights, parts))
    trainable = tf.nest.pack_sequence_as(model.trainable, moved)
    return tff.learning.models.ModelWeights(trainable, model.non_trainable)
