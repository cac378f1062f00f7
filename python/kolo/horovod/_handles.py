"""Operations in flight."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Protocol, Sequence

from kolo import Ticket
from kolo.torch._work import KoloWork

from ._errors import internal_errors


class Handle(Protocol):
    """An operation in flight, for `poll` and `synchronize`. It may be dropped, like its tensors; it goes on."""

    def done(self) -> bool: ...

    def result(self) -> Any: ...


def nothing() -> None:
    """No result is to be put anywhere."""


class Operation:
    """One whose result has a place: `value`, once `finish` has run."""

    def __init__(self, tickets: Sequence[Ticket], value: Any, finish: Callable[[], None] = nothing) -> None:
        self.work = KoloWork(tickets, finish, value, None)

    def done(self) -> bool:
        return self.work.is_completed()

    def result(self) -> Any:
        return self.work.result()


class Sized:
    """One that needs to know sizes of other ranks: `sizes` are on their way, `begin` starts the operation proper.

    Whoever comes first starts it: the thread that completes futures, or the one that waits. So no rank that is busy
    with something else holds up the others. Those of one name start in the order in which they were called, which is
    that of all ranks.
    """

    def __init__(self, sizes: Ticket, begin: Callable[[], Handle], after: Sized | None) -> None:
        """`after`: the one of this name that was called before."""
        self._proper: Handle | None = None
        self._begin = begin
        self._after = after
        self._sizes = KoloWork([sizes], self._start, None, None)
        self._sizes.get_future()

    def _start(self) -> None:
        if self._after is not None:
            with contextlib.suppress(Exception):  # It raises its own errors.
                self._after._sizes.wait()
            self._after = None
        self._proper = self._begin()

    def done(self) -> bool:
        if not self._sizes.is_completed():
            return False
        # Also where the sizes are in error: `result` raises that at once.
        return self._sizes.exception() is not None or self._started().done()

    def result(self) -> Any:
        self._sizes.wait()
        return self._started().result()

    def _started(self) -> Handle:
        assert self._proper is not None
        return self._proper


def poll(handle: Handle) -> bool:
    """Whether the operation is over, so that `synchronize` does not block."""
    return handle.done()


def synchronize(handle: Handle) -> Any:
    """Waits for an operation and returns its result: a tensor, a list of tensors of a grouped operation, or tensor and
    splits of an alltoall.

    Errors: HorovodInternalError, the same on all ranks.
    """
    with internal_errors():
        return handle.result()
