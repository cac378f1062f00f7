"""Row-sparse all-reduces, which sum some rows of a table."""

from __future__ import annotations

import threading
from ctypes import POINTER, byref, c_int, c_int64, c_size_t, c_void_p, cast
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _c, _dtypes
from ._buffers import Memory, array_at, memory_of
from ._collectives import Scaled, call_of
from ._errors import UsageError, check
from ._handle import Owned, Owner
from ._library import library
from ._streams import stream_for
from ._wait import Calls, Ticket

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray
    from typing_extensions import Unpack

_FORMS = {"auto": _c.KOLO_AUTO_FORM, "rows": _c.KOLO_ROWS, "table": _c.KOLO_TABLE}


class RowOptions(Scaled, total=False):
    op: str
    result: str
    exchange: str


class Rows:
    """The result of a row-sparse all-reduce: the rows that any rank passed, or the whole table."""

    indices: NDArray[int64] | None
    """int64 [n], ascending; None: `rows` is the whole table."""
    rows: NDArray[Any] | Memory
    """[n, width], or [height, width]; a `Memory` if it is in device memory."""

    def __init__(self, indices: NDArray[int64] | None, rows: NDArray[Any] | Memory) -> None:
        self.indices = indices
        self.rows = rows

    @property
    def is_table(self) -> bool:
        """Whether these are all rows of the table."""
        return self.indices is None

    def add_to(self, table: Any, factor: float = 1.0) -> None:
        """Adds `factor` times the rows to the rows of a NumPy array [height, width]."""
        if isinstance(self.rows, Memory):
            raise UsageError("the rows are in device memory, and NumPy adds in host memory; see `rows`")
        if self.indices is None:
            table += factor * self.rows
        else:
            table[self.indices] += factor * self.rows  # All indices are distinct.

    def __repr__(self) -> str:
        return "<kolo.Rows: the table>" if self.indices is None else f"<kolo.Rows: {len(self.indices)}>"


class _Sums(Owner):
    """Owns a `kolo_row_sums*`. The arrays of a result are views of its memory."""

    def __init__(self, group: Any) -> None:
        self.pointer = c_void_p()
        check(library().kolo_row_sums_create(byref(self.pointer)))
        self._owned = Owned(self.pointer, library().kolo_row_sums_release, made_of=group._owned)


class _Results:
    """Takes the results of a ticket, and keeps them for repeated waits."""

    def __init__(self, group: Any, widths: list[int], is_list: bool) -> None:
        self._group = group
        self._widths = widths
        self._is_list = is_list
        self._lock = threading.Lock()
        self._rows: list[Rows] | None = None

    def __call__(self, ticket: Any) -> Any:
        with self._lock:
            if self._rows is None:
                sums = [_Sums(self._group) for _ in self._widths]
                pointers = (c_void_p * len(sums))(*(each.pointer for each in sums))
                check(library().kolo_ticket_row_sums(ticket, pointers, len(sums)))
                self._rows = [_result_of(each, width) for each, width in zip(sums, self._widths)]
            return self._rows if self._is_list else self._rows[0]


class _Given:
    """A rank's rows of one table."""

    def __init__(self, indices: Any, rows: Any, height: int) -> None:
        self.indices = memory_of(indices, "indices")
        if self.indices.dtype.name != "int64":
            raise UsageError(f"indices are int64, not {self.indices.dtype.name}")
        if self.indices.is_device:
            raise UsageError("indices are in device memory, and Kolo takes them in host memory")
        self.rows = memory_of(rows, "rows")
        count, shape = self.indices.count, self.rows.shape
        if len(shape) != 2 or shape[0] != count:
            raise UsageError(f"rows has the shape {shape}, not [{count}, width] for {count} indices")
        self.width = shape[1]
        self.height = height

    def parameter(self) -> _c.kolo_row_table:
        indices = cast(self.indices.address, POINTER(c_int64))
        rows = self.rows
        return _c.kolo_row_table(
            self.height, self.width, indices, self.indices.count, rows.address, rows.dtype.code, rows.kind
        )


def _given(indices: Any, rows: Any, height: Any) -> list[_Given]:
    if not isinstance(rows, (list, tuple)):
        return [_Given(indices, rows, height)]
    if not isinstance(indices, (list, tuple)) or not isinstance(height, (list, tuple)):
        raise UsageError("rows of several tables come with a list of indices and one of heights")
    if not len(indices) == len(rows) == len(height):
        raise UsageError(f"{len(indices)} arrays of indices and {len(height)} heights for {len(rows)} tables")
    if not rows:
        raise UsageError("the list of tables is empty")
    tables = [_Given(*each) for each in zip(indices, rows, height)]
    types = sorted({each.rows.dtype.name for each in tables})
    if len(types) > 1:
        raise UsageError(f"rows of one operation have one type, not {' and '.join(types)}")
    if len({each.rows.is_device for each in tables}) > 1:
        raise UsageError("the rows of one operation are all in host memory, or all in device memory")
    return tables


