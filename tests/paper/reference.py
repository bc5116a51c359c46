"""The papers' algorithms in NumPy, in float64, on quadratics.

Written from Algorithm 1 of Karimireddy et al. (2020), SCAFFOLD, and Algorithm 1 of
Varno et al. (2022), AdaBest, and independent of the library: a client is a list of
batches `(features, targets)`, of which every one makes a local step, and its loss
is the mean of (x'w - y)^2 / 2 over its examples.
"""

import numpy as np


def batch_gradient(w, batch):
    features, targets = batch
    return features.T @ (features @ w - targets) / len(targets)


def full_gradient(w, batches):
    """Of the mean loss over all examples, however they are batched."""
    features = np.concatenate([batch[0] for batch in batches])
    targets = np.concatenate([batch[1] for batch in batches])
    return batch_gradient(w, (features, targets))


def num_examples(batches):
    return sum(len(targets) for _, targets in batches)


def optimum(clients, weights=None):
    """The minimum of the (weighted) mean of the clients' losses."""
    weights = [1.0] * len(clients) if weights is None else weights
    curvature, slope = 0.0, 0.0
    for weight, batches in zip(weights, clients, strict=True):
        features = np.concatenate([batch[0] for batch in batches])
        targets = np.concatenate([batch[1] for batch in batches])
        curvature = curvature + weight * features.T @ features / len(targets)
        slope = slope + weight * features.T @ targets / len(targets)
    return np.linalg.solve(curvature, slope)


class Sgd:
    """Minibatch SGD: w <- w - η (clip(g(w) + correction) + λ w), batch after batch.

    With momentum, w <- w - η m. Clipping bounds the norm of gradient and correction
    together, and decay comes after it, as in the published code of FedDyn
    (`utils_general.py` of https://github.com/alpemreacar/FedDyn): the correction is a
    term of the loss, the decay the optimizer's.
    """

    def __init__(self, rate, momentum=0.0, gradient=batch_gradient):
        self.rate = rate
        self.momentum = momentum
        self.gradient = gradient
        self.clipping_norm = np.inf
        self.weight_decay = 0.0
        self.largest_norm = 0.0

    def run(self, w, batches, correction=lambda w: 0.0, unclipped=lambda w: 0.0):
        m = 0.0
        for batch in batches:
            direction = self.gradient(w, batch) + correction(w)
            norm = np.linalg.norm(direction)
            self.largest_norm = max(self.largest_norm, norm)
            direction = direction * min(1.0, self.clipping_norm / max(norm, 1e-30))
            direction = direction + self.weight_decay * w + unclipped(w)
            m = self.momentum * m + direction
            w = w - self.rate * m
        return w


class FedAvg:
    """x <- mean of the cohort's y_i."""

    def __init__(self, dimension, rate):
        self.x = np.zeros(dimension)
        self.sgd = Sgd(rate)

    def round(self, cohort):
        self.x = np.mean([self.sgd.run(self.x, b) for b in cohort.values()], axis=0)


class FedProx:
    """x <- mean of the cohort's y_i, whose steps add μ (y - x) to the gradient."""

    def __init__(self, dimension, rate, mu):
        self.x = np.zeros(dimension)
        self.sgd = Sgd(rate)
        self.mu = mu

    def round(self, cohort):
        x = self.x
        self.x = np.mean(
            [self.sgd.run(x, b, lambda w: self.mu * (w - x)) for b in cohort.values()],
            axis=0,
        )


class Scaffold:
    """SCAFFOLD's Algorithm 1, with a variate for each of all N clients.

    Args:
      total_weight: None for uniform clients; otherwise the sum over all clients of
        their examples, by which client i weighs n_i.
    """

    def __init__(
        self,
        dimension,
        clients,
        rate,
        option,
        *,
        server_rate=1.0,
        total_weight=None,
        weigh_models=True,
    ):
        self.x = np.zeros(dimension)
        self.c = np.zeros(dimension)
        self.c_i = {client: np.zeros(dimension) for client in clients}
        self.sgd = Sgd(rate)
        self.option = option
        self.server_rate = server_rate
        self.total_weight = total_weight
        self.weigh_models = weigh_models

    def round(self, cohort):
        moves, changes, weights = [], [], []
        for client, batches in cohort.items():
            c_i = self.c_i[client]
            y = self.sgd.run(self.x, batches, lambda w, c_i=c_i: self.c - c_i)
            if self.option == "I":
                new_c_i = full_gradient(self.x, batches)
                new_c_i = new_c_i + self.sgd.weight_decay * self.x
            else:
                steps = len(batches)
                new_c_i = c_i - self.c + (self.x - y) / (steps * self.sgd.rate)
            moves.append(y - self.x)
            changes.append(new_c_i - c_i)
            weights.append(1 if self.total_weight is None else num_examples(batches))
            self.c_i[client] = new_c_i
        of_models = weights if self.weigh_models else None
        move = np.average(moves, axis=0, weights=of_models)
        self.x = self.x + self.server_rate * move
        total = len(self.c_i) if self.total_weight is None else self.total_weight
        self.c = self.c + np.tensordot(weights, changes, axes=1) / total


def weights(cohort, total_weight):
    """A cohort's weights: n_i where there is a sum of all clients', otherwise 1."""
    return np.array(
        [1 if total_weight is None else num_examples(b) for b in cohort.values()]
    )


