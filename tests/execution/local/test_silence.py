"""TensorFlow's logger, which threads silence while they vectorize."""

import tensorflow as tf

from tff_drift.execution.local.runners import functions


def test_a_logger_that_two_silence_gets_its_level_back():
    logger = tf.get_logger()
    before = logger.level
    first, second = functions._silence, functions._silence
    try:
        first.__enter__()
        second.__enter__()
        assert not logger.isEnabledFor(40)
        # The first to come goes first.
        first.__exit__(None, None, None)
        assert not logger.isEnabledFor(40)
        second.__exit__(None, None, None)
        assert logger.level == before
    finally:
        logger.setLevel(before)
