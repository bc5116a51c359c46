# %% [markdown]
# # Objective inconsistency: what FedNova fixes
#
# Clients have data of different sizes, or machines of different speeds: in the same
# round one takes a single local step and another takes twelve.
# [FedAvg](../methods/fed_avg.md) averages where they end, so a client that walks
# farther counts more. It still converges, but to the minimum of *another* objective
# than the one that was written down. This tutorial draws both minima, and both methods,
# on clients in two dimensions. You will see FedAvg end at the wrong minimum, FedNova at
# the right one, and what a larger rate does to it.
#
# The first cell installs what is missing, in Colab and on Kaggle: upload the wheel
# beside the notebook ([Installing](../install.md) tells how to make it, and what was
# tried where). Where tff_drift is there, it installs nothing.

# %%
import importlib.util

if importlib.util.find_spec("tff_drift") is None:
    get_ipython().system(
        "pip install -q tff_drift-0.2.0-py3-none-any.whl && tff-drift install-tff"
    )

import tff_drift  # Before TensorFlow Federated and the tasks.

tff_drift.execution.set_local_execution_context()

# %%
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, simulation

BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"
plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3})

# %% [markdown]
# ## Three clients, three numbers of steps
#
# Client $i$ minimises $F_i(w) = \frac12 (w - b_i)^\top A_i (w - b_i)$. We write it as
# a regression: two examples make one batch, whose gradient is exactly $\nabla F_i$. The
# clients hold 1, 4 and 12 such batches, so $K_i$, the number of local steps per
# round, is 1, 4 and 12.

# %%
num_steps = {"ann": 1, "bob": 4, "cleo": 12}
curvature = {
    "ann": np.diag([2.0, 1.0]),
    "bob": np.diag([1.0, 2.0]),
    "cleo": np.diag([1.0, 1.0]),
}
own_minimum = {
    "ann": np.array([-3.0, 1.0]),
    "bob": np.array([1.0, 3.0]),
    "cleo": np.array([3.0, -1.0]),
}


def examples(name):
    x = np.sqrt(curvature[name])  # x'x is A_i.
    x = np.tile(x, [num_steps[name], 1])
    y = x @ own_minimum[name][:, np.newaxis]
    return x.astype(np.float32), y.astype(np.float32)


train = simulation.ClientDatasets.from_arrays(
    {name: examples(name) for name in num_steps}, batch_size=2, shuffle=False
)


def model_fn():
    layer = tf.keras.layers.Dense(
        1, use_bias=False, kernel_initializer="zeros", input_shape=[2]
    )
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential([layer]),
        tf.keras.losses.MeanSquaredError(),
        train.element_spec,
    )


# %% [markdown]
# ## Two minima
#
# We want the minimum of the mean of the $F_i$. Theorem 1 of the paper
# ([Wang et al., 2020](https://arxiv.org/abs/2007.07481)) says that FedAvg with a small
# rate ends elsewhere: at the minimum of $\sum_i K_i F_i$. Both can be computed:


# %%
def minimum(weights):
    slope = sum(weights[name] * curvature[name] @ own_minimum[name] for name in weights)
    return np.linalg.solve(
        sum(weights[name] * curvature[name] for name in weights), slope
    )


wanted = minimum(dict.fromkeys(num_steps, 1.0))
weighted = minimum(num_steps)
print("minimum of the mean of F_i:      ", wanted.round(2))
print("minimum of the sum of K_i F_i:   ", weighted.round(2))

# %% [markdown]
# ## Where the methods end
#
# A callback keeps the model of every round and its distance to the minimum that we
# want. Clients have equal weights: by default they are weighted by their examples,
# which would be another way of counting `cleo` more.


# %%
class Path(simulation.callbacks.Callback):
    """Keeps the model after every round."""

    def __init__(self):
        self.points = [np.zeros(2)]

    def after_round(self, round_number, state, row):
        self.points.append(state.global_model_weights.trainable[0].ravel())
        return {"distance": float(np.linalg.norm(self.points[-1] - wanted))}


ROUNDS = 150
processes = {
    "FedAvg": algorithms.build_fed_avg,
    "FedNova": algorithms.build_fed_nova,
}
paths, results = {}, {}
for name, build in processes.items():
    path = Path()
    process = build(
        model_fn, 0.02, client_weighting=tff.learning.ClientWeighting.UNIFORM
    )
    results[name] = simulation.run_training(
        process, train, rounds=ROUNDS, cohort_size=len(train), callbacks=[path]
    )
    paths[name] = np.array(path.points)
    print(f"{name:8} ends at {paths[name][-1].round(2)}")

