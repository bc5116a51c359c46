"""The methods as data: a spec of each, at the foot of its module.

A spec says what programs need to know of a method without knowing the method: how it
is built, which paper defines it, what it sends and computes, and which of its
builder's arguments a user may want to choose. Whatever holds for every method (the
command line, the tables of costs, the tests of properties) goes through `methods()`
and names none.

A method of your own, in a module outside this package, joins in by one call:

    METHOD = algorithms.register(
        algorithms.Method("my_method", build_my_method, "I (2026), Mine", "https://…")
    )
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tff_drift import checks, registrations
from tff_drift.value_types import Option

if TYPE_CHECKING:
    import pandas as pd
    import tensorflow_federated as tff

NUM_EXAMPLES = "num_examples"
UNIFORM = "uniform"
NEEDS = (
    "num_clients",
    "total_examples",
    "mean_examples",
    "local_epochs",
    "meta_data",
    "shared_data",
)
# By which names builders take the rates of the two sides.
_CLIENT_RATE = ("client_learning_rate", "client_optimizer_fn")
_SERVER_RATE = ("server_learning_rate", "server_optimizer_fn")


class Arithmetic(NamedTuple):
    """Operations on vectors of the model's n trainable weights.

    Attributes:
      sums: Additions and subtractions, in units of n.
      products: Multiplications and divisions, in units of n.
    """

    sums: float
    products: float

    @property
    def total(self) -> float:
        """All operations, in units of n."""
        return self.sums + self.products


@dataclasses.dataclass(frozen=True)
class Cost:
    """Operations in a round, in units of n, some of them repeated.

    Attributes:
      sums: Sums done once.
      products: Products done once.
      repeated_sums: Sums done K times by a client with K local steps, or M times by
        the server of a cohort of M.
      repeated_products: Products, likewise.
    """

    sums: float = 0
    products: float = 0
    repeated_sums: float = 0
    repeated_products: float = 0

    def times(self, count: float) -> Arithmetic:
        """Returns the operations of a round.

        Args:
          count: K on a client, M on the server.
        """
        return Arithmetic(
            self.repeated_sums * count + self.sums,
            self.repeated_products * count + self.products,
        )


@dataclasses.dataclass(frozen=True)
class Method:
    """A method's spec.

    Attributes:
      name: Its name, an identifier.
      builder: Builds its learning process. It takes the model first. It takes the
        clients' learning rate as `client_optimizer_fn` or `client_learning_rate` and
        the server's as `server_optimizer_fn` or `server_learning_rate`, or lacks
        the argument where there is no such rate. Whatever else has no default is
        named in `needs`.
      paper: Authors, year and title of the paper that defines it.
      url: The paper's address.
      weighting: How much a client counts by default: 'num_examples' or 'uniform'.
      traffic: What the server sends to a client and the client sends back in a
        round, in units of the model's n weights: the model down and one vector up,
        and a control variate or the like besides.
      scalars: How many numbers the server sends and the client sends back besides,
      which
        no paper counts as traffic; a client's weight is not among them.
      sends_gradients: Whether clients send gradients, so that the server's rate is
        one of gradient descent, rather than differences of models.
      pools_data: Whether all examples are to be one client's, as of
        `tff_drift.simulation.pool`, which takes part in every round.
      keeps_client_states: Whether clients keep a state between rounds, so that the
        builder takes `StatefulOptions`.
      second_gradients: Whether an example costs a client more than the gradient of each
        local step: one at the server's model besides, or one through the steps.
      needs_full_participation: Whether all clients must take part in every round.
      client_cost: What a client computes in a round beyond K steps of SGD, repeated
        K times; `None` if nobody has counted it.
      server_cost: What the server computes in a round, repeated for each of the M
        clients of the cohort; `None` if nobody has counted it.
      options: The builder's keyword arguments that users may choose, with the
        defaults of its signature.
      needs: What else the builder takes, which a program is to prepare. Of `NEEDS`:
        'num_clients' is the population; 'total_examples' is the number of examples,
        epochs included, of all clients in a round, passed exactly with weighting by
        examples; 'mean_examples' is their mean over all clients, or `None` where users
        do not ask for it; 'local_epochs' is the number of epochs that a client's
        dataset holds; 'meta_data' is a `tf.data.Dataset` of batches for the server;
        'shared_data' is one of public batches for all clients, or `None` where their
        datasets hold the public examples already.
    """

    name: str
    builder: Callable[..., tff.learning.templates.LearningProcess]
    paper: str
    url: str
    weighting: str = NUM_EXAMPLES
    traffic: tuple[float, float] = (1, 1)
    scalars: tuple[int, int] = (0, 0)
    sends_gradients: bool = False
    pools_data: bool = False
    keeps_client_states: bool = False
    second_gradients: bool = False
    needs_full_participation: bool = False
    client_cost: Cost | None = None
    server_cost: Cost | None = None
    options: tuple[Option, ...] = ()
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(
                "name must be an identifier such as 'fed_avg', found "
                f"{checks.shown(self.name)}."
            )
        checks.check_one_of("weighting", self.weighting, (NUM_EXAMPLES, UNIFORM))
        for need in self.needs:
            checks.check_one_of("needs", need, NEEDS)
        known = {*(option.name for option in self.options), *self.needs}
        for name in sorted(known - set(self.parameters)):
            raise ValueError(
                f"{checks.shown(name)}, an option or a need of "
                f"{checks.shown(self.name)}, must be an argument of its builder, which "
                f"takes {checks.listed(self.parameters)}."
            )
        for name in self._required():
            if name not in {*_CLIENT_RATE, *_SERVER_RATE, *self.needs}:
                raise ValueError(
                    f"The builder of {checks.shown(self.name)} has the argument "
                    f"{checks.shown(name)} without a default. Give it one, or a need "
                    f"of {', '.join(NEEDS)} its name."
                )
        options = [
            dataclasses.replace(option, default=self.parameters[option.name].default)
            for option in self.options
        ]
        object.__setattr__(self, "options", tuple(options))

    @functools.cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The builder's own parameters by name, the model first.

        Options that all methods share are not among them.
        """
        own = getattr(self.builder, "own_signature", None)
        return (own or inspect.signature(self.builder)).parameters

    def _required(self) -> list[str]:
        """Returns the arguments besides the model that have no default."""
        _, *others = self.parameters.values()
        return [
            parameter.name
            for parameter in others
            if parameter.default is inspect.Parameter.empty
            and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]

    @property
    def has_client_rate(self) -> bool:
        """Whether clients take local steps, at a learning rate of their own."""
        return any(name in self.parameters for name in _CLIENT_RATE)

    @property
    def has_server_rate(self) -> bool:
        """Whether the server's step has a learning rate."""
        return any(name in self.parameters for name in _SERVER_RATE)

    @property
    def needs_server_rate(self) -> bool:
        """Whether the builder leaves the server's learning rate to its caller."""
        return any(name in self._required() for name in _SERVER_RATE)

    def build(
        self,
        model_fn: Any,
        *,
        client_learning_rate: Any = None,
        server_learning_rate: float | None = None,
        **arguments: Any,
    ) -> tff.learning.templates.LearningProcess:
        """Builds the method's process, at rates by the names of all methods.

        Args:
          model_fn: The model, as in `build_fed_avg`.
          client_learning_rate: The rate of the clients' SGD, per local step, or an
            optimizer where the builder takes one; has no meaning for a method without.
          server_learning_rate: The rate of the server's step, per round; has no
            meaning for a method without one. `None` is the builder's default.
          **arguments: What the builder takes: its `needs`, values for its options,
            and the options that all methods share.

        Returns:
          The learning process.

        Raises:
          TypeError: If an argument has the wrong type; the message names it.
          ValueError: If an argument is out of its range; the message names it.
        """
        for names, rate in (
            (_CLIENT_RATE, client_learning_rate),
            (_SERVER_RATE, server_learning_rate),
        ):
            if rate is not None:
                taken = [name for name in names if name in self.parameters]
                arguments.update(dict.fromkeys(taken, rate))
        return self.builder(model_fn, **arguments)