def _result_of(sums: _Sums, width: int) -> Rows:
    is_table = c_int()
    indices = POINTER(c_int64)()
    num_indices = c_size_t()
    rows = _c.kolo_buffer()
    arguments = (byref(is_table), byref(indices), byref(num_indices), byref(rows))
    check(library().kolo_row_sums_get(sums.pointer, *arguments))
    dtype = _dtypes.of_code(rows.dtype)
    height = rows.count // width if width else 0
    is_device = rows.memory == _c.KOLO_DEVICE
    values: Any = Memory(rows.data, rows.count, dtype, sums, is_device=is_device, shape=(height, width))
    if not is_device:
        values = array_at(values)
    if is_table.value:
        return Rows(None, values)
    address = cast(indices, c_void_p).value or 0
    return Rows(array_at(Memory(address, num_indices.value, "int64", sums)), values)


class RowSums(Calls):
    """Sums of rows of tables, over a group."""

    @overload
    def sparse_all_reduce(
        self, indices: list[Any], rows: list[Any], height: list[int], *, wait: Literal[True] = ..., **options: Unpack[RowOptions]
    ) -> list[Rows]: ...
    @overload
    def sparse_all_reduce(
        self, indices: Any, rows: Any, height: int, *, wait: Literal[True] = ..., **options: Unpack[RowOptions]
    ) -> Rows: ...
    @overload
    def sparse_all_reduce(
        self, indices: list[Any], rows: list[Any], height: list[int], *, wait: Literal[False], **options: Unpack[RowOptions]
    ) -> Ticket[list[Rows]]: ...
    @overload
    def sparse_all_reduce(
        self, indices: Any, rows: Any, height: int, *, wait: Literal[False], **options: Unpack[RowOptions]
    ) -> Ticket[Rows]: ...
    @overload
    def sparse_all_reduce(
        self, indices: Any, rows: Any, height: Any, *, wait: bool, **options: Unpack[RowOptions]
    ) -> object: ...

    def sparse_all_reduce(
        self,
        indices: Any,
        rows: Any,
        height: Any,
        *,
        name: str | None = None,
        op: str = "sum",
        result: str = "auto",
        exchange: str = "auto",
        scale_before: float = 1.0,
        scale_after: float = 1.0,
        stream: int | None = None,
        wait: bool = True,
    ) -> Any:
        """Sums rows of a table over all ranks, such as the gradient of an embedding. Returns `Rows`; with `wait=False`,
        a `Ticket` of `Rows`.

        Shape:  `rows` is [n, width], with one row per element of `indices`. These are int64 [n], perhaps repeated, and
                less than `height`, the number of rows of the table.
        `op` is sum or average. `exchange` is "rows", "table", or "auto": the form with the lower predicted time.
        `result` is "rows", "table", or "auto": the form of the exchange. After an exchange of the table, "rows" is not
        possible. Scales multiply each rank's sum of a row, and the result; they are equal on all ranks.
        For several tables of one type, pass lists of `indices`, `rows` and `height`. The tables share their exchanges,
        and the result is a list of `Rows`, each as from a call with that table alone.
        `rows` in device memory are read after the work enqueued on `stream`, as in collectives. Their sums are a `Memory`
        in device memory, which `torch.as_tensor` and `cupy.asarray` turn into an array. `indices` are in host memory.
        """
        given = _given(indices, rows, height)
        options = _c.kolo_row_options(
            op=_dtypes.choice({each: _dtypes.ops()[each] for each in ("sum", "average")}, op, "op"),
            result=_dtypes.choice(_FORMS, result, "result"),
            exchange=_dtypes.choice(_FORMS, exchange, "exchange"),
        )
        call = call_of(name, stream_for(stream, (each.rows for each in given)), scale_before, scale_after)
        tables = (_c.kolo_row_table * len(given))(*(each.parameter() for each in given))
        results = _Results(self, [each.width for each in given], isinstance(rows, (list, tuple)))
        ticket = Ticket(self._handle, (self, given), results, self._subject(name or "sparse_all_reduce"))
        begin = library().kolo_sparse_all_reduce
        ticket.begin(begin, self._pointer, tables, len(given), byref(options), call, None)
        return ticket.wait() if wait else ticket
