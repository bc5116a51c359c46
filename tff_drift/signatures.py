"""Decorators that help with calls: unknown arguments, options that are passed on."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from tff_drift import checks

_Function = TypeVar("_Function", bound=Callable[..., Any])


def suggesting_names(**others: str) -> Callable[[_Function], _Function]:
    """Lets functions answer an unknown argument with the one that was meant.

    Args:
      **others: What replaces an argument that has this name elsewhere, such as
        `drop_remainder='last_batch="drop"'`.

    Returns:
      A decorator of functions with named arguments. A call with an unknown one raises
      a `TypeError` that names the nearest.
    """

    def decorate(function: _Function) -> _Function:
        known = inspect.signature(function).parameters
        name = function.__qualname__.replace(".__init__", "")

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            for each in kwargs:
                if each not in known:
                    advice = _meant(each, known, others)
                    unknown = checks.shown(each)
                    raise TypeError(f"{name}() has no argument {unknown}.{advice}")
            return function(*args, **kwargs)

        return checked  # type: ignore[return-value]

    return decorate


def with_options_of(
    function: Callable[..., Any], are_given: bool = False
) -> Callable[[_Function], _Function]:
    """Spells out `**options` that are passed on to another function.

    Help and the completion of notebooks list them then.

    Args:
      function: The other function, which takes them by name alone.
      are_given: Whether only those that are given count, so that none has a default
        to show.

    Returns:
      A decorator of functions that take `**options`, after arguments of their own.
    """

    def decorate(passing_on: _Function) -> _Function:
        own = inspect.signature(passing_on)
        options = {
            name: each.replace(default=...) if are_given else each
            for name, each in inspect.signature(function).parameters.items()
            if each.kind is each.KEYWORD_ONLY
        }
        named = []
        for name, each in own.parameters.items():
            if name in options:
                options[name] = each
            elif each.kind is not each.VAR_KEYWORD:
                named.append(each)
        passing_on.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[*named, *options.values()]
        )
        return passing_on

    return decorate


def _meant(name: str, known: Collection[str], others: dict[str, str]) -> str:
    """Returns the question whether another name was meant, or the names there are."""
    public = [each for each in known if each not in ("self", "cls")]
    stands_for = {**{each: each for each in public}, **others}
    for other, here in others.items():
        # What this function has no argument for is no advice.
        if here.partition("=")[0] not in public:
            del stands_for[other]
    # Words are compared by letters: `batchsize` and `batch_size` have the same.
    by_letters = {each.replace("_", ""): here for each, here in stands_for.items()}
    letters = name.replace("_", "")
    nearest = [each for each in by_letters if each.startswith(letters)]
    nearest += difflib.get_close_matches(letters, by_letters, 1, 0.7)
    if nearest:
        return f" Did you mean {by_letters[nearest[0]]}?"
    return f" Its arguments are {', '.join(public)}."
