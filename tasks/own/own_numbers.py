"""Numbers to predict in a user's own data: `--task=own_numbers --data=FOLDER|FILE`.

The data is that of `own_data`; the net is linear regression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks import definitions
from tasks import options as shared
from tasks.own import own_data, targets
from tasks.registry import TaskDefinition


def build(
    cache_dir: str | None, seed: int, options: Mapping[str, Any]
) -> tuple[definitions.Clients, definitions.ModelFn]:
    """Builds the task.

    Args:
      cache_dir: Not used.
      seed: The seed of everything that is drawn.
      options: The value of every option of the task.

    Returns:
      The clients and the model function.
    """
    del cache_dir
    task = own_data.load(seed, options, targets.NUMBER)
    return own_data.clients(task, options), task.model_fn


TASK = TaskDefinition(
    "own_numbers",
    "Numbers to predict in your own data, which may be what own_data takes, but for "
    "images; linear regression.",
    (
        *shared.OWN_NUMBERS,
        *shared.batching(20),
    ),
    build,
    accuracy_metric="mae",
    higher_is_better=False,
    files=("a folder or file of yours, by --data",),
)
