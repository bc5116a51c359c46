"""The command `data`, from flags to files."""

import numpy as np
import pytest
from matplotlib import image

import tasks
from experiments.reports import data as report
from tasks.sources import writers_letters
from tff_drift.simulation import ClientDatasets


@pytest.fixture
def folder(tmp_path):
    """A folder with a few roles of Shakespeare's, made up."""
    clients = [
        (f"client_{k}", {"snippets": ["To be, or not to be"] * (k + 1)})
        for k in range(4)
    ]
    path = tmp_path / "data" / "shakespeare.sqlite"
    path.parent.mkdir()
    tasks.write_sqlite(path, {"train": clients, "test": clients})
    return path.parent


def test_check_shows_what_is_there_and_what_is_missing(run_command, folder):
    outcome = run_command("data", "check", f"--cache_dir={folder}")

    assert outcome.status == 0
    assert outcome.stderr == ""
    assert (
        "shakespeare.sqlite: a part, source: TFF\n"
        f"  {folder / 'shakespeare.sqlite'}\n"
        "  train: 4 clients, 10 examples (of 715 and 16,068)\n"
        "  test: 4 clients, 10 examples (of 715 and 2,356)\n"
        "  for shakespeare_character, shakespeare_character_gru\n"
    ) in outcome.stdout
    assert "emnist_all.sqlite: missing, source: TFF\n" in outcome.stdout
    assert "cifar10.npz: missing, source: TensorFlow Datasets\n" in outcome.stdout
    assert outcome.stdout.endswith("tff-drift data fetch --task=NAME\n")


def test_describe_tells_and_draws_how_labels_are_spread(run_command, tmp_path):
    outcome = run_command(
        "data",
        "describe",
        "--task=digits",
        "--num_clients=20",
        "--alpha=0.01",
        f"--output_dir={tmp_path / 'out'}",
    )

    assert outcome.status == 0, outcome.stderr
    # 1,438 images for training; 0.01 leaves most clients one class.
    lines = outcome.stdout.splitlines()
    assert "  train       20 clients" in lines
    assert "  examples of all training clients: 1,438" in lines
    assert "  per client (least, quartiles, most): 71, 72, 72, 72, 72" in lines
    (share,) = (line for line in lines if "largest class" in line)
    assert int(share.split()[-2]) > 60
    assert outcome.lacking_files() == []
    picture = image.imread(tmp_path / "out" / "data.png")
    assert picture.shape[0] > 500
    assert picture.std() > 0.01


def test_one_way_to_deal_out_labels_is_enough(run_command):
    outcome = run_command(
        "data", "describe", "--task=cifar10", "--alpha=0.1", "--similarity=1"
    )
    assert outcome.status == 2
    assert "--alpha has no meaning with --similarity" in outcome.stderr


def test_describe_does_without_classes(run_command, folder, tmp_path):
    outcome = run_command(
        "data",
        "describe",
        "--task=shakespeare_character",
        f"--cache_dir={folder}",
        f"--output_dir={tmp_path / 'out'}",
    )

    assert outcome.status == 0, outcome.stderr
    assert (
        "  per client (least, quartiles, most): 1, 1.75, 2.5, 3.25, 4" in outcome.stdout
    )
    assert "largest class" not in outcome.stdout
    assert (tmp_path / "out" / "data.png").is_file()


def test_fetch_leaves_alone_what_is_there(run_command, folder):
    outcome = run_command(
        "data", "fetch", "--task=shakespeare_character", f"--cache_dir={folder}"
    )

    assert outcome.status == 0, outcome.stderr
    assert outcome.stdout.startswith("shakespeare.sqlite: a part, source: TFF\n")


