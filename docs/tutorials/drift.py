# %% [markdown]
# # Drift made visible
#
# Clients that train on their own data walk to their own optima. The mean of where they
# arrive is not where all of them together should be. This tutorial shows it three
# times: on two clients that can be drawn on paper, on ten quadratics whose optimum is
# known, and on handwritten digits. Each time [FedAvg](../methods/fed_avg.md) stalls,
# and [SCAFFOLD](../methods/scaffold.md) does not.
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

import tasks
from tff_drift import algorithms, simulation

BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"
plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3})

# %% [markdown]
# ## Two clients on paper
#
# Client $i$ minimises $f_i(x) = \frac12 (x - b_i)^\top A_i (x - b_i)$. The first is
# strict about the horizontal position, the second about the vertical one.

# %%
curvature = [np.diag([4.0, 0.4]), np.diag([0.4, 4.0])]
own_optimum = [np.array([-2.0, 0.0]), np.array([2.0, 3.0])]


def gradient(i, x):
    return curvature[i] @ (x - own_optimum[i])


optimum = np.linalg.solve(
    curvature[0] + curvature[1],
    curvature[0] @ own_optimum[0] + curvature[1] @ own_optimum[1],
)
print("optimum of both together:", optimum.round(2))

# %% [markdown]
# Local training is a walk of small steps. `correction` is zero in FedAvg; we shall need
# it in a moment.


# %%
def walk(i, x, steps=20, rate=0.1, correction=0.0):
    path = [x]
    for _ in range(steps):
        x = x - rate * (gradient(i, x) + correction)
        path.append(x)
    return np.array(path)


# %% [markdown]
# Let both begin **at their common optimum**, the one point that nobody should leave.
# The arrow from there to where a client ends is its drift.


# %%
def draw(axes, title, paths):
    across, up = np.meshgrid(np.linspace(-4, 4, 80), np.linspace(-1.5, 4.5, 80))
    for i, colour in enumerate([BLUE, RED]):
        shift = np.stack([across, up], -1) - own_optimum[i]
        height = 0.5 * np.einsum("...a,ab,...b", shift, curvature[i], shift)
        axes.contour(across, up, height, [0.5, 2, 5], colors=colour, alpha=0.35)
        axes.plot(*own_optimum[i], "x", color=colour, ms=9, mew=2)
        axes.plot(*paths[i].T, ".-", color=colour, label=f"client {i + 1}")
        drift = paths[i][-1] - paths[i][0]
        axes.quiver(
            *paths[i][0],
            *drift,
            color=colour,
            alpha=0.5,
            width=0.008,
            angles="xy",
            scale_units="xy",
            scale=1,
        )
    mean = (paths[0][-1] + paths[1][-1]) / 2
    axes.plot(*mean, "s", color=GREY, ms=9, label="mean of the clients")
    axes.plot(*optimum, "*", color=GREEN, ms=17, label="optimum of both")
    axes.set(title=title, xlabel="first weight", ylabel="second weight", aspect="equal")


figure, axes = plt.subplots()
draw(axes, "One round of FedAvg", [walk(i, optimum) for i in range(2)])
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
# They leave it, because each gradient is zero only at the client's own cross. The
# server takes the mean of the two ends, and the model has become worse. Further rounds
# continue from there, to a point where the two walks happen to cancel:

# %%
x = optimum
for _ in range(50):
    x = np.mean([walk(i, x)[-1] for i in range(2)], axis=0)
print("FedAvg stalls at", x.round(2), "and the optimum is", optimum.round(2))

# %% [markdown]
# ## What SCAFFOLD adds
#
# At the optimum the gradients are not zero, but their *mean* is. If a client knew its
# own gradient $c_i$ and everybody's mean $c$, it could step along $g_i - c_i + c$
# instead. At the optimum this is zero for both.

# %%
own = [gradient(i, optimum) for i in range(2)]
everybody = np.mean(own, axis=0)
corrected = [walk(i, optimum, correction=everybody - own[i]) for i in range(2)]

figure, panels = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
draw(panels[0], "FedAvg", [walk(i, optimum) for i in range(2)])
draw(panels[1], "SCAFFOLD, once it knows the gradients", corrected)
panels[0].legend(loc="lower right")
panels[1].label_outer()
plt.show()

