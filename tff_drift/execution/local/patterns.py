"""The forms of graphs that are recognised, by their shape or by names.

TFF hands over graphs, not intentions: that an aggregation is a sum, or that a
computation gathers its batches, shows in the operations of its graph alone. What is
recognised runs faster; what is not runs all the same. So each of these is an offer to
whoever makes graphs, a computation of one's own too, and nothing here knows who takes
it. Whoever does says so where the graph is made, and holds it by a test, like those in
`tests/execution/local/test_patterns.py`.

| form | what for |
|---|---|
| a sum, `accumulator + value`, as TFF's `SumFactory` has it | the values of vectorized clients are added at once |
| a stack, `concat([accumulator, value[newaxis]])` | collected once, in place of copied for each client |
| one of two results, `tf.where` of a scalar | nothing is copied where no client of a group has the first |
| batches gathered in a scope `gathered_batches_of_E_epochs`, and loops over them, named `but_last_epochs`, `last_epoch` or `back` | clients take their steps in lockstep |
| a check, `Assert` or `CheckNumerics` in a name | no step is taken whose result is dropped |
| a convolution, `Conv` in a name | vectorizing large ones gains nothing |
| datasets that repeat themselves | what was read is kept |
| functions of datasets that only move values, by their operations | they are not optimized for every client anew |
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

# Datasets that give the same elements every time, if those that they read from do.
_REPEATABLE = frozenset(
    {
        "BatchDataset",
        "CacheDataset",
        "ConcatenateDataset",
        "OptionsDataset",
        "ParallelBatchDataset",
        "PrefetchDataset",
        "RangeDataset",
        "RepeatDataset",
        "SkipDataset",
        "TakeDataset",
        "TensorDataset",
        "TensorSliceDataset",
        "ZipDataset",
    }
)
# Operations that compute no number, or none that depends on the order of arithmetic.
_MOVING_NAMES = """
    BroadcastTo Cast ConcatV2 Const EnsureShape Equal ExpandDims Fill GatherV2
    Greater GreaterEqual Identity IdentityN Less LessEqual LogicalAnd LogicalNot
    LogicalOr Maximum Minimum NoOp NotEqual OneHot OnesLike Pack Pad PadV2
    ParseExampleV2 ParseSingleExample Placeholder Reshape ReverseV2 SelectV2 Shape
    Slice Split SplitV Squeeze StridedSlice Tile Transpose Unpack ZerosLike
"""
_MOVING = frozenset(_MOVING_NAMES.split())
# What loops over gathered batches take.
BUT_LAST_EPOCHS, LAST_EPOCH, BACK = "but_last_epochs", "last_epoch", "back"
_PART = re.compile(rf"(?:^|/)({BUT_LAST_EPOCHS}|{LAST_EPOCH}|{BACK})(?:_\d+)?$")
_GATHERED = re.compile(r"(?:^|/)gathered_batches_of_(\d+)_epochs(?:_\d+)?/")


def summand(output: tf.Tensor, accumulator: tf.Tensor) -> tf.Tensor | None:
    """Recognises `output = accumulator + value`.

    Args:
      output: A result of a function that adds a client's values to accumulators.
      accumulator: The input of that function that holds its accumulator.

    Returns:
      The value, as `source` of a tensor; None if `output` is no such sum.
    """
    operation = source(output).op
    if operation.type not in ("Add", "AddV2") or operation.control_inputs:
        return None
    if output.dtype == tf.string:  # These are concatenated, not summed.
        return None
    first, second = operation.inputs
    if first.shape != second.shape or not first.shape.is_fully_defined():
        return None
    first, second = source(first), source(second)
    if first.name == accumulator.name:
        return second
    return first if second.name == accumulator.name else None


def last_row(output: tf.Tensor, accumulator: tf.Tensor) -> tf.Tensor | None:
    """Recognises `output = tf.concat([accumulator, value[tf.newaxis]], axis=0)`.

    Args:
      output: A result of a function that adds a client's values to accumulators.
      accumulator: The input of that function that holds its accumulator.

    Returns:
      The value, as `source` of a tensor; None if `output` is no such stack.
    """
    operation = source(output).op
    if operation.type != "ConcatV2" or len(operation.inputs) != 3:
        return None
    if operation.control_inputs:
        return None
    first, second, axis = operation.inputs
    if source(first).name != accumulator.name or tf.get_static_value(axis) != 0:
        return None
    row = source(second).op
    if row.control_inputs:
        return None
    if row.type == "ExpandDims":
        in_front = tf.get_static_value(row.inputs[1]) == 0
        return source(row.inputs[0]) if in_front else None
    if row.type == "StridedSlice" and row.get_attr("new_axis_mask") == 1:
        whole = row.inputs[1].shape == [1] and not row.get_attr("shrink_axis_mask")
        return source(row.inputs[0]) if whole else None
    return None


class Choice(NamedTuple):
    """One of two tensors.

    Attributes:
      condition: Which, a Boolean scalar.
      if_true: The one.
      if_false: The other.
    """

    condition: tf.Tensor
    if_true: tf.Tensor
    if_false: tf.Tensor


def choice(output: tf.Tensor) -> Choice | None:
    """Recognises `output = tf.where(condition, if_true, if_false)` of a scalar.

    Args:
      output: A result of a function.

    Returns:
      What it is chosen of; None if `output` is no such choice.
    """
    operation = source(output).op
    if operation.type != "SelectV2" or operation.control_inputs:
        return None
    condition, if_true, if_false = operation.inputs
    if condition.shape.rank != 0 or not if_true.shape == if_false.shape == output.shape:
        return None
    return Choice(condition, if_true, if_false)


def gathered_epochs(graph_def: tf.compat.v1.GraphDef) -> int:
    """Returns how many epochs of batches a client's computation gathers, 0 if none.

    That is a `Dataset.reduce` in the scope `gathered_batches_of_3_epochs`, whose state
    is the number of the batches and a TensorFlow list for each of their components, to
    which a step adds its batch. `part_of_batches` is of the loops over these.
    """
    found = (_GATHERED.search(node.name) for node in all_nodes(graph_def))
    return max((int(each[1]) for each in found if each), default=0)


def all_nodes(graph_def: tf.compat.v1.GraphDef) -> Iterator[Any]:
    """Yields the nodes of a graph and of the functions in its library."""
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def functions_of(node: Any) -> set[str]:
    """Returns the names of the functions that a node calls or passes on."""
    values = node.attr.values()
    names = {each.name for value in values for each in value.list.func}
    names.update(value.func.name for value in values if value.HasField("func"))
    return names


def part_of_batches(name: str) -> str | None:
    """Returns which of the gathered batches a loop takes, which its name says.

    A step of it takes one item of each list. `BUT_LAST_EPOCHS` and `LAST_EPOCH` take
    the batches of these in their order, `BACK` goes back over the former; it reads what
    that loop saved in a `TensorArray` in the same step.

    Args:
      name: The name of the loop's node.

    Returns:
      One of these; None if it does not say.
    """
    found = _PART.search(name)
    return found and found[1]


def source(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor of which `tensor` is the same under another name.

    What comes after a check, or after another operation that is done for its effect, is
    not the same: who took the source in its place would leave the check out.
    """
    while tensor.op.type == "Identity" and not tensor.op.control_inputs:
        tensor = tensor.op.inputs[0]
    return tensor


