"""The command `diagnose`: what is asked for, its files, and the places of a race."""

import json
import pathlib
import types

import pandas as pd
import pytest

from experiments import main
from experiments.flags import diagnoses, errors
from experiments.training import diagnosis, race
from tests.experiments import programs

SMALL = ("--task=digits", "--num_clients=8", "--clients_per_round=4", "--max_clients=4")


def request(*words):
    return diagnoses.request(programs.parse("diagnose", *words))


def test_what_is_asked_for():
    wanted = request(*SMALL, "--client_learning_rate=0.2", "--client_epochs=3")
    assert (wanted.rounds, wanted.max_clients, wanted.race) == (2, 4, None)
    assert wanted.folder == pathlib.Path("results/diagnose/digits")
    assert wanted.run.algorithm == "fed_avg"
    assert wanted.run.configuration["client_learning_rate"] == 0.2
    assert wanted.run.configuration["client_epochs"] == 3
    assert wanted.run.configuration["num_clients"] == 8


def test_a_race_has_the_flags_of_the_diagnosis_and_its_own_seeds():
    wanted = request(*SMALL, "--race", "--race_rounds=7", "--race_points=3", "--seed=5")
    assert wanted.race.rounds == 7
    assert wanted.race.points == 3
    assert wanted.race.folder == wanted.folder / "race"
    assert wanted.race.flags == {
        "task": "digits", "num_clients": 8, "clients_per_round": 4,
    }  # fmt: skip
    assert wanted.run.seed == 5
    assert request(*SMALL, "--race").race.rounds == wanted.run.rounds


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("--race_points has no meaning without --race", ["--race_points=3"]),
        ("--processes has no meaning without --race", ["--processes=1"]),
        ("--max_clients must be at least 3, found 2", ["--max_clients=2"]),
        ("--rounds_before", ["--rounds_before=-1"]),
        ("unknown flag .--mu", ["--mu=0.1"]),
        ("--data is not .*--task=own_data or --task=own_numbers", ["--data=a.csv"]),
        ("--similarity is not an option", ["--task=emnist_digits", "--similarity=0.5"]),
    ],
)
def test_mistakes_are_named(message, words):
    with pytest.raises(errors.UserError, match=message):
        request(*words)


def test_too_many_clients_per_round_are_told_with_their_flag():
    run = request("--task=digits", "--num_clients=8", "--clients_per_round=9").run
    with pytest.raises(errors.UserError, match=r"^--clients_per_round is 9, .*only 8"):
        diagnosis.measure(run, rounds=1, max_clients=4)


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diagnosis") / "run"
    log = tmp_path_factory.mktemp("log")
    words = (*SMALL, "--rounds_before=1", f"--output_dir={folder}")
    return folder, programs.run_process(log, "diagnose", *words)


@pytest.mark.no_smoke
def test_a_diagnosis_is_told_and_kept(diagnosed):
    folder, outcome = diagnosed
    assert outcome.status == 0, outcome.stderr
    assert "Drift of 4 measured clients of 8, 4 per round" in outcome.stdout
    assert "5. " in outcome.stdout
    assert outcome.lacking_files() == []
    names = {each.name for each in folder.iterdir()}
    assert names == {"diagnosis.json", "diagnosis.csv", "diagnosis.png"}
    kept = json.loads((folder / "diagnosis.json").read_text("utf-8"))
    assert (kept["clients"], kept["measured_clients"]) == (8, 4)
    assert kept["configuration"]["algorithm"] == "fed_avg"
    assert len(kept["sentences"]) == 5
    for sentence in kept["sentences"]:
        assert sentence in " ".join(outcome.stdout.split())
    assert list(kept["gains"])[1] == "control variates"
    table = pd.read_csv(folder / "diagnosis.csv")
    assert len(table) == len(kept["estimates"])
    assert set(table["part"]) == {"differences", "labels", "drift", "as_trained"}
    assert (folder / "diagnosis.png").read_bytes()[1:4] == b"PNG"