# %% [markdown]
# In the right panel nobody moves. SCAFFOLD does not know these gradients when it
# begins: each client estimates its $c_i$ from its last walk and keeps it until it is
# called again (its *client state*), and the server keeps the mean $c$.
#
# ## Ten quadratics, with the library
#
# The task `quadratic` draws ten such clients in ten dimensions, with `epochs` local
# steps in a round, and measures the distance to their common optimum. First its clients
# and one run:

# %%
ROUNDS = 40
curves = {}
for local_steps in (1, 20):
    task = tasks.load("quadratic", num_clients=10, epochs=local_steps, seed=1)
    result = simulation.run_training(
        algorithms.build_fed_avg(task.model_fn, client_optimizer_fn=0.05),
        task.train,
        rounds=ROUNDS,
        cohort_size=10,
        callbacks=[task.evaluation(rounds_per_evaluation=1)],
    )
    name = f"FedAvg, local steps: {local_steps}"
    curves[name] = [row["test_distance"] for row in result.rows]
    print(f"{name:28} distance after {ROUNDS} rounds: {curves[name][-1]:.2g}")

# %% [markdown]
# With one step per round FedAvg reaches the optimum, slowly. With twenty steps it is
# fast at first, but arrives at the wrong point and stays there. SCAFFOLD takes the same
# twenty steps.

# %%
result = simulation.run_training(
    algorithms.build_scaffold(
        task.model_fn, client_optimizer_fn=0.05, num_clients=len(task.train)
    ),
    task.train,
    rounds=ROUNDS,
    cohort_size=10,
    callbacks=[task.evaluation(rounds_per_evaluation=1)],
)
name = "SCAFFOLD, local steps: 20"
curves[name] = [row["test_distance"] for row in result.rows]
print(f"{name:28} distance after {ROUNDS} rounds: {curves[name][-1]:.2g}")

# %%
figure, axes = plt.subplots()
for (name, curve), colour, line in zip(
    curves.items(), [GREY, RED, BLUE], ["--", "-", "-"]
):
    axes.semilogy(curve, line, color=colour, label=name)
axes.set(xlabel="round", ylabel="distance to the optimum")
axes.legend()
plt.show()

# %% [markdown]
# It ends where single-precision numbers end.
#
# ## Digits
#
# Now 1,797 handwritten digits, partitioned among 50 clients so that each has only a few
# kinds of digits (a Dirichlet distribution of the labels with `alpha=0.03`). This is
# what the first 20 clients have:

# %%
task = tasks.load("digits", num_clients=50, alpha=0.03, epochs=5, seed=1)
simulation.plot_labels(task.train.subset(task.train.client_ids[:20]))
plt.show()

# %% [markdown]
# Five clients per round, and the same client learning rate for both methods.

# %%
DIGITS_ROUNDS = 60
processes = {
    "FedAvg": algorithms.build_fed_avg(task.model_fn, client_optimizer_fn=0.1),
    "SCAFFOLD": algorithms.build_scaffold(
        task.model_fn, client_optimizer_fn=0.1, num_clients=len(task.train)
    ),
}
accuracies = {}
for name, process in processes.items():
    result = simulation.run_training(
        process,
        task.train,
        rounds=DIGITS_ROUNDS,
        cohort_size=5,
        callbacks=[task.evaluation(rounds_per_evaluation=1)],
    )
    accuracies[name] = [row["test_accuracy"] for row in result.rows]
    last = accuracies[name][-20:]
    print(f"{name:9} {np.mean(last):.3f} ± {np.std(last):.3f} (last {len(last)})")

# %%
figure, axes = plt.subplots()
for (name, curve), colour in zip(accuracies.items(), [RED, BLUE]):
    axes.plot(curve, color=colour, label=name)
axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
# FedAvg's curve swings with each cohort: five clients pull the model to *their* digits,
# and the next five pull it elsewhere. SCAFFOLD's clients lean against their own pull,
# and the swings become small.
#
# This is one seed and an untuned rate. [Choosing a method](../choosing.md) has results
# with tuned rates and three seeds.
#
# **Exercises**
#
# 1. Let the clients take fewer local steps in a round, then more. The gap between the
#    two curves should shrink and grow with them.
# 2. Add FedProx, `algorithms.build_fed_prox`, as a third curve. It pulls clients back
#    to the server's model. Does that replace SCAFFOLD's correction?
#
# **Next:** [Your TFF script, one line faster](your_tff_script.ipynb), and then SCAFFOLD
# in it.
