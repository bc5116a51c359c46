"""A few rounds of FedAvg, and what they say of drift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, checks, client_works, optimizers, signatures
from tff_drift.models import ModelFn, initial_weights_of
from tff_drift.optimizers.conversion import is_sgd
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.sampling import build_uniform_sampling
from tff_drift.simulation.diagnosis import statistics
from tff_drift.simulation.diagnosis.labels import label_distances
from tff_drift.simulation.diagnosis.passes import Passes, Twice
from tff_drift.simulation.diagnosis.report import Diagnosis
from tff_drift.simulation.loop.callbacks.base import Callback
from tff_drift.simulation.loop.training import run_training

_LADDER = (1, 2, 5)


@signatures.suggesting_names(
    train_data="train",
    clients_per_round="cohort_size",
    num_rounds="rounds",
    client_learning_rate="client_optimizer_fn",
    learning_rate="client_optimizer_fn",
)
def diagnose(
    model_fn: ModelFn,
    train: ClientDatasets,
    *,
    client_optimizer_fn: optimizers.OptimizerOrRate,
    cohort_size: int,
    rounds: int = 2,
    max_clients: int = 30,
    server_optimizer_fn: optimizers.OptimizerOrRate = 1.0,
    client_weighting: tff.learning.ClientWeighting = (
        tff.learning.ClientWeighting.NUM_EXAMPLES
    ),
    initial_weights: Any = None,
    seed: int = 0,
    race: Callable[[Sequence[str]], Any] | None = None,
) -> Diagnosis:
    """Measures whether clients drift, what it costs, and says what would help.

    Trains a few rounds of FedAvg. At the start, halfway and at the end each of a
    sample of clients computes the gradient of its whole loss on two random halves of
    its examples; at the end it also trains locally, for 1, 2, 5, 10, ... steps and for
    as many as in a round, with its batches in two orders, and a client that has
    everyone's examples takes as many steps. From these follow, with intervals over
    clients:

    *   how different clients are: the mean squared length of their gradients beyond
        that of their mean, G² = Σ p_i ‖∇f_i‖² - ‖∇f‖², and the ratio of the two, B², as
        in Karimireddy et al. (2020), SCAFFOLD, https://arxiv.org/abs/1910.06378,
        assumption A1, and Li et al. (2020), FedProx, https://arxiv.org/abs/1812.06127.
        Inner products of halves take the noise of small clients out;
    *   how far their labels are from everyone's, and how far chance would put them;
    *   how far they drift: ‖y_i - x‖, the cosine of a client's update and the mean of
        the others', and the bias of the mean update: what of it is not along the update
        on everyone's examples, which no server rate mends, as local steps grow;
    *   what limits a round: that bias, the noise of drawing a cohort, or the noise of
        minibatches. The cohort at which its noise equals the update is the noise scale
        of McCandlish et al. (2018), https://arxiv.org/abs/1812.06162, for clients.

    Clients are measured under the execution context that is set, as they are trained.
    The cost is that of the rounds, and of about eight rounds of `max_clients` clients.

    Args:
      model_fn: A function that builds a `tff.learning.models.VariableModel`, or a
        `tff.learning.models.FunctionalModel`.
      train: The clients, with the batches and epochs that they are to train on.
      client_optimizer_fn: The optimizer of the local steps, or its learning rate: the
        one that FedAvg is to be trained with.
      cohort_size: The clients per round.
      rounds: The rounds of FedAvg before the last measurement. Clients that agree at
        the start may disagree later: 0 measures at the start alone.
      max_clients: How many clients to measure, drawn once; fewer are cheaper, and
        give wider intervals.
      server_optimizer_fn: The server's optimizer, or its learning rate.
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
      ValueError: If an argument is out of its range, there are fewer than three
        clients to measure, no client has two examples, or updates are not finite.
    """
    checks.check_instance(
        "train", train, ClientDatasets, "a tff_drift.simulation.ClientDatasets"
    )
    checks.check_integer("rounds", rounds, at_least=0)
    checks.check_integer("max_clients", max_clients, at_least=3)
    if race is not None:
        checks.check_callable("race", race, "a function of the names of methods")
    optimizer = optimizers.as_optimizer("client_optimizer_fn", client_optimizer_fn)
    # Checks the cohort and the seed.
    build_uniform_sampling(train.client_ids, cohort_size, seed)
    if len(train) < 3:
        raise ValueError(
            f"train has {len(train)} clients. Whether clients differ takes three or "
            "more to see."
        )
    process = algorithms.build_fed_avg(
        model_fn, optimizer, server_optimizer_fn, client_weighting=client_weighting
    )
    parameter = process.next.type_signature.parameter[1].member
    train = train.fitting("train", parameter.element)
    count = min(max_clients, len(train))
    ids = build_uniform_sampling(train.client_ids, count, seed)(0)
    if all(train.num_examples(each) < 2 for each in ids):
        raise ValueError(
            f"train: none of {count} clients has two examples. What is noise of its "
            "few examples cannot be told from a difference; give clients with more."
        )
    spec = client_works.build_model_spec(model_fn)
    passes = Passes(spec, optimizer, train, ids, seed)
    models = _models(process, train, rounds, cohort_size, seed, initial_weights)
    gradients = {number: passes.gradients(model) for number, model in models.items()}
    updates, examples, steps = passes.updates(models[rounds], None, rounds)
    weights = examples
    if client_weighting == tff.learning.ClientWeighting.UNIFORM:
        weights = np.ones_like(examples)

    shares = weights / weights.sum()
    mean_steps = float(shares @ steps)

    def measured(found: Twice, each: np.ndarray) -> dict[str, statistics.Estimate]:
        first, second = passes.central(
            models[rounds], shares, max(1, round(float(shares @ each))), rounds
        )
        inner = statistics.LocalTraining(
            _products(found.mean, found.mean),
            found.squares,
            found.noise,
            _products(found.mean, (first + second) / 2),
            float(_products(first, second)),
            _scales(optimizer, each),
        )
        statistic = statistics.drift(len(train), inner, cohort_size)
        return statistics.jackknife(statistic, weights)

    as_trained = measured(updates, steps)
    drift = {}
    for number in _rungs(mean_steps):
        rung, _, own_steps = passes.updates(models[rounds], number, rounds)
        drift[number] = measured(rung, own_steps)
    means = statistics.Means(len(train))
    differences = {
        number: statistics.jackknife(
            statistics.dissimilarity(
                means, _products(found.mean, found.mean), found.squares
            ),
            weights,
        )
        for number, found in gradients.items()
    }
    report = Diagnosis(
        clients=len(train),
        cohort_size=int(cohort_size),
        sizes=np.array([train.num_examples(each) for each in ids]),
        steps=steps,
        labels=label_distances(train, ids, seed),
        differences=differences,
        drift=drift,
        as_trained=as_trained,
    )
    if race is not None:
        report.race = race(["fed_avg", *report.methods])
    return report


class _Keep(Callback):
    """Keeps the model after some rounds."""

    def __init__(self, process: Any, numbers: Sequence[int]) -> None:
        self._process = process
        self._numbers = numbers
        self.models: dict[int, Any] = {}

    def after_round(self, round_number: int, state: Any, row: Any) -> None:
        """See `Callback.after_round`."""
        del row
        if round_number in self._numbers:
            self.models[round_number] = self._process.get_model_weights(state)


def _models(
    process: Any,
    train: ClientDatasets,
    rounds: int,
    cohort_size: int,
    seed: int,
    initial_weights: Any,
) -> dict[int, Any]:
    """Returns FedAvg's models at the start, halfway and at the end, by rounds."""
    state = process.initialize()
    if initial_weights is not None:
        wanted = process.get_model_weights.type_signature.result
        state = process.set_model_weights(
            state, initial_weights_of(initial_weights, wanted)
        )
    kept = _Keep(process, (rounds // 2, rounds))
    kept.models[0] = process.get_model_weights(state)
    if rounds:
        run_training(
            process,
            train,
            rounds=rounds,
            cohort_size=cohort_size,
            seed=seed,
            initial_state=state,
            callbacks=[kept],
        )
    return kept.models


def _rungs(steps: float) -> list[int]:
    """Returns 1, 2, 5, 10, ... below a number of steps."""
    rungs = [factor * 10**power for power in range(8) for factor in _LADDER]
    return [rung for rung in rungs if rung < steps]


def _products(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return (first @ second.T).astype(np.float64)


def _scales(optimizer: Any, steps: np.ndarray) -> np.ndarray | None:
    """Returns what an optimizer makes of so many gradients of 1, if it is linear."""
    if not is_sgd(optimizer):
        return None
    one = tf.constant(1.0)
    state, place = optimizer.initialize(tf.TensorSpec([], tf.float32)), tf.constant(0.0)
    places = [0.0]
    for _ in range(int(steps.max())):
        state, place = optimizer.next(state, place, one)
        places.append(-float(place))
    return np.array(places)[steps]