def test_a_folder_with_something_else_is_refused(tmp_path, capsys):
    (tmp_path / "thesis.tex").touch()
    assert main.run(["diagnose", *SMALL, f"--output_dir={tmp_path}"]) == 2
    assert "holds files, but no diagnosis of tff-drift" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task=quadratic"], 'another diagnosis: task was "digits"'),
        (["--client_epochs=3"], ": client_epochs was 1 and is now 3. Ask for the same"),
        (["--rounds_before=3"], "rounds_before was 2 and is now 3"),
        (["--max_clients=5"], "max_clients was 4 and is now 5"),
    ],
)
def test_a_diagnosis_is_replaced_by_the_same_alone(tmp_path, words, message):
    folder = f"--output_dir={tmp_path}"
    wanted = request(*SMALL, folder)
    (tmp_path / "diagnosis.json").write_text(json.dumps(diagnosis._asked(wanted)))
    diagnosis._check_folder(wanted)
    diagnosis._check_folder(request(*SMALL, folder, "--race", "--race_points=2"))
    given = {word.partition("=")[0]: word for word in (*SMALL, *words)}
    with pytest.raises(errors.UserError) as caught:
        diagnosis._check_folder(request(*given.values(), folder))
    assert message in str(caught.value)


@pytest.fixture
def measured(monkeypatch):
    """How often a made-up diagnosis was measured, and a race that is made up too."""
    calls = []

    def measure(*_):
        calls.append("measured")
        return types.SimpleNamespace(
            clients=8,
            sizes=[1, 2, 3, 4],
            finding="cohort",
            methods=("scaffold",),
            sentences=["A sentence."],
            gains={},
            race=None,
            to_frame=lambda: pd.DataFrame({"part": ["drift"], "value": [1.5]}),
            plot=lambda figure: figure,
        )

    monkeypatch.setattr(diagnosis, "measure", measure)
    table = pd.DataFrame({"algorithm": ["scaffold"], "place": ["first"]})
    monkeypatch.setattr(race, "run", lambda *_: table)
    return calls


def of_race(folder):
    kept = json.loads((folder / "diagnosis.json").read_text("utf-8"))
    return {name: value for name, value in kept.items() if name.startswith("race")}


def test_a_race_is_kept_until_there_is_another(tmp_path, measured, monkeypatch):
    same = (*SMALL, f"--output_dir={tmp_path}")
    raced = request(*same, "--race", "--race_points=2", "--race_rounds=3")
    expected = {
        "race_points": 2,
        "race_rounds": 3,
        "race": [{"algorithm": "scaffold", "place": "first"}],
    }
    diagnosis.run(raced)
    assert of_race(tmp_path) == expected
    diagnosis.run(request(*same))
    assert of_race(tmp_path) == expected

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(race, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        diagnosis.run(raced)
    assert of_race(tmp_path) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--race_points=3", "--race_rounds=5"], "race_points was 2 and is now 3"),
        (["--race_points=2", "--race_rounds=6"], "race_rounds was 5 and is now 6"),
        (["--race_points=2"], "race_rounds was 5 and is now"),
    ],
)
def test_another_race_is_refused_before_it_is_measured(
    tmp_path, measured, words, message
):
    same = (*SMALL, f"--output_dir={tmp_path}", "--race")
    diagnosis.run(request(*same, "--race_points=2", "--race_rounds=5"))
    with pytest.raises(errors.UserError, match=message):
        diagnosis.run(request(*same, *words))
    assert len(measured) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"points": 3}, "points was 2 and is now 3"),
        ({"rounds": 6}, "rounds was 5 and is now 6"),
        ({"client_learning_rate": 0.6}, "client_learning_rate was 0.3 and is now 0.6"),
    ],
)
def test_another_race_from_python_is_refused_before_its_searches(
    tmp_path, monkeypatch, changes, said
):
    def searched(*_):
        raise NotImplementedError

    def begin(**changes):
        options = {"points": 2, "rounds": 5, "client_learning_rate": 0.3, **changes}
        race.of_task("digits", tmp_path, **options)(["fed_avg", "scaffold"])

    monkeypatch.setattr(race.pool, "open_pool", searched)
    for _ in range(2):
        with pytest.raises(NotImplementedError):
            begin()
    with pytest.raises(
        errors.UserError, match=f"another race: {said}. Ask for the same"
    ):
        begin(**changes)
    # One of before its file was kept goes on.
    (tmp_path / "race.json").unlink()
    (tmp_path / "tuning").mkdir()
    with pytest.raises(NotImplementedError):
        begin(**changes)