# %% [markdown]
# The same script with another builder: nothing else changed. Now the picture. Crosses
# are the clients' own minima, the larger the more steps they take; the stars are the
# two minima from above.

# %%
figure, axes = plt.subplots(figsize=(7, 5))
across, up = np.meshgrid(np.linspace(-4, 5, 90), np.linspace(-2, 4, 80))
places = np.stack([across, up], -1)
height = sum(
    0.5 * np.einsum("...a,ab,...b", places - b, curvature[name], places - b)
    for name, b in own_minimum.items()
)
axes.contour(across, up, height, 12, colors=GREY, alpha=0.35)
for name, b in own_minimum.items():
    axes.plot(*b, "x", color="black", ms=6 + 0.8 * num_steps[name], mew=2)
    axes.annotate(
        f"{name}: K = {num_steps[name]}", b, xytext=(10, 8), textcoords="offset points"
    )
for (name, path), colour in zip(paths.items(), [RED, BLUE]):
    axes.plot(*path.T, ".-", color=colour, ms=3, label=name)
axes.plot(*wanted, "*", color=GREEN, ms=18, label="minimum of the mean of $F_i$")
axes.plot(
    *weighted, "*", color="#E69F00", ms=18, label="minimum of the sum of $K_iF_i$"
)
axes.set(xlabel="first weight", ylabel="second weight", aspect="equal")
axes.legend(loc="lower left")
plt.show()

# %% [markdown]
# Every path ends at its star. The distance over the rounds, by the result's own plot:

# %%
figure, axes = plt.subplots()
for name, colour in zip(results, [RED, BLUE]):
    results[name].plot("distance", ax=axes)
    axes.lines[-1].set(color=colour, label=name)
axes.set(ylabel="distance to the minimum of the mean", ylim=(0, None))
axes.legend()
plt.show()

# %% [markdown]
# ## How
#
# FedNova divides each client's $\Delta_i$ by the weight that its steps give to
# gradients, $\|a_i\|_1$, which is $K_i$ for plain SGD, and multiplies the mean by the
# cohort's mean weight. So a round goes about as far as FedAvg's, in the right
# direction. With momentum or a proximal term $\|a_i\|_1$ is another number; the
# library derives it from the optimizer itself, so no further argument is needed:

# %%
path = Path()
process = algorithms.build_fed_nova(
    model_fn,
    tff.learning.optimizers.build_sgdm(0.005, momentum=0.8),
    mu=0.1,
    client_weighting=tff.learning.ClientWeighting.UNIFORM,
)
simulation.run_training(
    process, train, rounds=2 * ROUNDS, cohort_size=len(train), callbacks=[path]
)
print("with momentum and a proximal term:", path.points[-1].round(2))

# %% [markdown]
# ## What it does not fix
#
# The fixed point is that of a *small* rate. Where clients differ and steps are long,
# local training drifts, and FedNova drifts with it: the next method to look at is
# [SCAFFOLD](../methods/scaffold.md), whose fixed point is the minimum for any number of
# steps. A larger rate shows it:

# %%
for name, build in {
    "FedNova": algorithms.build_fed_nova,
    "SCAFFOLD": algorithms.build_scaffold,
}.items():
    path = Path()
    more = {"num_clients": len(train)} if name == "SCAFFOLD" else {}
    process = build(
        model_fn, 0.2, client_weighting=tff.learning.ClientWeighting.UNIFORM, **more
    )
    simulation.run_training(
        process, train, rounds=ROUNDS, cohort_size=len(train), callbacks=[path]
    )
    distance = np.linalg.norm(path.points[-1] - wanted)
    print(f"{name:9} at a rate of 0.2: distance {distance:.3f}")

# %% [markdown]
# **Exercises**
#
# 1. Give all clients four steps. Where do FedAvg and FedNova end now, and why at the
#    same place?
# 2. Raise the rate of 0.02 step by step. From which rate on does FedNova visibly miss
#    its star, and how close does SCAFFOLD get?
#
# **Next:** [Choosing a method](../choosing.md) shows where FedNova stands among all
# methods on real data.
