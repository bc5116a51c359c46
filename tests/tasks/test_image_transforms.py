import numpy as np
import tensorflow as tf

from tasks.papers import image_transforms


def _images(count, size=32, channels=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, size, size, channels), dtype=np.uint8)


def test_standardize_takes_statistics_out_by_channel():
    images = _images(4)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.4, 0.2)

    found = image_transforms.standardize(images, mean, std)

    assert found.dtype == np.float32
    expected = (images.astype(np.float64) / 255 - mean) / std
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_flip_and_crop_mirrors_and_shifts_with_probability_one_half():
    count = 4000
    image = (1 + np.arange(36, dtype=np.float32)).reshape(1, 6, 6, 1)
    images = np.repeat(image, count, axis=0)

    found = image_transforms.flip_and_crop(images, np.random.default_rng(1))

    assert found.shape == images.shape
    assert (images == image).all()
    padded = np.pad(image[0, :, :, 0], 4)
    counts = {}
    for result in found[..., 0]:
        counts[result.tobytes()] = counts.get(result.tobytes(), 0) + 1
    expected = {}
    for mirrored in (False, True):
        source = padded[:, ::-1] if mirrored else padded
        for top in range(9):
            for left in range(9):
                window = np.ascontiguousarray(source[top : top + 6, left : left + 6])
                # A half stay in place; the crop that changes nothing adds to it.
                probability = 0.5 * 0.5 * ((top == left == 4) + 1 / 81)
                key = window.tobytes()
                expected[key] = expected.get(key, 0) + probability
    assert set(counts) <= set(expected)
    for key, probability in expected.items():
        deviation = np.sqrt(count * probability * (1 - probability))
        assert abs(counts.get(key, 0) - count * probability) < 5 * deviation + 1


def test_random_crop_takes_every_square_equally_often_and_mirrors_half():
    image = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1)

    found = image_transforms.random_crop(
        np.repeat(image, 3600, axis=0), 2, np.random.default_rng(2)
    )

    squares = [
        square
        for top in range(3)
        for left in range(3)
        for square in (
            image[0, top : top + 2, left : left + 2, 0],
            image[0, top : top + 2, left : left + 2, 0][:, ::-1],
        )
    ]
    counts = [int((found[..., 0] == each).all(axis=(1, 2)).sum()) for each in squares]
    # 3,600 draws of 18 outcomes: mean 200, standard deviation below sqrt(200).
    assert sum(counts) == 3600
    assert max(abs(count - 200) for count in counts) < 5 * np.sqrt(200)


def test_draws_are_a_function_of_the_generator():
    images = _images(20).astype(np.float32)
    for distort in (
        image_transforms.flip_and_crop,
        lambda images, rng: image_transforms.random_crop(images, 24, rng),
    ):
        draws = [distort(images, np.random.default_rng(seed)) for seed in (3, 3, 4)]
        np.testing.assert_array_equal(draws[0], draws[1])
        assert not np.array_equal(draws[0], draws[2])


def test_central_crop_is_that_of_tensorflow():
    images = _images(3)
    for size in (24, 7, 32):
        np.testing.assert_array_equal(
            image_transforms.central_crop(images, size),
            tf.image.resize_with_crop_or_pad(images, size, size),
        )


def test_each_image_is_standardized_alone():
    images = _images(3)
    images[1] = 17

    found = image_transforms.standardize_each(images)

    for image, result in zip(images.astype(np.float64), found, strict=True):
        # Lest an image of one colour is divided by 0.
        std = max(image.std(), 1 / np.sqrt(image.size))
        np.testing.assert_allclose(result, (image - image.mean()) / std, atol=1e-5)
