"""The configuration of a run, compared with what is asked for on resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tff_drift import checks

ABSENT = "absent"


def to_json(name: str, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a mapping as it reads after it went through JSON.

    Args:
      name: The argument's name, for messages.
      configuration: Field names to JSON values; tuples become lists.

    Returns:
      The mapping in plain JSON values.

    Raises:
      TypeError: If it is not a mapping, a name is not a string, or a value is not a
        JSON value.
    """
    checks.check_instance(
        name, configuration, Mapping, "a mapping of JSON values by name"
    )
    plain = {}
    for field, value in configuration.items():
        if not isinstance(field, str):
            raise TypeError(
                f"{name} must have strings as names, found {checks.shown(field)}."
            )
        try:
            plain[field] = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name}[{field!r}] must be a JSON value (number, string, boolean, "
                f"None, list or mapping), found {checks.shown(value)}."
            ) from error
    return plain


def flatten(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested fields under names joined by dots."""
    flat: dict[str, Any] = {}
    for name, value in configuration.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{key}": v for key, v in flatten(value).items()})
        else:
            flat[name] = value
    return flat


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns the fields in which two configurations differ.

    A field that is absent is one whose value is `None`.

    Args:
      old: The one configuration, in plain JSON values.
      new: The other one.

    Returns:
      One phrase per field that differs, such as `"seed was 0 and is now 1"`.
    """
    flat_old, flat_new = flatten(old), flatten(new)
    phrases = []
    for name in [*flat_old, *(name for name in flat_new if name not in flat_old)]:
        # What a run did not have when it began is what it goes on without.
        if flat_old.get(name) is None and flat_new.get(name) is None:
            continue
        # Compared as text: 1 and 1.0 and True are different, NaN is itself.
        before = json.dumps(flat_old[name]) if name in flat_old else ABSENT
        now = json.dumps(flat_new[name]) if name in flat_new else ABSENT
        if before != now:
            phrases.append(f"{name} was {before} and is now {now}")
    return phrases
