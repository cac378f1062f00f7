"""Operations in flight."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Callable, Protocol, Sequence

from kolo import Ticket
from kolo.torch._completions import completions, descriptor_of
from kolo.torch._work import KoloWork

from ._errors import internal_errors
from ._job import Job, current

if TYPE_CHECKING:
    from ._process_sets import ProcessSet

__all__ = ["poll", "synchronize"]


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


class Staged:
    """One that begins when another one is over, such as the exchange of the sizes that it needs: `first` is on its way,
    `begin` starts the rest.

    Whoever comes first starts it: the thread that completes futures, or the one that waits. So no rank that is busy
    with something else holds up the others.
    """

    def __init__(self, job: Job, first: Ticket, begin: Callable[[], Handle], after: Staged | None) -> None:
        """`after`: one whose rest starts before."""
        self._rest: Handle | None = None
        self._begin = begin
        self._after = after
        self._first = KoloWork([first], self._start, None, None)

        def step() -> int | None:
            if not first.done():
                return descriptor_of(first)
            with contextlib.suppress(Exception):  # Whoever wants the result gets it.
                self._first.wait()
            # Else Kolo would take this thread for one that may still submit what other ranks wait for.
            job.runtime.leave_thread()
            return None

        # What goes wrong here, whoever waits for the result meets too.
        completions().watch(step, lambda error: None)

    def _start(self) -> None:
        if self._after is not None:
            with contextlib.suppress(Exception):  # It raises its own errors.
                self._after._first.wait()
            self._after = None
        self._rest = self._begin()

    def done(self) -> bool:
        if not self._first.is_completed():
            return False
        # Also where the first stage is in error: `result` raises that at once.
        return self._first.exception() is not None or self._started().done()

    def result(self) -> Any:
        self._first.wait()
        return self._started().result()

    def _started(self) -> Handle:
        assert self._rest is not None
        return self._rest


def staged(first: Ticket, begin: Callable[[], Handle], name: str | None, process_set: ProcessSet) -> Handle:
    """A `Staged` operation. Those of one name go on in the order in which they were called, which is that of all
    ranks."""
    job = current()
    key = (process_set.process_set_id, name)
    handle = job.latest_staged[key] = Staged(job, first, begin, job.latest_staged.get(key))
    return handle


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
