# %% [markdown]
# # Your TFF script, one line faster, then SCAFFOLD or AdaBest
#
# A training script as in TFF's own tutorials, on scikit-learn's handwritten digits,
# partitioned so that each client has one or two digits. One line makes it faster; two
# more replace FedAvg by AdaBest or SCAFFOLD. At the end we look at what their
# clients keep. You will see the same accuracies in a fraction of the time, FedAvg's
# accuracy swing from cohort to cohort, and a client state as a picture.
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

print("tff_drift", tff_drift.__version__)

# %%
import time

import matplotlib.pyplot as plt
import numpy as np
import sklearn.datasets
import tensorflow as tf
import tensorflow_federated as tff

BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"
plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3})

# %% [markdown]
# ## The script
#
# The data is sorted by label and cut into 40 parts, so that clients differ as much as
# possible.

# %%
images, labels = sklearn.datasets.load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
order = np.random.default_rng(1).permutation(len(labels))
test, rest = order[:360], order[360:]

NUM_CLIENTS = 40
by_label = rest[np.argsort(labels[rest], kind="stable")]
parts = np.array_split(by_label, NUM_CLIENTS)
clients = {f"client_{i:02}": (images[p], labels[p]) for i, p in enumerate(parts)}
print({name: np.unique(y).tolist() for name, (_, y) in list(clients.items())[:5]})

# %% [markdown]
# In a round, a client's data is a `tf.data.Dataset` of batches: five passes over its
# examples.

# %%
datasets = {
    name: tf.data.Dataset.from_tensor_slices(examples).repeat(5).batch(10)
    for name, examples in clients.items()
}


# %% [markdown]
# The model is softmax regression in Keras.


# %%
def model_fn():
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential(
            [
                tf.keras.layers.Input([64]),
                tf.keras.layers.Dense(10, kernel_initializer="zeros"),
            ]
        ),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=(
            tf.TensorSpec([None, 64], tf.float32),
            tf.TensorSpec([None], tf.int64),
        ),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy("accuracy")],
    )


# %% [markdown]
# Now the loop. `data_of` turns a cohort's names into what `process.next` takes; nothing
# else will change.

# %%
COHORT = 5
ROUNDS = 60


def cohort_of(round_number):
    draw = np.random.default_rng([2, round_number])
    return draw.choice(list(clients), COHORT, replace=False)


def accuracy(weights):
    kernel, bias = weights.trainable
    return np.mean(np.argmax(images[test] @ kernel + bias, axis=1) == labels[test])


def train(process, data_of, rounds):
    """Returns the accuracy after every round, and the median seconds of a round."""
    state, accuracies, seconds = process.initialize(), [], []
    for round_number in range(rounds):
        data = data_of(cohort_of(round_number))
        start = time.perf_counter()
        state, _ = process.next(state, data)
        seconds.append(time.perf_counter() - start)
        accuracies.append(accuracy(process.get_model_weights(state)))
    return accuracies, np.median(seconds[1:])


# %%
fed_avg = tff.learning.algorithms.build_weighted_fed_avg(
    model_fn,
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(learning_rate=0.1),
    server_optimizer_fn=tff.learning.optimizers.build_sgdm(learning_rate=1.0),
)


def as_list(cohort):
    return [datasets[name] for name in cohort]


# %% [markdown]
# So far this uses nothing of tff_drift. TFF runs the rounds in its worker, a separate
# program:

# %%
SHORT_ROUNDS = 10
in_worker, worker_seconds = train(fed_avg, as_list, SHORT_ROUNDS)
print(f"{1000 * worker_seconds:.0f} ms a round")

# %% [markdown]
# ## One line faster
#
# The local context runs TFF's computations in this process. Nothing else changes.

# %%
tff_drift.execution.set_local_execution_context()

# %%
here, seconds = train(fed_avg, as_list, SHORT_ROUNDS)
print(f"{1000 * seconds:.0f} ms a round: {worker_seconds / seconds:.0f} times as fast")
print(
    "largest difference of the accuracies:", np.abs(np.subtract(here, in_worker)).max()
)

# %% [markdown]
# How much faster depends on the machine and on the model: small models gain most,
# because for them moving data to the worker and back costs more than training
# ([Speed](../speed.md)).
#
# ## AdaBest or SCAFFOLD instead
#
# Both correct a client's steps by what that client keeps from earlier rounds. So a
# round has to know *which* clients it trains: `ProcessWithClientStates` takes the
# data by name, and keeps the clients' states.

