# %% [markdown]
# # Composing aggregators
#
# A round ends with one question: how do the pseudo-gradients of a cohort become one?
# Every builder takes the answer as `model_aggregator=`, a factory like TFF's own. This
# tutorial measures a cohort, copes with a client that is far too loud, adds TFF's
# privacy, zeroing and compression inside and outside, and ends with an aggregator of
# our own. You will see one client ruin the mean and clipping survive it, and how much
# accuracy noise, compression and sparse updates cost.
#
# The first cell installs what is missing, in Colab and on Kaggle: upload the wheel
# beside the notebook ([Installing](../install.md)). Where tff_drift is there, it
# installs nothing.

# %%
import importlib.util

if importlib.util.find_spec("tff_drift") is None:
    get_ipython().system(
        "pip install -q tff_drift-0.2.0-py3-none-any.whl && tff-drift install-tff"
    )

import tff_drift  # Before TensorFlow Federated and the tasks.

tff_drift.execution.set_local_execution_context()

# %%
import collections

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy

import tasks
from tff_drift import aggregators, algorithms, simulation
from tff_drift.aggregators import wrapping

BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"
plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3})

# %% [markdown]
# The task is scikit-learn's digits on 40 clients, ten of them per round.

# %%
ROUNDS = 30
task = tasks.load("digits", num_clients=40, alpha=0.1, seed=1)


def train(process, data=task.train):
    """Trains, and returns the rows of metrics."""
    return simulation.run_training(
        process,
        data,
        rounds=ROUNDS,
        cohort_size=10,
        callbacks=[task.evaluation(rounds_per_evaluation=1)],
    ).rows


def column(rows, name):
    found = [(row["round"], row[name]) for row in rows if name in row]
    return zip(*found)


# %% [markdown]
# ## Measure first
#
# `cohort_measurements_factory` changes nothing and measures how much the clients of a
# cohort disagree: `mean_pairwise_cosine` is 1 where all pull in one direction, and 0
# where they pull at right angles. Let us look at it twice: once with clients that have
# few kinds of digits, and once with the same images at random.

# %%
rows = {}
for name, alpha in [("few digits each", 0.1), ("at random", None)]:
    split = tasks.load("digits", num_clients=40, alpha=alpha, seed=1)
    process = algorithms.build_fed_avg(
        split.model_fn, 0.1, model_aggregator=aggregators.cohort_measurements_factory()
    )
    rows[name] = train(process, split.train)
print([key for key in rows[name][-1] if key.startswith("aggregator")])

# %%
figure, axes = plt.subplots()
for name, colour in zip(rows, [RED, BLUE]):
    axes.plot(
        *column(rows[name], "aggregator/mean_pairwise_cosine"), color=colour, label=name
    )
axes.set(xlabel="round", ylabel="mean pairwise cosine", ylim=(-0.1, 0.6))
axes.legend(loc="upper right")
plt.show()

# %% [markdown]
# This library's methods address the gap between the curves. If your clients agree as
# much as those of the upper curve, use FedAvg.
#
# ## A client that is far too loud
#
# One client forgot to scale its images: its pixels are a thousand times too large. Put
# it in every round and see what the mean makes of it.

# %%
clients = {name: task.train.examples(name) for name in task.train.client_ids}
loud = task.train.client_ids[0]
x, y = clients[loud]
broken = simulation.ClientDatasets.from_arrays(
    {**clients, loud: (1000 * x, y)}, batch_size=task.train.batching.batch_size
)


def with_the_loud_one(round_number):
    draw = np.random.default_rng([3, round_number])
    return [loud, *draw.choice(task.train.client_ids[1:], 9, replace=False)]


def train_with_it(aggregator):
    return simulation.run_training(
        algorithms.build_fed_avg(task.model_fn, 0.1, model_aggregator=aggregator),
        broken,
        rounds=ROUNDS,
        sampling=with_the_loud_one,
        callbacks=[task.evaluation(rounds_per_evaluation=1)],
    ).rows


# %% [markdown]
# Three aggregators: TFF's mean; ours that clips every pseudo-gradient to a norm which
# follows the cohort's own (here such that 80 % pass unclipped); and TFF's
# `zeroing_factory` *around* ours, which sets what is far above the usual norm to zero.

# %%
usual_norm = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
    initial_estimate=10.0, target_quantile=0.8, learning_rate=0.5
)
candidates = {
    "mean": tff.aggregators.MeanFactory(no_nan_division=True),
    "adaptive clipping": aggregators.adaptive_clipping_factory(),
    "zeroing around clipping": tff.aggregators.zeroing_factory(
        usual_norm, aggregators.adaptive_clipping_factory(), norm_order=2.0
    ),
}
loud_rows = {name: train_with_it(factory) for name, factory in candidates.items()}
for name, found in loud_rows.items():
    print(f"{name:24} {found[-1]['test_accuracy']:.3f}")

# %%
figure, panels = plt.subplots(1, 2, figsize=(11, 4))
for (name, found), colour in zip(loud_rows.items(), [RED, BLUE, GREEN]):
    panels[0].plot(*column(found, "test_accuracy"), color=colour, label=name)
panels[0].set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))
panels[0].legend()
panels[1].plot(
    *column(loud_rows["adaptive clipping"], "aggregator/clipping_norm"), color=BLUE
)
panels[1].set(xlabel="round", ylabel="clipping norm", ylim=(0, 1.1))
plt.show()

# %% [markdown]
# ## Around and inside
#
# Factories nest, and a client's pseudo-gradient goes through them from the outside in.
# Here updates that are not finite are left out and counted, and the others are
# measured, clipped and averaged under TFF's differential privacy. Three of these five
# lines are ours, and the others TFF's.