_METHODS: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Adds a method to `methods()`.

    Args:
      method: Its spec.

    Returns:
      `method`.

    Raises:
      TypeError: If `method` is not a `Method`.
      ValueError: If there is another method of its name, unless the module that
        registered that one, such as a cell of a notebook, does so anew.
    """
    checks.check_instance("method", method, Method, "a Method")
    other = _METHODS.get(method.name)
    may_be = registrations.may_be("method", method.name, method, other)
    if other is not None and not may_be:
        raise ValueError(
            f"There is a method of the name {checks.shown(method.name)} already, built "
            f"by {other.builder.__module__}. Give the new one another name."
        )
    _METHODS[method.name] = method
    return method


class Methods(dict[str, Method]):
    """Methods by name, which can be shown as a table."""

    def to_frame(self) -> pd.DataFrame:
        """Returns the methods as a `pandas.DataFrame`, your own included.

        By name it has the columns `paper`, `url`, `client_state` (whether clients keep
        one), `down` and `up` (what a client receives and sends in a round, in units of
        the model), `sends` ('gradient' or 'update'), `second_gradients` and
        `full_participation` (see `Method`).
        """
        # The command line lists methods without waiting for pandas.
        import pandas as pd

        return pd.DataFrame.from_dict(
            {name: _table_line(method) for name, method in self.items()}, orient="index"
        ).rename_axis("name")

    def _repr_html_(self) -> str:
        """Returns the table for notebooks."""
        return self.to_frame().to_html()


def _table_line(method: Method) -> dict[str, Any]:
    down, up = method.traffic
    return {
        "paper": method.paper,
        "url": method.url,
        "client_state": method.keeps_client_states,
        "down": down,
        "up": up,
        "sends": "gradient" if method.sends_gradients else "update",
        "second_gradients": method.second_gradients,
        "full_participation": method.needs_full_participation,
    }


def methods() -> Methods:
    """Returns all methods by name, in alphabetical order; `to_frame()` is a table."""
    return Methods(sorted(_METHODS.items()))
