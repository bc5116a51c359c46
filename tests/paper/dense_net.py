"""AdaBest's dense net in NumPy, in float64: two layers of 100 units, softmax.

Weights are one vector, in the order of Keras: kernel and bias, layer by layer.
"""

import itertools

import numpy as np

UNITS = (100, 100)


class DenseNet:
    """The net for inputs of `features` entries and `classes` classes."""

    def __init__(self, features, classes):
        sizes = (features, *UNITS, classes)
        self._shapes = [
            shape for pair in itertools.pairwise(sizes) for shape in (pair, pair[1:])
        ]
        self.dimension = sum(int(np.prod(shape)) for shape in self._shapes)

    def _layers(self, w):
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        tensors = [
            part.reshape(shape)
            for part, shape in zip(np.split(w, ends[:-1]), self._shapes, strict=True)
        ]
        return list(zip(tensors[::2], tensors[1::2], strict=True))

    def _activations(self, w, features):
        activations = [features]
        layers = self._layers(w)
        for index, (kernel, bias) in enumerate(layers):
            values = activations[-1] @ kernel + bias
            is_last = index == len(layers) - 1
            activations.append(values if is_last else np.maximum(values, 0.0))
        return activations

    def gradient(self, w, batch):
        """Of the mean cross entropy of a batch `(features, labels)`."""
        features, labels = batch
        *activations, logits = self._activations(w, features)
        exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
        slope = exponents / exponents.sum(axis=1, keepdims=True)
        slope[np.arange(len(labels)), labels] -= 1.0
        slope /= len(labels)
        parts = []
        for (kernel, _), below in zip(
            reversed(self._layers(w)), reversed(activations), strict=False
        ):
            parts = [(below.T @ slope).ravel(), slope.sum(axis=0), *parts]
            slope = (slope @ kernel.T) * (below > 0)
        return np.concatenate(parts)

    def accuracy(self, w, features, labels):
        """The share of examples that are classified right."""
        logits = self._activations(w, features)[-1]
        return np.mean(logits.argmax(axis=1) == labels)
