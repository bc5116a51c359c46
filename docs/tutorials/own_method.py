# %% [markdown]
# # A new method in one module
#
# A method of this library is one module: the client's half, the server's half, a
# builder and a row that tells programs about it. We write one, see it train, check it
# against a case worked by hand, and run the tests that all methods share. You will see
# a method that is correct and not worth publishing, which is how most ideas end.
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
import os
import pathlib
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np

import tasks
from tff_drift import algorithms, checks, client_works, simulation
from tff_drift.algorithms import options

BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"
plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3})

# %% [markdown]
# ## The idea
#
# We call it FedEcho; no paper proposes it, and we shall see how good it is. A client
# keeps the pseudo-gradient $e_i$ of its last round, the echo, and steps *against* a
# share $\rho$ of it, so that it does not go the same way twice:
#
# $$
# y_i \leftarrow y_i - \eta\,\bigl(g(y_i) - \rho\, e_i\bigr),\qquad
# e_i \leftarrow x - y_i
# $$
#
# With $\rho = 0$ it is FedAvg. That is the first thing to test.
#
# ## The client's half
#
# Three questions. What does a client know when it begins? What is added to the gradient
# of a local step? What does it keep when it is done?


# %%
class FedEchoWork(client_works.LocalSgd):
    """The client's half: y_i <- y_i - η (g(y_i) - ρ e_i), then e_i <- x - y_i."""

    def __init__(self, client_optimizer_fn, rho, **local):
        super().__init__(client_optimizer_fn, **local)
        checks.check_probability("rho", rho)
        self._rho = rho

    def initial_client_state(self, zeros):
        return collections.OrderedDict(echo=zeros)

    def correction(self, context):
        return -self._rho * context.client_state["echo"]

    def update_client_state(self, context, local):
        new_state = collections.OrderedDict(echo=local.pseudo_gradient)
        return client_works.ClientOutput(new_state)


# %% [markdown]
# ## The server's half, and the builder
#
# The server takes an ordinary step along the mean pseudo-gradient, which exists
# already. The builder puts the halves together. Further options (weight decay,
# clipping, an aggregator, a weighting) come with `StatefulOptions`.


# %%
def build_fed_echo(
    model_fn, client_optimizer_fn, server_optimizer_fn=1.0, *, rho=0.1, **keywords
):
    local, shared = options.split(keywords, algorithms.StatefulOptions)
    work = FedEchoWork(client_optimizer_fn, rho, **local)
    return algorithms.compose(model_fn, work, server_optimizer_fn, **shared)


# %% [markdown]
# That is all. It runs in every context, its clients' states are kept in RAM or on disk,
# and checkpoints hold them.
#
# ## Does it work?
#
# Ten quadratics whose optimum is known, twenty local steps ([the first
# tutorial](drift.ipynb) explains why FedAvg stalls on them):

# %%
ROUNDS = 40
task = tasks.load("quadratic", num_clients=10, epochs=20, seed=1)


def distances(process):
    result = simulation.run_training(
        process,
        task.train,
        rounds=ROUNDS,
        cohort_size=10,
        callbacks=[task.evaluation(rounds_per_evaluation=1)],
    )
    return [row["test_distance"] for row in result.rows]


curves = {
    f"FedEcho, ρ = {rho}": distances(build_fed_echo(task.model_fn, 0.05, rho=rho))
    for rho in (0.0, 0.2, 0.5)
}
curves["SCAFFOLD"] = distances(
    algorithms.build_scaffold(task.model_fn, 0.05, num_clients=10)
)

# %%
figure, axes = plt.subplots()
for (name, curve), colour in zip(curves.items(), [GREY, GREEN, RED, BLUE]):
    axes.semilogy(range(len(curve)), curve, color=colour, label=name)
axes.set(xlabel="round", ylabel="distance to the optimum")
axes.legend()
plt.show()
for name, curve in curves.items():
    print(f"{name:18} {curve[-1]:.2g}")