def has_convolution(operations: Collection[str]) -> bool:
    """Whether there is a convolution among operations."""
    return any("Conv" in operation for operation in operations)


def has_check(operations: Collection[str]) -> bool:
    """Whether there is an operation among them that may fail for some values."""
    return any("Assert" in each or "CheckNumerics" in each for each in operations)


def is_repeatable(dataset: tf.data.Dataset) -> bool:
    """Whether a dataset gives the same elements every time."""
    # TensorFlow has no public way to ask for a dataset's kind and its inputs.
    name = type(dataset).__name__.lstrip("_")
    return name in _REPEATABLE and all(map(is_repeatable, dataset._inputs()))


def draws_random_numbers(dataset: tf.data.Dataset) -> bool:
    """Whether a dataset, or one that it reads from, may draw random numbers.

    Of a dataset that a function has captured, it cannot be told.
    """
    captured = (
        each.dtype
        for function in dataset._functions()
        for each in function.function.captured_inputs
    )
    if is_random(type(dataset).__name__) or tf.variant in captured:
        return True
    return any(map(draws_random_numbers, dataset._inputs()))


def has_moving_functions_only(dataset: tf.data.Dataset) -> bool:
    """Whether a dataset and those that it reads from apply functions, all harmless.

    That is, `moves_values_only` holds of all, and they capture nothing.
    """
    functions = [each.function for each in _functions(dataset)]
    return bool(functions) and all(
        moves_values_only(
            operation.type for operation in function.graph.get_operations()
        )
        and not function.captured_inputs
        for function in functions
    )


def held_bytes(dataset: tf.data.Dataset) -> int:
    """Returns the size of the tensors that a dataset is made of."""
    own = getattr(dataset, "_tensors", ())
    of_tensors = (each.shape.num_elements() * each.dtype.size for each in own)
    return sum(of_tensors) + sum(map(held_bytes, dataset._inputs()))


def _functions(dataset: tf.data.Dataset) -> list[Any]:
    of_inputs = [each for source in dataset._inputs() for each in _functions(source)]
    return [*dataset._functions(), *of_inputs]


def moves_values_only(operations: Iterable[str]) -> bool:
    """Whether operations compute nothing that an optimizer could compute otherwise."""
    return _MOVING.issuperset(operations)


def may_be_random(values: Iterable[Any]) -> bool:
    """Whether tensors among some values may be others when they are computed again."""
    return any(operation.op_def.is_stateful for operation in made_by(values))


def made_by(values: Iterable[Any]) -> Iterator[tf.Operation]:
    """Yields the operations that the tensors among some values are computed by."""
    pending = [value.op for value in values if tf.is_tensor(value)]
    seen = {operation.name for operation in pending}
    while pending:
        operation = pending.pop()
        yield operation
        sources = [each.op for each in operation.inputs if each.op.name not in seen]
        seen.update(each.name for each in sources)
        pending.extend(sources)


def draws_from_a_seed(node: Any) -> bool:
    """Whether a node draws random numbers from a stream that a seed starts."""
    return any(node.attr[name].i for name in ("seed", "seed2") if name in node.attr)


def is_random(name: str) -> bool:
    """Whether a kind of dataset, or of operation that makes one, is a random one."""
    return "Shuffle" in name or "Random" in name
