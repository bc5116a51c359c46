"""A file of the user's that registers a method and a task."""

import json
import subprocess

import pytest

from experiments.flags import placement
from tests import tiers
from tests.experiments import programs
from tests.forks.programs import PATIENCE, python

pytestmark = pytest.mark.no_smoke

PLUGIN = """
import tasks
from tff_drift import algorithms


def build_toy(model_fn, client_learning_rate, *, toy_gain: float = 0.5, **options):
    rate = client_learning_rate * toy_gain
    return algorithms.build_fed_avg(model_fn, rate, **options)


def build_torn(model_fn, client_learning_rate, **options):
    return client_learning_rate * None


def build_checked(model_fn, client_learning_rate, **options):
    return algorithms.build_fed_avg(model_fn, -client_learning_rate, **options)


for name, builder, options in (
    ("toy", build_toy, (algorithms.Option("toy_gain", "positive", "A gain."),)),
    ("torn", build_torn, ()),
    ("checked", build_checked, ()),
):
    algorithms.register(
        algorithms.Method(
            name=name,
            builder=builder,
            paper="I (2026), Mine",
            url="https://example.org/mine",
            options=options,
        )
    )


def build_task(cache_dir, seed, options):
    task = tasks.load("quadratic", seed=seed, dimension=options["size"])
    return tasks.Clients(task.train, task.test), task.model_fn
"""
TASK = """
tasks.register(
    tasks.TaskDefinition(
        "toy_task",
        "A task of mine.",
        (
            tasks.Option("size", "count", "A size.", 2),
            *(o for o in tasks.describe("quadratic").options if o.name == "epochs"),
        ),
        build_task,
        accuracy_metric="distance",
        higher_is_better=False,
    )
)
"""
PRESET = """
from experiments import presets

study = presets.Study(
    "only",
    {"task": "toy_task", "rounds": 1, "clients_per_round": 2},
    (presets.Variant("mine", "toy", {"toy_gain": 0.25}),),
)
scale = presets.Scale([study], hours=0.01, gigabytes=1)
presets.register(
    presets.Preset("toy_preset", "A toy.", "I (2026), Table 1.", scale, scale)
)
"""
PROGRAM = """
import sys
from experiments import main
for words in sys.argv[1:]:
    print("==", words, flush=True)
    print("-> status", main.run(words.split()), flush=True)
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What commands with the plugin print, by command."""
    folder = tmp_path_factory.mktemp("plugin")
    path = folder / "mine.py"
    path.write_text(PLUGIN + TASK + PRESET)
    flags = "--rounds=1 --clients_per_round=2 --rounds_per_evaluation=1"
    lines = {
        "list": f"list toy toy_task toy_preset --plugin={path}",
        "help": f"train --help-all --plugin={path}",
        "train": f"train --plugin {path} --algorithm=toy --toy_gain=0.25 "
        f"--task=toy_task --size=3 {flags} --output_dir={folder / 'train'}",
        "compare": f"compare --plugin={path} --algorithms=fed_avg,toy --seeds=1 "
        f"--task=toy_task {flags} --output_dir={folder / 'compare'}",
        "preset": f"preset toy_preset --plugin={path} --seeds=1 --processes=1 "
        f"--output_dir={folder / 'preset'}",
        "other": f"train --plugin={path} --toy_gain=2",
        "torn": f"train --plugin={path} --algorithm=torn --task=toy_task {flags} "
        f"--output_dir={folder / 'torn'}",
        "checked": f"train --plugin={path} --algorithm=checked --task=toy_task {flags} "
        f"--output_dir={folder / 'checked'}",
    }
    process = subprocess.run(
        [*python(), "-c", PROGRAM, *lines.values()],
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    parts = process.stdout.split("== ")[1:]
    assert len(parts) == len(lines), process.stderr
    return {
        **dict(zip(lines, parts, strict=True)),
        "errors": process.stderr,
        "folder": folder,
    }


def test_lists_and_help_have_what_it_registers(outputs):
    for name in ("list", "help"):
        assert "-> status 0" in outputs[name]
        assert "--toy_gain" in outputs[name]
        assert "toy_task" in outputs[name]
    assert "I (2026), Mine. https://example.org/mine" in outputs["list"]
    assert "A toy. I (2026), Table 1." in outputs["list"]
    assert "0.5 (toy)" in outputs["help"]


def test_it_trains(outputs):
    assert "-> status 0" in outputs["train"], outputs["errors"]
    config = json.loads((outputs["folder"] / "train" / "config.json").read_text())
    assert config["configuration"]["toy_gain"] == 0.25
    assert config["configuration"]["size"] == 3
    assert config["circumstances"]["plugin"] == [str(outputs["folder"] / "mine.py")]
    assert "-> status 0" in outputs["compare"], outputs["errors"]
    assert (outputs["folder"] / "compare" / "toy" / "seed_1" / "metrics.csv").is_file()


def test_its_preset_runs(outputs):
    assert "-> status 0" in outputs["preset"], outputs["errors"]
    folder = outputs["folder"] / "preset"
    assert f"\nFiles in {folder}: only\n" in outputs["preset"]
    run = folder / "only" / "mine" / "seed_1"
    config = json.loads((run / "config.json").read_text())
    assert config["configuration"]["toy_gain"] == 0.25
    assert config["circumstances"]["plugin"] == [str(outputs["folder"] / "mine.py")]


@pytest.mark.parametrize("command", tiers.first([0], ["analyze", "report"]))
@pytest.mark.parametrize("of", ["train", "compare", "preset"])
def test_its_runs_say_what_is_to_be_given_where_it_is_not(
    run_command, outputs, tmp_path, command, of
):
    words = (command, outputs["folder"] / of, f"--output_dir={tmp_path}")
    outcome = run_command(*words)
    assert outcome.status == 2
    assert outcome.stderr == (
        "tff-drift: error: task 'toy_task' is not registered. Its runs were made with "
        f"--plugin={outputs['folder'] / 'mine.py'}: give that here too, or name "
        "columns.\n"
    )
    assert run_command(*words, "--columns=test_distance").status == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("train", "--task=mine"), "--task: unknown task 'mine'. "),
        (("preset", "mine"), "unknown preset 'mine'. "),
        (("train", "--minne=3"), "unknown flag '--minne'. "),
    ],
)
def test_a_file_that_registers_nothing_is_named(run_command, tmp_path, words, told):
    path = tmp_path / "idle.py"
    path.write_text("x = 1\n")
    for _ in range(2):
        outcome = run_command(*words, f"--plugin={path}")
        assert outcome.status == 2
        assert outcome.stderr.startswith(f"tff-drift: error: {told}")
        assert f" {str(path)!r} registers nothing: --plugin takes files that call" in (
            outcome.stderr
        )
    assert "registers nothing" not in run_command(*words).stderr


