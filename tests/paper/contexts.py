"""The same test under every execution context."""

import tensorflow_federated as tff

from tff_drift import execution


def both_contexts():
    """Yields twice: once under the native context, once under the local one."""
    yield "native"
    local = execution.create_local_execution_context()
    with tff.framework.get_context_stack().install(local):
        yield "local"
