"""Adaptive server steps in NumPy, in float64."""

import numpy as np


def adaptive_steps(weights, gradients, second_moment, *, rate, beta_1, tau, initial):
    """The weights after each step, of `second_moment(v, delta)` as the paper has it."""
    x = [w.copy() for w in weights]
    m = [np.zeros_like(w) for w in weights]
    v = [np.full_like(w, initial) for w in weights]
    trajectory = []
    for step in gradients:
        for i, delta in enumerate(step):
            m[i] = beta_1 * m[i] + (1 - beta_1) * delta
            v[i] = second_moment(v[i], delta)
            x[i] = x[i] - rate * m[i] / (np.sqrt(v[i]) + tau)
        trajectory.append(list(x))
    return trajectory
