"""Loading of a task by its name."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from tasks import definitions, registry, seeds
from tff_drift import checks
from tff_drift.simulation import ClientDatasets


def load(
    name: str, *, cache_dir: str | None = None, seed: int = 0, **options: Any
) -> definitions.Task:
    """Loads a task.

    Args:
      name: One of `tasks.names()`.
      cache_dir: The folder with the unpacked SQLite files of TFF's data sets;
        `None` is TFF's own, `~/.tff`. Tasks that need no file ignore it.
      seed: The seed of partitions, draws of clients, shuffles and initial
        weights. The task is a pure function of its arguments and its data.
      **options: Options of the task, see `tasks.describe(name).options`.

    Returns:
      The task. A client's data is read when it is first used.

    Raises:
      FileNotFoundError: If the task's file is absent and not to be downloaded.
      OSError: If the file cannot be downloaded.
      TypeError: If an argument, or what the task's `build` returns, has the wrong type.
      ValueError: If the task or an option is unknown, an option is out of its
        range, or the task's file is damaged or another data set's.
    """
    definition = registry.describe(name)
    checks.check_integer("seed", seed, at_least=0)
    if cache_dir is not None:
        checks.check_path("cache_dir", cache_dir)
    known = {option.name: option for option in definition.options}
    for option_name, value in options.items():
        if option_name not in known:
            raise registry.unknown(
                f"option of task {checks.shown(name)}:", option_name, known
            )
        known[option_name].check(value)
    values = types.MappingProxyType(
        {
            option.name: options.get(option.name, option.default)
            for option in definition.options
        }
    )
    # Where a plugin builds one model for all calls, it does so here.
    with seeds.drawing_from(int(seed)):
        built = definition.builder()(cache_dir, int(seed), values)
    clients, model_fn = _checked(name, built)
    return definitions.Task(
        name=name,
        description=definition.description,
        train=clients.train,
        test=clients.test,
        validation=clients.validation,
        model_fn=seeds.seeded(model_fn, int(seed)),
        accuracy_metric=definition.accuracy_metric,
        higher_is_better=definition.higher_is_better,
        seed=int(seed),
        options=values,
    )


def _checked(name: str, built: Any) -> tuple[definitions.Clients, definitions.ModelFn]:
    """Returns what a task's `build` returned; raises a `TypeError` if it is no task."""
    about = f"build of task {checks.shown(name)}"
    if not (
        isinstance(built, (tuple, list))
        and len(built) == 2
        and isinstance(built[0], definitions.Clients)
    ):
        found = type(built).__name__
        if isinstance(built, (tuple, list)):
            found = f"({', '.join(type(each).__name__ for each in built)})"
        raise TypeError(
            f"{about} must return (tasks.Clients(train, test), model_fn), found "
            f"{found}. Of a task, return tasks.Clients(task.train, task.test), "
            "task.model_fn."
        )
    clients, model_fn = built
    for part, datasets in clients._asdict().items():
        if datasets is not None or part != "validation":
            checks.check_instance(f"{about}: {part}", datasets, ClientDatasets)
    is_model = hasattr(model_fn, "trainable_variables")
    checks.check_instance(
        f"{about}: model_fn",
        model_fn,
        () if is_model else Callable,
        "a function that builds the model",
        "Return the function, not what it returns.",
    )
    return clients, model_fn
