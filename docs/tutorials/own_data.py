# %% [markdown]
# # Your own data: a federated task, tuned, compared, reported
#
# A table of patients becomes a federated task, and the task gets a name. Searches find
# the learning rate of each method on hospitals that do not train; a comparison with
# three seeds shows how good the methods are, and an analysis draws it. The last three
# are commands, which run in a notebook as well as in a shell. You will see three
# methods that all learn the task, and how much of the difference between them is
# chance.
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
import json
import pathlib

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import sklearn.datasets

import tasks
from experiments import analysis, main
from tff_drift import algorithms, simulation

BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"
plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3})

# %% [markdown]
# ## A table
#
# A row per example, a column that says whose it is, a column to predict, and numbers to
# predict it from. Ours has 569 tumours that come with scikit-learn, each with 30
# measurements. The data does not say where patients were treated, so we make up 16
# hospitals, by the size of the tumour and a little chance, as if large tumours were
# sent to a few large hospitals.

# %%
source = sklearn.datasets.load_breast_cancer(as_frame=True)
frame = (source.data - source.data.mean()) / source.data.std()
rng = np.random.default_rng(1)
size = frame["mean radius"] + 0.5 * rng.standard_normal(len(frame))
frame["hospital"] = pd.qcut(size, 16, labels=[f"hospital_{i:02}" for i in range(16)])
frame["diagnosis"] = source.target_names[source.target]
frame[["hospital", "diagnosis", "mean radius", "mean texture"]].head()

# %% [markdown]
# The first hospitals see almost only benign tumours, the last almost only malignant
# ones. These methods are made for clients that differ so much.

# %%
counts = frame.groupby(["hospital", "diagnosis"], observed=True).size().unstack()
figure, axes = plt.subplots(figsize=(8, 3.5))
counts.plot.bar(stacked=True, ax=axes, color=[BLUE, RED], width=0.8)
axes.set_xticklabels(range(16), rotation=0)
axes.set(xlabel="hospital", ylabel="patients")
axes.legend(title=None, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
plt.show()

# %% [markdown]
# ## A task
#
# `tasks.from_frame` holds out a fifth of each hospital's patients for testing. The
# model is softmax regression; `build_keras_model=` takes your own.

# %%
task = tasks.from_frame(
    frame, client_id="hospital", label="diagnosis", batch_size=8, epochs=5
)
print(task.description)
print(len(task.train), "clients, classes", task.options["classes"])

# %% [markdown]
# Bad data is refused, and the error says where it is:

# %%
broken = frame.copy()
broken.loc[3, "mean radius"] = np.nan
try:
    tasks.from_frame(broken, client_id="hospital", label="diagnosis")
except tasks.DataError as error:
    print(error)

# %%
ROUNDS = 15
result = simulation.run_training(
    algorithms.build_fed_avg(task.model_fn, client_optimizer_fn=0.01),
    task.train,
    rounds=ROUNDS,
    cohort_size=3,
    callbacks=[task.evaluation(rounds_per_evaluation=1)],
)
print(f"test accuracy: {result.rows[-1]['test_accuracy']:.3f}")

# %% [markdown]
# This is one run, with one seed and one choice of test patients, at a guessed learning
# rate of 0.01. The rest of this tutorial shows how far such a number can be trusted.
#
# ## A name for it
#
# To search for a better rate, the command line has to know the task: a file registers
# it, with the options that you may want to vary. In a real project this file reads your
# table.

# %%
frame.to_pickle("tumours.pkl")
pathlib.Path("hospitals.py").write_text(
    """
import pathlib

import pandas as pd

import tasks


def build(cache_dir, seed, options):
    frame = pd.read_pickle(pathlib.Path(__file__).with_name("tumours.pkl"))
    task = tasks.from_frame(
        frame,
        client_id="hospital",
        label="diagnosis",
        batch_size=8,
        epochs=options["epochs"],
        seed=seed,
    )
    return tasks.Clients(task.train, task.test), task.model_fn


tasks.register(
    tasks.TaskDefinition(
        "hospitals",
        "Tumours at 16 hospitals, sorted by size; softmax regression.",
        (tasks.Option("epochs", "count", "Passes over the data per round.", 5),),
        build,
    )
)
"""
)


def tff_drift_command(line):
    """Runs what `tff-drift LINE` runs in a shell."""
    assert main.run(line.split()) == 0


# %% [markdown]
# ## A search for each method
#
# `sweep` trains each rate in a separate process, with all the given `--seeds`, and
# measures on hospitals that are held out from training: the test patients are not
# touched. A comparison is fair only if all methods are tuned with the same effort, so
# each gets the same three rates.

# %%
COMMON = (
    "--plugin=hospitals.py --task=hospitals --clients_per_round=3 "
    f"--rounds={ROUNDS} --rounds_per_evaluation=2"
)
METHODS = ["fed_avg", "scaffold", "adabest"]
for method in METHODS:
    tff_drift_command(
        f"sweep client_learning_rate=0.003,0.03,0.3 --algorithm={method} "
        f"--seeds=11 {COMMON} --output_dir=search/{method}"
    )

# %%
found = [f"search/{method}/best.json" for method in METHODS]
for path in found:
    best = json.loads(pathlib.Path(path).read_text())
    print(best["algorithm"], best["flags"])

# %% [markdown]
# ## A comparison
#
# `--settings` gives each method the best point of its own search. Three seeds draw
# three sets of test patients, three orders of hospitals and three initial models.

# %%
tff_drift_command(
    f"compare --algorithms={','.join(METHODS)} --seeds=1,2,3 {COMMON} "
    f"--settings={','.join(found)} --output_dir=comparison"
)

# %% [markdown]
# These accuracies differ from that of the run above, as they should: they are means
# over three seeds, at other rates, and each seed has other test patients.
#
# ## An analysis
#
# Finished runs are read without training, as tables of pandas and figures of
# matplotlib. `tff-drift analyze comparison` does the same in a shell. The last
# evaluation has the numbers of the table above:

# %%
runs = analysis.read("comparison")
labels = analysis.labels(runs)
columns = ["test_accuracy", "test_loss"]
analysis.over_seeds(analysis.last_mean(runs, columns, 1), labels)

# %%
analysis.draw_curves(runs, columns, labels=labels)

# %% [markdown]
# In accuracy the methods lie within one another's spread: 16 hospitals with few
# patients each cannot tell them apart, although all three were tuned. AdaBest's loss
# rises after round 6, at a β that was not searched for. The mean does not show how well
# the model serves each hospital. A box holds the middle half of the hospitals,
# its thick line is the median, and the whisker below ends at the 5th percentile:

# %%
analysis.draw_clients(runs, "test_accuracy")

# %% [markdown]
# With every method more than half of the hospitals have no wrong diagnosis, and the
# worst have about one in six. With seven test patients per hospital that is one
# patient. [Per-client evaluation](../personalization.md) looks at single clients.
#
# Everything that a report needs is in the folder `comparison`: the configuration of
# every run, its metrics, the table and the curves.

# %%
print(*sorted(path.name for path in pathlib.Path("comparison").iterdir()))

# %% [markdown]
# **Exercises**
#
# 1. Search for AdaBest's `beta` besides its rate: `beta=0.2,0.5,0.8`. How much of its
#    gap to the others was the choice of β?
# 2. Partition the patients among 16 hospitals at random, with `tasks.partition`,
#    instead of by size. The accuracies of the hospitals should come closer to each
#    other.
#
# **Next:** [A new method in one module](own_method.ipynb).
