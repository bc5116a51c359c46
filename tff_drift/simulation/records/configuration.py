"""The configuration of a run, compared with what is asked for on resume."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tff_drift import checks
from tff_drift.simulation.data import examples_digest

ABSENT = "absent"

_CALLBACKS = "callbacks"
_COHORT_SIZE = "cohort_size"
_EVALUATION = "evaluation"
_ADDED = ("method", "sampling")
_WAS = " was "
# What a digest of clients has of them besides hashes of their examples.
_OF_CLIENTS = ("clients", "client_ids_sha256")
# Hashes, with what users give.
_GIVEN = {"initial_state_sha256": "initial_weights or initial_state"}


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
    what = "a mapping of JSON values by name"
    checks.check_instance(name, configuration, Mapping, what)
    plain = {}
    for field, value in configuration.items():
        checks.check_instance(f"each name in {name}", field, str, "a string")
        try:
            plain[field] = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name}[{checks.shown(field)}] must be a JSON value (number, string, "
                f"boolean, None, list or mapping), found {checks.shown(value)}."
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
            given = f"{_GIVEN[name]} ({name})" if name in _GIVEN else name
            phrases.append(f"{given}{_WAS}{before} and is now {now}")
    return phrases


def changes_of_data(phrases: Sequence[str]) -> list[str]:
    """Returns how two configurations differ, if they do in their data alone.

    Args:
      phrases: What `differences` returns of them.

    Returns:
      The phrases, of hashes only the names; none if something else differs.
    """
    names = [phrase.partition(_WAS)[0] for phrase in phrases]
    # Of test clients alone, another number may be what was asked for.
    known = _OF_CLIENTS if any(name.startswith("train.") for name in names) else ()
    of_data = (*examples_digest.HASHES, *known)
    if not all(name.rpartition(".")[2] in of_data for name in names):
        return []
    return [
        name if name.endswith("_sha256") else phrase
        for name, phrase in zip(names, phrases, strict=True)
    ]


def as_then(training: Mapping[str, Any], was: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a training in the form of the version that saved others.

    Earlier versions kept callbacks' settings among the run's own, and did not know the
    method, the sampling, and what examples there are. They took a cohort's size beside
    a sampling, to which it meant nothing.

    Args:
      training: The arguments of the training that is asked for.
      was: Those that were saved.
    """
    plain = {
        name: value
        for name, value in training.items()
        if name in was or name not in _ADDED
    }
    plain = _known(plain, was)
    if _CALLBACKS not in was:
        for settings in plain.pop(_CALLBACKS, {}).values():
            plain.update({k: v for k, v in settings.items() if k != _EVALUATION})
    if plain.get(_COHORT_SIZE) is None and _COHORT_SIZE in was:
        plain[_COHORT_SIZE] = was[_COHORT_SIZE]
    return plain


def _known(now: Mapping[str, Any], was: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is compared, at any depth, without hashes that were not known."""
    return {
        name: _known(value, was.get(name) or {})
        if isinstance(value, Mapping) and isinstance(was.get(name) or {}, Mapping)
        else value
        for name, value in now.items()
        if name in was or name not in examples_digest.HASHES
    }
