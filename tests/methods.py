"""Any registered method on a small model, built from its row alone.

Tests of what all methods have in common are parametrised by `every` or
`every_variant`: a new method gets them with no edit here, as long as its row tells
what its builder needs.
"""

import copy
import functools

import pytest

from tests import keras3_models, stateful, tiers
from tff_drift import algorithms

_METHODS = algorithms.methods()
every = pytest.mark.parametrize("method", _METHODS.values(), ids=_METHODS)
# Of an option with choices, every choice is another algorithm.
_VARIANTS = {
    **{name: (method, {}) for name, method in _METHODS.items()},
    **{
        f"{name}_{option.name}_{choice}": (method, {option.name: choice})
        for name, method in _METHODS.items()
        for option in method.options
        for choice in option.choices
        if choice != option.default
    },
}
every_variant = pytest.mark.parametrize(
    ("method", "options"), tiers.first(_METHODS, _VARIANTS)
)
# Their clients take corrected steps, and steps that are gone back over: plain ones are
# those of TFF's FedAvg.
_CLIENT_PROGRAMS = ("scaffold", "uga")
every_client_program = pytest.mark.parametrize(
    ("method", "options"), tiers.first(_CLIENT_PROGRAMS, _VARIANTS)
)
# Methods that save states of different kinds: weights alone, an optimizer's state, a
# momentum, what clients have measured, states of clients, and these with their rounds.
_KINDS_OF_STATES = ("adabest", "fed_adam", "fed_avg", "fed_cm", "mime", "scaffold")
every_kind_of_state = pytest.mark.parametrize(
    "method", tiers.first(_KINDS_OF_STATES, _METHODS)
)
# Of these, those that no other test resumes, and whose states are unlike those of the
# rest.
_RESUMED = ("adabest", "fed_adam", "mime")
every_resumed = pytest.mark.parametrize("method", tiers.first(_RESUMED, _METHODS))

# With states of clients: FedAvg's rates have schedules in tests of its own.
every_scheduled = pytest.mark.parametrize(
    "method", tiers.first(("scaffold",), _METHODS)
)

CLIENTS = stateful.ragged_clients([7, 4, 9], seed=5)
CLIENT_RATE = 0.04
# Of the methods that leave the server's rate open: the others have their own.
SERVER_RATE = 0.05
EPOCHS = next(iter(CLIENTS.values())).epochs


def _server_data():
    """The batches of one more client, once."""
    (client,) = stateful.ragged_clients([5], epochs=1, seed=6).values()
    return client.dataset()


def build(method, model_fn=stateful.LinearRegression, num_clients=10, **options):
    """Builds a method for clients with `EPOCHS` epochs, at rates that suit the tests.

    Args:
      method: Its row.
      model_fn: The model.
      num_clients: The population.
      **options: What `Method.build` takes, in place of what is chosen here.
    """
    server_data = _server_data()
    # What rows say that their builders need, by name.
    needs = {
        "num_clients": num_clients,
        # By default no method weighs by examples what it needs them for.
        "total_examples": None,
        "mean_examples": None,
        "local_epochs": EPOCHS,
        "meta_data": server_data,
        "shared_data": server_data,
    }
    arguments = {need: needs[need] for need in method.needs}
    if method.has_client_rate:
        arguments["client_learning_rate"] = CLIENT_RATE
    if method.needs_server_rate:
        arguments["server_learning_rate"] = SERVER_RATE
    return method.build(model_fn, **{**arguments, **options})


# Of the same model, functions that make a `model_fn`.
MODELS = {
    "variables": lambda: stateful.LinearRegression,
    "keras3": keras3_models.linear_regression,
}
every_model = pytest.mark.parametrize(
    "model",
    [
        pytest.param(name, marks=[keras3_models.needed] if name == "keras3" else [])
        for name in MODELS
    ],
)


@functools.cache
def _process(name, options, model):
    return build(_METHODS[name], MODELS[model](), **dict(options))


def drive(method, options=(), model="variables"):
    """Rounds by hand of a process that is built once for all tests.

    Args:
      method: Its row.
      options: Values for some of its options.
      model: A name of `MODELS`.
    """
    process = _process(method.name, tuple(dict(options).items()), model)
    return stateful.Driver(process, CLIENTS)


@functools.cache
def _driver_after(name, options, model, rounds):
    if rounds == 1:
        driver = drive(_METHODS[name], options, model)
    else:
        driver = drive_on(_METHODS[name], options, model, rounds - 1)
    driver.round(list(CLIENTS))
    return driver


def drive_on(method, options=(), model="variables", rounds=1):
    """The same after rounds of all clients, which run once for all tests.

    Args:
      method: See `drive`.
      options: See `drive`.
      model: See `drive`.
      rounds: How many.
    """
    first = _driver_after(method.name, tuple(dict(options).items()), model, rounds)
    driver = copy.copy(first)
    driver.client_states = dict(first.client_states)
    return driver
