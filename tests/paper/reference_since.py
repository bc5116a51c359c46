"""Methods after the five papers in NumPy, in float64, on the quadratics of `reference`.

Written from the papers' algorithms, independent of the library: a cohort is a
dictionary of clients' lists of batches, of which every one makes a local step.
"""

import numpy as np

from tests.paper import reference


class FedNova:
    """Wang et al. (2020): x <- x - τ_eff η Σ p_i d_i, p_i by numbers of examples."""

    def __init__(self, dimension, rate, momentum=0.0, mu=0.0):
        self.x = np.zeros(dimension)
        self.rate, self.momentum, self.mu = rate, momentum, mu
        self.sgd = reference.Sgd(rate, momentum=momentum)

    def norm_of_a(self, num_steps):
        rho, eta_mu = self.momentum, self.rate * self.mu
        if rho:
            return sum(
                (1 - rho ** (num_steps - k)) / (1 - rho) for k in range(num_steps)
            )
        if eta_mu:
            return (1 - (1 - eta_mu) ** num_steps) / eta_mu
        return num_steps

    def round(self, cohort):
        x, clients = self.x, list(cohort.values())
        sizes = np.array([reference.num_examples(batches) for batches in clients])
        p = sizes / sizes.sum()
        norms = np.array([self.norm_of_a(len(batches)) for batches in clients])
        d = [
            (x - self.sgd.run(x, batches, lambda w: self.mu * (w - x)))
            / (self.rate * norm)
            for batches, norm in zip(clients, norms, strict=True)
        ]
        tau = p @ norms
        self.x = x - tau * self.rate * sum(
            p_i * d_i for p_i, d_i in zip(p, d, strict=True)
        )


class FedExp:
    """Jhunjhunwala et al. (2023), Algorithm 1."""

    def __init__(self, dimension, rate, epsilon):
        self.x = self.last = np.zeros(dimension)
        self.sgd, self.epsilon = reference.Sgd(rate), epsilon
        self.server_rate = None

    def round(self, cohort):
        moves = [self.x - self.sgd.run(self.x, b) for b in cohort.values()]
        mean = np.mean(moves, axis=0)
        total = sum(move @ move for move in moves)
        ratio = total / (2 * len(moves) * (mean @ mean + self.epsilon))
        self.server_rate = max(1.0, ratio)
        self.x, self.last = self.x - self.server_rate * mean, self.x


class ScaffoldMomentum:
    """Cheng et al. (2023), SCAFFOLD-M; without variates, FedCM of Xu et al. (2021).

    Args:
      num_clients: N; None for no variates.
      rate_of_momentum: γ, which multiplies m⁺ in the server's step; None for the way
        of the mean client, η K.
      total_weight: None for uniform clients; otherwise the sum over all clients of
        their examples, by which client i weighs n_i.
    """

    def __init__(
        self,
        dimension,
        num_clients,
        rate,
        beta,
        rate_of_momentum=None,
        total_weight=None,
    ):
        self.total_weight = total_weight
        self.x, self.m, self.c = (np.zeros(dimension) for _ in range(3))
        self.c_i = {}
        self.num_clients, self.rate, self.beta = num_clients, rate, beta
        self.gamma = rate_of_momentum

    def round(self, cohort):
        change, moves = np.zeros_like(self.x), []
        weights = reference.weights(cohort, self.total_weight)
        for weight, (client, batches) in zip(weights, cohort.items(), strict=True):
            y, gradients = self.x, []
            c_i = self.c_i.get(client, np.zeros_like(self.x))
            for batch in batches:
                g = reference.batch_gradient(y, batch)
                gradients.append(g)
                y = y - self.rate * (
                    self.beta * (g - c_i + self.c) + (1 - self.beta) * self.m
                )
            moves.append(self.x - y)
            if self.num_clients:
                self.c_i[client] = np.mean(gradients, axis=0)
                change += weight * (self.c_i[client] - c_i)
        steps = [len(batches) for batches in cohort.values()]
        path = self.rate * np.average(steps, weights=weights)
        self.m = np.average(moves, axis=0, weights=weights) / path
        self.x = self.x - (self.gamma or path) * self.m
        if self.num_clients:
            self.c = self.c + change / (self.total_weight or self.num_clients)