def test_processes_of_runs_load_it():
    place, _ = placement.take({"plugin": ["mine.py"], "processes": 2})
    assert place == placement.Placement(2, plugins=("mine.py",))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import tasks\n\n1 / 0\n", "3: ZeroDivisionError: division by zero"),
        ("x = (\n", "1: SyntaxError: '(' was never closed"),
        ("import nothing_of_this_name\n", "1: ModuleNotFoundError: No module named"),
        (
            "from experiments import presets\n\n\npresets.register(3)\n",
            "4: TypeError: preset must be a Preset, found int.",
        ),
    ],
)
def test_a_mistake_in_a_file_is_one_line_with_its_place(
    run_command, tmp_path, monkeypatch, text, told
):
    (tmp_path / "mistaken.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    # A file that failed counts as not loaded.
    for path in (tmp_path / "mistaken.py", "mistaken.py"):
        outcome = run_command("list", f"--plugin={path}")
        assert outcome.status == 2
        assert outcome.stderr.startswith(f"tff-drift: error: --plugin: {path}:{told}")
        assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["a_file_of_mine", "a_package_of_mine"])
def test_a_module_beside_the_file_that_is_not_found_is_told_how_to(
    run_command, tmp_path, monkeypatch, name
):
    if name == "a_file_of_mine":
        (tmp_path / f"{name}.py").touch()
    else:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    path = tmp_path / "mine.py"
    path.write_text(f"import {name}\n")
    outcome = run_command("list", f"--plugin={path}")
    assert outcome.status == 2
    assert outcome.stderr.endswith(
        f"No module named '{name}'. It is beside the file: set "
        f"PYTHONPATH={tmp_path} in the environment\n"
    )
    # What is missing inside of it is another matter.
    monkeypatch.syspath_prepend(tmp_path)
    path.write_text(f"import {name}.nothing\n")
    assert "PYTHONPATH" not in run_command("list", f"--plugin={path}").stderr
    path.write_text(f"import {name}\n")
    assert run_command("list", f"--plugin={path}").status == 0


def test_its_flags_have_their_meaning_checked(outputs):
    assert "-> status 2" in outputs["other"]
    assert (
        "--toy_gain is not an option of fed_avg, which has none." in outputs["errors"]
    )


def test_an_error_in_its_code_is_told_with_its_place(outputs):
    path = outputs["folder"] / "mine.py"
    assert "-> status 2" in outputs["torn"]
    [line] = [
        number
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line == "    return client_learning_rate * None"
    ]
    assert f"error: --plugin: {path}:{line}: TypeError: " in outputs["errors"]


def test_what_the_library_refuses_there_is_told_as_elsewhere(outputs):
    assert "-> status 2" in outputs["checked"]
    [told] = [
        line for line in outputs["errors"].splitlines() if "client_optimizer_fn" in line
    ]
    assert told.startswith("tff-drift: error: client_optimizer_fn")


def test_a_file_that_is_none(run_command, tmp_path):
    outcome = run_command("list", f"--plugin={tmp_path / 'absent.py'}")
    assert outcome.status == 2
    assert "absent.py' is not a Python file." in outcome.stderr


def test_a_file_that_ends_the_program(run_command, tmp_path):
    path = tmp_path / "leaves.py"
    path.write_text("import sys\nsys.exit(130)\n")
    outcome = run_command("list", f"--plugin={path}")
    assert outcome.status == 2
    assert "ends the program when it is imported (exit status 130)" in outcome.stderr
    assert "interrupted" not in outcome.stderr


def test_a_file_that_changed_since_it_was_loaded(run_command, tmp_path):
    path = tmp_path / "edited.py"
    path.write_text("x = 1\n")
    for _ in range(2):
        assert run_command("list", "digits", f"--plugin={path}").status == 0
    path.write_text("x = 2\n")
    outcome = run_command("list", "digits", f"--plugin={path}")
    assert outcome.status == 2
    assert outcome.stderr == (
        f"tff-drift: error: --plugin: {str(path)!r} has changed since it was loaded. "
        "Restart the program (in a notebook, the kernel).\n"
    )
    path.write_text("x = 1\n")
    assert run_command("list", "digits", f"--plugin={path}").status == 0
