"""Objects in Ray's store, which are stored again where Ray loses them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any


class _Stored:
    """An object in Ray's store, and what it is stored from again if Ray loses it.

    It is sent as the reference alone.

    Attributes:
      reference: Ray's reference to it.
    """

    def __init__(self, put: Callable[[Any], Any], value: Any) -> None:
        self._put = put
        self._value = value
        self.store()

    def store(self) -> None:
        value = self._value
        if isinstance(value, weakref.ref):
            value = value()
            if value is None:  # Nobody asks for it any more.
                return
        self.reference = self._put(value)

    def __reduce__(self) -> Any:
        return _received, (self.reference,)


def _received(reference: Any) -> Any:
    return reference


def reference_of(argument: Any) -> Any:
    """Returns Ray's reference to what was stored, and anything else as it is.

    Args:
      argument: The argument of a call.
    """
    return argument.reference if isinstance(argument, _Stored) else argument


class StoredObjects:
    """The objects that were stored and that somebody still asks for."""

    def __init__(self, put: Callable[[Any], Any]) -> None:
        """Begins with none.

        Args:
          put: Stores an object, and returns Ray's reference to it.
        """
        self._put = put
        # In the order of their making: the later ones may refer to the earlier.
        self._stored: weakref.WeakValueDictionary[int, _Stored]
        self._stored = weakref.WeakValueDictionary()
        self._numbers = itertools.count()

    def put(self, value: Any) -> Any:
        """Stores an object.

        Args:
          value: The object, or a weak reference to it. It is kept, to be stored again.

        Returns:
          What stands for it as long as it is kept, and is sent as the reference.
        """
        stored = _Stored(self._put, value)
        self._stored[next(self._numbers)] = stored
        return stored

    def store_again(self) -> None:
        """Stores all objects again."""
        for stored in list(self._stored.values()):
            stored.store()
