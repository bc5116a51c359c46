"""Bad values of every kind of argument, and what an error must say of one.

Every argument is also given values that are long to print: neither an error nor what
is returned may print them at length.
"""

import collections
import functools
import pathlib
import traceback

import numpy as np
import pytest
import tensorflow as tf

from tests.soak import results
from tff_drift import checks

_ROOT = pathlib.Path(__file__).parents[2]
_NAN, _INF = float("nan"), float("inf")
# Of a message: it is read in a terminal.
LONGEST = 1200

# What only some functions forbid is added where they are tried.
LONG = {k: np.arange(3000.0).reshape(-1, 3) for k in range(30)}
ANY = [object(), np.zeros(2), {1: 2}, LONG, b"a"]
# To Python it is an integer.
_DURATION = np.timedelta64(3, "s")
INTEGER = [*ANY, None, "a", "", 1.5, _NAN, _INF, True, [], -1, 2**70, _DURATION]
COUNT = [*INTEGER, 0]
OPTIONAL = [value for value in COUNT if value is not None]
WIDE_NUMBER = [*ANY, None, "a", _NAN, _INF, True, [], -1.0, 10**400, _DURATION]
# Infinite and 0 in float32, in which models are trained.
NUMBER = [*WIDE_NUMBER, 1e39, 1e-46]
POSITIVE = [*NUMBER, 0.0]
FRACTION = [*POSITIVE, 1, 1.5]
FLAG = [*ANY, None, "no", 0, 1, 1.0, []]
PATH = [*ANY, None, "", "a\0b", 0, []]
TEXT = [*ANY, None, "", 0, 1.5, []]
FUNCTION = [*ANY, "a", 0, []]
SMALL = [object(), LONG, "a", 3, lambda *_: None]
LIST = [object(), None, "a", 0, {1: 2}, LONG]
MODEL = [*FUNCTION, None, lambda: None]


class LongName:
    """What has a long name, as code that is made by code has."""

    def __repr__(self):
        return "<a long one, " + "of many words " * 3000 + ">"


# None is right for any argument but a name, a label or a list.
LONG_VALUES = {
    "text": "many words " * 3000,
    "bytes": b"\n" * 5000,
    "nested lists": [[0.5] * 100] * 1000,
    "names": [f"column {k}" for k in range(5000)],
    "a mapping": {f"key {k}": k for k in range(10**4)},
    "specs": {f"x{k}": tf.TensorSpec([None, 3]) for k in range(500)},
    "an array of text": np.array(["many words " * 300] * 50),
    "a long name": LongName(),
}


# How many bad values got each answer: the class of an error, or what was wrong.
ANSWERS: collections.Counter = collections.Counter()


def _complaint(error, argument, bad, names):
    """Returns what is wrong with an error, if anything."""
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    ours = [
        name for name in frames if name.startswith(str(_ROOT)) and "/.venv/" not in name
    ]
    if not isinstance(error, (TypeError, ValueError, OSError)):
        return f"{type(error).__name__}: {error}"
    if frames[-1] != ours[-1] or (frames[-1] == __file__ and argument != "unknown"):
        return f"raised by {frames[-1]}: {error}"
    if "\n" in str(error).strip() and "\n" not in repr(bad):
        return f"several lines: {error}"
    if len(str(error)) > LONGEST:
        return f"{len(str(error))} characters: {error}"[:200]
    told = (*names, repr(bad), checks.shown(bad))
    if not any(each in str(error) for each in told):
        return f"neither argument nor value: {error}"
    return None


def told_of(call):
    """Returns the text of what a function returns, or of its error.

    Lists, tuples and mappings of Python, which print themselves, have none.
    """
    try:
        result = call()
    except Exception as error:
        return str(error)
    return "" if type(result) in (list, tuple, dict) else repr(result)


def name_of(function):
    return getattr(function, "__qualname__", "evaluate")


def walk(cases):
    """The parameters of a test: function, good arguments, argument, bad values."""
    return [
        pytest.param(
            function,
            good,
            argument,
            bad,
            id=f"{name_of(function)}-{argument}",
        )
        for function, good, arguments in cases
        for argument, bad in arguments.items()
    ]


def tell(what, cases):
    """Tells of all bad values that were tried in this program, see `results.add`."""
    results.add(
        {
            "what": "bad values",
            "of": what,
            "functions": len({name_of(function) for function, *_ in cases}),
            "arguments": sum(len(bad) for *_, bad in cases),
            "answers": dict(sorted(ANSWERS.items())),
        }
    )
    ANSWERS.clear()


def complaints(function, good, argument, bad, names=None):
    """Calls a function with bad values; returns what is wrong with its errors.

    An error must be one line, raised by this library, that names the argument or, for
    names of columns and the like, the value.

    Args:
      function: The function.
      good: Its arguments with good values.
      argument: The argument that is bad.
      bad: The bad values.
      names: What may name the argument, separated by bars; by default its name.
    """
    found = []
    for value in bad:
        try:
            function(**{**good, argument: value})
        except Exception as error:
            names_of_it = (names or argument).split("|")
            complaint = _complaint(error, argument, value, names_of_it)
            ANSWERS["another" if complaint else type(error).__name__] += 1
        else:
            complaint = "taken"
            ANSWERS[complaint] += 1
        if complaint:
            found.append(f"{repr(value)[:200]}: {complaint}")
    for kind, value in LONG_VALUES.items():
        call = functools.partial(function, **{**good, argument: value})
        text = told_of(call)
        if len(text) > LONGEST:
            found.append(f"{kind}: {len(text)} characters: {text}"[:500])
    return found
