"""The files that say how often a word or a tag occurs."""

import bz2
import io
import json
import sys
import tarfile

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks.sources import stackoverflow_data

_OPTIONS = {
    "vocabulary_size": 3,
    "num_tags": 2,
    "synthetic": False,
    "download": False,
}


def _write_counts(folder, words="the 9\nof 5\nto 5\na 1\n", tags='{"x": 1, "y": 3}'):
    (folder / "datasets").mkdir()
    for name, text in (("word", words), ("tag", tags)):
        path = folder / "datasets" / f"stackoverflow.{name}_count"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder)


def test_reads_counts_that_lie_unpacked(tmp_path):
    folder = _write_counts(tmp_path, tags='{"x": 1, "y": 3, "z": 3}')

    words = stackoverflow_data.load_words("", folder, _OPTIONS)
    assert words == ["the", "of", "to"]
    # The most frequent first; of equals the first in the file, as TFF sorts.
    tags = stackoverflow_data.load_tags("", folder, _OPTIONS)
    assert tags == ["y", "z"]


def test_reads_real_counts_as_tff_does(real_data, monkeypatch):
    # TFF's loaders reject all archives but the official ones; here they are told
    # that the unpacked files come from one.
    path = f"{real_data}/datasets/archive.tar.bz2"
    monkeypatch.setattr(tf.keras.utils, "get_file", lambda *args, **options: path)
    options = {"vocabulary_size": 10_000, "num_tags": 500, "synthetic": False}
    options["download"] = False
    source = tff.simulation.datasets.stackoverflow

    words = stackoverflow_data.load_words("", real_data, options)
    tags = stackoverflow_data.load_tags("", real_data, options)

    assert words == list(source.load_word_counts(vocab_size=10_000))
    assert tags == list(source.load_tag_counts())[:500]


def _load_both(folder):
    return (
        stackoverflow_data.load_words("", folder, _OPTIONS),
        stackoverflow_data.load_tags("", folder, _OPTIONS),
    )


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"words": "the 9\n"}, "vocabulary_size is 3, but .*word_count has only 1 w"),
        ({"words": "the 9\nof\n"}, r"word_count, line 2: expected a word and a number"),
        ({"words": "the 9\nof x\n"}, r"word_count, line 2: .* found 'of x"),
        ({"words": b"the 9\n\xe9 2\n"}, r"word_count, line 2: the text is not UTF-8"),
        ({"tags": '{"x": 1}'}, r"num_tags is 2, but .*tag_count has only 1 tags"),
        ({"tags": "x 1"}, r"tag_count: expected a JSON object of tags and numbers"),
        ({"tags": '["x", "y"]'}, r"tag_count: expected a JSON object of tags"),
    ],
)
def test_bad_counts_are_named_with_their_file(tmp_path, counts, message):
    folder = _write_counts(tmp_path, **counts)

    with pytest.raises(ValueError, match=message):
        _load_both(folder)


@pytest.mark.parametrize("load", ["load_words", "load_tags"])
def test_missing_counts_are_named_with_three_ways_to_go_on(tmp_path, load):
    with pytest.raises(FileNotFoundError) as caught:
        getattr(stackoverflow_data, load)("my_task", str(tmp_path), _OPTIONS)

    message = str(caught.value)
    assert "\n" not in message
    assert (
        f"Task 'my_task' needs the file {tmp_path}/datasets/stackoverflow." in message
    )
    for way in ("download=True", "cache_dir=FOLDER", "synthetic=True"):
        assert way in message


def _write_archive(folder, name, content):
    (folder / "datasets").mkdir()
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    path = folder / "datasets" / f"{name}.tar.bz2"
    path.write_bytes(bz2.compress(data.getvalue()))


def test_archives_go_through_tffs_loader(tmp_path, monkeypatch):
    content = json.dumps({"x": 1, "y": 3}).encode()
    _write_archive(tmp_path, "stackoverflow.tag_count", content)
    loads = []

    def load_tag_counts(cache_dir):
        loads.append(cache_dir)
        folder = tmp_path / "datasets"
        with tarfile.open(folder / "stackoverflow.tag_count.tar.bz2") as archive:
            archive.extractall(folder)

    monkeypatch.setattr(stackoverflow_data._source, "load_tag_counts", load_tag_counts)

    tags = stackoverflow_data.load_tags("", str(tmp_path), _OPTIONS)

    assert tags == ["y", "x"]
    assert loads == [str(tmp_path)]


def test_an_archive_that_is_not_the_official_one_is_refused(tmp_path, monkeypatch):
    def urlretrieve(*args, **options):
        raise OSError("no network")

    # Keras fetches an archive with a wrong checksum anew.
    keras_downloads = sys.modules[tf.keras.utils.get_file.__module__]
    monkeypatch.setattr(keras_downloads, "urlretrieve", urlretrieve)
    _write_archive(tmp_path, "stackoverflow.tag_count", b"{}")

    with pytest.raises(OSError, match=r"tag_count, and TFF's loader failed: .*three"):
        stackoverflow_data.load_tags("", str(tmp_path), _OPTIONS)
