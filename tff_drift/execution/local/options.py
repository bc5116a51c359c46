"""The options of a context, in the form in which it works with them.

`Limits` are constants, and nothing is measured at run time: a resumed run has to decide
as the run before it did, or the last bits of its results change.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager_context

from tff_drift import checks, system
from tff_drift.execution.local.data.batch_cache import BatchCache
from tff_drift.execution.local.graphs.saved_functions import SavedFunctions

# What has to be there, or is divided by.
_AT_LEAST_1 = frozenset(
    {
        "clients_for_one",
        "few_clients",
        "few_sorted_clients",
        "functions",
        "saved_bytes_for_one",
    }
)
# So many clients for each processor, one by one, keep all of them busy.
_CLIENTS_PER_PROCESSOR = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The numbers by which the local context decides how clients are trained.

    The defaults were measured on a machine of two processors, and serve others, too.
    Another machine is tuned by giving `create_local_execution_context` other limits:

    >>> limits = Limits(largest_state_bytes=2**23)
    >>> context = create_local_execution_context(limits=limits)    # doctest: +SKIP

    Under other limits other clients are trained together, and results agree to the
    tolerance of floating-point sums. Whoever resumes a run and wants the same bits
    gives the same limits. All numbers are integers.

    Attributes:
      plans: How many plans of the computations used last stay, with their functions,
        when their computations are gone, for programs that make equal ones again.
      functions: For how many sizes of groups the functions of one computation stay.
      cohorts: How many cohorts are remembered, to know those that come again.
      stack_bytes: What the states of the clients that are trained at a time take at
        most, so that they stay in the processor's cache.
      patch_stack_bytes: On CPUs, what the patches of a step of all of them take at
        most, for the same reason, where they are products (see `most_patch_values`).
      few_clients: Where that leaves fewer clients than this, there may be as many,
        within `most_stack_bytes`.
      many_clients: How many clients are trained at a time at most.
      most_stack_bytes: What the states of few clients take at most.
      steps_together: From so many clients on, on average over the steps, stacks of
        small models are faster; with fewer they gain too little for the seconds that
        building their functions takes.
      alone_for_one: How many steps at most may be taken alone for each that is taken
        together.
      enough_clients: On CPUs, so many clients are vectorized even if fewer steps come
        together: in one graph they take a quarter to two thirds of the time of
        sequential clients, each of which costs two milliseconds besides its steps.
      enough_steps: So are fewer clients, without convolutions, that take so many steps
        in all.
      largest_masked_bytes: On CPUs, up to which size of its state a model is vectorized
        if some clients are masked, and carried along for nothing.
      largest_state_bytes: Likewise if none are: a step of a larger model is bound by
        RAM.
      most_patch_values: On CPUs, convolutions of many clients are products of patches
        and filters. Making the patches takes longer than a convolution, which is made
        up for by fewer operations if the patches of all convolutions of a client's step
        and their gradients have at most so many values.
      largest_patches: Up to how many values of an example's patches the product is
        quicker than one convolution.
      small_product_weights: Products of small batches and of at most so many weights of
        each client, those of a filter once for each place where it is applied, are
        quicker by Eigen, which splits no small ones, than by oneDNN.
      small_batch: Small are batches of at most so many examples.
      rows_for_one: Clients train on the rows of tables that their batches name where
        at most one row in so many is named: picking rows and putting them back costs a
        few passes over the tables.
      small_table_bytes: Likewise of tables that take at least this.
      few_steps_back: Clients of unequal sizes that go back over their batches, as UGA's
        do, are vectorized if they take so many steps: building their function takes
        two to five seconds, and a step in it saves 0.2 to 0.5 milliseconds.
      read_bytes: The batches of a cohort are read for vectorizing if they take at most
        this.
      group_bytes: What the batches of a group, put together, take at most, unless it is
        of few clients.
      saved_bytes_for_one: How many times as many bytes loops may write for later ones,
        such as UGA's iterates.
      sorted_stack_bytes: Clients of unequal numbers of steps are vectorized in smaller
        groups, sorted by that number, so that few are masked and several processors
        have one: of states that take about this.
      few_sorted_clients: How many clients are in such a group at least: steps of the
        smallest models take less time than what a group costs besides.
      many_sorted_clients: How many are in it at most.
      clients_for_one: On CPUs, steps that at most one in so many of a group's clients
        take are taken one by one.
      collected_state_bytes: From which size of one client's state on the states of a
        cohort are returned one by one: collecting them copies them.

    Raises:
      TypeError: If a limit is not an integer.
      ValueError: If it is below 0, or below 1 where there has to be one.
    """

    plans: int = 8
    functions: int = 64
    cohorts: int = 64
    stack_bytes: int = 10 * 2**20
    patch_stack_bytes: int = 2**24
    few_clients: int = 8
    many_clients: int = 256
    most_stack_bytes: int = 2**27
    steps_together: int = 4
    alone_for_one: int = 8
    enough_clients: int = 4
    enough_steps: int = 40
    largest_masked_bytes: int = 5 * 2**18
    largest_state_bytes: int = 5 * 2**19
    most_patch_values: int = 1_400_000
    largest_patches: int = 15_000
    small_product_weights: int = 10_000
    small_batch: int = 32
    rows_for_one: int = 2
    small_table_bytes: int = 2**16
    few_steps_back: int = 300
    read_bytes: int = 2**31
    group_bytes: int = 2**28
    saved_bytes_for_one: int = 4
    sorted_stack_bytes: int = 3 * 2**18
    few_sorted_clients: int = 10
    many_sorted_clients: int = 64
    clients_for_one: int = 3
    collected_state_bytes: int = 2**20

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            least = 1 if field.name in _AT_LEAST_1 else 0
            value = getattr(self, field.name)
            checks.check_integer(f"limits: {field.name}", value, least)