# %%
CLIP, NOISE = 1.0, 0.5
private_mean = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
    noise_multiplier=NOISE, clients_per_round=10, clip=CLIP
)
factory = aggregators.reject_non_finite_factory(
    aggregators.cohort_measurements_factory(
        aggregators.adaptive_clipping_factory(private_mean)
    )
)

# %%
rows = train(algorithms.build_fed_avg(task.model_fn, 0.1, model_aggregator=factory))
private = {"FedAvg, private": rows}
print([key for key in rows[-1] if key.startswith("aggregator")])

# %% [markdown]
# The measurements of all four are in the metrics. Note that ours look at
# pseudo-gradients *before* the noise: where nobody may see those, leave them out
# ([Composing](../composing.md) says more).
#
# ## SCAFFOLD under privacy
#
# In SCAFFOLD two things travel to the server: pseudo-gradients, and the changes of the
# clients' control variates. They are aggregated on separate paths, so noise has to be
# added to both.

# %%
private_sum = tff.aggregators.DifferentiallyPrivateFactory(
    tensorflow_privacy.GaussianSumQuery(l2_norm_clip=CLIP, stddev=CLIP * NOISE)
)
process = algorithms.build_scaffold(
    task.model_fn,
    0.1,
    num_clients=len(task.train),
    model_aggregator=factory,
    control_variate_sum_factory=private_sum,
)
private["SCAFFOLD, private"] = train(process)

# %% [markdown]
# And TFF's lossy compression, inside ours: 8 bits for each number of a tensor of more
# than 100. (`tff.learning.compression_aggregator` leaves tensors of up to 20,000
# numbers as they are, and this model has none larger.)

# %%
compressed = aggregators.cohort_measurements_factory(
    tff.aggregators.MeanFactory(
        tff.aggregators.EncodedSumFactory.quantize_above_threshold(
            quantization_bits=8, threshold=100
        )
    )
)
process = algorithms.build_fed_avg(task.model_fn, 0.1, model_aggregator=compressed)
private["FedAvg, compressed"] = train(process)
private["FedAvg"] = train(algorithms.build_fed_avg(task.model_fn, 0.1))

figure, axes = plt.subplots()
lines = [(RED, "-"), (BLUE, "-"), (GREEN, "-"), (GREY, "--")]
for (name, found), (colour, line) in zip(private.items(), lines):
    axes.plot(*column(found, "test_accuracy"), line, color=colour, label=name)
axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
# Eight bits in place of 32 have no visible cost here: the curve lies on that of FedAvg,
# within 0.3 points. Noise has, and in SCAFFOLD it is added twice, to the control
# variates too. With ten clients per round this much noise is large; it is the same for
# thousands of clients, whose mean it hardly moves. And adding noise is not a guarantee
# by itself: the resulting $\varepsilon$ depends on the sampling and the number of
# rounds and has to be computed.
#
# ## An aggregator of our own
#
# Each client sends only the largest tenth of its numbers, and zeros for the rest. We
# write one function, `keep_largest`, that runs on a client; `wrap_factory` turns it
# into a factory that goes around any other, weighted or not. It also measures the share
# of numbers that were sent.


# %%
def largest_tenth_factory(inner_factory=None):
    def describe(inner_process, value_type, weight_type):
        @tff.tensorflow.computation(value_type)
        def keep_largest(value):
            numbers = tf.concat(
                [tf.reshape(tf.abs(part), [-1]) for part in tf.nest.flatten(value)], 0
            )
            bound = tf.math.top_k(numbers, tf.size(numbers) // 10).values[-1]
            kept = tf.nest.map_structure(
                lambda part: tf.where(tf.abs(part) >= bound, part, 0.0), value
            )
            return kept, tf.reduce_mean(tf.cast(numbers >= bound, tf.float32))

        def initialize():
            return collections.OrderedDict(inner=inner_process.initialize())

        def next_round(state, value, weight):
            kept, share = tff.federated_map(keep_largest, value)
            inner = wrapping.call_next(inner_process, state["inner"], kept, weight)
            mine = collections.OrderedDict(share_sent=tff.federated_mean(share))
            return tff.templates.MeasuredProcessOutput(
                state=collections.OrderedDict(inner=inner.state),
                result=inner.result,
                measurements=wrapping.join_measurements(mine, inner.measurements),
            )

        return wrapping.Steps(initialize, next_round)

    return wrapping.wrap_factory(inner_factory, describe)


# %% [markdown]
# It works like all others: inside ours, around TFF's, with any method.

# %%
factory = aggregators.cohort_measurements_factory(largest_tenth_factory())
process = algorithms.build_fed_avg(task.model_fn, 0.1, model_aggregator=factory)
sparse = train(process)
print(f"all numbers:      {private['FedAvg'][-1]['test_accuracy']:.3f}")
print(f"a tenth of them:  {sparse[-1]['test_accuracy']:.3f}")
print(f"share sent:       {sparse[-1]['aggregator/share_sent']:.3f}")

# %% [markdown]
# A test of it needs no training: an aggregation process is called like a function.

# %%
process = largest_tenth_factory(tff.aggregators.SumFactory()).create(
    tff.TensorType(np.float32, [20])
)
client = np.zeros(20, np.float32)
client[[2, 5, 7]] = 1.0, -3.0, 2.0
output = process.next(process.initialize(), [client])
assert np.flatnonzero(output.result).tolist() == [5, 7]
print(output.result)

# %% [markdown]
# **Exercises**
#
# 1. Put the measurements inside the clipping instead of around it. The norms that
#    they report should now be at most the clipping norm.
# 2. Let your own aggregator keep more numbers of each client, and plot the loss
#    against how many are kept.
#
# **Next:** [Steering a model](steering.ipynb) with the server's data.
