"""Random learning processes on random models, round after round."""

import collections
import dataclasses
import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import strategies as st

from tests import methods
from tests.soak.fuzz import cohorts, networks
from tff_drift import aggregators, algorithms

_RATE = 0.05
# With an epsilon that is above rounding: an adaptive step makes a whole one of any
# gradient, as of the 1e-9 that a bias has before a batch normalization, instead of 0.
OPTIMIZERS = {
    "sgd": lambda: tff.learning.optimizers.build_sgdm(_RATE),
    "momentum": lambda: tff.learning.optimizers.build_sgdm(_RATE, 0.9),
    "adam": lambda: tff.learning.optimizers.build_adam(_RATE / 5, epsilon=0.1),
    "adagrad": lambda: tff.learning.optimizers.build_adagrad(_RATE, epsilon=0.1),
    "rmsprop": lambda: tff.learning.optimizers.build_rmsprop(_RATE / 5, epsilon=0.1),
}
_MEAN = functools.partial(tff.aggregators.MeanFactory, no_nan_division=True)
_AGGREGATORS = {
    "none": lambda: None,
    "mean": _MEAN,
    "robust": lambda: tff.learning.robust_aggregator(),
    "adaptive_clipping": lambda: aggregators.adaptive_clipping_factory(_MEAN()),
    "rejection": lambda: aggregators.reject_non_finite_factory(_MEAN()),
    "measurements": lambda: aggregators.cohort_measurements_factory(_MEAN()),
    "zeroing": lambda: tff.aggregators.zeroing_factory(0.5, _MEAN()),
    "clipping": lambda: tff.aggregators.clipping_factory(0.3, _MEAN()),
    "secure": lambda: tff.learning.secure_aggregator(),
    "concatenated": lambda: tff.aggregators.concat_factory(_MEAN()),
}


def _of_tff(build, **options):
    def made(model, case, aggregator):
        return build(
            model,
            client_optimizer_fn=OPTIMIZERS[case.optimizer](),
            model_aggregator=aggregator,
            **options,
        )

    return made


_TFF = {
    "tff_fed_avg": _of_tff(tff.learning.algorithms.build_weighted_fed_avg),
    "tff_iterator": _of_tff(
        tff.learning.algorithms.build_weighted_fed_avg,
        loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
    ),
    "tff_unweighted": _of_tff(
        tff.learning.algorithms.build_weighted_fed_avg,
        client_weighting=tff.learning.ClientWeighting.UNIFORM,
        metrics_aggregator=tff.learning.metrics.sum_then_finalize,
    ),
    "tff_fed_adam": _of_tff(
        tff.learning.algorithms.build_weighted_fed_avg,
        server_optimizer_fn=tff.learning.optimizers.build_adam(_RATE, epsilon=0.1),
    ),
    "tff_fed_prox": _of_tff(
        tff.learning.algorithms.build_weighted_fed_prox, proximal_strength=0.3
    ),
    "tff_mime_lite": lambda model, case, aggregator: (
        tff.learning.algorithms.build_weighted_mime_lite(
            model, OPTIMIZERS["momentum"](), model_aggregator=aggregator
        )
    ),
    "tff_fed_sgd": lambda model, case, aggregator: (
        tff.learning.algorithms.build_fed_sgd(model, model_aggregator=aggregator)
    ),
    "tff_fed_eval": lambda model, case, aggregator: (
        tff.learning.algorithms.build_fed_eval(model)
    ),
}
_METHODS = algorithms.methods()


@dataclasses.dataclass(frozen=True)
class ProcessCase:
    """A process and its rounds.

    Attributes:
      network: The model.
      method: One of TFF's or of this library's.
      optimizer: Of the clients, where the method takes one.
      aggregator: Of the model's updates.
      cohorts: One for each round.
    """

    network: networks.Network
    method: str
    optimizer: str
    aggregator: str
    cohorts: tuple[cohorts.Cohort, ...]


@st.composite
def cases(draw, num_cohorts=12):
    return ProcessCase(
        network=draw(networks.networks()),
        method=draw(
            st.one_of(st.sampled_from(tuple(_TFF)), st.sampled_from(tuple(_METHODS)))
        ),
        optimizer=draw(st.sampled_from(tuple(OPTIMIZERS))),
        aggregator=draw(st.sampled_from(tuple(_AGGREGATORS))),
        cohorts=tuple(
            draw(
                st.lists(cohorts.cohorts(), min_size=num_cohorts, max_size=num_cohorts)
            )
        ),
    )


def build(case):
    """Returns the process of a case."""
    model = networks.model_fn(case.network)
    aggregator = _AGGREGATORS[case.aggregator]()
    if case.method in _TFF:
        return _TFF[case.method](model, case, aggregator)
    options = {} if aggregator is None else {"model_aggregator": aggregator}
    method = _METHODS[case.method]
    if method.name == "fed_exp":
        # It asks for one where updates are clipped.
        options["message_aggregator"] = _MEAN()
    if {"meta_data", "shared_data"} & set(method.needs):
        examples = networks.examples(case.network, 4, np.random.default_rng(8))
        at_server = tf.data.Dataset.from_tensor_slices(examples).batch(2)
        options.update(
            {
                need: at_server
                for need in ("meta_data", "shared_data")
                if need in method.needs
            }
        )
    return methods.build(method, model, **options)


def with_weights(process, state):
    """Returns a state with weights that are the same in every program."""
    random = np.random.default_rng(4)
    weights = process.get_model_weights(state)
    return process.set_model_weights(
        state,
        tff.learning.models.ModelWeights(
            [
                0.3 * random.normal(size=np.shape(tensor)).astype(np.float32)
                for tensor in weights.trainable
            ],
            list(weights.non_trainable),
        ),
    )


def nudged(process, state):
    """Returns a state whose weights are one bit away, up or down."""
    weights = process.get_model_weights(state)
    arrays = [np.asarray(tensor) for tensor in weights.trainable]
    return process.set_model_weights(
        state,
        tff.learning.models.ModelWeights(
            [
                np.nextafter(
                    array, np.where(np.indices(array.shape).sum(0) % 2, 9, -9)
                ).astype(array.dtype)
                for array in arrays
            ],
            list(weights.non_trainable),
        ),
    )


def client_data(case, process, cohort, native=False):
    """Returns what the clients of a cohort bring."""
    make = functools.partial(networks.examples, case.network)
    examples = cohorts.datasets(cohort, make, native)
    if not isinstance(process, algorithms.StatefulLearningProcess):
        return examples
    return [
        collections.OrderedDict(
            examples=own,
            state=tf.nest.map_structure(
                lambda array, k=k: np.full_like(array, 0.02 * (k % 3)),
                process.initial_client_state,
            ),
            index=np.int32(k),
        )
        for k, own in enumerate(examples)
    ]