@dataclasses.dataclass(frozen=True)
class Placement:
    """The devices and threads on which computations run.

    Attributes:
      server_device: The device of server computations, None for TensorFlow's
        choice.
      client_devices: The devices of clients; client i runs on the i-th, modulo
        their number. Empty for TensorFlow's choice.
      max_concurrent_clients: How many clients run at a time.
      pool: The threads that run clients.
    """

    server_device: str | None
    client_devices: tuple[str, ...]
    max_concurrent_clients: int
    pool: concurrent.futures.ThreadPoolExecutor

    def client_device(self, client: int) -> str | None:
        """Returns the device of a client, counted from 0."""
        if not self.client_devices:
            return None
        return self.client_devices[client % len(self.client_devices)]

    @property
    def on_cpus(self) -> bool:
        """Whether clients run on CPUs only."""
        given = self.client_devices
        names = given or [each.name for each in tf.config.list_logical_devices()]
        return all("CPU:" in name for name in names)

    def advice(self, num_clients: int, num_groups: int) -> str | None:
        """Returns how a cohort would train faster on CPUs, None if in no such way.

        Args:
          num_clients: The number of its clients.
          num_groups: The number of groups that are vectorized, 0 for one by one.
        """
        processors = system.processors()
        needed = processors if num_groups else _CLIENTS_PER_PROCESSOR * processors
        if (
            processors == 1
            or (num_groups or num_clients) < needed
            or self.max_concurrent_clients < processors
            or _threads_are_set()
            or not self.on_cpus
        ):
            return None
        what = f"{num_groups} groups" if num_groups else f"{num_clients} clients"
        return (
            f"{what} keep the {processors} processors busy, and TensorFlow splits each "
            "operation among these besides: operation_threads=1, which the context "
            "takes before TensorFlow's first operation, saves that"
        )

    def in_order(
        self, run: Callable[[int], Any], number: int, one_at_a_time: bool = False
    ) -> Iterator[Any]:
        """Yields `run(0)`, `run(1)`, ..., a few of them running at a time.

        Args:
          run: What to run.
          number: How often.
          one_at_a_time: Whether each has to wait for the one before.
        """
        if one_at_a_time or number == 1 or self.max_concurrent_clients == 1:
            yield from map(run, range(number))
            return
        ahead: collections.deque[concurrent.futures.Future[Any]] = collections.deque()
        try:
            for client in range(number):
                # As many again as there are threads: none waits for the accumulation.
                if len(ahead) >= 2 * self.max_concurrent_clients:
                    yield ahead.popleft().result()
                ahead.append(self.pool.submit(_run_on_thread, run, client))
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
            concurrent.futures.wait(ahead)


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a context, see `context.create_local_execution_context`.

    Attributes:
      limits: The thresholds of its decisions.
      placement: The devices, and the number of clients that run at a time.
      batch_clients: False: never vectorize; True: whenever possible; None: if it pays.
      functionalize: Whether loops over datasets become loops of the graph.
      batches: Holds the batches of datasets.
      saved: Where functions are kept for later programs, None for nowhere.
      runners: Those of vectorized clients that are alive, by the content of the
        client's program: processes that differ in seeds or in rates share one.
    """

    limits: Limits
    placement: Placement
    batch_clients: bool | None
    functionalize: bool
    batches: BatchCache
    saved: SavedFunctions | None = None
    runners: weakref.WeakValueDictionary[bytes, Any] = dataclasses.field(
        default_factory=weakref.WeakValueDictionary
    )


def check_devices(name: str, devices: Sequence[str]) -> tuple[str, ...]:
    """Checks names of devices.

    Args:
      name: The argument that holds them.
      devices: The names, such as `/GPU:0`.

    Returns:
      The names.

    Raises:
      TypeError: If `devices` is not a sequence of strings.
      ValueError: If it is empty, or TensorFlow sees no such device.
    """
    if not isinstance(devices, (list, tuple)) or not all(
        isinstance(device, str) for device in devices
    ):
        raise TypeError(
            f"{name} must hold names of devices such as '/GPU:0', found "
            f"{checks.shown(devices)}."
        )
    if not devices:
        raise ValueError(f"{name} must hold at least one device, found none.")
    present = [device.name for device in tf.config.list_logical_devices()]
    for device in devices:
        if not any(_is_named(device, other) for other in present):
            raise ValueError(
                f"{name} must hold devices of this machine, found "
                f"{checks.shown(device)}. There are {', '.join(present)}."
            )
    return tuple(devices)


def _is_named(name: str, device: str) -> bool:
    try:
        wanted = tf.DeviceSpec.from_string(name)
    except ValueError:
        return False
    found = tf.DeviceSpec.from_string(device)
    return (wanted.device_type or "").upper() == found.device_type and (
        wanted.device_index or 0
    ) == found.device_index


def _run_on_thread(run: Callable[[int], Any], number: int) -> Any:
    # TensorFlow keeps such options for each thread.
    with function_options():
        return run(number)


@contextlib.contextmanager
def function_options() -> Iterator[None]:
    """Allows calls by several threads at a time, whatever the functions hold.

    Where a graph seems to need more than 200 MB, TensorFlow's memory optimizer puts
    sums of many tensors into variables of their own. Outside a session all calls of a
    function have the same ones, so that two calls at a time end in an
    `AlreadyExistsError`. Functions that are called here first stay without.
    """
    eager = eager_context.context()
    given = eager.function_call_options
    eager.function_call_options = _without_variables(
        given.executor_type, given.config_proto_serialized
    )
    try:
        yield
    finally:
        eager.function_call_options = given


@functools.lru_cache(maxsize=16)
def _without_variables(
    executor_type: str | None, config: bytes
) -> eager_context.FunctionCallOptions:
    changed = tf.compat.v1.ConfigProto.FromString(config)
    options = changed.graph_options.rewrite_options
    options.memory_optimization = options.NO_MEM_OPT
    return eager_context.FunctionCallOptions(executor_type, changed)


def _threads_are_set() -> bool:
    """Whether somebody has said among how many threads operations are split."""
    in_environment = "TF_NUM_INTRAOP_THREADS" in os.environ
    return in_environment or tf.config.threading.get_intra_op_parallelism_threads() > 0


def set_operation_threads(number: int) -> None:
    """Sets among how many threads TensorFlow splits an operation, for good.

    Args:
      number: The number of threads.

    Raises:
      RuntimeError: If TensorFlow has started with another number.
      TypeError: If it is not an integer.
      ValueError: If it is below 1 or above 32,768.
    """
    checks.check_integer("operation_threads", number, 1, 2**15)
    try:
        tf.config.threading.set_intra_op_parallelism_threads(number)
    except RuntimeError as error:
        if os.environ.get("TF_NUM_INTRAOP_THREADS") != str(number):
            raise RuntimeError(
                f"operation_threads={number} comes too late: TensorFlow has run "
                "operations already. Create the context before anything else, or set "
                f"TF_NUM_INTRAOP_THREADS={number} in the environment of the program."
            ) from error
