import numpy as np

from tasks.models import masked_metrics

# Two sequences of three positions; the metrics leave out labels 0 and 3.
_LABELS = np.array([[1, 2, 0], [3, 2, 1]])
_PREDICTED = np.array([[1, 1, 0], [3, 2, 1]])
_LOGITS = np.eye(4, dtype=np.float32)[_PREDICTED]


def test_accuracy_counts_positions_with_unmasked_labels():
    metric = masked_metrics.MaskedAccuracy((0, 3))

    # Of the labels 1, 2, 2, 1 the predictions 1, 1, 2, 1 have three.
    metric.update_state(_LABELS, _LOGITS)
    np.testing.assert_allclose(metric.result(), 3 / 4)

    # Another batch adds one right and one wrong position.
    metric.update_state(_LABELS[:1], _LOGITS[:1])
    np.testing.assert_allclose(metric.result(), 4 / 6)


def test_accuracy_takes_weights():
    metric = masked_metrics.MaskedAccuracy((0, 3))

    metric.update_state(_LABELS, _LOGITS, np.array([[1, 2, 5], [5, 0, 1]]))

    # Weights 1 (right), 2 (wrong), 0 (right) and 1 (right) at unmasked labels.
    np.testing.assert_allclose(metric.result(), 2 / 4)


def test_num_tokens_counts_unmasked_labels():
    metric = masked_metrics.NumTokens((0,))

    metric.update_state(_LABELS, _LOGITS)
    metric.update_state(_LABELS[:1], _LOGITS[:1])

    assert metric.result() == 5 + 2
    assert metric.result().dtype == np.int64


def test_metrics_are_rebuilt_from_their_configuration():
    """TFF's finalizers build metrics anew from it."""
    for metric in (
        masked_metrics.MaskedAccuracy((0, 3), name="masked"),
        masked_metrics.NumTokens((3,), name="tokens"),
    ):
        rebuilt = type(metric).from_config(metric.get_config())
        metric.update_state(_LABELS, _LOGITS)
        rebuilt.update_state(_LABELS, _LOGITS)
        assert rebuilt.name == metric.name
        assert rebuilt.masked_labels == metric.masked_labels
        assert rebuilt.result() == metric.result()
