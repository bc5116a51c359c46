"""Random cohorts: clients of one example, of none, the same twice, in any form."""

import dataclasses

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from tff_drift.execution.batches_on_demand import BatchesOnDemand


@dataclasses.dataclass(frozen=True)
class Client:
    """A client's data.

    Attributes:
      size: The number of examples.
      epochs: How often they come.
      form: How they are given: "dataset", "shuffled" (with a seed), "list" of batches,
        "on_demand" or "random" (a dataset that is not known to repeat itself).
      same_as: The client of the cohort whose very object this one brings, if any.
    """

    size: int
    epochs: int = 1
    form: str = "dataset"
    same_as: int | None = None


@dataclasses.dataclass(frozen=True)
class Cohort:
    """The clients of a round.

    Attributes:
      clients: The clients.
      batch_size: The examples of a batch.
      drop_remainder: Whether a last batch that is short is left out.
      seed: Of the examples.
    """

    clients: tuple[Client, ...]
    batch_size: int = 2
    drop_remainder: bool = False
    seed: int = 0


FORMS = ("dataset", "list", "shuffled", "on_demand", "random")
_SIZES = st.sampled_from((4, 3, 5, 2, 8, 6, 7, 9, 1, 0))


@st.composite
def clients(draw):
    return Client(
        size=draw(_SIZES),
        epochs=draw(st.sampled_from((1, 1, 1, 2, 3))),
        form=draw(st.sampled_from(FORMS)),
    )


@st.composite
def cohorts(draw):
    """Cohorts of clients of all sizes, or of one size, as they are vectorized best."""
    number = draw(st.sampled_from((5, 6, 3, 9, 12, 2, 1, 0)))
    if draw(st.booleans()):
        chosen = [draw(clients()) for _ in range(number)]
    else:
        chosen = [draw(clients())] * number
    if number > 1 and draw(st.booleans()):
        repeated = draw(st.integers(1, number - 1))
        chosen[repeated] = dataclasses.replace(
            chosen[0], same_as=0 if chosen[0].form != "random" else None
        )
    return Cohort(
        clients=tuple(chosen),
        batch_size=draw(st.sampled_from((2, 1, 3, 4))),
        drop_remainder=draw(st.sampled_from((False, False, True))),
        seed=draw(st.integers(0, 99)),
    )


def datasets(cohort, make_examples, native=False):
    """Returns what each client brings, as a process takes it.

    Args:
      cohort: The cohort.
      make_examples: Makes a structure of arrays of a number of examples, given that and
        a NumPy generator.
      native: Whether only datasets are wanted.
    """
    values = []
    for number, client in enumerate(cohort.clients):
        if client.same_as is not None:
            values.append(values[client.same_as])
            continue
        random = np.random.default_rng([cohort.seed, number])
        examples = make_examples(client.size, random)
        values.append(_data(cohort, client, examples, native))
    return values


def _data(cohort, client, examples, native):
    dataset = tf.data.Dataset.from_tensor_slices(examples)
    if client.form == "shuffled":
        dataset = dataset.shuffle(10, seed=5, reshuffle_each_iteration=False)
    dataset = dataset.repeat(client.epochs).batch(cohort.batch_size)
    if cohort.drop_remainder:
        dataset = dataset.take(client.size * client.epochs // cohort.batch_size)
    if client.form == "random":
        # A shuffle of one element: it changes nothing, which nobody can know.
        return dataset.shuffle(1)
    if native or client.form in ("dataset", "shuffled"):
        return dataset
    batches = list(dataset.as_numpy_iterator())
    if client.form == "list":
        return batches
    sizes = [len(tf.nest.flatten(batch)[0]) for batch in batches]
    # The numbers of the examples, in their order.
    order = np.tile(np.arange(client.size), client.epochs)[: sum(sizes)]
    return BatchesOnDemand(sizes, dataset.element_spec, lambda: [(examples, order)])
