import dataclasses
import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

import tasks
from tasks import options, registry
from tests.forks.programs import PATIENCE

ROOT = pathlib.Path(__file__).parents[2]


def test_names_the_tasks_that_need_no_files_first():
    assert tasks.names() == (
        "digits",
        "quadratic",
        "cifar10",
        "cifar100",
        "emnist_autoencoder",
        "emnist_character",
        "emnist_digits",
        "emnist_letters",
        "own_data",
        "own_numbers",
        "shakespeare_character",
        "shakespeare_character_gru",
        "stackoverflow_tag",
        "stackoverflow_word",
    )
    needs_none = [name for name in tasks.names() if not tasks.describe(name).files]
    assert needs_none == ["digits", "quadratic"]


@pytest.mark.parametrize("name", tasks.names())
def test_the_definition_that_is_read_is_that_of_the_module(name):
    read = tasks.describe(name)
    module = importlib.import_module(read.build.rpartition(".")[0])
    assert read.builder() is module.build
    assert dataclasses.replace(read, build=module.build) == module.TASK


@pytest.mark.conformance
def test_one_module_adds_a_task_to_the_package(tmp_path):
    shutil.copytree(ROOT / "tasks", tmp_path / "tasks")
    (tmp_path / "tasks" / "papers" / "a_new_one.py").write_text(
        """
from tasks.registry import Option, TaskDefinition


def build(cache_dir, seed, options):
    raise NotImplementedError(f"built with size {options['size']}")


TASK = TaskDefinition(
    "a_new_one", "A new task.", (Option("size", "count", "A size.", 2),), build
)
"""
    )
    program = """
import sys
import tasks
assert tasks.describe("a_new_one").options[0].default == 2
assert "tensorflow" not in sys.modules
print(tasks.names()[:3])
try:
    tasks.load("a_new_one", size=3)
except NotImplementedError as error:
    print(error)
"""
    process = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert process.stdout.splitlines() == [
        "('a_new_one', 'digits', 'quadratic')",
        "built with size 3",
    ]


def test_a_task_from_outside_is_described_and_loaded(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})

    def build(cache_dir, seed, options):
        inner = tasks.load("quadratic", seed=seed, dimension=options["size"])
        return tasks.Clients(inner.train, inner.test), inner.model_fn

    definition = tasks.TaskDefinition(
        "outside",
        "A task from outside.",
        (tasks.Option("size", "count", "A size.", 2),),
        build,
        accuracy_metric="distance",
        higher_is_better=False,
    )
    assert tasks.register(definition) is definition
    assert tasks.names()[-1] == "outside"
    assert tasks.describe("outside") is definition
    task = tasks.load("outside", seed=5, size=3)
    assert (task.name, task.seed, task.options) == ("outside", 5, {"size": 3})
    assert task.train.element_spec[0].shape[-1] == 3
    # As a cell of a notebook does that runs again, with another definition or the same.
    changed = dataclasses.replace(definition, description="Another text.")
    for again in (definition, changed):
        assert tasks.register(again) is again
        assert tasks.describe("outside") is again
    # Unlike another module, which may have taken the name unawares.
    other = "from tasks import register\nregister(definition)"
    names = {"__name__": "other", "definition": definition}
    with pytest.raises(ValueError, match="'outside' is registered already"):
        exec(other, names)
    with pytest.raises(ValueError, match="'digits' is registered already"):
        tasks.register(dataclasses.replace(definition, name="digits"))


@pytest.mark.parametrize("name", tasks.names())
def test_describes_options_with_valid_defaults(name):
    definition = tasks.describe(name)

    assert definition.name == name
    assert definition.description.endswith(".")
    assert len({option.name for option in definition.options}) == len(
        definition.options
    )
    for option in definition.options:
        option.check(option.default)
        assert option.help


def test_paper_batch_sizes_are_the_defaults():
    defaults = {
        name: {option.name: option.default for option in tasks.describe(name).options}
        for name in tasks.names()
    }

    batch_sizes = {name: of_task["batch_size"] for name, of_task in defaults.items()}
    assert batch_sizes == {
        "digits": 10,
        # All of a client's examples.
        "quadratic": None,
        "emnist_character": 20,
        "emnist_autoencoder": 20,
        "emnist_digits": 64,
        "emnist_letters": 45,
        "cifar10": 45,
        # By setting.
        "cifar100": None,
        "shakespeare_character": 4,
        "shakespeare_character_gru": 4,
        "stackoverflow_word": 32,
        "stackoverflow_tag": 100,
        "own_data": 20,
        "own_numbers": 20,
    }
    for name in ("emnist_digits", "emnist_letters", "cifar10", "cifar100"):
        assert defaults[name]["num_clients"] == 100
    assert (defaults["digits"]["num_clients"], defaults["digits"]["alpha"]) == (50, 0.3)
    for name in set(defaults) - {"quadratic"}:
        assert defaults[name]["epochs"] == 1
        limit = 1000 if name.startswith("stackoverflow") else None
        assert defaults[name]["max_examples"] == limit


