import json

import numpy as np
import pytest

import tasks
from tasks import inventory

_NEED_NONE = {"digits", "quadratic", "own_data", "own_numbers"}


def _findings(folder):
    return {finding.name: finding for finding in inventory.inspect(str(folder))}


def _write_shakespeare(folder, num_clients, examples):
    clients = [
        (f"client_{k}", {"snippets": ["Speak"] * examples}) for k in range(num_clients)
    ]
    path = folder / "shakespeare.sqlite"
    tasks.write_sqlite(path, {"train": clients, "test": clients[:1]}, overwrite=True)


def test_an_empty_folder_misses_everything(tmp_path):
    findings = _findings(tmp_path)

    assert {finding.state for finding in findings.values()} == {"missing"}
    # Every task that needs data needs something of it.
    needed = {task for finding in findings.values() for task in finding.tasks}
    assert needed == set(tasks.names()) - _NEED_NONE
    for finding in findings.values():
        assert str(tmp_path) in finding.contents[0]
        assert finding.source in ("TFF", "TensorFlow Datasets")


def test_counts_tell_a_part_from_the_whole(tmp_path, monkeypatch):
    _write_shakespeare(tmp_path, num_clients=3, examples=2)

    finding = _findings(tmp_path)["shakespeare.sqlite"]
    assert finding.state == "a part"
    assert finding.contents == (
        str(tmp_path / "shakespeare.sqlite"),
        "train: 3 clients, 6 examples (of 715 and 16,068)",
        "test: 1 clients, 2 examples (of 715 and 2,356)",
    )
    official = {"train": (3, 6), "test": (1, 2)}
    monkeypatch.setitem(inventory._OFFICIAL_COUNTS, "shakespeare.sqlite", official)
    finding = _findings(tmp_path)["shakespeare.sqlite"]
    assert finding.state == "complete"
    assert finding.contents[1] == "train: 3 clients, 6 examples"


def test_damaged_files_are_named(tmp_path):
    (tmp_path / "shakespeare.sqlite").write_bytes(b"nonsense")
    (tmp_path / "cifar10.npz").write_bytes(b"nonsense")
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "stackoverflow.word_count").write_text("the\n")

    findings = _findings(tmp_path)

    for name, text in (
        ("shakespeare.sqlite", "is not a SQLite file"),
        ("cifar10.npz", "cannot be read as a file of NumPy arrays"),
        ("datasets/stackoverflow.word_count", "expected a word and a number"),
    ):
        assert findings[name].state == "damaged"
        assert text in findings[name].contents[0]


def test_counts_and_images_are_counted(tmp_path):
    (tmp_path / "datasets").mkdir()
    folder = tmp_path / "datasets"
    words = "".join(f"word{k} 1\n" for k in range(10_000))
    (folder / "stackoverflow.word_count").write_text(words)
    (folder / "stackoverflow.tag_count").write_text(json.dumps({"a": 1, "b": 2}))
    images = np.zeros((4, 32, 32, 3), np.uint8)
    labels = np.arange(4)
    np.savez(
        tmp_path / "cifar10_subset.npz",
        x_train=images,
        y_train=labels,
        x_test=images[:3],
        y_test=labels[:3],
    )

    findings = _findings(tmp_path)

    word_count = findings["datasets/stackoverflow.word_count"]
    assert word_count.state == "complete"
    assert word_count.contents[1].startswith("10,000 entries")
    assert findings["datasets/stackoverflow.tag_count"].state == "a part"
    cifar10 = findings["cifar10_subset.npz"]
    assert (cifar10.state, cifar10.source) == ("a part", "a local file")
    assert cifar10.contents[1:] == (
        "train: 4 images (of 50,000)",
        "test: 3 images (of 10,000)",
    )


def test_real_files_have_the_counts_of_their_tables(real_data):
    findings = _findings(real_data)

    assert findings["shakespeare.sqlite"].state == "complete"
    for name in ("emnist_all.sqlite", "cifar100.sqlite", "stackoverflow.sqlite"):
        assert findings[name].state in ("complete", "a part")


@pytest.mark.parametrize("task", ["digits", "quadratic"])
def test_tasks_without_data_are_in_no_finding(tmp_path, task):
    assert all(task not in finding.tasks for finding in _findings(tmp_path).values())