# %% [markdown]
# FedEcho stalls a little closer to the optimum than FedAvg, and takes longer to get
# there. It turns a client away from its own path; it lacks the direction of all
# clients, which SCAFFOLD adds. The method need not be published, but the module can
# still be right or wrong, and that is the next question.
#
# ## By hand
#
# Whatever a curve looks like, the code may still be wrong. A case small enough for
# paper: one client with one example, $x$ = 1 and $y$ = 2, the model $w x$ from $w$ = 0,
# and the loss $\frac12 (w x - y)^2$, whose gradient is $w - 2$. Two rounds of one step
# each at $\eta$ = 0.1 and $\rho$ = 0.5:
#
# | round | $g$ | $e$ | $y = w - 0.1\,(g - 0.5\,e)$ | new $e = w - y$ |
# |---|---|---|---|---|
# | 1 | -2 | 0 | 0.2 | -0.2 |
# | 2 | -1.8 | -0.2 | 0.2 - 0.1 (-1.8 + 0.1) = 0.37 | -0.17 |

# %%
import tensorflow as tf
import tensorflow_federated as tff

from tasks.papers import quadratic

one = simulation.ClientDatasets.from_arrays(
    {"ann": (np.ones((1, 1), np.float32), np.full((1, 1), 2, np.float32))},
    batch_size=1,
)


def one_weight():
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential(
            [
                tf.keras.layers.Input([1]),
                tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros"),
            ]
        ),
        loss=quadratic.HalfSquaredError(),
        input_spec=one.element_spec,
    )


result = simulation.run_training(
    build_fed_echo(one_weight, 0.1, rho=0.5), one, rounds=2, cohort_size=1
)
[[[weight]]] = result.model_weights.trainable
print(f"w after two rounds: {weight:.6f}")
assert abs(weight - 0.37) < 1e-6

# %% [markdown]
# And the degenerate case: with ρ = 0 it is FedAvg under uniform weighting, to the last
# bit.

# %%
fed_avg = algorithms.build_fed_avg(
    task.model_fn, 0.05, client_weighting=tff.learning.ClientWeighting.UNIFORM
)
same = distances(fed_avg) == curves["FedEcho, ρ = 0.0"]
print("FedEcho with ρ = 0 is FedAvg:", same)
assert same

# %% [markdown]
# ## A row, and what it brings
#
# The row says what programs need to know: a name, where it is published, its options
# and their types, what it costs. (Ours says `example.org`, because there is no paper.)

# %%
METHOD = algorithms.register(
    algorithms.Method(
        name="fed_echo",
        builder=build_fed_echo,
        paper="Nobody et al. (2026), Echoes",
        url="https://example.org/fed_echo",
        weighting="uniform",
        client_cost=algorithms.Cost(repeated_sums=1, products=1),
        server_cost=algorithms.Cost(repeated_sums=1),
        options=(
            algorithms.Option(
                "rho", "probability", "Share of the last pseudo-gradient."
            ),
        ),
    )
)
print(METHOD.name in algorithms.methods())

# %% [markdown]
# In a file of its own, say `fed_echo.py`, it is available on the command line, with
# `--rho` and its help, and bad values are refused before training:
#
# ```
# tff-drift train --plugin=fed_echo.py --algorithm=fed_echo --task=digits --rho=0.2
# ```
#
# ## The shared properties
#
# In a checkout, a module with a row is tested for the properties that all methods must
# have: that it learns; that broken and empty clients change nothing; that the order of
# a cohort does not matter; that it sends what its row says; that bad rates and options
# are refused by name. `tests/fed_echo.py` is our module with its docstring, and pytest
# loads it with `-p`:

# %%
checkout = pathlib.Path(tff_drift.__file__).parents[1]
if (checkout / "tests" / "fed_echo.py").exists():
    process = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.fed_echo", "-k", "fed_echo"),
            *("-p", "no:cacheprovider", "-q", "-rA", "--color=no", "--no-header"),
            "tests/algorithms/test_every_method.py",
        ],
        cwd=checkout,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(checkout)},
    )
    for line in process.stdout.splitlines():
        if line.startswith("PASSED"):
            print(line.partition("::")[2])
    print(process.stdout.splitlines()[-1].split(" in ")[0])
    assert process.returncode == 0
else:
    print("The tests are in a checkout only.")

# %% [markdown]
# [Contributing](../../CONTRIBUTING.md) lists what a method needs to become part of the
# library: a paper, its invariants as a test, and mistakes that the test must notice.
#
# **Exercises**
#
# 1. Set the method to its degenerate case, and compare the weights with FedAvg's bit
#    for bit.
# 2. Break the method on purpose, by a wrong sign for example. Which of the tests
#    notice, and which do not?
#
# **Next:** [The real data](real_data.ipynb).
