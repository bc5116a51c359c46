# %% [markdown]
# # EMNIST, Shakespeare, Stack Overflow: the real data, fast
#
# This tutorial uses the field's data sets as the papers do, and shows what makes rounds
# fast: the local context, several machines, a GPU. You will see what clients of three
# data sets look like, how much faster a round is outside TFF's worker, and three models
# that begin to learn.
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
import os

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import tasks
from tasks.papers import shakespeare_character
from tff_drift import algorithms, simulation

BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"
plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3})

# %% [markdown]
# ## The data
#
# The tasks read TFF's own SQLite files. On a machine with network access,
# `download=True` fetches the official ones; those of Stack Overflow take gigabytes. If
# a folder has the unpacked files already, the variable `TFF_DRIFT_DATA` names it.
# Without either, `synthetic=True` uses small synthetic data, whose results mean
# nothing.

# %%
folder = os.environ.get("TFF_DRIFT_DATA")
source = {"cache_dir": folder} if folder else {"synthetic": True}
print("real data" if folder else "random stand-ins: set TFF_DRIFT_DATA, or download")

# %% [markdown]
# ## EMNIST: who writes how
#
# A client is a writer. Clients are read when they are sampled, so opening the task
# takes no time and no RAM, however many there are.

# %%
emnist = tasks.load("emnist_character", max_examples=60, seed=1, **source)
print(len(emnist.train), "writers")

figure, panels = plt.subplots(3, 10, figsize=(10, 3.2))
for row, writer in zip(panels, emnist.train.client_ids[:3]):
    images = emnist.train.examples(writer)[0]
    for axes, image in zip(row, np.resize(images, (10, *images.shape[1:]))):
        axes.imshow(np.squeeze(image), cmap="gray")
        axes.set_axis_off()
plt.show()

# %% [markdown]
# Three writers, one per row. The files that this notebook was run with are a part of
# the official ones, mostly digits, so the accuracies below cannot be compared with a
# paper's.

# %%
ROUNDS = 6
evaluation = emnist.evaluation(rounds_per_evaluation=ROUNDS, max_clients=20)
process = algorithms.build_fed_avg(emnist.model_fn, client_optimizer_fn=0.1)
result = simulation.run_training(
    process, emnist.train, rounds=ROUNDS, cohort_size=10, callbacks=[evaluation]
)
rows = result.rows
accuracy = f"test_{emnist.accuracy_metric}"
print(f"accuracy before {rows[0][accuracy]:.3f}, after {rows[-1][accuracy]:.3f}")
print(f"traffic: {rows[-1]['total_bytes'] / 1e6:.0f} MB")

# %% [markdown]
# ## Fast: one process instead of two
#
# The same rounds in TFF's own worker, by the same loop. A row has the seconds of its
# round, without the evaluation; the first round includes building the functions.

# %%
SHORT_ROUNDS = 3
here = [row["seconds"] for row in rows[1:]]

tff_drift.execution.set_native_execution_context()
result = simulation.run_training(
    process, emnist.train, rounds=SHORT_ROUNDS, cohort_size=10
)
in_worker = [row["seconds"] for row in result.rows]

figure, axes = plt.subplots(figsize=(6, 3))
names = ["TFF's worker", "local context"]
medians = [np.median(in_worker[1:]), np.median(here[1:])]
bars = axes.barh(names, medians, color=[GREY, BLUE])
axes.bar_label(bars, fmt="%.2f s", padding=4)
axes.set(xlabel="seconds a round (median)", xlim=(0, 1.25 * max(medians)))
axes.grid(visible=False)
plt.show()

# %% [markdown]
# Other programs ran on the machine, so only the rough ratio matters. A net with
# convolutions gains least, because most of its round is arithmetic, the same in both;
# [Speed](../speed.md) has times from a quiet machine, and for small models.
#
# ## Several machines
#
# One line, `tff_drift.execution.set_ray_execution_context(num_actors=2)`, trains on two
# actors of Ray, processes on this machine, or on the nodes of the cluster whose address
# is given. The clients and their batches are the same, and so are the numbers, except
# for rounding and the masks of dropout: [Several machines](../remote.md). Here we stay
# with one process:

# %%
tff_drift.execution.set_local_execution_context()

# %% [markdown]
# ## A GPU
#
# The local context uses the GPUs that TensorFlow sees. With several, the clients of a
# cohort are divided among them:

# %%
gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
if gpus:
    tff_drift.execution.set_local_execution_context(
        server_device=gpus[0], client_devices=gpus
    )
print("GPUs:", gpus or "none; the processors are used")

# %% [markdown]
# ## Shakespeare: a client is a role
#
# An LSTM predicts the next character. This is what a role says, decoded from the
# numbers that the model gets:

# %%
plays = tasks.load("shakespeare_character", max_examples=8, seed=1, **source)
role = plays.train.client_ids[0]
letters = dict(enumerate(shakespeare_character.CHARACTERS, start=1))
for sequence in plays.train.examples(role)[0][:3]:
    print("".join(letters.get(int(token), "") for token in sequence))

# %%
TEXT_ROUNDS = 3
evaluation = plays.evaluation(rounds_per_evaluation=TEXT_ROUNDS, max_clients=5)
process = algorithms.build_fed_avg(plays.model_fn, client_optimizer_fn=1.0)
result = simulation.run_training(
    process, plays.train, rounds=TEXT_ROUNDS, cohort_size=4, callbacks=[evaluation]
)
before, after = (result.rows[at]["test_loss"] for at in (0, -1))
print(f"loss before {before:.3f}, after {after:.3f}")

# %% [markdown]
# ## Stack Overflow: a client is a user
#
# The official files have 342,477 users, who need not be held in RAM. The
# task `stackoverflow_word` predicts the next word, `stackoverflow_tag` the tags of a
# question. The second is a logistic regression and trains in seconds:

# %%
questions = tasks.load("stackoverflow_tag", max_examples=100, seed=1, **source)
print(len(questions.train), "users,", questions.description)

# %%
evaluation = questions.evaluation(rounds_per_evaluation=ROUNDS, max_clients=20)
process = algorithms.build_fed_adagrad(questions.model_fn, 100.0, 10.0)
result = simulation.run_training(
    process, questions.train, rounds=ROUNDS, cohort_size=10, callbacks=[evaluation]
)
metric = f"test_{questions.accuracy_metric}"
before, after = (result.rows[at][metric] for at in (0, -1))
print(f"{metric}: before {before:.3f}, after {after:.3f}")

# %% [markdown]
# The rates come from Reddi et al.'s search on this task
# ([FedAdagrad](../methods/fed_adagrad.md)); with so few rounds they prove nothing. From
# here on a shell is more convenient: the command resumes after a kill, and compares
# methods.
#
# ```
# tff-drift compare --task=emnist_character --algorithms=fed_avg,scaffold,adabest \
#   --rounds=100 --seeds=1,2,3 --cache_dir=$TFF_DRIFT_DATA
# ```
#
# **Exercises**
#
# 1. Train the same task for a few rounds with `--execution=native`, and compare the
#    column `seconds` of the two runs.
# 2. Look at the clients with the fewest examples in `tff-drift data`. What would they
#    gain from [a model of their own](../personalization.md)?