class ScaffoldM:
    """SCAFFOLD/m of AdaBest's Algorithm 1.

    Args:
      total_weight: None for uniform clients; otherwise the sum over all clients of
        their examples, by which client i weighs n_i.
    """

    def __init__(self, dimension, num_clients, rate, total_weight=None):
        self.total_weight = total_weight
        self.theta = np.zeros(dimension)
        self.h = np.zeros(dimension)
        self.h_i = {}
        self.num_clients = num_clients
        self.sgd = Sgd(rate)

    def round(self, cohort):
        theta, h, eta = self.theta, self.h, self.sgd.rate
        local_models = []
        for client, batches in cohort.items():
            h_i = self.h_i.get(client, np.zeros_like(h))
            theta_i = self.sgd.run(theta, batches, lambda w, h_i=h_i: h - h_i)
            g_i = theta - theta_i
            self.h_i[client] = h_i - h + g_i / (len(batches) * eta)
            local_models.append(theta_i)
        w = weights(cohort, self.total_weight)
        theta_bar = np.average(local_models, axis=0, weights=w)
        m, n = np.sum(w), self.total_weight or self.num_clients
        k = np.average([len(batches) for batches in cohort.values()], weights=w)
        self.h = (n - m) / n * h + m / (k * eta * n) * (theta - theta_bar)
        self.theta = theta_bar


class FedDyn:
    """FedDyn of AdaBest's Algorithm 1.

    Args:
      mean_examples: n̄, where client i's μ is μ n̄ / n_i, as in the code of FedDyn.
      total_weight: None for uniform clients; otherwise the sum over all clients of
        their examples, by which client i weighs n_i.
    """

    def __init__(
        self,
        dimension,
        num_clients,
        rate,
        mu,
        mean_examples=None,
        total_weight=None,
    ):
        self.total_weight = total_weight
        self.theta = np.zeros(dimension)
        self.theta_bar = np.zeros(dimension)
        self.h = np.zeros(dimension)
        self.h_i = {}
        self.num_clients = num_clients
        self.mu = mu
        self.mean_examples = mean_examples
        self.sgd = Sgd(rate)

    def round(self, cohort):
        theta = self.theta
        local_models = []
        for client, batches in cohort.items():
            h_i, mu = self.h_i.get(client, np.zeros_like(theta)), self.mu
            if self.mean_examples is not None:
                mu = mu * self.mean_examples / num_examples(batches)
            theta_i = self.sgd.run(
                theta,
                batches,
                lambda w, h_i=h_i, mu=mu: -h_i - mu * theta,
                # The code has it in the optimizer's weight decay.
                unclipped=lambda w, mu=mu: mu * w,
            )
            self.h_i[client] = h_i + mu * (theta - theta_i)
            local_models.append(theta_i)
        w = weights(cohort, self.total_weight)
        self.theta_bar = np.average(local_models, axis=0, weights=w)
        share = np.sum(w) / (self.total_weight or self.num_clients)
        self.h = self.h + share * (theta - self.theta_bar)
        self.theta = self.theta_bar - self.h


class AdaBest:
    """AdaBest's Algorithm 1; rounds t are counted from 1.

    Args:
      weighted: Whether client i weighs n_i in θ̄.
      mu_by_examples: Whether client i's μ is divided by n_i / n̄, with n̄ the mean of
        the n_i of all participations before the round (appendix B).
    """

    def __init__(
        self, dimension, rate, mu, beta, *, weighted=False, mu_by_examples=False
    ):
        self.theta = np.zeros(dimension)
        self.theta_bar = np.zeros(dimension)
        self.h = np.zeros(dimension)
        self.g_bar = np.zeros(dimension)
        # Without μ, which is constant but for `mu_by_examples`.
        self.sums = {}
        self.last_round = {}
        self.t = 0
        self.mu = mu
        self.beta = beta
        self.sgd = Sgd(rate)
        self.weighted = weighted
        self.mu_by_examples = mu_by_examples
        self.sizes = []

    @property
    def h_i(self):
        return {client: self.mu * total for client, total in self.sums.items()}

    def round(self, cohort):
        self.t += 1
        theta, t = self.theta, self.t
        local_models, sizes = [], []
        for client, batches in cohort.items():
            past = self.sums.get(client, np.zeros_like(theta))
            size, mu = num_examples(batches), self.mu
            if self.mu_by_examples and self.sizes:
                mu = mu / (size / np.mean(self.sizes))
            theta_i = self.sgd.run(theta, batches, lambda w, h_i=mu * past: -h_i)
            gap = t - self.last_round.get(client, t - 1)
            self.sums[client] = past / gap + theta - theta_i
            self.last_round[client] = t
            local_models.append(theta_i)
            sizes.append(size)
        self.sizes += sizes
        theta_bar = np.average(
            local_models, axis=0, weights=sizes if self.weighted else None
        )
        self.g_bar = theta - theta_bar
        self.h = self.beta * (self.theta_bar - theta_bar)
        self.theta_bar = theta_bar
        self.theta = theta_bar - self.h


class Saga:
    """SAGA of Defazio et al. (2014) on the mean of f_1 … f_N, from a zero table."""

    def __init__(self, dimension, clients, rate):
        self.x = np.zeros(dimension)
        self.table = {client: np.zeros(dimension) for client in clients}
        self.rate = rate

    def step(self, client, batches):
        gradient = full_gradient(self.x, batches)
        mean = np.mean(list(self.table.values()), axis=0)
        self.x = self.x - self.rate * (gradient - self.table[client] + mean)
        self.table[client] = gradient