# %%
adabest = tff_drift.simulation.ProcessWithClientStates(
    tff_drift.algorithms.build_adabest(model_fn, client_optimizer_fn=0.1, beta=0.8)
)
scaffold = tff_drift.simulation.ProcessWithClientStates(
    tff_drift.algorithms.build_scaffold(
        model_fn, client_optimizer_fn=0.1, num_clients=NUM_CLIENTS
    )
)


def by_name(cohort):
    return {name: datasets[name] for name in cohort}


# %%
curves = {
    "FedAvg": train(fed_avg, as_list, ROUNDS)[0],
    "AdaBest": train(adabest, by_name, ROUNDS)[0],
    "SCAFFOLD": train(scaffold, by_name, ROUNDS)[0],
}
for name, curve in curves.items():
    last = curve[-20:]
    print(
        f"{name:9} {np.mean(last):.3f} ± {np.std(last):.3f} (last {len(last)} rounds)"
    )

# %%
figure, axes = plt.subplots()
for (name, curve), colour in zip(curves.items(), [RED, GREEN, BLUE]):
    axes.plot(range(1, ROUNDS + 1), curve, color=colour, label=name)
axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
# With one seed and untuned rates, the order of the methods says little here. But the
# picture does show the drift: five clients with a digit or two each pull the
# model to those, and the accuracy swings from cohort to cohort. [Choosing a
# method](../choosing.md) has comparisons with tuned rates.
#
# ## What a client keeps
#
# A client state is written when the client has trained, and is kept until the client is
# called again. In this picture a dot is a round in which a client took part, and the
# line after it is its state being kept:

# %%
took_part = {name: [] for name in clients}
for round_number in range(ROUNDS):
    for name in cohort_of(round_number):
        took_part[name].append(round_number + 1)

figure, axes = plt.subplots(figsize=(8, 3.5))
for row, rounds in enumerate(list(took_part.values())[:15]):
    if rounds:
        axes.plot([rounds[0], ROUNDS], [row, row], color=BLUE, alpha=0.3)
        axes.plot(rounds, [row] * len(rounds), "o", color=BLUE, ms=4)
axes.set(xlabel="round", ylabel="client (the first 15)", xlim=(0, ROUNDS + 1))
plt.show()

# %% [markdown]
# A line begins where the client is called for the first time: before that it has no
# state and takes no space.
#
# SCAFFOLD's state is the control variate $c_i$: an estimate of the client's own
# gradient, as large as the model. Ours has a weight for each pixel and digit, so that
# it can be drawn, here that of a client of the last round:

# %%
name = cohort_of(ROUNDS - 1)[0]
[state] = scaffold.client_states.gather([name])
vector = np.concatenate([np.ravel(part) for part in tf.nest.flatten(state)])
kernel = vector[:640].reshape(64, 10)

figure, panels = plt.subplots(1, 10, figsize=(11, 1.8))
limit = np.abs(kernel).max()
for digit, axes in enumerate(panels):
    picture = kernel[:, digit].reshape(8, 8)
    axes.imshow(picture, cmap="PuOr", vmin=-limit, vmax=limit)
    axes.set_title(f"digit {digit}", fontsize=9)
    axes.set_axis_off()
plt.show()
print(name, "has the digits", np.unique(clients[name][1]).tolist())

# %% [markdown]
# A step goes against the gradient: orange weights are those that this client pulls up,
# and purple ones those that it pulls down. It wants its own digit recognised wherever
# there is ink, and no other. SCAFFOLD subtracts this from its steps and adds
# everybody's mean. It is what drift is made of.
#
# ## When clients are many
#
# States in RAM are one vector of the model's size for each client that ever took part.
# `tff_drift.client_states.DiskClientStates` keeps them in a file instead, and
# `tff_drift.simulation.run_training` replaces the loop: it samples, evaluates, saves,
# and continues after a kill as if nothing had happened ([Methods whose clients keep a
# state](../client_state.md)).
#
# **Exercises**
#
# 1. Replace AdaBest by `algorithms.build_fed_dyn`. What does it need to know that
#    AdaBest does not, and what do its clients keep?
# 2. Keep the clients' states in a `DiskClientStates`, and look at the size of its
#    folder after each round. It should grow with the clients that were seen, and then
#    stop.
#
# **Next:** [Composing aggregators](aggregators.ipynb).
