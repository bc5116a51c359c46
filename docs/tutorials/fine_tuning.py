# needs: keras>=3
# %% [markdown]
# # Federated fine-tuning with LoRA, with and without drift control
#
# A transformer was trained somewhere, on much text of everybody. Clients have a little
# text of their own, of another kind. They fine-tune small
# [LoRA adapters](https://arxiv.org/abs/2106.09685) and a head; the transformer itself
# stays frozen, and is neither sent nor stored again.
#
# You will see what a round then consists of, FedAvg and SCAFFOLD with adapters on
# clients that differ, and what each client gains by an adapter of its own. It needs
# Keras 3, so Python 3.12 or 3.13, as in Colab.
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
import keras
import matplotlib.pyplot as plt
import numpy as np

from tff_drift import algorithms, models, simulation

BLUE, RED, GREY = "#0072B2", "#D55E00", "#7F7F7F"
plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3})
random = np.random.default_rng(0)
keras.utils.set_random_seed(0)

# %% [markdown]
# ## A pre-trained transformer
#
# Texts are 20 words out of 200; a text is about one of five subjects, and a quarter of
# its words are those of its subject. To have something that was pre-trained without a
# download, we train a small transformer on texts of everybody. With
# [KerasHub](https://keras.io/keras_hub/) the backbone would be
# `keras_hub.models.BertBackbone.from_preset(...)`; what follows stays the same.

# %%
WORDS, LENGTH, SUBJECTS, WIDTH = 200, 20, 5, 48


def texts(subjects, words_of_subject):
    words = random.integers(0, WORDS, [len(subjects), LENGTH])
    own = words_of_subject[subjects][:, :, np.newaxis]
    chosen = own[np.arange(len(subjects))[:, None], random.integers(0, 20, words.shape)]
    is_own = random.random(words.shape) < 0.25
    return np.where(is_own, chosen[..., 0], words).astype(np.int32)


def words_of_subjects():
    return random.permutation(WORDS)[: 20 * SUBJECTS].reshape([SUBJECTS, 20])


everybody = words_of_subjects()
subjects = random.integers(0, SUBJECTS, 6000)
inputs = keras.layers.Input([LENGTH], dtype="int32")
values = keras.layers.Embedding(WORDS, WIDTH)(inputs)
for _ in range(2):
    attention = keras.layers.MultiHeadAttention(num_heads=4, key_dim=12)
    values = keras.layers.LayerNormalization()(values + attention(values, values))
    hidden = keras.layers.Dense(2 * WIDTH, activation="gelu")(values)
    hidden = keras.layers.Dense(WIDTH)(hidden)
    values = keras.layers.LayerNormalization()(values + hidden)
pooled = keras.layers.GlobalAveragePooling1D()(values)
backbone = keras.Model(inputs, pooled, name="backbone")