def test_fetch_tells_of_a_failed_download(run_command, tmp_path, monkeypatch):
    def urlopen(url):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", urlopen)

    outcome = run_command(
        "data", "fetch", "--task=shakespeare_character", f"--cache_dir={tmp_path}"
    )

    assert outcome.status == 2
    assert "shakespeare.sqlite, and its download failed: no network" in outcome.stderr
    for way in (
        "download=True (--download) fetches",
        "cache_dir=FOLDER (--cache_dir) names",
        "synthetic=True (--synthetic) runs",
    ):
        assert way in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_letters_tell_of_a_failed_download(run_command, tmp_path, monkeypatch):
    def urlopen(url):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", urlopen)

    outcome = run_command("data", "letters", f"--cache_dir={tmp_path / 'new'}")

    assert outcome.status == 2
    assert (
        f"emnist_letters.npz needs the file {tmp_path / 'new' / 'emnist_all.sqlite'}, "
        "and its download failed: no network"
    ) in outcome.stderr
    assert "(--cache_dir), a folder that holds emnist_all.sqlite" in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "arguments are required: check|fetch|describe|letters."),
        (["chek"], "unknown action on data 'chek'. Did you mean check?"),
        (["fetch", "--task=digits"], "task digits needs no data"),
        (["letters", "--output_dir=out"], "--output_dir has no meaning for data lett"),
        (["letters", "--task=digits"], "--task has no meaning for data letters."),
        (["letters", "--seed=2"], "--seed has no meaning for data letters."),
        (["check", "--task=digits"], "--task has no meaning for data check."),
        (["check", "--alpha=0.1"], "--alpha has no meaning for data check."),
        (["fetch", "--output_dir=out"], "--output_dir has no meaning for data fetch."),
        (["fetch", "--seed=2"], "--seed has no meaning for data fetch."),
        (["fetch", "--synthetic"], "--synthetic has no meaning for data fetch."),
        (["describe", "--network=uga"], "--network is not an option of task digits"),
        (["describe", "--rounds=3"], "unknown flag '--rounds'"),
        (["describe", "--task=digits", "--alpha=-1"], "--alpha must be a finite"),
        (
            ["describe", "--task=cifar10", "--network=big"],
            "--network: unknown value 'big'. Known are adabest, uga, resnet18, "
            "logistic.",
        ),
    ],
)
def test_mistakes_are_told_in_a_line(run_command, words, message):
    outcome = run_command("data", *words)

    assert outcome.status == 2
    assert message in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def _clients(**labels):
    clients = {
        name: (np.zeros((len(each), 1), np.float32), np.array(each))
        for name, each in labels.items()
    }
    return ClientDatasets.from_arrays(clients, batch_size=1)


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        ({"a": [0, 3, 3, 3], "b": [1]}, [0, 1, 3], [[0.25, 0, 0.75], [0, 1, 0]]),
        ({"a": [-1, 1], "b": [-1, -1, -1, 1]}, [-1, 1], [[0.5, 0.5], [0.75, 0.25]]),
        ({"a": [-1], "b": [-2, -1]}, [-2, -1], [[0, 1], [0.5, 0.5]]),
        ({"a": [10**9], "b": [5]}, [5, 10**9], [[0, 1], [1, 0]]),
        ({"a": [False], "b": [True, False]}, [False, True], [[1, 0], [0.5, 0.5]]),
    ],
)
def test_class_shares_count_each_clients_classes(labels, classes, expected):
    shares = report.class_shares(_clients(**labels))
    assert shares.columns.tolist() == classes
    assert shares.index.tolist() == ["a", "b"]
    assert shares.to_numpy().tolist() == expected


def test_the_figure_names_the_classes_below_their_columns():
    shares = report.class_shares(_clients(a=[-1, -1, 7], b=[7, 7, 3]))
    figure = report._draw("own", 2, np.array([3, 3]), shares)
    axis = figure.axes[1].xaxis
    names = [axis.get_major_formatter()(place, 0) for place in (-1, 0, 0.5, 1, 2, 3)]
    assert names == ["", "-1", "", "3", "7", ""]
    (image_of_shares,) = figure.axes[1].images
    expected = [[2 / 3, 0, 1 / 3], [0, 1 / 3, 2 / 3]]
    np.testing.assert_allclose(image_of_shares.get_array(), expected)


def test_letters_are_made_of_the_writers(run_command, tmp_path):
    def writer(*labels):
        # White is 1 in TFF's files; a label's pixels are all alike.
        examples = {"label": list(labels)}
        pixels = [np.full((28, 28), 1 - label / 255, np.float32) for label in labels]
        return {**examples, "pixels": pixels}

    clients = [("b", writer(3, 10)), ("a", writer(61, 35, 0, 36))]
    tasks.write_sqlite(
        tmp_path / "emnist_all.sqlite", {"all_train": clients, "all_test": clients[:1]}
    )

    outcome = run_command("data", "letters", f"--cache_dir={tmp_path}")

    assert outcome.status == 0, outcome.stderr
    assert "4 letters to train on, 1 to test" in outcome.stdout
    with np.load(tmp_path / "emnist_letters.npz") as arrays:
        # z, Z and a of the writer a, then A of the writer b.
        assert arrays["y_train"].tolist() == [26, 26, 1, 1]
        assert arrays["x_train"][:, 0, 0].tolist() == [61, 35, 36, 10]
        assert arrays["y_test"].tolist() == [1]
    again = run_command("data", "letters", f"--cache_dir={tmp_path}")
    assert again.status != 0
    assert "exists already" in again.stderr


@pytest.mark.conformance
def test_letters_of_the_writers_that_are_here(real_data, tmp_path):
    (tmp_path / "emnist_all.sqlite").symlink_to(f"{real_data}/emnist_all.sqlite")
    path, counts = writers_letters.write(str(tmp_path))
    assert counts == {"train": 12_007, "test": 1_396}
    # Whoever shares the folder reads it, as any new file.
    (tmp_path / "any").touch()
    assert path.stat().st_mode == (tmp_path / "any").stat().st_mode
    with np.load(path) as arrays:
        assert arrays["x_train"].shape == (12_007, 28, 28)
        # Ink on a black ground: the border is empty, the middle is not.
        assert arrays["x_train"][:, 0, 0].mean() < 1 < arrays["x_train"].mean()
