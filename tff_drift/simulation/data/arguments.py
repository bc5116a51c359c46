"""How the constructors of `ClientDatasets` take their arguments."""

from __future__ import annotations

from typing import Any

from tff_drift import checks

# What users of other libraries call some of the arguments.
suggest_names = checks.suggesting_names(
    drop_remainder='last_batch="drop"',
    max_elements="max_examples",
    num_epochs="epochs",
    num_steps="local_steps",
    preprocess_fn="preprocess",
)


class _Unchanged:
    """The default of an argument that leaves an option as it is."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Any = _Unchanged()


def changed(**options: Any) -> dict[str, Any]:
    """Returns the options that were given.

    Args:
      **options: Options by name, `UNCHANGED` those that were not.
    """
    return {name: value for name, value in options.items() if value is not UNCHANGED}
