"""The code that the documents show runs, and does what they say."""

import asyncio
import collections
import pathlib
import re
import shlex
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
import tff_drift
from experiments import main
from experiments.flags import declarations, settings
from experiments.presets import catalogue
from tests import models
from tests.experiments import programs
from tff_drift import algorithms

pytestmark = pytest.mark.documents

ROOT = pathlib.Path(__file__).parents[1]


def python_blocks(document):
    text = (ROOT / document).read_text()
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def surroundings(tmp_path, monkeypatch):
    """The names that the examples on client states use without defining them."""
    monkeypatch.chdir(tmp_path)
    arrays = models.client_arrays([5, 8, 11])
    clients = {f"client_{index}": client for index, client in enumerate(arrays)}
    train = tff_drift.simulation.ClientDatasets.from_arrays(clients, batch_size=4)
    return {
        "asyncio": asyncio,
        "collections": collections,
        "tf": tf,
        "tff": tff,
        "tff_drift": tff_drift,
        "train": train,
        "process": algorithms.build_adabest(models.softmax_regression, 0.1),
        "cohorts": [["client_0", "client_2"], ["client_2", "client_1"]],
        "datasets": dict(zip(clients, models.datasets(arrays), strict=True)),
    }


def test_the_examples_on_client_states_run(surroundings):
    blocks = python_blocks("docs/client_state.md")
    with_driver, own_loop, simulation_loop, program, by_hand, at_clients = blocks

    def last_rounds(store):
        names = ["client_0", "client_1", "client_2"]
        return [int(state["last_round"]) for state in store.gather(names)]

    exec(with_driver.replace("cohort_size=10", "cohort_size=2"), surroundings)
    assert len(surroundings["states"]) == 3
    exec(own_loop, surroundings)
    assert last_rounds(surroundings["kept"].client_states) == [0, 1, 1]
    asyncio.set_event_loop(asyncio.new_event_loop())
    for loop, folder in [
        (simulation_loop, "program"),
        (program, "federated_program"),
    ]:
        exec(loop, surroundings)
        assert max(last_rounds(surroundings["kept"].client_states)) == 2
        assert pathlib.Path(folder, "program_state_3").is_dir()
    exec(by_hand, surroundings)
    assert last_rounds(surroundings["states"]) == [0, 1, 1]
    exec(at_clients, surroundings)
    assert last_rounds(surroundings["states"]) == [0, 2, 2]


def test_names_of_tff_in_documents_are_there():
    documents = [ROOT / "README.md", ROOT / "tasks" / "README.md"]
    documents += sorted((ROOT / "docs").glob("**/*.md"))
    for document in documents:
        for name in re.findall(r"`tff\.([a-zA-Z][\w.]*)", document.read_text("utf-8")):
            value = tff
            for part in name.rstrip(".").split("."):
                assert hasattr(value, part), f"{document.name}: tff.{name}"
                value = getattr(value, part)


# Where the code of each document with code is run.
RUN_BY = {
    "README.md": "tests/test_readme.py",
    "docs/client_state.md": "here",
    "docs/composing.md": "here",
    "docs/diagnosis.md": "tests/simulation/test_diagnosis_findings.py",
    "docs/engine.md": "here",
    "docs/execution.md": "here",
    "docs/extending.md": "here",
    "docs/getting_started.md": "here",
    "docs/keras3.md": "tests/keras3/test_document.py",
    "docs/migrating.md": "here",
    "docs/personalization.md": "tests/simulation/test_evaluate_clients.py",
    "docs/recipes.md": "here",
    "docs/remote.md": "tests/execution/on_ray/test_document.py",
    "docs/scale.md": "here",
    "docs/tracking.md": "tests/simulation/callbacks/test_mlflow_tracker.py",
}


def test_the_code_of_every_document_is_run():
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    documents += sorted((ROOT / "docs").glob("*.md"))
    with_code = {str(path.relative_to(ROOT)) for path in documents}
    with_code = {name for name in with_code if python_blocks(name)}
    assert with_code == set(RUN_BY), "run it in a test, and name that here"
    for document, test in RUN_BY.items():
        text = pathlib.Path(__file__ if test == "here" else ROOT / test).read_text()
        assert pathlib.Path(document).name in text


@pytest.fixture
def local_context(monkeypatch):
    """The local context, here alone: documents set it for the whole program."""
    monkeypatch.setattr(tff.framework, "set_default_context", lambda context: None)
    context = tff_drift.execution.create_local_execution_context()
    with tff.framework.get_context_stack().install(context):
        yield


