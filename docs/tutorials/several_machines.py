# needs: ray

# %% [markdown]
# # Several machines, on this one
#
# On [Ray](https://docs.ray.io) the clients of a round are divided among actors,
# processes that may be on many machines ([Training on several
# machines](../remote.md)). Two actors on one machine are enough to see what that
# means: which numbers come out, where data and clients' states are, and what happens
# when an actor dies in the middle of a round.
#
# The first cell installs what is missing, in Colab and on Kaggle: upload the wheel
# beside the notebook ([Installing](../install.md)). Where tff_drift is there, it
# installs nothing. The second does the same for Ray.

# %%
import importlib.util

if importlib.util.find_spec("tff_drift") is None:
    get_ipython().system(
        "pip install -q tff_drift-0.2.0-py3-none-any.whl && tff-drift install-tff"
    )

import tff_drift  # Before TensorFlow Federated and the tasks.

# %%
if importlib.util.find_spec("ray") is None:
    get_ipython().system('pip install -q "ray>=2.52"')

import os
import shutil
import signal
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import sklearn.datasets
import tensorflow as tf
import tensorflow_federated as tff

ROUNDS = 8
BLUE, RED = "#0072B2", "#D55E00"
plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3})

# %% [markdown]
# ## Clients that are loaded where they train
#
# Each of a hundred clients has scikit-learn's digits of one or two labels, in a file
# of its own. On many machines the files are under a path that all of them see. A
# function loads a client, given its id. It is sent to the actors, and so are ids, but
# no examples: an actor loads the clients that it trains, and the next cohort's while
# it trains.

# %%
images, labels = sklearn.datasets.load_digits(return_X_y=True)
images, labels = (images / 16).astype(np.float32), labels.astype(np.int32)
folder = tempfile.mkdtemp()
# Sorted by label and cut into a hundred parts.
for number, rows in enumerate(np.array_split(np.argsort(labels, kind="stable"), 100)):
    np.savez(f"{folder}/{number}.npz", x=images[rows], y=labels[rows])


def load_client(client_id):
    with np.load(f"{folder}/{client_id}.npz") as file:
        return file["x"], file["y"]


train = tff_drift.simulation.ClientDatasets(
    [str(number) for number in range(100)], load_client, batch_size=5
)


def model_fn():
    layer = tf.keras.layers.Dense(10, kernel_initializer="zeros", input_shape=[64])
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential([layer]),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=train.element_spec,
    )


process = tff_drift.algorithms.build_scaffold(model_fn, 0.1, num_clients=len(train))

# %% [markdown]
# ## Two actors
#
# The context starts a local instance of Ray, which ends with this program; with
# `address="auto"` it would take the cluster that `ray start` has made, and nothing
# else in this notebook would change. TFF itself splits a computation into what comes
# before and after a merge, so that any process runs here that runs on one machine.
# Actors hold their processors until `context.close()`: call it before you run the cell
# a second time.

# %%
context = tff_drift.execution.create_ray_execution_context(
    num_actors=2, processors=1, object_store_bytes=200 * 2**20
)
for line in context.explain(process.next).splitlines():
    if "merge" in line:
        print(line)

# %% [markdown]
# ## A run, and one whose actor is killed
#
# SCAFFOLD's clients keep control variates. They are with the actors, in files, so
# that an actor that is started anew finds those of the one that it replaces. Below,
# the first actor is killed when round 4 is over.


# %%
def run(context, callbacks=()):
    with tff.framework.get_context_stack().install(context):
        return tff_drift.simulation.run_training(
            process, train, rounds=ROUNDS, cohort_size=20, callbacks=callbacks
        )


class KillAnActor(tff_drift.simulation.callbacks.Callback):
    def after_round(self, round_number, state, row):
        if round_number == 4:
            os.kill(context.ask_actors()[0]["pid"], signal.SIGKILL)


undisturbed = run(context)
for actor in context.ask_actors():
    print(f"{actor['processor_seconds']:.0f} s of processor time at an actor")
disturbed = run(context, [KillAnActor()])

# %% [markdown]
# The round after the kill takes as long as a start of TensorFlow. Its numbers are
# those of the run that nobody disturbed, to the last bit:

# %%
for result, name, color in (
    (undisturbed, "undisturbed", BLUE),
    (disturbed, "an actor killed after round 4", RED),
):
    seconds = [row["seconds"] for row in result.rows[1:]]
    plt.plot(range(2, ROUNDS + 1), seconds, "o-", color=color, label=name)
plt.xlabel("round")
plt.ylabel("seconds")
plt.yscale("log")
plt.legend()
plt.show()

same = all(
    np.array_equal(one, other)
    for one, other in zip(
        undisturbed.model_weights.trainable, disturbed.model_weights.trainable
    )
)
print("the same bits:", same)
assert same

# %% [markdown]
# ## The numbers of one machine
#
# They are the same but for the order of sums, which depends on the number of actors:
# the bits of a run on two actors are those of every run on two actors.

# %%
local = run(tff_drift.execution.create_local_execution_context())
difference = max(
    np.abs(one - other).max()
    for one, other in zip(
        undisturbed.model_weights.trainable, local.model_weights.trainable
    )
)
print(f"the largest difference of a weight: {difference:.1e}")
assert difference < 1e-4

# %% [markdown]
# On two processors, two actors are no faster than the local context, which uses both:
# Ray is for clients that one machine has no room or no time for. [Scale](../scale.md)
# has the figures, and [Training on several machines](../remote.md) a cluster's files,
# who can run code there, and what happens when what fails.

# %%
context.close()
shutil.rmtree(folder)