@pytest.mark.parametrize("changes", [{"points": 0}, {"points": "6"}, {"rounds": -1}])
def test_bad_numbers_of_a_race_from_python_are_refused(tmp_path, changes):
    (name,) = changes
    with pytest.raises(errors.UserError, match=f"{name} must be"):
        race.of_task("digits", tmp_path / "race", client_learning_rate=0.3, **changes)
    assert not (tmp_path / "race").exists()


def test_a_race_that_does_not_say_how_it_was_goes_on(tmp_path, measured):
    """As version 0.2.0 wrote it."""
    asked = request(*SMALL, f"--output_dir={tmp_path}")
    before = {**diagnosis._asked(asked), "race": [{"algorithm": "fed_avg"}]}
    (tmp_path / "diagnosis.json").write_text(json.dumps(before))
    diagnosis.run(asked)
    assert of_race(tmp_path) == {"race": [{"algorithm": "fed_avg"}]}
    diagnosis.run(request(*SMALL, f"--output_dir={tmp_path}", "--race"))
    assert of_race(tmp_path)["race"][0]["algorithm"] == "scaffold"


def test_a_full_disk_leaves_a_folder_that_can_be_used(tmp_path, measured, monkeypatch):
    asked = request(*SMALL, f"--output_dir={tmp_path}")

    def fail(*_):
        raise OSError("No space left on device")

    for name in ("write_json", "write_table"):
        with monkeypatch.context() as patched:
            patched.setattr(diagnosis.writing, name, fail)
            with pytest.raises(OSError, match="No space left"):
                diagnosis.run(asked)
        # What a kill leaves.
        (tmp_path / ".diagnosis.json.tmp").touch()
    diagnosis.run(asked)
    assert {each.suffix for each in tmp_path.iterdir()} == {".json", ".csv", ".png"}


def test_places_tell_ties_from_gaps():
    table = pd.DataFrame(
        {
            "algorithm": ["fed_avg", "scaffold", "adabest"],
            "accuracy": [0.90, 0.95, 0.94],
            "accuracy_sd": [0.01, 0.01, 0.01],
        }
    )
    # Twice the standard error of a gap: 2 * 0.01 * sqrt(2 / 2) = 0.02.
    found = race.places(table, "accuracy", higher_is_better=True)
    assert list(found["algorithm"]) == ["scaffold", "adabest", "fed_avg"]
    assert list(found["place"]) == ["first", "tie", "behind"]
    found = race.places(table, "accuracy", higher_is_better=False)
    assert list(found["place"]) == ["first", "behind", "behind"]


@pytest.mark.conformance
@pytest.mark.no_smoke
def test_a_race_is_searched_and_compared(tmp_path):
    words = ("--race", "--race_rounds=2", "--race_points=2", "--processes=1")
    folder = tmp_path / "run"
    outcome = programs.run_process(
        tmp_path, "diagnose", *SMALL, *words, f"--output_dir={folder}"
    )
    assert outcome.status == 0, outcome.stderr
    kept = json.loads((folder / "diagnosis.json").read_text("utf-8"))
    assert outcome.lacking_files() == []
    names = {each["algorithm"] for each in kept["race"]}
    assert names == {"fed_avg", *kept["methods"]}
    assert [each["place"] for each in kept["race"]].count("first") == 1
    for name in names:
        assert (folder / "race" / "tuning" / name / "best.json").is_file()
    assert (folder / "race" / "runs" / "curves.png").is_file()
    assert "| algorithm | accuracy | place |" in (
        folder / "race" / "race.md"
    ).read_text("utf-8")
