"""The metrics of a long run in little RAM."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any, overload

from tff_drift.simulation.records.metrics import MetricsRecord


class MetricsTable(Sequence[MetricsRecord]):
    """A growing sequence of metrics records, whose column names are kept once.

    As dictionaries the records of a run take some 5 KB each, most of it for names,
    which are the same in every record. Here a number takes 9 bytes. Records come out
    as new dictionaries that equal those that went in.
    """

    def __init__(self, records: Iterable[MetricsRecord] = ()) -> None:
        """Makes a table.

        Args:
          records: The records to begin with.
        """
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._records: list[tuple[tuple[str, ...], bytes]] = []
        for record in records:
            self.append(record)

    def append(self, record: MetricsRecord) -> None:
        """Adds a record.

        Args:
          record: Numbers by column name.
        """
        names = tuple(record)
        names = self._names.setdefault(names, names)
        self._records.append((names, pickle.dumps(tuple(record.values()))))

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> MetricsRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[MetricsRecord]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [_unpack(record) for record in self._records[index]]
        return _unpack(self._records[index])


def _unpack(record: tuple[tuple[str, ...], bytes]) -> MetricsRecord:
    names, packed = record
    return dict(zip(names, pickle.loads(packed), strict=True))
