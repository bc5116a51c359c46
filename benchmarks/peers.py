"""Rounds of federated averaging by other frameworks, for `benchmarks/rounds.py`.

    PYTHON benchmarks/peers.py fedjax|pfl WORK

Runs in an environment of the framework's own (`pip install fedjax`, or
`pip install torch pfl`), on the clients and the cohorts of `populations.py`, which
`rounds.py` uses. Every line on standard input asks for a round; the answer is a line
with its seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Callable

import numpy as np
import populations
from populations import (
    ADAM_RATE,
    CLASSES,
    FEW_CLASSES,
    PIXELS,
    RATE,
    SMALL_EXAMPLES,
    TAGS,
    VOCABULARY,
    WORDS,
    Work,
)


def _fedjax(work: Work) -> Callable[[], None]:
    import jax

    # FedJAX 0.0.17 calls names that JAX has dropped.
    jax.tree_map, jax.tree_leaves = jax.tree_util.tree_map, jax.tree_util.tree_leaves
    jax.numpy.NINF = -jax.numpy.inf
    import fedjax

    if work.model in ("autoencoder", "words"):
        model = _fedjax_dense(work)
    elif work.few_classes or work.model == "batchnorm_dense":
        model = _fedjax_classes(work)
    elif work.model == "lstm":
        model = fedjax.models.shakespeare.create_lstm_model(
            vocab_size=86, embed_size=8, lstm_hidden_size=256, lstm_num_layers=2
        )
    elif work.model == "cnn":
        model = fedjax.models.emnist.create_conv_model(only_digits=False)
    elif work.model == "dense":
        model = fedjax.models.emnist.create_dense_model(
            only_digits=False, hidden_units=100
        )
    else:
        model = fedjax.models.emnist.create_logistic_model(only_digits=False)
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.adam(ADAM_RATE) if work.adam else fedjax.optimizers.sgd(RATE),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(
            batch_size=work.batch_size, num_epochs=work.epochs, seed=0
        ),
    )
    clients = [
        (
            b"%d" % number,
            fedjax.ClientDataset({"x": x, "y": y}),
            jax.random.PRNGKey(number),
        )
        for number, (x, y) in enumerate(populations.examples(work))
    ]
    rounds = itertools.count()
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))

    def train() -> None:
        nonlocal state
        cohort = populations.cohort(work, next(rounds))
        state, _ = algorithm.apply(state, [clients[number] for number in cohort])
        jax.block_until_ready(state.params)

    return train


def _fedjax_dense(work: Work) -> object:
    import fedjax
    import haiku as hk
    import jax

    def forward(batch: dict[str, jax.Array]) -> jax.Array:
        *hidden, last = _units(work)
        layers = [part for size in hidden for part in (hk.Linear(size), jax.nn.sigmoid)]
        end = [jax.nn.sigmoid] if work.model == "autoencoder" else []
        return hk.Sequential([*layers, hk.Linear(last), *end])(batch["x"])

    def loss(batch: dict[str, jax.Array], output: jax.Array) -> jax.Array:
        y = batch["y"]
        if work.model == "autoencoder":
            return ((output - y) ** 2).mean(axis=1)
        return (jax.nn.softplus(output) - y * output).mean(axis=1)

    sample, outputs = (
        jax.numpy.zeros((1, size)) for size in (_num_inputs(work), _units(work)[-1])
    )
    return fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(forward),
        sample_batch={"x": sample, "y": outputs},
        train_loss=loss,
        eval_metrics={},
    )


def _fedjax_classes(work: Work) -> object:
    import fedjax
    import haiku as hk
    import jax

    relu = jax.nn.relu
    shape, integers = SMALL_EXAMPLES.get(work.model, ((28, 28, 1), None))

    def conv_small() -> list[object]:
        return [
            hk.Conv2D(6, 3, padding="VALID"),
            relu,
            hk.MaxPool(2, 2, "VALID"),
            hk.Conv2D(16, 2, padding="VALID"),
            relu,
            hk.Flatten(),
            hk.Linear(120),
            relu,
            hk.Linear(FEW_CLASSES),
        ]

    def mobile_block() -> list[object]:
        return [
            hk.Conv2D(8, 3, 2),
            relu,
            hk.DepthwiseConv2D(1, 3),
            relu,
            hk.Conv2D(16, 1),
            relu,
            hk.DepthwiseConv2D(1, 3, 2),
            relu,
            hk.Conv2D(32, 1),
            relu,
            lambda pixels: pixels.mean(axis=(1, 2)),
            hk.Linear(FEW_CLASSES),
        ]

    def embedding_mean() -> list[object]:
        end = [lambda text: text.mean(axis=1), hk.Linear(FEW_CLASSES)]
        return [hk.Embed(integers, 16), *end]

    def text_cnn() -> list[object]:
        return [
            hk.Embed(integers, 16),
            hk.Conv1D(32, 3, padding="VALID"),
            relu,
            lambda text: text.max(axis=1),
            hk.Linear(FEW_CLASSES),
        ]

    def wide_and_deep() -> list[object]:
        def net(columns: jax.Array) -> jax.Array:
            (width,) = shape
            numbers = columns + jax.numpy.arange(width) * integers
            wide = hk.Embed(width * integers, FEW_CLASSES)(numbers).sum(axis=1)
            deep = hk.Embed(width * integers, 8)(numbers).reshape(-1, width * 8)
            for units in (64, 32):
                deep = relu(hk.Linear(units)(deep))
            return wide + hk.Linear(FEW_CLASSES)(deep)

        return [net]

    def matrix_factorization() -> list[object]:
        def product(numbers: jax.Array) -> jax.Array:
            users, items = (hk.Embed(integers, 32)(numbers[:, k]) for k in range(2))
            return (users * items).sum(axis=1, keepdims=True)

        return [product, hk.Linear(FEW_CLASSES)]

    def siamese_pair() -> list[object]:
        tower = hk.Sequential([hk.Linear(64), relu, hk.Linear(32), relu])
        return [
            lambda pair: abs(tower(pair[:, 0]) - tower(pair[:, 1])),
            hk.Linear(FEW_CLASSES),
        ]

    def tiny_transformer() -> list[object]:
        def block(text: jax.Array) -> jax.Array:
            queries, keys, values = (hk.Linear(32)(text) for _ in range(3))
            scores = queries @ keys.transpose(0, 2, 1) / 32**0.5
            text += jax.nn.softmax(scores) @ values
            return text + hk.Linear(32)(relu(hk.Linear(64)(text)))

        end = [lambda text: text.mean(axis=1), hk.Linear(FEW_CLASSES)]
        return [hk.Embed(integers, 32), block, *end]

    def norm_transformer() -> list[object]:
        def norm(text: jax.Array) -> jax.Array:
            return hk.LayerNorm(-1, create_scale=True, create_offset=True)(text)

        def block(text: jax.Array) -> jax.Array:
            attention = hk.MultiHeadAttention(
                2, 16, w_init=hk.initializers.VarianceScaling(1.0), model_size=32
            )
            text = norm(text + attention(text, text, text))
            return norm(text + hk.Linear(32)(relu(hk.Linear(64)(text))))

        end = [lambda text: text.mean(axis=1), hk.Linear(FEW_CLASSES)]
        return [hk.Embed(integers, 32), block, *end]

    def groupnorm_residual() -> list[object]:
        def block(start: jax.Array) -> jax.Array:
            pixels = relu(hk.GroupNorm(4)(hk.Conv2D(8, 3)(start)))
            return relu(hk.GroupNorm(4)(hk.Conv2D(8, 3)(pixels)) + start)

        end = [lambda pixels: pixels.mean(axis=(1, 2)), hk.Linear(FEW_CLASSES)]
        return [hk.Conv2D(8, 3, 2), relu, block, *end]

    def table() -> list[object]:
        return [hk.nets.MLP([64, 32, FEW_CLASSES])]

    def normalized(units: jax.Array) -> jax.Array:
        shape = units.shape[1:]
        scale = hk.get_parameter("scale", shape, init=jax.numpy.ones)
        offset = hk.get_parameter("offset", shape, init=jax.numpy.zeros)
        deviations = units - units.mean(axis=0)
        return deviations * scale / (units.var(axis=0) + 1e-3) ** 0.5 + offset

    def batchnorm_dense() -> list[object]:
        hidden = [hk.Linear(100), normalized, relu]
        return [hk.Flatten(), *hidden, hk.Linear(CLASSES)]

    nets = conv_small, mobile_block, embedding_mean, text_cnn, wide_and_deep
    nets += matrix_factorization, siamese_pair, tiny_transformer, batchnorm_dense
    nets += norm_transformer, groupnorm_residual, table
    (layers,) = (net for net in nets if net.__name__ == work.model)
    classes = FEW_CLASSES if work.few_classes else CLASSES

    def forward(batch: dict[str, jax.Array]) -> jax.Array:
        return hk.Sequential(layers())(batch["x"])

    def loss(batch: dict[str, jax.Array], output: jax.Array) -> jax.Array:
        right = jax.nn.one_hot(batch["y"], classes)
        return -(right * jax.nn.log_softmax(output)).sum(axis=1)

    dtype = jax.numpy.float32 if integers is None else jax.numpy.int32
    sample = jax.numpy.zeros((1, *shape), dtype)
    return fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(forward),
        sample_batch={"x": sample, "y": jax.numpy.zeros(1, jax.numpy.int32)},
        train_loss=loss,
        eval_metrics={},
    )


def _num_inputs(work: Work) -> int:
    return PIXELS if work.model == "autoencoder" else WORDS


def _units(work: Work) -> list[int]:
    """Returns the units of the layers of the autoencoder or of the linear model."""
    hidden = [1000, 500, 250, 30, 250, 500, 1000]
    return [*hidden, PIXELS] if work.model == "autoencoder" else [TAGS]


def _pfl_net(work: Work) -> object:
    import torch

    nn = torch.nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            features, units = (8, 256) if work.model == "lstm" else (256, 1024)
            self.embedding = nn.Embedding(VOCABULARY, features)
            if work.model == "lstm":
                self.layers: nn.Module = nn.LSTM(features, units, 2, batch_first=True)
            else:
                self.layers = nn.GRU(features, units, batch_first=True)
            self.output = nn.Linear(units, VOCABULARY)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.output(self.layers(self.embedding(tokens))[0]).transpose(1, 2)

    if work.sequences:
        return Recurrent()
    if work.model in ("autoencoder", "words"):
        layers: list[nn.Module] = []
        inputs = _num_inputs(work)
        for size in _units(work):
            layers += [nn.Linear(inputs, size), nn.Sigmoid()]
            inputs = size
        return nn.Sequential(*(layers if work.model == "autoencoder" else layers[:1]))
    if work.model == "logistic":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, CLASSES))
    if work.model == "dense":
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, 100),
            nn.ReLU(),
            nn.Linear(100, 100),
            nn.ReLU(),
            nn.Linear(100, CLASSES),
        )
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, CLASSES),
    )


def _pfl(work: Work) -> Callable[[], None]:
    os.environ.setdefault("PFL_PYTORCH_DEVICE", "cpu")
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Weighted
    from pfl.model.pytorch import PyTorchModel

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = _pfl_net(work)

        def loss(
            self, x: torch.Tensor, y: torch.Tensor, eval: bool = False
        ) -> torch.Tensor:
            self.train(not eval)
            losses = {
                "autoencoder": torch.nn.functional.mse_loss,
                "words": torch.nn.functional.binary_cross_entropy_with_logits,
            }
            loss = losses.get(work.model, torch.nn.functional.cross_entropy)
            return loss(self.net(x), y)

        def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
            with torch.no_grad():
                loss = self.loss(x, y, eval=True).item()
            return {"loss": Weighted(loss * len(y), len(y))}

    data = []
    for x, y in populations.examples(work):
        if work.sequences:
            x = x.astype(np.int64)
        elif x.ndim == 4:
            x = x.reshape(-1, 1, 28, 28)
        y = y.astype(np.int64) if y.dtype == np.int32 else y
        data.append([torch.tensor(x), torch.tensor(y)])
    clients = itertools.chain.from_iterable(
        populations.cohort(work, number) for number in itertools.count()
    )
    dataset = FederatedDataset(
        make_dataset_fn=lambda k: Dataset(raw_data=list(data[k]), user_id=str(k)),
        user_sampler=lambda: next(clients),
    )
    net = Model()
    model = PyTorchModel(
        net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    backend = SimulatedBackend(training_data=dataset, val_data=None)
    return _pfl_rounds(
        FederatedAveraging(),
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**9,
            evaluation_frequency=10**9,
            train_cohort_size=work.cohort_size,
            val_cohort_size=0,
        ),
        backend=backend,
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=work.epochs,
            local_learning_rate=RATE,
            local_batch_size=work.batch_size,
        ),
    )


def _pfl_rounds(algorithm: object, **run: object) -> Callable[[], None]:
    """Returns a function that lets pfl's own loop go on by one round."""
    import threading

    from pfl.callback.base import TrainingProcessCallback
    from pfl.hyperparam import NNEvalHyperParams
    from pfl.metrics import Metrics

    go, done = threading.Semaphore(0), threading.Semaphore(0)

    class Steps(TrainingProcessCallback):
        def on_train_begin(self, **_: object) -> Metrics:
            go.acquire()
            return Metrics()

        def after_central_iteration(
            self, *_: object, **__: object
        ) -> tuple[bool, Metrics]:
            done.release()
            go.acquire()
            return False, Metrics()

    def loop() -> None:
        # The loop uses asyncio, which by itself works in the main thread alone.
        asyncio.set_event_loop(asyncio.new_event_loop())
        evaluation = NNEvalHyperParams(local_batch_size=100)
        algorithm.run(model_eval_params=evaluation, callbacks=[Steps()], **run)

    threading.Thread(target=loop, daemon=True).start()

    def train() -> None:
        go.release()
        done.acquire()

    return train


def main() -> None:
    """Answers requests for rounds."""
    framework, work = sys.argv[1:]
    # The frameworks print messages; the answers are for the program that asks.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    train = {"fedjax": _fedjax, "pfl": _pfl}[framework](populations.WORKS[work])
    for _ in sys.stdin:
        start = time.perf_counter()
        train()
        print(time.perf_counter() - start, file=answers, flush=True)
    os._exit(0)  # The thread of a round that nobody asks for any more.


if __name__ == "__main__":
    main()
