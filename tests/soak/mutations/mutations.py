"""Mistakes that published implementations have made, or could, for `check`."""

from __future__ import annotations

import pathlib
from typing import NamedTuple

SCAFFOLD = "tff_drift/algorithms/scaffold.py"
SCAFFOLD_M = "tff_drift/algorithms/scaffold_m.py"
FED_DYN = "tff_drift/algorithms/fed_dyn.py"
ADABEST = "tff_drift/algorithms/adabest.py"
BETA = "tff_drift/algorithms/adabest_beta.py"
STEPS = "tff_drift/algorithms/server_steps.py"
CLIENT = "tff_drift/algorithms/composition/client.py"
SERVER = "tff_drift/algorithms/composition/server.py"
VARIATE = "tff_drift/aggregators/control_variate.py"
TRACE = "tff_drift/client_works/keep_trace.py"
LOCAL = "tff_drift/client_works/local_sgd.py"
PROXIMAL = "tff_drift/client_works/proximal.py"
FED_NOVA = "tff_drift/algorithms/fed_nova.py"
FED_EXP = "tff_drift/algorithms/fed_exp.py"
FED_CM = "tff_drift/algorithms/fed_cm.py"
SCAFFOLD_MOMENTUM = "tff_drift/algorithms/scaffold_momentum.py"
SCAFFNEW = "tff_drift/algorithms/scaffnew.py"
FED_DC = "tff_drift/algorithms/fed_dc.py"
MIME = "tff_drift/algorithms/mime.py"
LOCAL_WORK = "tff_drift/client_works/local_work.py"
APPENDED = "tff_drift/algorithms/appended_step.py"


class Change(NamedTuple):
    """In the file at `path`, `old` becomes `new`."""

    path: str
    old: str
    new: str


class Mutation(NamedTuple):
    """A mistake, the changes that make it, and the tests that should notice."""

    name: str
    tests: str
    changes: list[Change]


def _mutation(name: str, path: str, old: str, new: str, tests: str = "") -> Mutation:
    tests = tests or f"test_{pathlib.Path(path).stem}.py"
    return Mutation(name, tests, [Change(path, old, new)])


_CORRECTION = 'return context.server_message - context.client_state["control_variate"]'
_FLIPPED = 'return context.client_state["control_variate"] - context.server_message'
_FED_DYN_FIXED = 'return -context.client_state["gradient_estimate"]'
_ALL = "share = tf.ones([], dtype)"
_SHARE = "share = tf.cast(cohort.total_weight, dtype) / self._num_clients"

