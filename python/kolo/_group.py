"""Groups of ranks."""

from __future__ import annotations

import itertools
from ctypes import byref, c_int32, c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Mapping, Sequence, overload

from . import _c, _rows
from ._collectives import Collectives
from ._errors import UsageError
from ._gradients import GradientSet, register
from ._handle import Handle, Owned
from ._library import library
from ._messages import Messages
from ._rows import Rows
from ._ticket import Ticket
from ._types import RowOptions
from ._wait import Subject, call

if TYPE_CHECKING:
    from typing_extensions import Unpack

ARENA_BYTES = 64 << 20
"""Default address space of a member's arena in a group."""


class Group(Collectives, Messages):
    """A group of ranks and its collectives. Ranks are numbered from 0 in each group.

    A group has names and errors of its own. It is released with the last reference, once all members have released
    it; nobody waits for that, as opposed to `close`.
    """

    rank: int
    """This process's rank in the group, from 0 to size - 1."""
    size: int
    """Number of ranks in the group."""
    ranks_of_job: tuple[int, ...]
    """The ranks of the job, by rank in the group."""
    name: str
    """What errors call it."""

    def __init__(self, handle: Handle, owned: Owned, pointer: Any, name: str) -> None:
        lib = library()
        self._handle = handle
        self._owned = owned  # Of the group, or of the runtime that the group of all ranks belongs to.
        self._pointer = pointer
        self.name = name
        self.rank = lib.kolo_group_rank(pointer)
        self.size = lib.kolo_group_size(pointer)
        ranks = (c_int32 * self.size)()
        lib.kolo_group_ranks(pointer, ranks)
        self.ranks_of_job = tuple(ranks)
        self._made = itertools.count()

    # --- groups of this group ----------------------------------------------------------------------

    def group(self, ranks: Sequence[int], *, name: str = "", arena_bytes: int = ARENA_BYTES) -> Group:
        """Founds a group of these ranks of this group, in this order. Called by its members only.

        `name` is for errors, and tells groups of the same ranks apart. `arena_bytes`: address space of each member's
        arena. Both are the same on all members.
        """
        array = (c_int32 * len(ranks))(*ranks)
        return _required(self._found(library().kolo_group_create, (array, len(ranks)), name, arena_bytes))

    def split(
        self, color: int | None, key: int | None = None, *, name: str = "", arena_bytes: int = ARENA_BYTES
    ) -> Group | None:
        """Splits this group into one for each color, ordered by key (default: the rank) and then by rank. Collective.
        A rank whose color is None or negative gets None."""
        places = (-1 if color is None else color, self.rank if key is None else key)
        return self._found(library().kolo_group_split, places, name, arena_bytes)

    def node_group(self, *, name: str = "", arena_bytes: int = ARENA_BYTES) -> Group:
        """The group of the ranks of this group on this node. Collective over those."""
        return _required(self._found(library().kolo_group_node, (), name, arena_bytes))

    def cross_group(self, *, name: str = "", arena_bytes: int = ARENA_BYTES) -> Group:
        """The group of the ranks of this group with the same place in their nodes, one of each node. Collective over
        those."""
        return _required(self._found(library().kolo_group_cross, (), name, arena_bytes))

    def _found(self, function: Any, arguments: tuple[Any, ...], name: str, arena_bytes: int) -> Group | None:
        options = _c.sized(_c.kolo_group_options, name=name.encode(), arena_bytes=arena_bytes)
        pointer = c_void_p()
        self._call(function, *arguments, byref(options), byref(pointer))
        if not pointer:
            return None
        owned = Owned(pointer, library().kolo_group_release, made_of=self._owned)
        return Group(self._handle, owned, pointer, name)

    # --- all ranks together ------------------------------------------------------------------------

    @overload
    def barrier(self, *, wait: Literal[True] = ...) -> None: ...
    @overload
    def barrier(self, *, wait: Literal[False]) -> Ticket[None]: ...
    @overload
    def barrier(self, *, wait: bool) -> Ticket[None] | None: ...

    def barrier(self, *, wait: bool = True) -> Ticket[None] | None:
        """Returns when every rank has called it; with `wait=False` a `Ticket` that is done then."""
        ticket: Ticket[None] = Ticket(self._handle, self, lambda _: None, self._subject("barrier"))
        ticket.begin(library().kolo_barrier, self._pointer)
        return ticket.wait() if wait else ticket

    def join(self) -> int:
        """This rank has run out of data: takes part in what the others do, until all have joined. Returns the rank
        that joined last. No other thread uses the group meanwhile."""
        last = c_int32()
        self._call(library().kolo_join, byref(last))
        return last.value

    def register_gradients(
        self,
        name: str,
        gradients: Mapping[str, Any] | Sequence[Any],
        *,
        op: str = "average",
        wire_dtype: Any = None,
        compression: str | None = None,
        divisor: str = "all_ranks",
    ) -> GradientSet:
        """Agrees on a set of gradients with all ranks and plans its buckets. Collective.

        `gradients` are arrays, which Kolo then reads and writes where they are, or `kolo.Gradient`s, by name or in a
        list. Names, shapes, types and options are the same on all ranks.
        `wire_dtype`: of what is sent, for example "bfloat16"; None: the option `wire_dtype`.
        `compression`: rules by name; None: the option `compression`.
        `divisor` of an average: "all_ranks", "contributing_ranks", or "samples", see `GradientSet.set_samples`.
        """
        return register(self, name, gradients, op, wire_dtype, compression, divisor)

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
        """Sums rows of a table over all ranks: the gradient of an embedding. Returns `Rows`; with `wait=False` a `Ticket`
        that has them.

        Shape:  `rows` is [n, width], a row for each of `indices`, which is int64 [n], may repeat, and is below
                `height`, the rows of the table.
        `op` is sum or average. `exchange` is "rows", "table", or "auto": the one that is predicted to take less time.
        `result` is "rows", which an exchange of the table does not give, "table", or "auto": that of the exchange.
        The scales, of each rank's sum of a row and of the result, are equal on all ranks.
        Lists of `indices`, `rows` and `height` are several tables of one type, which share their exchanges; the result
        is a list of `Rows`, each as of a call on its table alone.
        `rows` in device memory, which the work enqueued on `stream`, a cudaStream_t, writes, stay there, and so do the
        sums: a `Memory`, of which `torch.as_tensor` and `cupy.asarray` make an array. `indices` are in host memory.
        """
        scales = (scale_before, scale_after)
        ticket = _rows.begin(self, indices, rows, height, name, op, result, exchange, *scales, stream)
        return ticket.wait() if wait else ticket

    @property
    def network_bytes_sent(self) -> int:
        """Payload bytes that this rank has sent to other nodes in the group's own operations."""
        return int(library().kolo_network_bytes_sent(self._pointer))

    def keep_order(self) -> None:
        """From now on all ranks begin their collectives in this group in one order, whatever their names: ranks whose
        n-th ones differ get a `MismatchError` that quotes both. Called at the same place by all ranks, while none has a
        collective of the group under way. Such a group has no `join`."""
        self._call(library().kolo_group_keep_order)

    def close(self) -> None:
        """Waits until all members close the group. Collective; later calls fail."""
        self._call(library().kolo_group_close)

    def _new_name(self, kind: str) -> str:
        """A name that no former call gave; equal on ranks that make these calls in the same order."""
        return f"{kind} {next(self._made)}"

    def _subject(self, name: str, peer: int | None = None) -> Subject:
        """An operation of this rank, as errors of waits name it."""
        return Subject(name, self.rank, self._name_in_errors(), peer)

    def _name_in_errors(self) -> str:
        """As the library names it; empty: the job."""
        ranks = str(list(self.ranks_of_job))
        return f"'{self.name}' {ranks}" if self.name else ranks

    def _call(self, function: Any, *arguments: Any) -> None:
        """A call that blocks and has no ticket."""
        call(function, self._pointer, *arguments, runtime=self._handle.pointer, keep=self)

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the group, unless the block ended by an exception: then nobody may be left to wait for."""
        if kind is None:
            self.close()

    def __repr__(self) -> str:
        return f"<kolo.{type(self).__name__} {self.name!r}: rank {self.rank} of {self.size}>"

    def __del__(self) -> None:
        if hasattr(self, "_owned"):
            self._owned.drop()


def _required(group: Group | None) -> Group:
    if group is None:
        raise UsageError("the library gave no group")
    return group