class FedDc:
    """Gao et al. (2022), Algorithm 1, for clients of equal K."""

    def __init__(self, dimension, rate, alpha):
        self.x, self.delta = np.zeros(dimension), np.zeros(dimension)
        self.h_i, self.delta_i = {}, {}
        self.rate, self.alpha = rate, alpha

    def round(self, cohort):
        zeros, sent, moves = np.zeros_like(self.x), [], []
        for client, batches in cohort.items():
            h, last = self.h_i.get(client, zeros), self.delta_i.get(client, zeros)
            y, slope = self.x, (last - self.delta) / (self.rate * len(batches))
            for batch in batches:
                gradient = reference.batch_gradient(y, batch)
                y = y - self.rate * (gradient + self.alpha * (h + y - self.x) + slope)
            self.delta_i[client] = y - self.x
            self.h_i[client] = h + self.delta_i[client]
            sent.append(y + self.h_i[client])
            moves.append(self.delta_i[client])
        self.x, self.delta = np.mean(sent, axis=0), np.mean(moves, axis=0)


class Momentum:
    """SGD with momentum as a base optimizer: U(g, s) = ρ s + g = V(g, s)."""

    def __init__(self, rate, momentum):
        self.rate, self.momentum = rate, momentum

    def start(self, dimension):
        return np.zeros(dimension)

    def next(self, s, y, gradient):
        s = self.momentum * s + gradient
        return s, y - self.rate * s


class Adam:
    """Adam of Kingma and Ba (2015) as a base optimizer."""

    def __init__(self, rate, beta_1=0.9, beta_2=0.999, epsilon=1e-7):
        self.rate, self.betas, self.epsilon = rate, (beta_1, beta_2), epsilon

    def start(self, dimension):
        return 0, np.zeros(dimension), np.zeros(dimension)

    def next(self, s, y, gradient):
        (beta_1, beta_2), (t, m, v) = self.betas, s
        t, m = t + 1, beta_1 * m + (1 - beta_1) * gradient
        v = beta_2 * v + (1 - beta_2) * gradient**2
        rate = self.rate * np.sqrt(1 - beta_2**t) / (1 - beta_1**t)
        return (t, m, v), y - rate * m / (np.sqrt(v) + self.epsilon)


class Mime:
    """Karimireddy et al. (2020), Algorithm 1, weighted by numbers of examples.

    Args:
      weight_decay: λ of the losses f_i(w) + λ ‖w‖² / 2.
    """

    def __init__(self, dimension, base, is_lite=False, weight_decay=0.0):
        self.weight_decay = weight_decay
        self.x, self.s = np.zeros(dimension), base.start(dimension)
        self.base, self.is_lite = base, is_lite

    def round(self, cohort):
        clients = list(cohort.values())
        sizes = [reference.num_examples(batches) for batches in clients]
        gradients = [reference.full_gradient(self.x, b) for b in clients]
        c = np.average(gradients, axis=0, weights=sizes)
        c = c + self.weight_decay * self.x
        models = []
        for batches in clients:
            y = self.x
            for batch in batches:
                g = reference.batch_gradient(y, batch) + self.weight_decay * y
                if not self.is_lite:
                    at_x = reference.batch_gradient(self.x, batch)
                    g = g - at_x - self.weight_decay * self.x + c
                _, y = self.base.next(self.s, y, g)
            models.append(y)
        self.s, _ = self.base.next(self.s, self.x, c)
        self.x = np.average(models, axis=0, weights=sizes)


class Scaffnew:
    """Mishchenko et al. (2022), Algorithm 2, told how many steps a round has."""

    def __init__(self, dimension, clients, rate, probability):
        self.x = np.zeros(dimension)
        self.h_i = {client: np.zeros(dimension) for client in clients}
        self.rate, self.probability = rate, probability

    def round(self, cohort, num_steps):
        models = {}
        for client, batches in cohort.items():
            y = self.x
            for batch in batches[:num_steps]:
                gradient = reference.batch_gradient(y, batch)
                y = y - self.rate * (gradient - self.h_i[client])
            models[client] = y
        self.x = np.mean(list(models.values()), axis=0)
        for client, y in models.items():
            step = self.probability / self.rate * (self.x - y)
            self.h_i[client] = self.h_i[client] + step
