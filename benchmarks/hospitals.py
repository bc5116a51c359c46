"""Tumours at made-up hospitals, as a task for the command line: `--plugin`.

tff-drift diagnose --plugin=benchmarks/hospitals.py --task=hospitals --race
tff-drift diagnose --plugin=benchmarks/hospitals.py --task=hospitals --nosorted --race
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import sklearn.datasets

import tasks


def build(
    cache_dir: str | None, seed: int, options: Mapping[str, Any]
) -> tuple[tasks.Clients, Any]:
    """Builds the task; see `tasks.TaskDefinition`.

    Args:
      cache_dir: Not used.
      seed: The seed of the split.
      options: The values of the options below.
    """
    del cache_dir
    source = sklearn.datasets.load_breast_cancer(as_frame=True)
    frame = (source.data - source.data.mean()) / source.data.std()
    rng = np.random.default_rng(1)
    order = rng.standard_normal(len(frame))
    if options["sorted"]:
        order = frame["mean radius"] + 0.5 * order
    frame["hospital"] = pd.qcut(
        order, 16, labels=[f"hospital_{i:02}" for i in range(16)]
    )
    frame["diagnosis"] = source.target_names[source.target]
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
        "Tumours at 16 hospitals, by size or at random; softmax regression.",
        (
            tasks.Option("epochs", "count", "Passes over the data per round.", 5),
            tasks.Option("sorted", "flag", "Whether large tumours go together.", True),
        ),
        build,
    )
)
