"""The clients that the benchmarks train, in NumPy alone: other frameworks read it too.

Equal clients hold as many examples each, and all of them take part in every round.
Those of the mixed works are as people have them: of unequal sizes (log-normal, or by
Zipf's law, with many of a single example), a cohort drawn anew for each round, and
every client's examples shuffled anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

CLASSES, VOCABULARY, LENGTH = 62, 90, 80
PIXELS = 28 * 28
# Of small nets that put examples into ten classes: the shape of an example, and of how
# many integers it is, None for floats.
SMALL_EXAMPLES: dict[str, tuple[tuple[int, ...], int | None]] = {
    "conv_small": ((8, 8, 1), None),
    "mobile_block": ((16, 16, 3), None),
    "embedding_mean": ((40,), 20_000),
    "text_cnn": ((40,), 2_000),
    "wide_and_deep": ((20,), 100),
    "matrix_factorization": ((2,), 2_000),
    "siamese_pair": ((2, 64), None),
    "tiny_transformer": ((24,), 100),
    "norm_transformer": ((24,), 100),
    "groupnorm_residual": ((16, 16, 3), None),
    "table": ((30,), None),
}
FEW_CLASSES = 10
# Of bags of words, as of Stack Overflow: five million weights of a linear model.
WORDS, TAGS = 10_000, 500
RATE, ADAM_RATE = 0.1, 0.001
_SHARED_CLIENTS = 50
_ZIPF_EXPONENT = 1.5
_MEDIAN_SIZE, _SPREAD, _SMALLEST, _LARGEST = 90, 0.5, 10, 400
# Of `conv_small`: log-normal sizes with this median, spread and bounds.
_SMALL_SIZES = 40, 0.4, 5, 500

Arrays = tuple[np.ndarray, np.ndarray]


class Work(NamedTuple):
    """What is trained.

    Attributes:
      model: The name of the model: 'logistic', 'dense', 'cnn', 'lstm', 'gru',
        'autoencoder', 'words', 'batchnorm_dense' or one of `SMALL_EXAMPLES`.
      cohort_size: The number of clients in a round.
      population_size: The number of clients, if they are mixed; None for equal ones.
      zipf: Whether the sizes of mixed clients follow Zipf's law.
      epochs: The passes over a client's examples.
      adam: Whether clients train with Adam, not with SGD.
    """

    model: str
    cohort_size: int
    population_size: int | None = None
    zipf: bool = False
    epochs: int = 1
    adam: bool = False

    @property
    def mixed(self) -> bool:
        """Whether clients are of unequal sizes and drawn anew for every round."""
        return self.population_size is not None

    @property
    def sequences(self) -> bool:
        """Whether clients hold sequences of characters."""
        return self.model in ("lstm", "gru")

    @property
    def few_classes(self) -> bool:
        """Whether examples are put into ten classes."""
        return self.model in SMALL_EXAMPLES

    @property
    def batch_size(self) -> int:
        """The number of examples in a batch."""
        sizes = {"lstm": 4, "gru": 4, "autoencoder": 32, "conv_small": 10}
        sizes |= {"embedding_mean": 16, "text_cnn": 16}
        return sizes.get(self.model, 20)


WORKS = {
    "logistic_mixed": Work("logistic", 100, 400),
    "dense_mixed": Work("dense", 100, 400),
    "cnn_mixed": Work("cnn", 10, 60),
    "conv_small": Work("conv_small", 30, 150),
    "embedding_mean": Work("embedding_mean", 50, 300),
    "batchnorm_dense": Work("batchnorm_dense", 50, 200),
    # Nothing was tuned on the next twelve.
    "mobile_block": Work("mobile_block", 30, 150),
    "text_cnn": Work("text_cnn", 30, 150),
    "wide_and_deep": Work("wide_and_deep", 50, 250),
    "matrix_factorization": Work("matrix_factorization", 50, 250),
    "siamese_pair": Work("siamese_pair", 40, 200),
    "tiny_transformer": Work("tiny_transformer", 30, 150),
    "norm_transformer": Work("norm_transformer", 30, 150),
    "groupnorm_residual": Work("groupnorm_residual", 30, 150),
    "table_adam": Work("table", 50, 250, epochs=3, adam=True),
    "logistic_zipf": Work("logistic", 100, 400, zipf=True),
    "autoencoder_epochs": Work("autoencoder", 20, 100, epochs=3),
    "words_mixed": Work("words", 10, 60),
    # For UGA, which does not trace the last epoch.
    "dense_epochs": Work("dense", 100, 400, epochs=5),
    # Few clients, or few steps that come together.
    "dense_2": Work("dense", 2, 60, epochs=5),
    "dense_3": Work("dense", 3, 60, epochs=5),
    "table_3": Work("table", 3, 60, epochs=5, adam=True),
    "dense_zipf_10": Work("dense", 10, 100, zipf=True),
    "logistic_zipf_10": Work("logistic", 10, 100, zipf=True),
    "table_zipf_10": Work("table", 10, 100, zipf=True, adam=True),
    "logistic_10": Work("logistic", 10),
    "logistic_100": Work("logistic", 100),
    "logistic_1000": Work("logistic", 1000),
    "dense_100": Work("dense", 100),
    "cnn_10": Work("cnn", 10),
    "lstm_10": Work("lstm", 10),
    "gru_10": Work("gru", 10),
}


def sizes(work: Work) -> list[int]:
    """Returns every client's number of examples."""
    if work.population_size is None:
        return [20 if work.sequences else 100] * work.cohort_size
    random = np.random.default_rng(1)
    if work.zipf:
        drawn = random.zipf(_ZIPF_EXPONENT, work.population_size)
        return np.minimum(drawn, _LARGEST).tolist()
    median, spread, smallest, largest = (
        _SMALL_SIZES
        if work.model == "conv_small"
        else (_MEDIAN_SIZE, _SPREAD, _SMALLEST, _LARGEST)
    )
    drawn = random.lognormal(np.log(median), spread, work.population_size)
    return np.clip(drawn, smallest, largest).astype(int).tolist()