MUTATIONS = [
    _mutation("SCAFFOLD: c_i - c for c - c_i", SCAFFOLD, _CORRECTION, _FLIPPED),
    _mutation(
        "SCAFFOLD: + c for - c in option II",
        SCAFFOLD,
        "change = mean_direction - c",
        "change = mean_direction + c",
    ),
    _mutation(
        "SCAFFOLD: -∇f_i for ∇f_i in option I",
        SCAFFOLD,
        "new_c_i = local.full_gradient + self.client_weight_decay * x",
        "new_c_i = -local.full_gradient + self.client_weight_decay * x",
    ),
    _mutation(
        "SCAFFOLD: ∇f_i at y_i for at x in option I",
        CLIENT,
        "run_gradient(weights, ",
        "run_gradient(tff.learning.models.ModelWeights(tf.nest.pack_sequence_as("
        "weights.trainable, outcome.trainable), weights.non_trainable), ",
        tests="test_scaffold.py",
    ),
    Mutation(
        "SCAFFOLD: |S| for N",
        "test_scaffold.py",
        [
            Change(
                VARIATE,
                "wrapping.create_sum(name, self._sum_factory, value_type)",
                "tff.aggregators.UnweightedMeanFactory().create(value_type)",
            ),
            Change(
                VARIATE, "c + total / tf.cast(self._num_clients, c.dtype)", "c + total"
            ),
        ],
    ),
    _mutation(
        "SCAFFOLD: epochs (two) for K",
        SCAFFOLD,
        "local.pseudo_gradient, local.num_steps * rate",
        "local.pseudo_gradient, 2 * rate",
    ),
    _mutation(
        "SCAFFOLD: clients send c_i, not its change",
        SCAFFOLD,
        "change = new_c_i - c_i",
        "change = new_c_i",
    ),
    _mutation(
        "SCAFFOLD: changes of c_i without their weights",
        SCAFFOLD,
        "change *= local.num_examples",
        "change *= 1",
    ),
    _mutation(
        "SCAFFOLD: no weight decay in option I's c_i",
        SCAFFOLD,
        "new_c_i = local.full_gradient + self.client_weight_decay * x",
        "new_c_i = local.full_gradient",
        "test_clipping.py",
    ),
    _mutation("SCAFFOLD/m: h_i - h for h - h_i", SCAFFOLD_M, _CORRECTION, _FLIPPED),
    _mutation(
        "SCAFFOLD/m: + h for - h in h_i",
        SCAFFOLD_M,
        "control_variate=h_i - h + mean_direction",
        "control_variate=h_i + h + mean_direction",
    ),
    _mutation("SCAFFOLD/m: |S| for N", SCAFFOLD_M, _SHARE, _ALL),
    _mutation(
        "SCAFFOLD/m: epochs (two) for K on clients",
        SCAFFOLD_M,
        "local.pseudo_gradient, local.num_steps * rate",
        "local.pseudo_gradient, 2 * rate",
    ),
    _mutation(
        "SCAFFOLD/m: epochs (two) for K on the server",
        SCAFFOLD_M,
        "cohort.mean_steps * tf.cast(",
        "2 * tf.cast(",
    ),
    _mutation(
        "SCAFFOLD/m: h without (N - M) / N",
        SCAFFOLD_M,
        "(1 - share) * h",
        "h",
    ),
    _mutation(
        "FedDyn: + h_i for - h_i",
        FED_DYN,
        _FED_DYN_FIXED,
        _FED_DYN_FIXED.replace("-", ""),
    ),
    _mutation(
        "FedDyn: μ twice",
        FED_DYN,
        _FED_DYN_FIXED,
        _FED_DYN_FIXED.replace("-", "-self._mu * "),
    ),
    _mutation("FedDyn: |S| for N", FED_DYN, _SHARE, _ALL),
    Mutation(
        "FedDyn: the pull to θ with the wrong sign",
        "test_fed_dyn.py",
        [
            Change(FED_DYN, "return self._mu\n", "return -self._mu\n"),
            Change(FED_DYN, "mu = self.prox", "mu = -self.prox"),
        ],
    ),
    _mutation(
        "FedDyn: θ̄ + h for θ̄ - h",
        FED_DYN,
        "minus(aggregate, h)",
        "tuple(map(sum, zip(aggregate, h)))",
    ),
    _mutation(
        "FedDyn: θ̄ - h of the round before",
        FED_DYN,
        "minus(aggregate, h)",
        "minus(aggregate, before)",
    ),
    _mutation(
        "FedDyn: Theorem 3.1 without the 2",
        FED_DYN,
        "growth_bound=-0.5 * share",
        "growth_bound=-share",
    ),
    _mutation("AdaBest: + h_i for - h_i", ADABEST, "return -h_i", "return h_i"),
    _mutation("AdaBest: μ twice", ADABEST, "return -h_i", "return -h_i * self._mu"),
    _mutation(
        "AdaBest: no (t - t'_i)",
        ADABEST,
        "decayed = h_i / tf.cast(rounds_since, h_i.dtype)",
        "decayed = h_i",
    ),
    _mutation(
        "AdaBest: t - t'_i however old the server state",
        ADABEST,
        "tf.maximum(context.round_number - last_round, 1)",
        "context.round_number - last_round",
    ),
    _mutation(
        "AdaBest: t'_i stays",
        ADABEST,
        "last_round=context.round_number",
        'last_round=context.client_state["last_round"]',
    ),
    _mutation(
        "AdaBest: θ̄ + h for θ̄ - h",
        ADABEST,
        "minus(aggregate, h)",
        "tuple(map(sum, zip(aggregate, h)))",
    ),
    _mutation(
        "AdaBest: θ for θ̄ in h",
        ADABEST,
        'zip(state["aggregate_model"], aggregate, strict=True)',
        "zip(trainable, aggregate, strict=True)",
    ),
    _mutation(
        "AdaBest: β twice",
        ADABEST,
        "tf.cast(beta, new.dtype) *",
        "tf.cast(beta * beta, new.dtype) *",
    ),
    _mutation(
        "AdaBest: μ n_i for μ / n_i",
        ADABEST,
        "mu = tf.math.divide_no_nan(mu, local.num_examples)",
        "mu *= local.num_examples",
    ),
    _mutation(
        "AdaBest: μ / n_i without n̄",
        ADABEST,
        "h_i *= tf.cast(context.server_message, h_i.dtype)",
        "h_i *= 1",
    ),
    _mutation(
        "AdaBest: M for M - 1 in the automatic β",
        BETA,
        "cohort.effective_clients - 1.0",
        "cohort.effective_clients",
        tests="test_adabest.py",
    ),
    _mutation(
        "AdaBest: an automatic β of 1 - 1/R",
        BETA,
        "(1.0 - share) / (1.0 + share)",
        "1.0 - share",
        tests="test_adabest.py",
    ),
    _mutation(
        "AdaBest: a plateau one round late",
        BETA,
        "rounds_since >= rule.patience",
        "rounds_since > rule.patience",
        tests="test_adabest.py",
    ),
    _mutation(
        "FedDyn and AdaBest: the cloud model is deployed",
        STEPS,
        'del trainable\n        return tuple(state["aggregate_model"])',
        "return trainable",
        tests="test_adabest.py",
    ),
    _mutation(
        "UGA: the gradient at the end, not through the steps",
        TRACE,
        "return vector",
        "return gradient",
        tests="test_uga.py",
    ),
    _mutation(
        "UGA: I + ηH for I - ηH",
        TRACE,
        "_scaled_step(rate, vector, product)",
        "_scaled_step(-rate, vector, product)",
        tests="test_uga.py",
    ),
    _mutation(
        "UGA: other dropout masks where steps are differentiated",
        TRACE,
        "*batches.read(index),\n",
        "batches.read(index)[0], batches.read(index)[1] + 1,\n",
        tests="test_uga.py",
    ),
    Mutation(
        "Clipping: of the minibatch gradient alone, before the correction",
        "test_clipping.py",
        [
            Change(
                LOCAL,
                "direction = self._gradient(step)",
                "direction = self.local_gradients(self._gradient(step), y)",
            ),
            Change(
                LOCAL, "return self.local_gradients(direction, y)", "return direction"
            ),
            Change(
                LOCAL,
                "self.local_gradients(_plus(direction, _times(mu, minus(y, x))), y)",
                "_plus(direction, _times(mu, minus(y, x)))",
            ),
            Change(
                LOCAL,
                "self.local_gradients(minus(direction, _times(mu, x)), y)",
                "minus(direction, _times(mu, x))",
            ),
        ],
    ),
    _mutation(
        "FedProx: x - y for y - x",
        PROXIMAL,
        "return self._mu",
        "return -self._mu",
        tests="test_fed_prox.py",
    ),
    _mutation(
        "FedMeta: the gradient at the model before the round",
        APPENDED,
        "(output.state.global_model_weights, state.finalizer[name])",
        "(state.global_model_weights, state.finalizer[name])",
        tests="test_fed_meta.py",
    ),
    _mutation(
        "FedNova: K_i for the ‖a‖₁ of momentum",
        FED_NOVA,
        "of_z, z = autograph.of_user(self._optimizer.next)(\n"
        "            of_z, z, 1 + tf.cast(self._mu, z.dtype) * z\n"
        "        )",
        'z = z - tf.cast(context.hparams["learning_rate"], z.dtype)',
    ),
    _mutation(
        "FedNova: z at the rate without its schedule",
        FED_NOVA,
        "of_z = autograph.of_user(self._optimizer.set_hparams)(of_z, context.hparams)",
        "of_z = dict(of_z)",
    ),
    _mutation(
        "FedExP: without the ½",
        FED_EXP,
        "squared_norm / (2 * (of_mean + self._epsilon))",
        "squared_norm / (of_mean + self._epsilon)",
    ),
    _mutation(
        "FedCM: the two weights exchanged",
        FED_CM,
        "return (1 - self.gradient_share) * context.server_message",
        "return self.gradient_share * context.server_message",
    ),
    Mutation(
        "FedCM: the plain mean of the K_i beside the weighted one of the Δ_i",
        "test_unequal_clients.py",
        [
            Change(
                CLIENT,
                "steps=tf.cast(outcome.num_steps, tf.float32) * weight",
                "steps=tf.cast(outcome.num_steps, tf.float32) * counts",
            ),
            Change(SERVER, 'mean("steps", "weight", ', 'mean("steps", "clients", '),
        ],
    ),
    Mutation(
        "FedExP: the plain mean of the ‖Δ_i‖² beside the weighted one of the Δ_i",
        "test_unequal_clients.py",
        [
            Change(CLIENT, "tf.square(drift * counts) * weight", "tf.square(drift)"),
            Change(
                SERVER, 'mean("squared_drift", over="weight")', 'mean("squared_drift")'
            ),
        ],
    ),
    _mutation(
        "FedCM: m for η in the place of η K",
        FED_CM,
        "path = cohort.mean_steps * tf.cast(",
        "path = tf.ones_like(cohort.mean_steps) * tf.cast(",
    ),
    _mutation(
        "SCAFFOLD-M: variates of the directions, momentum included",
        SCAFFOLD_MOMENTUM,
        "change = (mean_direction - (1 - beta) * m) / beta - c",
        "change = mean_direction - c",
    ),
    _mutation(
        "FedDC: h before its update",
        FED_DC,
        "return from_vector(move - new_h_i, ",
        'return from_vector(move - context.client_state["drift"], ',
    ),
    _mutation(
        "FedDC: δ - δ_i for δ_i - δ",
        FED_DC,
        'context.server_message - state["direction"]',
        'state["direction"] - context.server_message',
    ),
    _mutation(
        "Scaffnew: 1 / η for p / η",
        SCAFFNEW,
        "tf.math.divide_no_nan(tf.constant(self._probability, y_i.dtype), rate)",
        "tf.math.divide_no_nan(tf.constant(1.0, y_i.dtype), rate)",
    ),
    _mutation(
        "Scaffnew: η / p for p / η",
        SCAFFNEW,
        "tf.math.divide_no_nan(tf.constant(self._probability, y_i.dtype), rate)",
        "rate / tf.constant(self._probability, y_i.dtype)",
    ),
    _mutation(
        "Mime: the gradient at x on another minibatch, of one example",
        LOCAL_WORK,
        "initial_model.gradients_at(x, initial_state, batch, seed)",
        "initial_model.gradients_at(x, initial_state, "
        "tf.nest.map_structure(lambda part: part[:1], batch), seed)",
        tests="test_mime.py",
    ),
    _mutation(
        "Mime: statistics that move during local training",
        MIME,
        "keeps_statistics = True",
        "keeps_statistics = False",
    ),
    _mutation(
        "Mime: c without weight decay",
        MIME,
        "g + self._weight_decay * x for g, x in zip(c",
        "g + 0 * x for g, x in zip(c",
    ),
    _mutation(
        "Server: a schedule that stands still in rounds without a step",
        SERVER,
        "selected(counts, result.state, passed)",
        "selected(counts, result.state, step_state)",
        tests="test_scheduled_rates.py",
    ),
    _mutation(
        "Scaffnew: the number of steps of the first round in the second again",
        SCAFFNEW,
        "self._draw(cohort.round_number + 1)",
        "self._draw(cohort.round_number)",
    ),
    _mutation(
        "SCAFFOLD: η without its schedule in c_i",
        SCAFFOLD,
        "tf.cast(context.hparams[_RATE], c.dtype)",
        "tf.cast(self.initial_hparams()[_RATE], c.dtype)",
        tests="test_scheduled_rates.py",
    ),
    _mutation(
        "SCAFFOLD/m: η without its schedule in h_i",
        SCAFFOLD_M,
        "tf.cast(context.hparams[_RATE], h.dtype)",
        "tf.cast(self.initial_hparams()[_RATE], h.dtype)",
        tests="test_scheduled_rates.py",
    ),
    _mutation(
        "SCAFFOLD-M: η without its schedule in c_i",
        SCAFFOLD_MOMENTUM,
        "tf.cast(context.hparams[_RATE], c.dtype)",
        "tf.cast(self.initial_hparams()[_RATE], c.dtype)",
        tests="test_scheduled_rates.py",
    ),
    _mutation(
        "FedCM: η without its schedule in m",
        SERVER,
        "client_hparams.get(round_state.RATE)",
        'dict(state["hparams"]).get(round_state.RATE)',
        tests="test_scheduled_rates.py",
    ),
]
