import importlib.resources
import importlib.util
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tasks.sources import central_data

_DATA = central_data.CentralData(
    file_names=("cifar10.npz", "cifar10_subset.npz"),
    tfds_name="cifar10",
    image_shape=(32, 32, 3),
    num_classes=10,
)
_LETTERS = central_data.CentralData(
    file_names=("emnist_letters.npz",),
    tfds_name="emnist/letters",
    image_shape=(28, 28, 1),
    num_classes=26,
    first_label=1,
    transposed=True,
)


def _load(cache_dir, data=_DATA, download=False, synthetic=False, seed=0):
    return central_data.load(
        data,
        task_name="cifar10",
        cache_dir=str(cache_dir),
        seed=seed,
        options={"download": download, "synthetic": synthetic},
    )


def _arrays(count=6, shape=(32, 32, 3), first_label=0):
    rng = np.random.default_rng(0)
    return {
        f"{name}_{part}": (
            rng.integers(0, 256, (count, *shape), dtype=np.uint8)
            if name == "x"
            else (np.arange(count) % 10 + first_label).astype(np.uint8)
        )
        for part in ("train", "test")
        for name in ("x", "y")
    }


@pytest.mark.parametrize("name", ["cifar10.npz", "cifar10_subset.npz"])
def test_reads_a_local_file_of_arrays(tmp_path, name):
    arrays = _arrays()
    np.savez(tmp_path / name, **arrays)

    train, test = _load(tmp_path)

    np.testing.assert_array_equal(train.images, arrays["x_train"])
    np.testing.assert_array_equal(train.labels, arrays["y_train"])
    np.testing.assert_array_equal(test.images, arrays["x_test"])
    assert test.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert train.labels.dtype == test.labels.dtype == np.int32
    assert train.images.dtype == np.uint8


def test_reads_labels_and_images_in_the_shapes_that_other_libraries_save(tmp_path):
    arrays = _arrays(shape=(28, 28), first_label=1)
    arrays["y_train"] = arrays["y_train"][:, np.newaxis]
    np.savez(tmp_path / "emnist_letters.npz", **arrays)

    train, test = _load(tmp_path, _LETTERS)

    # The file has its images upright; those of TensorFlow Datasets are not.
    np.testing.assert_array_equal(train.images[..., 0], arrays["x_train"])
    # The letters are counted from 1.
    assert train.labels.tolist() == test.labels.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_test": None}, r"has no array \['y_test'\]; it has \['x_test'"),
        (
            {"x_test": np.zeros((6, 32, 32, 3))},
            r"field 'x_test': expected uint8 images of shape \(32, 32, 3\), found fl",
        ),
        (
            {"x_train": np.zeros((6, 32, 32), np.uint8)},
            r"field 'x_train': expected uint8 .* found uint8 and shape \(32, 32\)",
        ),
        (
            {"y_train": np.zeros(5, np.uint8)},
            r"field 'y_train': expected 6 integers, found uint8 and shape \(5,\)",
        ),
        (
            {"y_train": np.zeros(6)},
            "field 'y_train': expected 6 integers, found float64",
        ),
        (
            {"y_train": np.array([0, 0, 10, 0, 0, 0])},
            "split 'train', field 'y_train', example 2: found the label 10, but there",
        ),
    ],
)
def test_a_bad_array_is_named_with_its_file(tmp_path, change, message):
    arrays = {**_arrays(), **change}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    np.savez(tmp_path / "cifar10.npz", **arrays)

    with pytest.raises(ValueError, match=message) as caught:
        _load(tmp_path)
    assert str(tmp_path / "cifar10.npz") in str(caught.value)


@pytest.mark.parametrize("kept", [0, 10, 3000])
def test_raises_on_a_damaged_file(tmp_path, kept):
    path = tmp_path / "cifar10.npz"
    np.savez(path, **_arrays())
    path.write_bytes(path.read_bytes()[:kept])

    with pytest.raises(ValueError, match=r"cifar10\.npz cannot be read as a file of"):
        _load(tmp_path)


