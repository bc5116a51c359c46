"""Mistakes in a task of a user's own, which `tasks.register` takes."""

import pytest

import tasks
from tasks import registry


@pytest.fixture
def load(monkeypatch):
    """Loads a task whose `build` returns what a function makes of another task."""
    monkeypatch.setattr(registry, "_REGISTERED", {})

    def loading(returned):
        def build(cache_dir, seed, options):
            return returned(tasks.load("quadratic", num_clients=3))

        tasks.register(tasks.TaskDefinition("mine", "Mine.", (), build, "distance"))
        return tasks.load("mine")

    return loading


def clients(task, **changed):
    return tasks.Clients(**{"train": task.train, "test": task.test, **changed})


def test_build_may_leave_validation_out_or_have_it(load):
    assert load(lambda task: (clients(task), task.model_fn)).validation is None
    task = load(lambda task: (clients(task, validation=task.train), task.model_fn))
    assert len(task.validation) == len(task.train) == 3


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (lambda task: task, "Task"),
        (lambda task: None, "NoneType"),
        (lambda task: clients(task), "(ClientDatasets, ClientDatasets, NoneType)"),
        (
            lambda task: (task.train, task.test, task.model_fn),
            "(ClientDatasets, ClientDatasets, function)",
        ),
        (lambda task: ((task.train, task.test), task.model_fn), "(tuple, function)"),
        (lambda task: (task.model_fn, clients(task)), "(function, Clients)"),
    ],
)
def test_what_build_returns_is_named(load, returned, found):
    with pytest.raises(TypeError) as raised:
        load(returned)
    assert str(raised.value) == (
        "build of task 'mine' must return (tasks.Clients(train, test), model_fn), "
        f"found {found}. Of a task, return tasks.Clients(task.train, task.test), "
        "task.model_fn."
    )


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (
            lambda task: (clients(task, train={"a": [1]}), task.model_fn),
            "train must be a tff_drift.simulation.ClientDatasets, found {'a': [1]}",
        ),
        (
            lambda task: (clients(task, test=None), task.model_fn),
            "test must be a tff_drift.simulation.ClientDatasets, found None",
        ),
        (
            lambda task: (clients(task, validation=[]), task.model_fn),
            "validation must be a tff_drift.simulation.ClientDatasets, found []",
        ),
        (
            lambda task: (clients(task), task.model_fn()),
            "model_fn must be a function that builds the model, found <",
        ),
        (
            lambda task: (clients(task), None),
            "model_fn must be a function that builds the model, found None",
        ),
    ],
)
def test_what_its_parts_are_is_named(load, returned, told):
    with pytest.raises(TypeError) as raised:
        load(returned)
    assert str(raised.value).startswith(f"build of task 'mine': {told}")


@pytest.mark.parametrize(
    "build",
    [lambda: None, lambda cache_dir, seed: None, lambda a, b, c, d: None],
    ids=["none", "two", "four"],
)
def test_what_build_does_not_take_is_told_when_it_is_defined(build):
    with pytest.raises(TypeError, match="build must take cache_dir, seed and options"):
        tasks.TaskDefinition("mine", "Mine.", (), build)


def test_build_may_take_more_than_it_is_given():
    for build in (lambda *given: None, lambda a, b, c, d=1: None):
        assert tasks.TaskDefinition("mine", "Mine.", (), build).builder() is build


def define(*options, name="mine"):
    return tasks.TaskDefinition(name, "Mine.", options, "some.module.build")


@pytest.mark.parametrize("name", ["..", ".", "a/../b", "a\nb", "/tmp", "a/"])
def test_a_task_has_a_name_that_a_folder_can_have(name):
    with pytest.raises(ValueError, match="name of a task names a folder, found"):
        define(name=name)


@pytest.mark.parametrize("name", ["my task", "a.b", "a-b", "η=1", "...", "a/b"])
def test_a_task_may_have_any_other_name(name):
    assert define(name=name).name == name


@pytest.mark.parametrize("name", ["num-clients", "with space", "5", "a.b"])
def test_an_option_has_a_name_that_keywords_and_flags_can_have(name):
    with pytest.raises(ValueError, match="name of an option must be an identifier"):
        tasks.Option(name, "count", "It.", 1)
    with pytest.raises(ValueError, match="flag of an option must be an identifier"):
        tasks.Option("size", "count", "It.", 1, flag=name)


@pytest.mark.parametrize("name", ["", 3])
def test_an_option_has_a_name(name):
    with pytest.raises((TypeError, ValueError), match="name of an option must "):
        tasks.Option(name, "count", "It.", 1)


@pytest.mark.parametrize("name", ["name", "seed", "cache_dir"])
def test_an_option_is_not_called_as_an_argument_of_load(name):
    with pytest.raises(ValueError, match=f"'mine': '{name}' is an argument of tasks."):
        define(tasks.Option(name, "text", "It.", "x"))


@pytest.mark.parametrize(
    ("value_type", "default", "told"),
    [
        ("count", "one", "must be an integer, found 'one'"),
        ("count", 0, "must be at least 1, found 0"),
        ("flag", 1, "must be True or False, found 1"),
    ],
)
def test_a_default_is_a_value_of_its_option(value_type, default, told):
    with pytest.raises(
        (TypeError, ValueError),
        match=f"options of task 'mine': default of 'depth' {told}",
    ):
        define(tasks.Option("depth", value_type, "It.", default))


@pytest.mark.parametrize("may_be_none", [False, True])
def test_an_option_may_have_no_default(may_be_none):
    option = tasks.Option("depth", "count", "It.", may_be_none=may_be_none)
    assert define(option).options == (option,)


def test_options_are_told_apart():
    first = tasks.Option("depth", "count", "It.", 1)
    with pytest.raises(ValueError, match="different names, found 'depth' more than"):
        define(first, tasks.Option("depth", "count", "It.", 2, flag="other"))
    with pytest.raises(ValueError, match="different flags, found 'depth' more than"):
        define(first, tasks.Option("size", "count", "It.", 2, flag="depth"))
