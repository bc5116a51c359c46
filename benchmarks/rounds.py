"""Seconds per training round: TFF's native execution, ours, and other frameworks.

    python benchmarks/rounds.py [--rounds 9] [--only logistic_mixed,cnn_10]
        [--algorithms build_fed_avg,build_fed_dc]
        [--contexts native,local,one_by_one,gpu] [--operation_threads 1]
        [--processor_time] [--by_hand] [--fedjax PYTHON] [--pfl PYTHON]

Clients hold random examples with the shapes of EMNIST, or for the LSTM and the GRU
sequences of 80 characters. In the mixed works they are of unequal sizes, drawn anew for
every round and shuffled; in the others they are equal and the same in every round. See
`populations.py` for the clients and `competitors.py` for the forms in which their
batches are given.

All take turns, round by round, so that they meet the same load of the machine, and the
ratios of their medians are what counts. `one_by_one` is the local context with
`batch_clients=False`, `gpu` with all computation on the GPUs of this machine. The other
frameworks run in environments of their own, given by their Python programs, on the same
clients and draws; see `peers.py`. On a machine that others use, `--processor_time`
counts what this program takes alone. `--by_hand` adds FedAvg of a few models by hand,
see `by_hand.py`.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
import by_hand
import populations
import tensorflow as tf
from competitors import FORMS, Peer, Seconds
from models import ALGORITHMS, FED_AVG, SINCE, TFFS_FED_AVG, UGA
from populations import WORKS, Work

from tff_drift import execution, system

_WARM_UP_ROUNDS = 3
_DEFAULT_WORKS = (
    "logistic_mixed,dense_mixed,cnn_mixed,logistic_10,logistic_100,cnn_10,lstm_10,"
    "gru_10"
)
_NEXT_ALONE = "`next` alone"


def _forms(work: Work, algorithm: str, context: str) -> tuple[str, ...]:
    """Returns the forms in which an algorithm's batches are given."""
    if not work.mixed:
        return ("datasets",)
    if algorithm == UGA and work.epochs == 1:
        # It would take no step before its gradient, and be FedSGD.
        return ()
    if algorithm == TFFS_FED_AVG:
        return ("script",) if context == "native" else ("lists", "script")
    return () if context == "native" else ("driver",)


def _competitors(
    name: str, options: argparse.Namespace, contexts: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    work = WORKS[name]
    clients = populations.examples(work)
    for algorithm, build in {**ALGORITHMS, **SINCE}.items():
        if algorithm not in options.algorithms.split(","):
            continue
        for context_name, context in contexts.items():
            for form in _forms(work, algorithm, context_name):
                title = ", ".join([algorithm, context_name, *[form] * work.mixed])
                yield title, FORMS[form](build(work), work, clients, context)
    if options.by_hand and work.mixed and work.model in by_hand.MODELS:
        yield "by hand", by_hand.ByHand(work, clients)
    for framework in ("fedjax", "pfl"):
        # FedJAX has no model with a GRU; the small nets are written for it alone, and
        # PyTorch normalizes no batch of one example.
        of_fedjax = work.few_classes or work.model == "batchnorm_dense"
        without = of_fedjax if framework == "pfl" else work.model == "gru"
        if getattr(options, framework) and not without:
            yield framework, Peer(getattr(options, framework), framework, name)


def _take_turns(
    competitors: dict[str, Callable[[], Seconds]], rounds: int, processor_time: bool
) -> dict[str, list[float]]:
    """Lets the competitors run rounds in turn; returns the seconds of each."""
    taken: dict[str, list[float]] = {}
    for _ in range(_WARM_UP_ROUNDS + rounds):
        for name, run in competitors.items():
            start = time.process_time()
            seconds = run()
            if processor_time:
                seconds = Seconds(time.process_time() - start)
            taken.setdefault(name, []).append(seconds.all)
            if seconds.next_alone is not None:
                title = f"{name}, {_NEXT_ALONE}"
                taken.setdefault(title, []).append(seconds.next_alone)
    return taken


def _measure(name: str, options: argparse.Namespace, contexts: dict[str, Any]) -> None:
    """Measures a work and prints its rows."""
    competitors = dict(_competitors(name, options, contexts))
    taken = _take_turns(competitors, options.rounds, options.processor_time)
    for competitor in competitors.values():
        competitor.close()
    medians = {
        title: statistics.median(seconds[_WARM_UP_ROUNDS:])
        for title, seconds in taken.items()
    }
    form = ", driver" if WORKS[name].mixed else ""
    ours = medians.get(f"{FED_AVG}, local{form}")
    for title, seconds in medians.items():
        ratio = "" if ours is None else f"{ours / seconds:.2f}"
        first, fastest = taken[title][0], min(taken[title])
        print(
            f"| {name} | {title} | {seconds:.4f} | {fastest:.4f} | {first:.2f} | "
            f"{ratio} |",
            flush=True,
        )


def _create_gpu_context() -> Any:
    """The local context with everything but the datasets on GPUs."""
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    if not gpus:
        raise SystemExit("TensorFlow sees no GPU here: leave 'gpu' out of --contexts.")
    return execution.create_local_execution_context(
        server_device=gpus[0], client_devices=gpus
    )


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default=_DEFAULT_WORKS)
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    parser.add_argument("--contexts", default="native,local")
    parser.add_argument(
        "--operation_threads", type=int, default=0, help="0 as TensorFlow chooses"
    )
    parser.add_argument(
        "--processor_time", action="store_true", help="not of other frameworks"
    )
    parser.add_argument("--by_hand", action="store_true")
    parser.add_argument("--fedjax", help="a Python program that has FedJAX")
    parser.add_argument("--pfl", help="a Python program that has pfl")
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(options.operation_threads)
    create = {
        "native": execution.create_native_execution_context,
        "local": execution.create_local_execution_context,
        "one_by_one": functools.partial(
            execution.create_local_execution_context, batch_clients=False
        ),
        "gpu": _create_gpu_context,
    }
    contexts = {name: create[name]() for name in options.contexts.split(",")}
    print(
        f"{datetime.date.today()}, {platform.processor() or platform.machine()}, "
        f"{system.processors()} processors, load {os.getloadavg()[0]:.1f}, "
        f"TensorFlow {tf.__version__}, medians of {options.rounds} rounds in seconds"
    )
    print(
        "| work | what | median | fastest | first round | build_fed_avg, local / this |"
    )
    print("|---|---|--:|--:|--:|--:|")
    for name in options.only.split(","):
        _measure(name, options, contexts)


if __name__ == "__main__":
    main()
