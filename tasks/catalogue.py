"""The tasks, one row each: what they are and what can be chosen; without TensorFlow.

A new task is a row here and a module with a function `build`.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Callable, Collection
from typing import Any

from tasks import options
from tasks.options import Option
from tff_drift import checks


@dataclasses.dataclass(frozen=True)
class TaskDefinition:
    """A task before it is loaded.

    Attributes:
      name: The task's name.
      description: One sentence on the data and the model.
      options: The task's options, in the order to list them.
      build: Returns the clients and the model function (`tasks.Clients` and a
        function without arguments), given `cache_dir`, `seed` and a mapping with the
        value of every option. Its dotted path, if it is not to be imported before
        the task is loaded; by default `tasks.<name>.build`.
      accuracy_metric: The name of the headline metric among the model's metrics.
      higher_is_better: Whether a larger headline metric is better.

    Raises:
      TypeError: If one has the wrong type.
      ValueError: If a text is empty.
    """

    name: str
    description: str
    options: tuple[Option, ...]
    build: Callable[..., tuple[Any, Any]] | str = ""
    accuracy_metric: str = "accuracy"
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        for name in ("name", "description", "accuracy_metric"):
            checks.check_text(name, getattr(self, name))
        if not isinstance(self.options, tuple) or not all(
            isinstance(option, Option) for option in self.options
        ):
            raise TypeError(
                f"options must be a tuple of tasks.Option, found {self.options!r}."
            )
        if not callable(self.build):
            checks.check_instance("build", self.build, str, "a function or its path")
        checks.check_flag("higher_is_better", self.higher_is_better)

    def builder(self) -> Callable[..., tuple[Any, Any]]:
        """Returns the function `build`, imported."""
        if callable(self.build):
            return self.build
        path = self.build or f"tasks.{self.name}.build"
        module, _, function = path.rpartition(".")
        return getattr(importlib.import_module(module), function)


_DEFINITIONS: dict[str, TaskDefinition] = {}


def register(definition: TaskDefinition) -> TaskDefinition:
    """Adds a task to those that `tasks.load` knows.

    Args:
      definition: The task.

    Returns:
      The task.

    Raises:
      TypeError: If it is no `TaskDefinition`.
      ValueError: If another task has its name.
    """
    if not isinstance(definition, TaskDefinition):
        raise TypeError(
            f"definition must be a TaskDefinition, found {type(definition).__name__}."
        )
    if definition.name in _DEFINITIONS:
        raise ValueError(
            f"a task named {definition.name!r} is registered already. Choose another "
            "name."
        )
    _DEFINITIONS[definition.name] = definition
    return definition


def names() -> tuple[str, ...]:
    """Returns the names of all tasks, those that need no data first."""
    return tuple(_DEFINITIONS)


def unknown(kind: str, name: Any, known: Collection[str]) -> ValueError:
    """Returns the error for a name that does not exist, with the nearest names.

    Args:
      kind: What the name should name, such as "task".
      name: The name.
      known: The names that exist.
    """
    nearest = difflib.get_close_matches(str(name), known, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(map(repr, nearest))}?" if nearest else ""
    return ValueError(
        f"Unknown {kind} {name!r}.{hint} Known are {', '.join(map(repr, known))}."
    )


def describe(name: str) -> TaskDefinition:
    """Returns a task's description, options and their defaults, without its data.

    Args:
      name: One of `names()`.

    Returns:
      The task's definition.

    Raises:
      ValueError: If the task is unknown; the message has the nearest names.
    """
    if not isinstance(name, str) or name not in _DEFINITIONS:
        raise unknown("task", name, names())
    return _DEFINITIONS[name]


register(
    TaskDefinition(
        "digits",
        "Handwritten 8 x 8 digits that come with scikit-learn, split with "
        "Dirichlet label skew, small dense net.",
        (
            options.batch_size(10),
            *options.BATCHING,
            options.num_clients(50),
            options.ALPHA,
        ),
    )
)
register(
    TaskDefinition(
        "quadratic",
        "Synthetic quadratics, one per client, with a known common optimum: "
        "shows client drift in seconds.",
        (
            Option(
                "batch_size",
                "count",
                "Examples in a batch; none takes all, for exact gradients.",
                None,
                may_be_none=True,
            ),
            Option("epochs", "count", "Passes over the data per round.", 10),
            options.num_clients(10, "Clients, a quadratic each."),
            Option("dimension", "count", "Weights of the model.", 10),
            Option(
                "heterogeneity",
                "non_negative",
                "Standard deviation of the clients' optima.",
                1.0,
            ),
        ),
        accuracy_metric="distance",
        higher_is_better=False,
    )
)
register(
    TaskDefinition(
        "emnist_character",
        "Handwritten digits and letters by writer (TFF EMNIST, 62 classes), "
        "convolutional net with dropout.",
        (
            options.batch_size(20),
            *options.BATCHING,
            options.OFFICIAL_VALIDATION,
            *options.OFFICIAL_FILES,
        ),
    )
)
register(
    TaskDefinition(
        "emnist_autoencoder",
        "Autoencoding of handwritten digits and letters by writer (TFF EMNIST, "
        "62 classes), dense net with a bottleneck.",
        (
            options.batch_size(20),
            *options.BATCHING,
            options.OFFICIAL_VALIDATION,
            *options.OFFICIAL_FILES,
        ),
        accuracy_metric="mean_squared_error",
        higher_is_better=False,
    )
)
register(
    TaskDefinition(
        "emnist_digits",
        "Handwritten digits of 100 random writers (TFF EMNIST), "
        "convolutional net with dropout.",
        (
            options.batch_size(64),
            *options.BATCHING,
            options.num_clients(100, "Writers drawn by the seed."),
            Option(
                "dropout_rate",
                "rate",
                "Dropout before the last layer of the convolutional net.",
                0.5,
            ),
            Option(
                "network",
                "choice",
                "The net, by paper.",
                "uga",
                choices=("uga", "adabest"),
            ),
            options.OFFICIAL_VALIDATION,
            *options.OFFICIAL_FILES,
        ),
    )
)
register(
    TaskDefinition(
        "emnist_letters",
        "Handwritten letters (EMNIST letters), split with Dirichlet label skew, "
        "dense net.",
        (
            options.batch_size(45),
            *options.BATCHING,
            Option(
                "letters", "count", "The first letters of the alphabet; 26: all.", 26
            ),
            Option(
                "network",
                "choice",
                "The net of AdaBest, or logistic regression.",
                "adabest",
                choices=("adabest", "logistic"),
            ),
            *options.SPLIT,
            options.SPLIT_VALIDATION,
            *options.IMAGE_FILES,
        ),
    )
)
register(
    TaskDefinition(
        "cifar10",
        "Small photographs of 10 classes (CIFAR-10), split with Dirichlet "
        "label skew, convolutional net.",
        (
            options.batch_size(45),
            *options.BATCHING,
            Option(
                "network",
                "choice",
                "The net, by paper.",
                "adabest",
                choices=("adabest", "uga", "resnet18"),
            ),
            Option(
                "augment",
                "flag",
                "Flip and crop training images, each with probability 1/2.",
                True,
            ),
            *options.SPLIT,
            options.SPLIT_VALIDATION,
            *options.IMAGE_FILES,
        ),
    )
)
register(
    TaskDefinition(
        "cifar100",
        "Small photographs of 100 classes (TFF CIFAR-100), ResNet-18 with "
        "group normalisation; or split over clients, convolutional net.",
        (
            Option(
                "batch_size",
                "count",
                "Examples in a training batch; none takes the setting's, 20 or 45.",
                None,
                may_be_none=True,
            ),
            *options.BATCHING,
            Option(
                "setting",
                "choice",
                "The paper whose clients and net to take.",
                "large_cohort",
                choices=("large_cohort", "adabest"),
            ),
            Option(
                "augment",
                "flag",
                "Distort training images; none: only in the setting adabest.",
                None,
                may_be_none=True,
            ),
            *options.SPLIT,
            Option(
                "validation_fraction",
                "rate",
                "Clients held out for tuning; none: 0, or 0.1 in the setting adabest.",
                None,
                may_be_none=True,
            ),
            *options.OFFICIAL_FILES,
        ),
    )
)
register(
    TaskDefinition(
        "shakespeare_character",
        "Next characters of Shakespeare's plays by role (TFF Shakespeare), two "
        "LSTMs of 256 units.",
        (
            options.batch_size(4),
            *options.BATCHING,
            Option(
                "num_clients",
                "count",
                "Roles drawn by the seed; none takes all.",
                None,
                may_be_none=True,
            ),
            options.OFFICIAL_VALIDATION,
            *options.OFFICIAL_FILES,
        ),
    )
)
register(
    TaskDefinition(
        "shakespeare_character_gru",
        "Next characters of Shakespeare's plays by 100 random roles (TFF "
        "Shakespeare), read by a GRU.",
        (
            options.batch_size(4),
            *options.BATCHING,
            Option("units", "count", "Units of the GRU.", 1024),
            options.num_clients(100, "Roles drawn by the seed."),
            options.OFFICIAL_VALIDATION,
            *options.OFFICIAL_FILES,
        ),
    )
)
register(
    TaskDefinition(
        "stackoverflow_word",
        "Next words of questions and answers by user (TFF Stack Overflow), an "
        "LSTM of 670 units.",
        (
            options.batch_size(32),
            options.EPOCHS,
            options.max_examples(1000),
            options.LAST_BATCH,
            *options.STACKOVERFLOW,
        ),
    )
)
register(
    TaskDefinition(
        "stackoverflow_tag",
        "Tags of questions from bags of words by user (TFF Stack Overflow), "
        "logistic regression.",
        (
            options.batch_size(100),
            options.EPOCHS,
            options.max_examples(1000),
            options.LAST_BATCH,
            options.LOSS,
            Option(
                "num_tags", "count", "Tags to predict, the most frequent ones.", 500
            ),
            *options.STACKOVERFLOW,
        ),
        accuracy_metric="recall_at_5",
    )
)
register(
    TaskDefinition(
        "own_data",
        "Your own data: a folder with a file per client, a CSV table or a SQLite file; "
        "softmax regression.",
        (
            *options.OWN_DATA,
            options.batch_size(20),
            *options.BATCHING,
        ),
    )
)
