"""References to values that a program's context returns before they are computed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import tree

from tff_drift import compat


def to_later(structure: Any, values: Awaitable[Any]) -> Any:
    """Returns references to values that are known later.

    Args:
      structure: A structure of references to other values, for their types.
      values: The structure of the values. It is awaited whether or not anybody asks
        for one of them.
    """

    async def leaves() -> list[Any]:
        return tree.flatten(await values)

    task = asyncio.get_running_loop().create_task(leaves())
    references = [
        _Reference(task, index, each.type_signature)
        for index, each in enumerate(tree.flatten(structure))
    ]
    return tree.unflatten_as(structure, references)


class _Reference(compat.MaterializableValueReference):
    """One of the values."""

    def __init__(self, values: asyncio.Task[list[Any]], index: int, type_: Any) -> None:
        self._values = values
        self._index = index
        self._type_signature = type_

    @property
    def type_signature(self) -> Any:
        return self._type_signature

    async def get_value(self) -> Any:
        return (await self._values)[self._index]
