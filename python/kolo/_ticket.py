"""Tickets of operations in flight."""

from __future__ import annotations

import os
from ctypes import byref, c_int, c_void_p
from typing import Any, Callable, Generator, Generic, NamedTuple, TypeVar

from . import _c
from ._errors import CancelledError, DeadlineError, KoloError, check
from ._handle import Handle
from ._library import library
from ._wait import SLICE_MS, Subject, is_interruptible, late_error, stepper, wait


Result = TypeVar("Result", covariant=True)


class Received(NamedTuple):
    """What a receive got."""

    source: int
    """The rank that sent it."""
    count: int  # type: ignore[assignment]  # Of elements, and not of a value in the tuple.
    """Number of elements."""


class Ticket(Generic[Result]):
    """One operation in flight, from a call with `wait=False`.

    The arrays of the operation belong to Kolo until it is done: do not write to them, and do not read results.
    Ticket and arrays may be dropped at any time; the operation goes on and keeps its memory. Only a receive whose wait
    was interrupted is then taken back, as by `cancel`.

        ticket = job.all_reduce(x, wait=False)
        ...
        ticket.wait()        # or: await ticket

    Threads: any.
    """

    __slots__ = ("_ticket", "_handle", "_buffers", "_finish", "_subject", "_was_interrupted", "__weakref__")

    def __init__(self, handle: Handle, buffers: Any, finish: Callable[[Any], Result], subject: Subject) -> None:
        """For groups. It exists before the operation begins, so that an interrupt at any time finds an owner of the
        buffers."""
        self._ticket = c_void_p()
        self._handle = handle
        self._buffers = buffers
        self._finish = finish
        self._subject = subject
        self._was_interrupted = False

    def begin(self, function: Callable[..., int], *arguments: Any) -> None:
        """For groups: begins the operation by a call whose last argument is the ticket."""
        self._handle.sweep()
        check(function(*arguments, byref(self._ticket)))

    def done(self) -> bool:
        """Whether it has a result or an error. Never blocks."""
        done = c_int()
        check(library().kolo_ticket_test(self._ticket, byref(done)))
        if done.value:
            self._buffers = None
        return bool(done.value)

    def wait(self, timeout: float | None = None) -> Result:
        """Waits for the result and returns it: what the call without `wait=False` returns.

        `timeout` is in seconds; None: the option `operation_timeout`. May be called again, also after an error.
        Errors: that of the operation, the same on every rank; DeadlineError, after which the operation goes on;
                KeyboardInterrupt, likewise.
        """
        step = stepper(library().kolo_ticket_wait, self._ticket)
        try:
            # Most operations end within the first slice.
            if timeout is not None or not step(SLICE_MS if is_interruptible() else -1):
                wait(step, timeout, self._handle.operation_timeout_ms, lambda: self._subject)
        except KoloError:
            raise
        except BaseException:  # Of a handler of signals.
            self._was_interrupted = True
            raise
        self._buffers = None
        return self._finish(self._ticket)

    def late_error(self, limit: float) -> DeadlineError:
        """The error of a wait that took `limit` seconds in vain, for those who wait for the descriptor."""
        return late_error(self._subject, 1000 * limit)

    def cancel(self) -> bool:
        """Takes a receive back, unless its message has come or is on its way, and waits until it is over. Returns
        whether it was taken back: the message then goes to the next receive, and waits raise CancelledError.

        Errors: UsageError for other operations, which other ranks take part in; as `wait`.
        """
        if not self._ticket:  # It has not begun.
            return True
        check(library().kolo_ticket_cancel(self._ticket))
        try:
            self.wait()
        except CancelledError:
            return True
        return False

    def fileno(self) -> int:
        """A descriptor that becomes readable when it is done, for `select` and event loops. It belongs to the
        ticket; only poll it."""
        descriptor = c_int()
        check(library().kolo_ticket_event(self._ticket, byref(descriptor)))
        return descriptor.value

    def __await__(self) -> Generator[Any, None, Result]:
        if not self.done():
            import asyncio

            loop = asyncio.get_running_loop()
            readable = loop.create_future()
            # A descriptor of its own, because a loop has one reader for each.
            descriptor = os.dup(self.fileno())
            loop.add_reader(descriptor, _set, readable)
            try:
                yield from readable
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        return self.wait()

    def __repr__(self) -> str:
        return f"<kolo.Ticket of {self._subject.name}>"

    def __del__(self) -> None:
        if not getattr(self, "_ticket", None) or not self._handle.is_ours():
            return
        if self._buffers is None:
            self._handle.library.kolo_ticket_release(self._ticket)
            return
        if self._was_interrupted:
            self._handle.library.kolo_ticket_cancel(self._ticket)  # Refuses all but receives.
        self._handle.park(self._ticket, self._buffers)


def _set(future: Any) -> None:
    if not future.done():
        future.set_result(None)


def received(ticket: Any) -> Received:
    """What a receive got that is done."""
    got = _c.kolo_received()
    check(library().kolo_ticket_received(ticket, byref(got)))
    return Received(got.source, got.count)