pre_trained = keras.Sequential([backbone, keras.layers.Dense(SUBJECTS)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
pre_trained.compile("adam", loss, metrics=["accuracy"])
pre_trained.fit(texts(subjects, everybody), subjects, epochs=3, verbose=0)
new = random.integers(0, SUBJECTS, 1000)
_, accuracy = pre_trained.evaluate(texts(new, everybody), new, verbose=0)
print(f"accuracy on new texts of everybody: {accuracy:.2f}")

# %% [markdown]
# ## Clients with another vocabulary, and other subjects each
#
# The clients' subjects have other words than those that the transformer has seen, a few
# of which each client uses for another subject than the others do. And each client
# writes mostly about one or two subjects: that is what makes local training drift.

# %%
CLIENTS, EXAMPLES = 20, 80
common = words_of_subjects()
train_texts, test_texts = {}, {}
for number in range(CLIENTS):
    own_words = common.copy()
    own_words[:, :6] = np.roll(own_words[:, :6], 1 + number % (SUBJECTS - 1), axis=0)
    shares = random.dirichlet([0.15] * SUBJECTS)
    for data, count in ((train_texts, EXAMPLES), (test_texts, 40)):
        own_subjects = random.choice(SUBJECTS, count, p=shares)
        name = f"client {number}"
        data[name] = (texts(own_subjects, own_words), own_subjects.astype(np.int32))
train = simulation.ClientDatasets.from_arrays(train_texts, batch_size=10, epochs=3)
test = simulation.ClientDatasets.from_arrays(test_texts, batch_size=40)

# %% [markdown]
# ## Adapters
#
# Freeze all of the backbone but the queries and values of its attention, where
# `enable_lora` of Keras adds to a kernel $W$ the product $A B$ of two thin matrices,
# which train in its place:

# %%
RANK = 4
for layer in backbone.layers:
    layer.trainable = isinstance(layer, keras.layers.MultiHeadAttention)
    if layer.trainable:
        layer.key_dense.trainable = layer.output_dense.trainable = False
        for dense in (layer.query_dense, layer.value_dense):
            dense.bias.trainable = False
            dense.enable_lora(RANK)
fine_tuned = keras.Sequential([backbone, keras.layers.Dense(SUBJECTS)])
fine_tuned.build([None, LENGTH])
trained = sum(np.prod(each.shape) for each in fine_tuned.trainable_variables)
print(f"{fine_tuned.count_params():,} weights, of which {trained:,} train")


def model_fn():
    return models.from_keras3(
        fine_tuned,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        train.element_spec,
        [keras.metrics.SparseCategoricalAccuracy("accuracy")],
    )


# %% [markdown]
# What a round is about is what trains. A client's state in SCAFFOLD is as large as the
# adapters and the head, and so are the messages:

# %%
process = algorithms.build_scaffold(model_fn, 0.1, num_clients=CLIENTS)
traffic = simulation.model_traffic(process)
(state,) = process.initial_client_state.values()
print(f"a client's state: {state.size:,} numbers")
print(f"down: {traffic.bytes_down:,} bytes, up: {traffic.bytes_up:,} bytes")

# %% [markdown]
# ## FedAvg and SCAFFOLD

# %%
ROUNDS = 40
RATE = 0.3
processes = {
    "FedAvg": algorithms.build_fed_avg(model_fn, RATE),
    "SCAFFOLD": algorithms.build_scaffold(model_fn, RATE, num_clients=CLIENTS),
}
evaluate = simulation.build_evaluation(model_fn, test)
results = {}
for name, process in processes.items():
    results[name] = simulation.run_training(
        process,
        train,
        rounds=ROUNDS,
        cohort_size=5,
        callbacks=[
            simulation.callbacks.PeriodicEvaluation(evaluate, rounds_per_evaluation=2)
        ],
    )
    print(f"{name:8} {results[name].rows[-1]['test_accuracy']:.3f}")

figure, axes = plt.subplots()
for (name, result), colour in zip(results.items(), [RED, BLUE]):
    result.plot("test_accuracy", ax=axes)
    axes.lines[-1].set(color=colour, label=name)
axes.set(ylabel="accuracy on all clients' test texts")
axes.legend()
plt.show()

# %% [markdown]
# Both go back after round 14, where cohorts of five clients have few of the subjects:
# FedAvg by ten points, and SCAFFOLD, whose corrections stand for the clients that are
# not there, by five. At the end both are where one model for all clients can be, for
# these use some words for different subjects. Neither rate was tuned here, and this is
# one seed: a [diagnosis](is_drift_my_problem.ipynb) and a search come before a choice.

# %% [markdown]
# The model goes back into Keras whole, the backbone with its adapters. `save` keeps it
# as any other. Training takes its first weights from `fine_tuned`, so that it would go
# on from these afterwards: to train once more from the start, run the notebook from the
# top.

# %%
models.assign_to_keras3(results["SCAFFOLD"].model_weights, fine_tuned)
x, y = (np.concatenate(each) for each in zip(*test_texts.values()))
accuracy = np.mean(np.argmax(fine_tuned.predict(x, verbose=0), axis=1) == y)
print(f"by Keras: {accuracy:.3f}")

# %% [markdown]
# ## An adapter of one's own
#
# Starting from the common adapters, each client trains its own on its texts, and keeps
# them. The backbone is the same for all, so that a client's personal model costs no
# more than the adapters and the head. A point is a client: on the line nothing has
# changed, above it its own adapter is better.

# %%
table = simulation.evaluate_clients(
    model_fn,
    results["SCAFFOLD"].model_weights,
    test,
    train=train,
    client_optimizer_fn=0.1,
)
print(table[["accuracy_before", "accuracy_after"]].mean().round(3).to_string())
simulation.plot_clients(table, "accuracy")
plt.show()

# %% [markdown]
# **Exercises**
#
# 1. Train the head alone, without `enable_lora`. What do the adapters add?
# 2. Give all clients the same shares of subjects. Is there anything left for SCAFFOLD
#    to do?
# 3. Raise the rank, and run the notebook from the top, since Keras adds adapters to a
#    layer once. From which on does accuracy stay, while messages grow?
#
# **Next:** [Models of Keras 3](../keras3.md) says what a frozen backbone
# costs, for thirty and a hundred million weights;
# [Personalization](../personalization.md) measures it on real data.