def test_missing_data_is_named_with_three_ways_to_go_on(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        _load(tmp_path)

    message = str(caught.value)
    assert "\n" not in message
    assert f"needs the file {tmp_path / 'cifar10.npz'}, which does not" in message
    for way in ("download=True", "cache_dir=FOLDER", "synthetic=True"):
        assert way in message


@pytest.fixture
def _importlib_resources(monkeypatch):
    """TensorFlow Datasets 4.9.10 imports a package that it does not require."""
    if importlib.util.find_spec("importlib_resources") is None:
        monkeypatch.setitem(sys.modules, "importlib_resources", importlib.resources)


@pytest.mark.usefixtures("_importlib_resources")
@pytest.mark.parametrize("data", [_DATA, _LETTERS])
def test_reads_what_tensorflow_datasets_fetched(tmp_path, monkeypatch, data):
    """With the library's own writing and reading, and only the network replaced."""
    arrays = _arrays(shape=data.image_shape, first_label=data.first_label)

    def generate(part):
        pairs = zip(arrays[f"x_{part}"], arrays[f"y_{part}"], strict=True)
        for number, (image, label) in enumerate(pairs):
            example = {"image": image, "label": int(label)}
            if data is _DATA:
                example["id"] = f"{part}_{number}"
            yield number, example

    builder_class = type(tfds.builder(data.tfds_name, data_dir=tmp_path))
    fetched = []

    def split_generators(self, download_manager):
        fetched.append(self.name)
        return {part: generate(part) for part in ("train", "test")}

    monkeypatch.setattr(builder_class, "_split_generators", split_generators)

    splits = [_load(tmp_path, data, download=download) for download in (True, False)]

    assert len(fetched) == 1
    for train, test in splits:
        for part, (images, labels) in (("train", train), ("test", test)):
            order = np.argsort(labels)
            expected = arrays[f"x_{part}"]
            if data.transposed:
                expected = expected.transpose(0, 2, 1, 3)
            assert labels[order].tolist() == [0, 1, 2, 3, 4, 5]
            np.testing.assert_array_equal(images[order], expected)


def test_a_failed_download_says_so(tmp_path, monkeypatch):
    def fail(self, *args, **options):
        raise RuntimeError("no network")

    builder_class = type(tfds.builder("cifar10", data_dir=tmp_path))
    monkeypatch.setattr(builder_class, "_split_generators", fail)

    with pytest.raises(OSError, match=r"could not fetch 'cifar10': .*three ways"):
        _load(tmp_path, download=True)


def _forget(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(tfds.__name__)]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def _broken(tmp_path, monkeypatch):
    """TensorFlow Datasets beside a protobuf that its metadata cannot use."""
    package = tmp_path / "broken" / "tensorflow_datasets"
    package.mkdir(parents=True)
    # As the package does.
    (package / "__init__.py").write_text(
        "from absl import logging\n"
        "try:\n    from tensorflow_datasets.public_api import *\n"
        "except Exception as error:\n    logging.exception(error)\n"
    )
    (package / "public_api.py").write_text(
        "from google.protobuf import no_such_version\n"
    )
    _forget(monkeypatch)
    monkeypatch.syspath_prepend(package.parent)


@pytest.mark.usefixtures("_broken")
def test_a_broken_installation_is_named_with_its_reason(tmp_path, caplog):
    said = (
        "download=True needs TensorFlow Datasets: its import fails .ImportError: .*"
        r"no_such_version.*pip install .tff-drift\[datasets\].*three ways"
    )
    with pytest.raises(FileNotFoundError, match=said) as caught:
        _load(tmp_path, download=True)
    assert "\n" not in str(caught.value)
    assert not caplog.records
    # What is fetched already cannot be read with it either.
    with pytest.raises(FileNotFoundError, match="needs the file"):
        _load(tmp_path)
    assert central_data.describe_prepared(_DATA, str(tmp_path)) is None


def test_without_the_package_it_is_to_be_installed(tmp_path, monkeypatch):
    _forget(monkeypatch)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(FileNotFoundError, match="Datasets: install tensorflow-datas"):
        _load(tmp_path, download=True)


def test_the_stand_in_can_be_learnt_and_follows_the_seed():
    splits = [_load("nowhere", synthetic=True, seed=seed) for seed in (1, 1, 2)]

    for (images, labels), size in zip(splits[0], (600, 200), strict=True):
        assert images.shape == (size, 32, 32, 3)
        assert images.dtype == np.uint8
        assert np.bincount(labels).tolist() == [size // 10] * 10
    # The nearest mean of the training images names the class of a test image.
    train, test = splits[0]
    means = np.array([train.images[train.labels == k].mean(axis=0) for k in range(10)])
    distances = ((test.images[:, np.newaxis] - means) ** 2).sum(axis=(2, 3, 4))
    assert np.mean(distances.argmin(axis=1) == test.labels) > 0.9
    np.testing.assert_array_equal(splits[0].train.images, splits[1].train.images)
    assert not np.array_equal(splits[0].train.images, splits[2].train.images)
