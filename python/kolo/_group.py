"""Groups of ranks."""

from __future__ import annotations

import itertools
from ctypes import byref, c_int32, c_void_p
from types import TracebackType
from typing import Any, Literal, Sequence, overload

from . import _c
from ._collectives import Collectives
from ._gradients import Registers
from ._handle import Handle, Owned, Owner
from ._library import library
from ._messages import Messages
from ._rows import RowSums
from ._wait import PendingCall, Ticket

ARENA_BYTES = 64 << 20
"""Default address space of a member's arena in a group."""


class Group(Collectives, Messages, RowSums, Registers, Owner):
    """A group of ranks and its collectives. Ranks are numbered from 0 in each group.

    A group has its own names of operations and its own errors. Dropping the last reference releases the group on this
    rank; unlike `close`, it does not wait for other members.
    """

    rank: int
    """This process's rank in the group, from 0 to size - 1."""
    size: int
    """Number of ranks in the group."""
    ranks_of_job: tuple[int, ...]
    """Rank in the job of each rank in the group."""
    name: str
    """The name of the group in errors."""

    def __init__(self, handle: Handle, owned: Owned, pointer: Any, name: str) -> None:
        lib = library()
        self._handle = handle
        self._owned = owned  # Owns the group, or the runtime if this is the group of all ranks.
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
        """Creates a group of the given ranks of this group, in the given order. Only members of the new group call it.

        `name` appears in errors, and tells groups of the same ranks apart. `arena_bytes` is the address space of each
        member's arena. Both are equal on all members.
        """
        return self._group(ranks, name, arena_bytes=arena_bytes)

    def _group(self, ranks: Sequence[int], name: str, **options: int) -> Group:
        array = (c_int32 * len(ranks))(*ranks)
        group: Group = self._found(library().kolo_group_create, (array, len(ranks)), name, **options)
        return group

    def split(
        self, color: int | None, key: int | None = None, *, name: str = "", arena_bytes: int = ARENA_BYTES
    ) -> Group | None:
        """Splits this group into one group per color, ordered by key (default: the rank) and then by rank. Collective.
        On a rank whose color is None or negative, the method returns None."""
        places = (-1 if color is None else color, self.rank if key is None else key)
        return self._found(library().kolo_group_split, places, name, arena_bytes=arena_bytes)

    def node_group(self, *, name: str = "", arena_bytes: int = ARENA_BYTES) -> Group:
        """Creates a group of the ranks of this group on this node. Collective over these ranks."""
        return self._found(library().kolo_group_node, (), name, arena_bytes=arena_bytes)

    def cross_group(self, *, name: str = "", arena_bytes: int = ARENA_BYTES) -> Group:
        """Creates a group of the ranks of this group with the same local rank, one per node. Collective over these
        ranks."""
        return self._found(library().kolo_group_cross, (), name, arena_bytes=arena_bytes)

    def _found(self, function: Any, arguments: tuple[Any, ...], name: str, **options: int) -> Any:
        """Creates a group. Returns None if a split leaves out this rank."""
        given = _c.kolo_group_options(name=name.encode(), **{"arena_bytes": ARENA_BYTES, **options})
        pointer = c_void_p()
        self._call(function, *arguments, byref(given), byref(pointer))
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
        """Blocks until every rank has called it. With `wait=False` it returns a `Ticket`, which is done at that
        time."""
        ticket: Ticket[None] = Ticket(self._handle, self, lambda _: None, self._subject("barrier"))
        ticket.begin(library().kolo_barrier, self._pointer)
        return ticket.wait() if wait else ticket

    def join(self) -> int:
        """For a rank that has run out of data: takes part in the operations of other ranks until all ranks have joined.
        Returns the rank that joined last. No other thread may use the group during the call."""
        last = c_int32()
        self._call(library().kolo_join, byref(last))
        return last.value

    @property
    def network_bytes_sent(self) -> int:
        """Payload bytes that this rank has sent to other nodes in the group's own operations."""
        return int(library().kolo_network_bytes_sent(self._pointer))

    def keep_order(self) -> None:
        """Requires that from now on all ranks begin the collectives of this group in the same order. If the n-th
        collectives of two ranks differ, they raise a `MismatchError`, which quotes both. All ranks call it at the same
        point, while no collective of the group is in flight. `join` is not available in such a group."""
        self._call(library().kolo_group_keep_order)

    def close(self) -> None:
        """Waits until all members close the group. Collective; later calls fail."""
        self._call(library().kolo_group_close)

    def _new_name(self, kind: str) -> str:
        """Returns a name that no earlier call returned. Ranks that call it in the same order get equal names."""
        return f"{kind} {next(self._made)}"

    def _subject(self, name: str, peer: int | None = None) -> PendingCall:
        """Describes an operation of this rank, for the error of a timeout."""
        return PendingCall(name, self.rank, self._name_in_errors(), peer)

    def _name_in_errors(self) -> str:
        """Returns the group's name in errors of the library; an empty name means the job."""
        ranks = str(list(self.ranks_of_job))
        return f"'{self.name}' {ranks}" if self.name else ranks

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the group, unless the block ended by an exception, after which other ranks may never close it."""
        if kind is None:
            self.close()

    def __repr__(self) -> str:
        return f"<kolo.{type(self).__name__} {self.name!r}: rank {self.rank} of {self.size}>"
