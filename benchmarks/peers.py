"""Rounds of federated averaging by other frameworks, for `benchmarks/rounds.py`.

    PYTHON benchmarks/peers.py fedjax|pfl logistic|cnn|lstm COHORT

Runs in an environment of the framework's own (`pip install fedjax`, or
`pip install torch pfl`), on random data with the shapes that `rounds.py` uses. Every
line on standard input asks for a round; the answer is a line with its seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Callable

import numpy as np

_EXAMPLES, _BATCH_SIZE, _CLASSES = 100, 20, 62
_SEQUENCES, _LENGTH, _SEQUENCE_BATCH_SIZE, _VOCABULARY = 20, 80, 4, 90
_RATE = 0.1


def _arrays(work: str, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns the features and labels of a client."""
    if work == "lstm":
        tokens = random.integers(1, 86, (_SEQUENCES, _LENGTH)).astype(np.int32)
        return tokens, tokens
    return (
        random.random((_EXAMPLES, 28, 28, 1), np.float32),
        random.integers(0, _CLASSES, _EXAMPLES).astype(np.int32),
    )


def _batch_size(work: str) -> int:
    return _SEQUENCE_BATCH_SIZE if work == "lstm" else _BATCH_SIZE


def _fedjax(work: str, cohort: int) -> Callable[[], None]:
    import jax

    # FedJAX 0.0.17 calls names that JAX has dropped.
    jax.tree_map, jax.tree_leaves = jax.tree_util.tree_map, jax.tree_util.tree_leaves
    jax.numpy.NINF = -jax.numpy.inf
    import fedjax

    if work == "lstm":
        model = fedjax.models.shakespeare.create_lstm_model(
            vocab_size=86, embed_size=8, lstm_hidden_size=256, lstm_num_layers=2
        )
    elif work == "cnn":
        model = fedjax.models.emnist.create_conv_model(only_digits=False)
    else:
        model = fedjax.models.emnist.create_logistic_model(only_digits=False)
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(_RATE),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(
            batch_size=_batch_size(work), num_epochs=1, seed=0
        ),
    )
    random = np.random.default_rng(0)
    clients = []
    for number in range(cohort):
        x, y = _arrays(work, random)
        dataset = fedjax.ClientDataset({"x": x, "y": y})
        clients.append((b"%d" % number, dataset, jax.random.PRNGKey(number)))
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))

    def train() -> None:
        nonlocal state
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)

    return train


def _pfl_net(work: str) -> object:
    import torch

    nn = torch.nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(_VOCABULARY, 8)
            self.lstm = nn.LSTM(8, 256, 2, batch_first=True)
            self.output = nn.Linear(256, _VOCABULARY)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.output(self.lstm(self.embedding(tokens))[0]).transpose(1, 2)

    if work == "lstm":
        return Recurrent()
    if work == "logistic":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, _CLASSES))
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
        nn.Linear(128, _CLASSES),
    )


def _pfl(work: str, cohort: int) -> Callable[[], None]:
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
            return torch.nn.functional.cross_entropy(self.net(x), y)

        def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
            with torch.no_grad():
                loss = self.loss(x, y, eval=True).item()
            return {"loss": Weighted(loss * len(y), len(y))}

    random = np.random.default_rng(0)
    data = []
    for _ in range(cohort):
        x, y = _arrays(work, random)
        if work != "lstm":
            x = x.reshape(-1, 1, 28, 28)
        features = torch.tensor(x if work != "lstm" else x.astype(np.int64))
        data.append([features, torch.tensor(y.astype(np.int64))])
    clients = itertools.cycle(range(cohort))
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
            train_cohort_size=cohort,
            val_cohort_size=0,
        ),
        backend=backend,
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1,
            local_learning_rate=_RATE,
            local_batch_size=_batch_size(work),
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
    framework, work, cohort = sys.argv[1:]
    # The frameworks print messages; the answers are for the program that asks.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    train = {"fedjax": _fedjax, "pfl": _pfl}[framework](work, int(cohort))
    for _ in sys.stdin:
        start = time.perf_counter()
        train()
        print(time.perf_counter() - start, file=answers, flush=True)
    os._exit(0)  # The thread of a round that nobody asks for any more.


if __name__ == "__main__":
    main()
