"""Row-sparse all-reduce: sums of some rows of a table."""

from __future__ import annotations

import threading
from ctypes import POINTER, byref, c_int, c_int64, c_size_t, c_void_p, cast
from typing import Any

from . import _c, _dtypes
from ._buffers import Memory, array_at, memory_of
from ._collectives import OPS, choice
from ._errors import UsageError, check
from ._handle import Owned
from ._library import library
from ._ticket import Ticket

_FORMS = {"auto": _c.KOLO_AUTO_FORM, "rows": _c.KOLO_ROWS, "table": _c.KOLO_TABLE}
_OPS = {name: OPS[name] for name in ("sum", "average")}


class Rows:
    """The result of a row-sparse all-reduce: the rows that some rank had, or the whole table."""

    indices: Any
    """int64 [n], ascending; None: `rows` is the whole table."""
    rows: Any
    """[n, width], or [height, width]."""

    def __init__(self, indices: Any, rows: Any) -> None:
        self.indices = indices
        self.rows = rows

    @property
    def is_table(self) -> bool:
        """Whether these are all rows of the table."""
        return self.indices is None

    def add_to(self, table: Any, factor: float = 1.0) -> None:
        """Adds `factor` times the rows to those of a NumPy array [height, width]."""
        if self.is_table:
            table += factor * self.rows
        else:
            table[self.indices] += factor * self.rows  # No index comes twice.

    def __repr__(self) -> str:
        return "<kolo.Rows: the table>" if self.is_table else f"<kolo.Rows: {len(self.indices)}>"


class _Sums:
    """Owns a `kolo_row_sums*`, whose memory the arrays of a result share."""

    def __init__(self, group: Any) -> None:
        self.pointer = c_void_p()
        check(library().kolo_row_sums_create(byref(self.pointer)))
        self._owned = Owned(self.pointer, library().kolo_row_sums_release, made_of=group._owned)

    def __del__(self) -> None:
        self._owned.drop()


class _Result:
    """Takes the result of a ticket, and keeps it for those who wait again."""

    def __init__(self, group: Any, width: int) -> None:
        self._group = group
        self._width = width
        self._lock = threading.Lock()
        self._rows: Rows | None = None

    def __call__(self, ticket: Any) -> Rows:
        with self._lock:
            if self._rows is None:
                sums = _Sums(self._group)
                check(library().kolo_ticket_row_sums(ticket, sums.pointer))
                self._rows = _result_of(sums, self._width)
            return self._rows


def begin(
    group: Any,
    indices: Any,
    rows: Any,
    height: int,
    name: str | None,
    op: str,
    result: str,
    exchange: str,
    scale_before: float,
    scale_after: float,
) -> Ticket:
    chosen = memory_of(indices, "indices")
    if chosen.dtype.name != "int64":
        raise UsageError(f"indices are int64, not {chosen.dtype.name}")
    values = memory_of(rows, "rows")
    if len(values.shape) != 2 or values.shape[0] != chosen.count:
        raise UsageError(f"rows has the shape {values.shape}, not [{chosen.count}, width] for {chosen.count} indices")
    width = values.shape[1]
    table = _c.sized(
        _c.kolo_row_table,
        height=height,
        width=width,
        dtype=values.dtype.code,
        op=choice(_OPS, op, "op"),
        result=choice(_FORMS, result, "result"),
        exchange=choice(_FORMS, exchange, "exchange"),
        scale_before=scale_before,
        scale_after=scale_after,
    )
    ticket = Ticket(group._handle, (group, values), _Result(group, width), group._subject(name or "sparse_all_reduce"))
    ticket.begin(
        library().kolo_sparse_all_reduce_async,
        group._pointer,
        name.encode() if name else None,
        byref(table),
        cast(chosen.address, POINTER(c_int64)),
        chosen.count,
        values.address,
        None,
    )
    return ticket


def _result_of(sums: _Sums, width: int) -> Rows:
    is_table = c_int()
    indices = POINTER(c_int64)()
    num_indices = c_size_t()
    rows = _c.kolo_buffer()
    arguments = (byref(is_table), byref(indices), byref(num_indices), byref(rows))
    check(library().kolo_row_sums_get(sums.pointer, *arguments))
    dtype = _dtypes.BY_CODE[rows.dtype]
    height = rows.count // width if width else 0
    values = array_at(Memory(rows.data, rows.count, dtype, sums, shape=(height, width)))
    if is_table.value:
        return Rows(None, values)
    address = cast(indices, c_void_p).value or 0
    return Rows(array_at(Memory(address, num_indices.value, "int64", sums)), values)