@pytest.fixture
def script(local_context, tmp_path, monkeypatch):
    """The names of a user's script: clients, their data, a model."""
    monkeypatch.chdir(tmp_path)
    arrays = {f"client_{i}": each for i, each in enumerate(_ARRAYS)}
    return {
        "arrays": arrays,
        "client_data": models.datasets(_ARRAYS),
        "client_ids": list(arrays),
        "model_fn": models.softmax_regression,
        "tf": tf,
        "tff": tff,
        "tff_drift": tff_drift,
        "train": tff_drift.simulation.ClientDatasets.from_arrays(arrays, batch_size=4),
    }


_ARRAYS = models.client_arrays([5, 8, 11])


def test_getting_started_trains_and_evaluates(local_context, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec("\n".join(python_blocks("docs/getting_started.md")), names)
    assert len(names["result"].rows) == 11
    assert any("accuracy" in key for key in names["result"].rows[-1])
    saved = tf.keras.models.load_model("model.keras")
    assert [weight.shape for weight in saved.get_weights()] == [(5, 2), (2,)]
    assert np.any(saved.get_weights()[1] != 0)  # As initialised, the bias is 0.


def test_the_recipes_train(local_context, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    context = tff_drift.execution.create_local_execution_context()
    stack = tff.framework.get_context_stack()

    def set_default_context(_):
        # Contexts are those of one thread; here, of the one that a recipe starts.
        if threading.current_thread() is not threading.main_thread():
            stack.set_default_context(context)

    monkeypatch.setattr(tff.framework, "set_default_context", set_default_context)
    monkeypatch.setattr(tasks.registry, "_REGISTERED", {})
    names, found = {"__name__": "recipes"}, {}
    for title, blocks in _recipes():
        exec("\n".join(blocks), names)
        found[title] = names.get("result")
    regression = found["Predict a number (regression)"]
    kernel, bias = regression.model_weights.trainable
    # What the price was made of.
    np.testing.assert_allclose(kernel[:, 0], [3, -1, 0], atol=0.05)
    np.testing.assert_allclose(bias, [0.5], atol=0.05)
    started = found["Start from a trained model"].model_weights.trainable[0]
    [kernel, _] = names["trained"].trainable_weights
    np.testing.assert_array_equal(kernel.numpy(), started)
    assert found["Stop early"].stop_reason
    assert len(found["Stop early"].rows) < 200
    assert 0 <= names["f1"] <= 1
    assert names["series"].train.element_spec[0].shape == (None, 6, 1)
    assert names["leaf"].train.client_ids == ("f1", "f2")
    assert names["pets"].options["classes"] == ("cat", "dog")
    mine = tasks.load("my_pets", seed=3)
    spec = tf.TensorSpec([None, 16, 16, 3])
    assert mine.train.element_spec[0] == mine.model_fn().input_spec[0] == spec
    for title, result in found.items():
        if result is not None:
            weights = result.model_weights.trainable
            assert all(np.all(np.isfinite(each)) for each in weights), title


def test_the_commands_of_the_recipes_train(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tasks.registry, "_REGISTERED", {})
    blocks = {title: "\n".join(blocks) for title, blocks in _recipes()}
    names = {"pathlib": pathlib}
    exec(blocks["# Recipes"], names)
    exec(blocks["A folder of images"].partition("def ")[0], names)  # Writes them.
    names["table"].to_csv("my.csv", index=False)
    pathlib.Path("my_task.py").write_text(
        blocks["A model of my own on the command line"]
    )
    text = (ROOT / "docs/recipes.md").read_text()
    commands = re.findall(r"`tff-drift ((?:train|compare) .*?)`", text, re.DOTALL)
    assert len(commands) == 2
    for command in commands:
        assert main.run([*command.split(), "--rounds=1"]) == 0


def _commands(page):
    """The words of the commands of a page after `tff-drift`, those of blocks."""
    text = (ROOT / page).read_text()
    fenced = r"^ *```(\w*)\n(.*?)^ *```"
    for kind, block in re.findall(fenced, text, re.DOTALL | re.MULTILINE):
        if kind:
            continue
        for line in block.replace("\\\n", " ").splitlines():
            _, is_command, words = line.partition("tff-drift ")
            if is_command and not line.lstrip().startswith("#"):
                yield shlex.split(words, comments=True)


def _runs(words):
    """What a command trains, by its folder."""
    command, *words = words
    if command == "sweep":
        sweep = programs.sweep(*words)
        axes = [axis.flag.name for axis in sweep.axes]
        return {sweep.folder: {**sweep.fixed, "axes": axes, "prune": sweep.prune}}
    given = programs.parse(command, *words)
    resolve = settings.resolve_comparison if command == "compare" else settings.resolve
    found = resolve(given)
    runs = found if command == "compare" else [found]
    return {run.folder: run.configuration for run in runs}


@pytest.mark.parametrize(
    "page", ["command_line.md", "personalization.md", "remote.md", "tracking.md"]
)
def test_no_command_of_a_page_is_refused_after_another(page):
    # Which any reader may have in the folder that is taken by default.
    known = _runs(["train", "--task=digits"])
    known.update(_runs(["train", "--task=digits", "--algorithm=scaffold"]))
    trained = 0
    for words in _commands(f"docs/{page}"):
        if words[0] in ("train", "compare", "sweep"):
            trained += 1
            for folder, what in _runs(words).items():
                assert known.setdefault(folder, what) == what, words
    assert trained


@pytest.mark.parametrize("page", ["recipes.md", "diagnosis.md"])
def test_commands_on_a_table_name_the_features(page):
    text = (ROOT / "docs" / page).read_text()
    # Else what is beside them in the table, another label too, would be among them.
    given = [words for words in _commands(f"docs/{page}") if "--data=my.csv" in words]
    given += [
        words.split()
        for words in re.findall(r"`tff-drift ([^`]*--data=my.csv[^`]*)`", text)
    ]
    assert given
    assert all("--features=a,b,c" in words for words in given)


def _recipes():
    """The blocks of each recipe, by its title, in order."""
    text = (ROOT / "docs/recipes.md").read_text()
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        blocks = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
        yield section.partition("\n")[0], blocks


def test_migrating_step_by_step_trains_the_same_model(script):
    blocks = python_blocks("docs/migrating.md")
    tff_alone, _, lists, same_method, with_states, driver = blocks
    exec(tff_alone, script)
    exec(lists, script)
    expected = script["process"].get_model_weights(script["state"]).trainable
    exec(same_method, script)
    found = script["process"].get_model_weights(script["state"]).trainable
    for mine, theirs in zip(found, expected, strict=True):
        assert np.any(theirs != 0)
        np.testing.assert_array_equal(mine, theirs)
    exec(with_states, script)
    assert len(script["process"].client_states) == 3
    exec(driver, script)
    assert len(script["result"].rows) == 3
    assert pathlib.Path("run", "metrics.csv").exists()


def test_the_devices_of_the_document_on_execution_are_used(script, monkeypatch):
    code, _, _ = python_blocks("docs/execution.md")
    assert '["/GPU:0", "/GPU:1"]' in code
    contexts = []
    monkeypatch.setattr(tff.framework, "set_default_context", contexts.append)
    # Machines without GPUs have one device.
    exec(code.replace('["/GPU:0", "/GPU:1"]', '["/CPU:0"]'), script)
    [context] = contexts
    process = algorithms.build_fed_avg(script["model_fn"], 0.1)
    with tff.framework.get_context_stack().install(context):
        told = context.explain(process.next)
        output = process.next(process.initialize(), script["client_data"])
    assert "clients: on /CPU:0" in told
    kernel = process.get_model_weights(output.state).trainable[0]
    assert np.any(kernel != 0)


def test_a_context_of_ones_own_runs_rounds_as_the_document_says(script):
    *_, code = python_blocks("docs/execution.md")
    exec(code, script)
    local = tff_drift.execution.create_local_execution_context()
    cohorts = []

    class Context(script["MyContext"]):
        def invoke(self, comp, arg):
            return local.invoke(comp, arg)

        def run_round(self, process, server_state, cohort):
            cohorts.append(cohort)
            return super().run_round(process, server_state, cohort)

    process = algorithms.build_scaffold(script["model_fn"], 0.1, len(_ARRAYS))
    models_of = []
    for context in (local, Context()):
        with tff.framework.get_context_stack().install(context):
            result = tff_drift.simulation.run_training(
                process, script["train"], rounds=2, cohort_size=2
            )
        models_of.append(result.model_weights.trainable)
    assert [cohort.round_number for cohort in cohorts] == [0, 1]
    for one, other in zip(*models_of, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_limits_of_the_document_on_the_engine_are_taken(script, monkeypatch):
    [code] = python_blocks("docs/engine.md")
    contexts = []
    monkeypatch.setattr(tff.framework, "set_default_context", contexts.append)
    exec(code, script)
    assert script["limits"] != tff_drift.execution.Limits()
    [context] = contexts
    process = algorithms.build_fed_avg(script["model_fn"], 0.1)
    with tff.framework.get_context_stack().install(context):
        output = process.next(process.initialize(), script["client_data"])
    assert np.any(process.get_model_weights(output.state).trainable[0] != 0)


def test_a_method_of_the_documents_is_one(script):
    method, trained, _, row, _ = python_blocks("docs/extending.md")
    # The file that `tests/test_method_from_outside.py` puts under every property.
    _, _, of_file = (ROOT / "tests" / "fed_echo.py").read_text().partition('"""\n\n')
    assert f"{method}\n\n{row}" == of_file
    exec(method, script)
    exec(trained, script)
    assert len(script["result"].rows) == 3
    kernel = script["result"].model_weights.trainable[0]
    assert np.all(np.isfinite(kernel))
    assert np.any(kernel != 0)


def test_a_server_step_of_the_documents_sends_what_it_keeps(script):
    method, _, server_step, *_ = python_blocks("docs/extending.md")
    exec(method, script)
    exec(server_step, script)
    kept = tff_drift.simulation.ProcessWithClientStates(script["process"])
    fed_avg = algorithms.build_fed_avg(script["model_fn"], 0.1)
    ann, bob = (each.take(1) for each in script["client_data"][:2])
    states = [kept.initialize()]
    for data in ({"ann": ann}, {"bob": bob}):
        states.append(kept.next(states[-1], data).state)
    before, first, second = map(kept.get_model_weights, states)

    def after_fed_avg(weights, client):
        state = fed_avg.set_model_weights(fed_avg.initialize(), weights)
        return fed_avg.get_model_weights(fed_avg.next(state, [client]).state).trainable

    # In the first round m and e are 0. Bob, whose e is 0, takes a step along m: η ρ of
    # it, by hand, beyond his own gradient.
    for one, other in zip(first.trainable, after_fed_avg(before, ann), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    for x, y, of_bob, reached in zip(
        before.trainable,
        first.trainable,
        after_fed_avg(first, bob),
        second.trainable,
        strict=True,
    ):
        assert np.any(x != y)
        by_hand = of_bob - 0.1 * 0.1 * (x - y)
        np.testing.assert_allclose(reached, by_hand, rtol=1e-5, atol=1e-8)


def test_a_preset_of_the_documents_is_one(monkeypatch):
    *_, preset = python_blocks("docs/extending.md")
    presets = dict(catalogue.PRESETS)
    monkeypatch.setattr(catalogue, "PRESETS", presets)
    exec(preset, {})
    for study in presets["echo_comparison"].local.studies:
        assert set(study.flags) <= set(declarations.flags_of("train"))
        assert set(study.search.grids) <= {each.label for each in study.variants}


def test_the_examples_of_composing_train(script):
    around_scaffold, own, around_fed_avg = python_blocks("docs/composing.md")
    exec(around_scaffold, script)
    process = tff_drift.simulation.ProcessWithClientStates(script["process"])
    cohort = dict(zip(script["client_ids"], script["client_data"], strict=True))
    output = process.next(process.initialize(), cohort)
    assert output.metrics["aggregator"]["model"].keys() >= {
        "clipping_norm",
        "mean_client_norm",
        "rejected_clients",
    }
    exec(own, script)
    factory = script["sign_factory"](tff.aggregators.SumFactory())
    signs = factory.create(tff.TensorType(np.float32, [2]))
    clients = [np.float32([-5, 2]), np.float32([-1, 0])]
    output = signs.next(signs.initialize(), clients)
    np.testing.assert_array_equal(output.result, [-2, 1])
    exec(around_fed_avg, script)
    process = script["process"]
    output = process.next(process.initialize(), script["client_data"])
    assert "clipping_norm" in output.metrics["aggregator"]


def test_the_sampling_of_many_clients_draws_and_resumes(surroundings):
    [block] = python_blocks("docs/scale.md")
    block = block.replace(
        "cohort_size = train.client_ids, 0, 100", "cohort_size = train.client_ids, 0, 2"
    )
    for rounds in (2, 5):
        exec(block.replace("rounds=1000", f"rounds={rounds}"), surroundings)
    cohorts = [surroundings["sampling"](number) for number in range(40)]
    assert {len(set(cohort)) for cohort in cohorts} == {2}
    assert len(set(map(frozenset, cohorts))) == 3
    resumed = surroundings["result"]
    assert resumed.rows[-1]["round"] == 5
    whole = block.replace("rounds=1000", "rounds=5").replace("results/run", "whole")
    exec(whole, surroundings)
    tf.nest.map_structure(
        np.testing.assert_array_equal,
        surroundings["result"].model_weights,
        resumed.model_weights,
    )
