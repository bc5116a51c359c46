"""Names of TensorFlow Federated that move between 0.87 and its main branch.

TFF's main branch has moved its language core (types, placements, intrinsics) to
the package `federated_language`. This is the only module of the library that
spells those names, so following a future release means changing this file.
Names that stay where they are (`tff.aggregators`, `tff.learning`,
`tff.templates`, `tff.simulation`) are used from `tff` directly.
"""

import importlib

import tensorflow_federated as tff

# By its name: mypy takes the classes below for variables in a module that imports the
# package, whose own imports for type checkers make a circle of all that do.
importlib.import_module("tff_drift._tff_default").do_without_worker()

CLIENTS = tff.CLIENTS
SERVER = tff.SERVER

Computation = tff.Computation
FederatedType = tff.FederatedType
FunctionType = tff.FunctionType
SequenceType = tff.SequenceType
StructType = tff.StructType
TensorType = tff.TensorType
Type = tff.Type
Value = tff.Value
to_type = tff.to_type

federated_computation = tff.federated_computation
tf_computation = tff.tensorflow.computation

federated_aggregate = tff.federated_aggregate
federated_broadcast = tff.federated_broadcast
federated_eval = tff.federated_eval
federated_map = tff.federated_map
federated_sum = tff.federated_sum
federated_value = tff.federated_value
federated_zip = tff.federated_zip

# `( tf.TensorSpec structure -> tff.Type )` and back.
tensorflow_to_type = tff.types.tensorflow_to_type
type_to_tf_tensor_specs = tff.types.type_to_tf_tensor_specs

# Rebuilds Python containers from a `tff.structure.Struct` and its type.
type_to_py_container = tff.types.type_to_py_container

# The names of a `tff.StructType`'s elements, `None` where one has no name.
structure_names = tff.structure.name_list_with_nones

is_structure_of_floats = tff.types.is_structure_of_floats

# Where a computation runs that is called.
FederatedContext = tff.program.FederatedContext
get_context_stack = tff.framework.get_context_stack


def default_context() -> object:
    """Returns where computations run in this thread while no context is installed."""
    # The stack shows its top alone; `set_default_context` sets its bottom.
    return tff.framework.get_context_stack()._stack[0]


def set_default_context(context: tff.framework.SyncContext) -> None:
    """Sets TFF's default context, and lets the worker of the one before end."""
    # By its name, see above.
    exits = importlib.import_module("tff_drift._tff_exit")
    exits.kill_worker_with(default_context())
    tff.framework.set_default_context(context)


# Federated programs: what `tff.learning.programs.train_model` works with.
FederatedDataSource = tff.program.FederatedDataSource
FederatedDataSourceIterator = tff.program.FederatedDataSourceIterator
MaterializableValueReference = tff.program.MaterializableValueReference
ProgramStateManager = tff.program.ProgramStateManager
materialize_value = tff.program.materialize_value

ReleaseManager = tff.program.ReleaseManager
TensorBoardReleaseManager = tff.program.TensorBoardReleaseManager

# TFF's own containers of values, and what compilers and contexts are made of.
structure = tff.structure
framework = tff.framework
