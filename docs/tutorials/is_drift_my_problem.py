# %% [markdown]
# # Is drift my problem?
#
# Clients that train for many local steps drift apart, and many methods answer that. But
# do *your* clients drift, does it cost you anything, and which method would help?
# `simulation.diagnose` measures it: a few rounds of FedAvg, gradients and local
# training of a sample of clients, and a report. You will diagnose a table of patients,
# then handwritten digits whose labels are sorted by client, and read what the numbers
# do and do not say.
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
import numpy as np
import pandas as pd
import sklearn.datasets

import tasks
from tff_drift import simulation

# %% [markdown]
# ## A table with skewed labels
#
# The tumours that come with scikit-learn, at 16 made-up hospitals: large tumours are
# sent to a few of them, so that most hospitals see hardly anything but one diagnosis.
# For a file of your own, write `frame = pd.read_csv("my.csv")`, and name the columns
# that say whose a row is and what to predict.

# %%
source = sklearn.datasets.load_breast_cancer(as_frame=True)
frame = (source.data - source.data.mean()) / source.data.std()
rng = np.random.default_rng(1)
size = frame["mean radius"] + 0.5 * rng.standard_normal(len(frame))
frame["hospital"] = pd.qcut(size, 16, labels=[f"hospital_{i:02}" for i in range(16)])
frame["diagnosis"] = source.target_names[source.target]
task = tasks.from_frame(
    frame, client_id="hospital", label="diagnosis", batch_size=8, epochs=5
)

# %%
report = simulation.diagnose(
    task.model_fn, task.train, client_optimizer_fn=0.03, cohort_size=4
)
print(report)

# %% [markdown]
# Read the five sentences first.
#
# 1. *How different clients are.* B² compares the mean squared length of the clients'
#    gradients with that of their mean: 1 for clients that are alike. A client with few
#    examples has a long gradient because it is noisy, not because it is different:
#    halves of its examples tell the two apart, and the noise is taken out.
# 2. *Their labels*, beside what chance gives clients of these sizes.
# 3. *How far they drift*: the angle compares the mean of the clients' updates with that
#    of the same clients, on the same batches, with SCAFFOLD's control variates. A
#    server rate can make a step longer; it cannot turn it.
# 4. *What it costs*: this bias, the noise of drawing few clients, and the noise of
#    minibatches, on one scale, with intervals over clients. Noise averages out over
#    rounds, bias does not.
# 5. *What follows*, and the methods to race. Where intervals overlap, it says so.
#
# In a notebook the report itself shows the four pictures too. Here they are in one:

# %%
report.plot()

# %% [markdown]
# ## Digits, sorted by label
#
# A Dirichlet partition with a concentration of 0.03 gives most clients one or two
# digits. The same question, at the rate of the experiments in this repository:

# %%
digits = tasks.load("digits", num_clients=100, alpha=0.03, epochs=5)
skewed = simulation.diagnose(
    digits.model_fn, digits.train, client_optimizer_fn=0.3, cohort_size=5
)
print(skewed)

# %% [markdown]
# And the same digits dealt out at random:

# %%
even = tasks.load("digits", num_clients=100, alpha=None, epochs=5)
alike = simulation.diagnose(
    even.model_fn, even.train, client_optimizer_fn=0.3, cohort_size=5
)
for sentence in alike.sentences:
    print(sentence)

# %% [markdown]
# What would help, at most? The share of a round's error that each remedy could remove,
# if it were perfect:

# %%
pd.DataFrame({"skewed": skewed.gains, "even": alike.gains}).round(2)

# %% [markdown]
# Every number is in a table, with its interval:

# %%
table = skewed.to_frame()
drift = table[table["part"] == "drift"]
drift.pivot(index="name", columns="at", values="value").round(3)

# %%
skewed.plot()

# %% [markdown]
# A diagnosis is cheap and rough. It looks at the beginning of training, at one rate,
# and says what limits a round, not which method ends first; [what it said of runs that
# are known](../diagnosis.md), wrong answers included, shows how far to trust it. A race
# settles it: `tff-drift diagnose --task=digits --race` trains FedAvg and the methods
# that follow, with rates searched for on clients held out.
#
# **Exercises**
#
# 1. Diagnose the digits after more rounds: `rounds=20`. Clients that agreed at the
#    start may disagree later: does the finding change?
# 2. Take `digits.train.replace(epochs=1)`. Which of the three errors falls, and does
#    the finding follow?
#
# **Next:** [Choosing a method](../choosing.md).