def examples(work: Work) -> list[Arrays]:
    """Returns every client's features and labels, of random numbers."""
    random = np.random.default_rng(0)

    def client(size: int) -> Arrays:
        if work.sequences:
            tokens = random.integers(1, 86, (size, LENGTH)).astype(np.int32)
            return tokens, tokens
        if work.model == "words":
            return _bags(random, size, WORDS), _bags(random, size, TAGS)
        if work.few_classes:
            labels = random.integers(0, FEW_CLASSES, size).astype(np.int32)
            return _small_features(random, work, size), labels
        features = random.random((size, 28, 28, 1), np.float32)
        if work.model == "autoencoder":
            features = features.reshape(size, PIXELS)
            return features, features
        return features, random.integers(0, CLASSES, size).astype(np.int32)

    return [client(size) for size in sizes(work)]


def _small_features(random: np.random.Generator, work: Work, size: int) -> np.ndarray:
    """Returns examples of one of the small nets."""
    shape, integers = SMALL_EXAMPLES[work.model]
    if integers is None:
        return random.random((size, *shape), np.float32)
    return random.integers(0, integers, (size, *shape)).astype(np.int32)


def _bags(random: np.random.Generator, size: int, vocabulary: int) -> np.ndarray:
    """Returns bags of words: one where a word is in a text, and else zero."""
    bags = np.zeros([size, vocabulary], np.float32)
    words = random.integers(0, vocabulary, (size, max(3, vocabulary // 500)))
    np.put_along_axis(bags, words, 1, axis=1)
    return bags


def slices(work: Work) -> Callable[[int], Arrays]:
    """Returns what gives a client's features and labels, slices of shared arrays.

    So that a population of any size takes no more RAM than a small one.
    """
    shared = Work(work.model, _SHARED_CLIENTS)
    features, labels = (
        np.concatenate(each) for each in zip(*examples(shared), strict=True)
    )
    counts = sizes(work)

    def load(client: int) -> Arrays:
        count = counts[client]
        start = client * 7919 % (len(labels) - count + 1)
        return features[start : start + count], labels[start : start + count]

    return load


def cohort(work: Work, round_number: int) -> Sequence[int]:
    """Returns the numbers of the clients of a round, the same in every program."""
    if work.population_size is None:
        return range(work.cohort_size)
    random = np.random.default_rng((2, round_number))
    drawn = random.choice(work.population_size, work.cohort_size, replace=False)
    return drawn.tolist()
