"""Clients in folders of images."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import tasks


def _image(seed, shape=(4, 5, 3)):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def _write(path, image, encode=tf.io.encode_png):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(image).numpy())


@pytest.fixture
def folder(tmp_path):
    """Two clients with three images of each of two classes."""
    for number, client in enumerate(("ann", "bob")):
        for label in ("cat", "dog"):
            for k in range(3):
                image = _image(100 * number + 10 * (label == "dog") + k)
                _write(tmp_path / client / label / f"{k}.png", image)
    (tmp_path / "notes.txt").write_text("not read")
    (tmp_path / "ann" / "cat" / ".hidden.png").write_text("not read")
    return tmp_path


def test_a_folder_is_a_task_with_every_image_once(folder):
    task = tasks.from_image_folder(folder)

    assert task.train.client_ids == ("ann", "bob")
    assert task.train.element_spec[0] == tf.TensorSpec((None, 4, 5, 3), tf.float32)
    assert task.options["classes"] == ("cat", "dog")
    assert [task.test.num_examples(each) for each in ("ann", "bob")] == [1, 1]
    for number, client in enumerate(("ann", "bob")):
        expected = {
            (100 * number + 10 * label + k, label) for label in (0, 1) for k in range(3)
        }
        images = {seed: np.float32(_image(seed) / 255) for seed, _ in expected}
        found = [
            (seed, int(y))
            for data in (task.train, task.test)
            for x, y in zip(*data.examples(client), strict=True)
            for seed, image in images.items()
            if np.allclose(x, image, atol=1e-7)
        ]
        assert len(found) == 6
        assert set(found) == expected
    assert task.model_fn().trainable_variables[0].shape == (60, 2)


def test_subfolders_are_for_training_and_tests(tmp_path):
    _write(tmp_path / "train" / "ann" / "cat" / "a.png", _image(0))
    _write(tmp_path / "train" / "ann" / "dog" / "b.png", _image(1))
    _write(tmp_path / "test" / "bob" / "dog" / "c.png", _image(2))
    task = tasks.from_image_folder(tmp_path)
    assert (task.train.client_ids, task.test.client_ids) == (("ann",), ("bob",))
    x, y = task.test.examples("bob")
    np.testing.assert_allclose(x[0], _image(2) / 255, atol=1e-7)
    assert y.tolist() == [1]


@pytest.mark.parametrize(
    ("name", "encode"),
    [
        ("a.JPG", tf.io.encode_jpeg),
        ("a.jpeg", tf.io.encode_jpeg),
        ("a.png", tf.io.encode_png),
    ],
)
def test_images_are_read_as_tensorflow_decodes_them(tmp_path, name, encode):
    image = np.full((8, 8, 3), (200, 30, 60), np.uint8)
    _write(tmp_path / "train" / "ann" / "cat" / name, image, encode)
    _write(tmp_path / "test" / "ann" / "cat" / name, image, encode)
    x, _ = tasks.from_image_folder(tmp_path).train.examples("ann")
    np.testing.assert_allclose(x[0], image / 255, atol=3 / 255)


def test_sizes_and_colours_are_made_alike_where_the_user_says_so(folder):
    _write(folder / "ann" / "cat" / "9.png", np.full((8, 10, 1), 77, np.uint8))
    with pytest.raises(
        tasks.DataError,
        match=r"9\.png: client 'ann': .*\(8, 10, 1\), but .*\(4, 5, 3\).*image_shape=",
    ):
        tasks.from_image_folder(folder)
    task = tasks.from_image_folder(folder, image_shape=(4, 5, 3), test_fraction=0.01)
    found = [
        each for data in (task.train, task.test) for each in data.examples("ann")[0]
    ]
    assert len(found) == 7
    assert any(np.allclose(each, 77 / 255, atol=1e-6) for each in found)
    grey = tasks.from_image_folder(folder, image_shape=[2, 2, 1])
    assert grey.train.element_spec[0].shape == (None, 2, 2, 1)
    # What has the size already stays as it is.
    expected = [np.float32(_image(k) / 255) for k in range(3)]
    assert all(any(np.allclose(each, one) for each in found) for one in expected)


@pytest.mark.parametrize("channels", [1, 4])
def test_the_remedy_for_one_image_of_other_colours_can_be_followed(folder, channels):
    path = next((folder / "ann").glob("*/*.png")).with_name("0.png")
    _write(path, np.full((4, 5, channels), 77, np.uint8))
    with pytest.raises(tasks.DataError, match=r"image_shape=\(4, 5, 3\)"):
        tasks.from_image_folder(folder)
    task = tasks.from_image_folder(folder, image_shape=(4, 5, 3))
    assert task.train.element_spec[0].shape == (None, 4, 5, 3)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("kind", ["png", "bmp", "gif"])
def test_images_of_every_kind_have_the_channels_that_the_user_says(
    tmp_path, kind, mode
):
    colour = (200, 30, 60)
    grey = round(0.299 * 200 + 0.587 * 30 + 0.114 * 60)  # As ITU-R BT.601 has it.
    image = Image.new("RGB", (5, 4), colour).convert(mode)
    for part in ("train", "test"):
        (tmp_path / part / "ann" / "cat").mkdir(parents=True)
        image.save(tmp_path / part / "ann" / "cat" / f"a.{kind}")
    for channels, expected in ((1, [grey]), (3, [grey] * 3 if mode == "L" else colour)):
        task = tasks.from_image_folder(tmp_path, image_shape=(4, 5, channels))
        x, _ = task.train.examples("ann")
        wanted = np.broadcast_to(np.array(expected) / 255, (1, 4, 5, channels))
        np.testing.assert_allclose(x, wanted, atol=1.01 / 255)


def test_photos_for_printing_have_the_channels_that_the_user_says(tmp_path):
    colour = (200, 30, 60)
    path = tmp_path / "ann" / "cat" / "a.jpg"
    path.parent.mkdir(parents=True)
    image = Image.new("RGB", (16, 16), colour).convert("CMYK")
    image.save(path, quality=95)
    image.save(path.with_name("b.jpg"), quality=95)
    for options, expected in (
        ({"image_shape": (16, 16, 1)}, [round(0.299 * 200 + 0.587 * 30 + 0.114 * 60)]),
        ({"image_shape": (16, 16, 3)}, colour),
        ({}, colour),
    ):
        task = tasks.from_image_folder(tmp_path, **options)
        x, _ = task.train.examples("ann")
        wanted = np.broadcast_to(np.array(expected) / 255, (1, 16, 16, len(expected)))
        np.testing.assert_allclose(x, wanted, atol=3 / 255)


@pytest.mark.parametrize("mode", ["P", "1"])
def test_a_table_of_colours_is_refused_where_tensorflow_does_not_read_it(folder, mode):
    path = folder / "bob" / "dog" / "9.bmp"
    Image.fromarray(_image(0)).convert(mode).save(path)
    with pytest.raises(
        tasks.DataError, match=r"9\.bmp: client 'bob': .* table of colours.* as PNG\.$"
    ):
        tasks.from_image_folder(folder, image_shape=(4, 5, 3))
    Image.open(path).convert("RGB").save(path.with_suffix(".png"))
    path.unlink()
    task = tasks.from_image_folder(folder, image_shape=(4, 5, 3))
    sizes = [part.num_examples("bob") for part in (task.train, task.test)]
    assert sum(sizes) == 7


def test_bad_images_are_named(folder):
    path = folder / "bob" / "dog" / "1.png"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(
        tasks.DataError, match=r"1\.png: client 'bob': the image cannot be decoded"
    ) as caught:
        tasks.from_image_folder(folder)
    assert "\n" not in str(caught.value)
    assert "node" not in str(caught.value)


def test_folders_of_another_layout_say_what_to_do(folder, tmp_path_factory):
    flat = tmp_path_factory.mktemp("flat")
    _write(flat / "cat" / "a.png", _image(0))
    with pytest.raises(tasks.DataError, match=r"a\.png is not in.*tasks\.partition"):
        tasks.from_image_folder(flat)
    with pytest.raises(FileNotFoundError, match=r"no files of clients.*ann/cat/1\.png"):
        tasks.from_image_folder(tmp_path_factory.mktemp("empty"))
    _write(folder / "train" / "ann" / "cat" / "a.png", _image(0))
    with pytest.raises(tasks.DataError, match=r"both in .*ann, and in its subfolder"):
        tasks.from_image_folder(folder)


@pytest.mark.parametrize(
    "shape", [(4, 5), "4", 4, (4, 5, 2), (0, 5, 3), (4, 5, "3"), (10**6, 10**6, 3)]
)
def test_bad_shapes_are_named(folder, shape):
    with pytest.raises((TypeError, ValueError), match="image_shape"):
        tasks.from_image_folder(folder, image_shape=shape)


@pytest.mark.parametrize("name", ["4.webp", "4.TIFF"])
def test_images_of_kinds_that_are_not_read_are_not_left_out_in_silence(folder, name):
    (folder / "bob" / "dog" / name).write_bytes(b"any")
    with pytest.raises(ValueError, match=rf"bob/dog/{name} is an image .*\.png, \.jpg"):
        tasks.from_image_folder(folder)


@pytest.mark.parametrize("place", ["cat", "."])
def test_images_without_clients_say_how_to_lay_them_out(tmp_path, place):
    _write(tmp_path / place / "1.png", _image(0))
    with pytest.raises(FileNotFoundError, match=r"'ann/cat/1\.png'.*partition"):
        tasks.load("own_data", data=str(tmp_path))