def test_a_task_knows_how_it_was_loaded():
    task = tasks.load("digits", seed=3, alpha=1, num_clients=7)

    assert task.name == "digits"
    assert task.description == tasks.describe("digits").description
    assert (task.accuracy_metric, task.higher_is_better) == ("accuracy", True)
    assert task.seed == task.train.batching.seed == 3
    assert dict(task.options) == {
        "batch_size": 10,
        "epochs": 1,
        "max_examples": None,
        "last_batch": "short",
        "num_clients": 7,
        "alpha": 1,
    }


@pytest.mark.parametrize("name", ["digits", "quadratic"])
def test_embedded_tasks_load_quickly(name):
    start = time.process_time()
    tasks.load(name)
    assert time.process_time() - start < 2


def test_unknown_task_names_the_nearest():
    with pytest.raises(
        ValueError,
        match=r"Unknown task 'emnist_charakter'\. Did you mean 'emnist_character'.*"
        "Known are 'digits', 'quadratic'",
    ):
        tasks.load("emnist_charakter")
    with pytest.raises(ValueError, match=r"Unknown task 'x'\. Known are 'digits'"):
        tasks.describe("x")


def test_unknown_option_names_the_nearest():
    with pytest.raises(
        ValueError,
        match=r"Unknown option of task 'digits': 'batchsize'.* mean 'batch_size'",
    ):
        tasks.load("digits", batchsize=3)


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("digits", {"alpha": -1}, ValueError, "alpha must be a finite number greater"),
        ("digits", {"alpha": np.nan}, ValueError, "alpha must be .*, found nan"),
        ("digits", {"num_clients": 360}, ValueError, "num_clients must be at most 359"),
        ("digits", {"batch_size": 1.5}, TypeError, "batch_size must be an integer"),
        ("digits", {"seed": -1}, ValueError, "seed must be at least 0, found -1"),
        ("digits", {"seed": "1"}, TypeError, "seed must be an integer, found '1'"),
        ("quadratic", {"heterogeneity": -1}, ValueError, "heterogeneity must be a"),
        (
            "emnist_digits",
            {"dropout_rate": 1},
            ValueError,
            "dropout_rate must be a number of at least 0, below 1",
        ),
        ("emnist_character", {"synthetic": 1}, TypeError, "synthetic must be True or"),
    ],
)
def test_raises_on_bad_options(name, options, error, message):
    with pytest.raises(error, match=message):
        tasks.load(name, **options)


@pytest.mark.parametrize(
    ("name", "file_name"),
    [
        ("emnist_character", "emnist_all.sqlite"),
        ("emnist_autoencoder", "emnist_all.sqlite"),
        ("emnist_digits", "emnist_all.sqlite"),
        ("emnist_letters", "emnist_letters.npz"),
        ("cifar10", "cifar10.npz"),
        ("cifar100", "cifar100.sqlite"),
        ("shakespeare_character", "shakespeare.sqlite"),
        ("shakespeare_character_gru", "shakespeare.sqlite"),
        ("stackoverflow_word", "stackoverflow.word_count"),
        ("stackoverflow_tag", "stackoverflow.word_count"),
    ],
)
def test_a_folder_without_the_data_is_an_error_at_once(name, file_name, tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{name}.*{file_name}.*does not exist"):
        tasks.load(name, cache_dir=str(tmp_path))


def test_constants_of_a_definition_are_followed(tmp_path, monkeypatch):
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "mine.py").write_text(
        """
import tensorflow as tf

from tasks import options
from tasks.registry import Option, TaskDefinition

_NAME = "mine"
_CHOICES = ("a", "b")


def build(cache_dir, seed, options):
    return tf.function(None)


TASK: TaskDefinition = TaskDefinition(
    _NAME,
    f"A task of {len(_CHOICES)}.",
    (options.num_clients(7), Option("kind", "choice", "It.", "a", choices=_CHOICES)),
    build,
)
"""
    )
    monkeypatch.setattr(tasks, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "registry.py"))
    assert registry._of_this_package.__wrapped__() == {
        "mine": tasks.TaskDefinition(
            "mine",
            "A task of 2.",
            (
                options.num_clients(7),
                tasks.Option("kind", "choice", "It.", "a", choices=("a", "b")),
            ),
            "tasks.papers.mine.build",
        )
    }
