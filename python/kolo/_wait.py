"""Tickets of operations in flight, and waits that a signal can interrupt. Python runs signal handlers, which may raise
KeyboardInterrupt, only in the main thread between two calls."""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from ctypes import byref, c_int, c_void_p
from typing import Any, Callable, Generator, Generic, NamedTuple, TypeVar

from . import _c
from ._errors import CancelledError, DeadlineError, KoloError, check
from ._handle import Handle
from ._library import library

SLICE_MS = 100
"""Longest time after which a wait of the main thread checks for signals."""

_LONGEST_MS = 24 * 3_600_000  # Longest single step; a longer or infinite timeout takes several steps.

Step = Callable[[int], bool]
"""Waits for at most so many milliseconds (negative: the library's limit), and returns whether the operation is over."""


def is_interruptible() -> bool:
    """Returns whether the caller's thread runs signal handlers."""
    return threading.current_thread() is threading.main_thread()


class PendingCall(NamedTuple):
    """The operation that a wait is for, as errors describe it."""

    name: str
    rank: int
    """The waiting rank, in its group."""
    group: str
    """The group's name in errors of the library, "'pp' [2, 5]"; empty: the job."""
    peer: int | None = None
    """The rank that the wait is for; None: any."""


def wait(step: Step, limit: float | None, default_ms: int, subject: Callable[[], PendingCall]) -> None:
    """Waits until `step` reports the end.

    `limit` is in seconds; None means `default_ms`, where 0 means no limit. Errors: DeadlineError; errors of `step`;
    KeyboardInterrupt, and any other exception of a signal handler.
    """
    if limit is None and not is_interruptible():
        step(-1)
        return
    total_ms = (default_ms or None) if limit is None else max(0.0, limit * 1000)
    end = None if total_ms is None else time.monotonic() + total_ms / 1000
    while True:
        left_ms = None if end is None else max(0, math.ceil(min(1000 * (end - time.monotonic()), _LONGEST_MS)))
        if left_ms is None or (left_ms > SLICE_MS and is_interruptible()):
            is_over = step(SLICE_MS)
        else:
            is_over = step(left_ms)
        if is_over:
            return
        if left_ms == 0:
            raise late_error(subject(), total_ms or 0, "; operation_timeout sets this limit" if limit is None else "")


def late_error(subject: PendingCall, limit_ms: float, setting: str = "") -> DeadlineError:
    """Returns the error of a wait that has reached its limit of `limit_ms` milliseconds."""
    what = f"no result within the timeout of {limit_ms:.0f} ms although no peer is lost{setting}"
    place = f"group {subject.group}: " if subject.group else ""
    return DeadlineError(
        f"{place}rank {subject.rank}: {subject.name}: {what}",
        rank=subject.rank,
        peer=subject.peer,
        group=subject.group,
        verb="complete",
        tensor=subject.name,
        what=what,
    )


def stepper(function: Callable[..., int], *arguments: Any) -> Step:
    """Makes the step of a wait from a function of the C interface: `function(*arguments, timeout_ms, &done)`."""
    done = c_int()
    reference = byref(done)

    def step(timeout_ms: int) -> bool:
        check(function(*arguments, timeout_ms, reference))
        return bool(done.value)

    return step


class Caller(threading.Thread):
    """A daemon thread that makes calls of the C interface, so that the process can end during one. It makes one after the
    other, because to start a thread takes longer than most calls. None in place of a call ends it."""

    idle: list[Caller] = []
    """Those that wait for a call."""

    def __init__(self) -> None:
        super().__init__(name="kolo calls", daemon=True)
        self.calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while (pending := self.calls.get()) is not None:
            function, arguments, runtime, keep, errors = pending
            error = None
            try:
                check(function(*arguments))  # In this thread, because the library keeps one error per thread.
            except Exception as raised:
                error = raised
            if runtime is None:
                self.calls.put(None)  # Until it ends, the runtime that the call has opened may count it.
            else:
                library().kolo_leave_thread(runtime)
                self.idle.append(self)
            errors.put(error)
            del pending, function, arguments, keep, errors, error


os.register_at_fork(after_in_child=Caller.idle.clear)


def call(function: Callable[..., int], *arguments: Any, runtime: Any = None, keep: Any = None) -> None:
    """Makes a call that blocks and has no ticket. In the main thread, it lets another thread make the call, and calls
    `kolo_leave_thread` of `runtime`, because Kolo tells a deadlock from a slow rank by the threads that may still call.

    After an exception of a signal handler, such as KeyboardInterrupt, the call goes on until the runtime leaves the
    job; its arguments, and `keep`, stay alive.
    """
    if not is_interruptible():
        check(function(*arguments))
        return
    caller = Caller.idle.pop() if Caller.idle else Caller()
    errors: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    caller.calls.put((function, arguments, runtime, keep, errors))
    if runtime is not None:
        check(library().kolo_leave_thread(runtime))
    error = errors.get()
    if error is not None:
        raise error


class Calls:
    """Base class of the operations of a group."""

    _handle: Handle
    _pointer: Any
    _subject: Callable[..., PendingCall]

    def _call(self, function: Any, *arguments: Any, keep: Any = None) -> None:
        """Makes a call that blocks and has no ticket."""
        call(function, self._pointer, *arguments, runtime=self._handle.pointer, keep=(self, keep))


# --- tickets ----------------------------------------------------------------------------------------

Result = TypeVar("Result", covariant=True)


class Received(NamedTuple):
    """The result of a receive."""

    source: int
    """The rank that sent the message."""
    count: int  # type: ignore[assignment]  # Counts elements; replaces tuple.count.
    """Number of elements."""


class Ticket(Generic[Result]):
    """One operation in flight, which a call with `wait=False` returns.

    The arrays of the operation belong to Kolo until it is done: do not write to them, and do not read results. Ticket
    and arrays may be dropped at any time; the operation goes on and keeps its memory. But a receive is cancelled, as by
    `cancel`, if its last wait was interrupted or timed out.

        ticket = job.all_reduce(x, wait=False)
        ...
        ticket.wait()        # or: await ticket

    Threads: any.
    """

    __slots__ = ("_ticket", "_handle", "_buffers", "_finish", "_subject", "_was_given_up", "__weakref__")

    def __init__(self, handle: Handle, buffers: Any, finish: Callable[[Any], Result], subject: PendingCall) -> None:
        """Used by groups. The ticket is made before the operation begins, so that the buffers always have an owner,
        even if an interrupt comes."""
        self._ticket = c_void_p()
        self._handle = handle
        self._buffers = buffers
        self._finish = finish
        self._subject = subject
        self._was_given_up = False

    def begin(self, function: Callable[..., int], *arguments: Any) -> None:
        """Used by groups. Begins the operation by a call whose last argument is the ticket."""
        self._handle.sweep()
        check(function(*arguments, byref(self._ticket)))

    def done(self) -> bool:
        """Returns whether the operation has a result or an error. Never blocks."""
        done = c_int()
        check(library().kolo_ticket_test(self._ticket, byref(done)))
        if done.value:
            self._buffers = None
        return bool(done.value)

    def wait(self, timeout: float | None = None) -> Result:
        """Waits for the result and returns it, as the call without `wait=False` does.

        `timeout` is in seconds; None means the option `operation_timeout`. `wait` may be called again, also after an
        error.
        Errors: the error of the operation, the same on every rank; DeadlineError or KeyboardInterrupt, after which the
                operation goes on.
        """
        step = stepper(library().kolo_ticket_wait, self._ticket)
        try:
            # Most operations end within the first slice.
            if timeout is not None or not step(SLICE_MS if is_interruptible() else -1):
                wait(step, timeout, self._handle.operation_timeout_ms, lambda: self._subject)
        except BaseException as error:
            self._note(error)
            raise
        self._buffers = None
        return self._finish(self._ticket)

    def _note(self, error: BaseException) -> None:
        """Notes whether a wait ended before the operation, by a timeout or an exception of a signal handler."""
        self._was_given_up = isinstance(error, DeadlineError) or not isinstance(error, KoloError)

    def enqueued(self) -> bool:
        """Returns whether `wait_on` would return at once: the work is enqueued on the device, or done. Never blocks."""
        return bool(self._enqueued(None))

    def wait_on(self, stream: int | None, timeout: float | None = None) -> None:
        """Waits until the work of an operation in device memory is enqueued there, which is once all ranks have begun
        it, and makes `stream`, a cudaStream_t, wait for the result; this thread does not wait for the device. Messages,
        and operations that the host runs, are first done.

        `timeout` and errors: as in `wait`. An error that comes after the work is enqueued ends the job.
        """
        step = stepper(library().kolo_ticket_wait_on, self._ticket, stream)
        try:
            wait(step, timeout, self._handle.operation_timeout_ms, lambda: self._subject)
        except BaseException as error:
            self._note(error)
            raise

    def enqueued_fileno(self) -> int:
        """Works like `fileno`, for `enqueued`."""
        descriptor = c_int()
        self._enqueued(byref(descriptor))
        return descriptor.value

    def _enqueued(self, descriptor: Any) -> int:
        enqueued = c_int()
        check(library().kolo_ticket_enqueued(self._ticket, byref(enqueued), descriptor))
        return enqueued.value

    def late_error(self, limit: float) -> DeadlineError:
        """Returns the error of a wait for the descriptor that has reached its limit of `limit` seconds."""
        self._was_given_up = True
        return late_error(self._subject, 1000 * limit)

    def cancel(self) -> bool:
        """Cancels a receive, unless its message has been received or is in flight, and waits until it is over. Returns
        whether it was cancelled; then the next receive gets the message, and waits raise CancelledError.

        Errors: UsageError for other operations; errors of `wait`.
        """
        if not self._ticket:  # The operation has not begun.
            return True
        check(library().kolo_ticket_cancel(self._ticket))
        try:
            self.wait()
        except CancelledError:
            return True
        return False

    def fileno(self) -> int:
        """Returns a descriptor that becomes readable when the operation is done, for `select` and event loops. The
        ticket owns it; only poll it."""
        descriptor = c_int()
        check(library().kolo_ticket_event(self._ticket, byref(descriptor)))
        return descriptor.value

    def __await__(self) -> Generator[Any, None, Result]:
        if not self.done():
            import asyncio

            loop = asyncio.get_running_loop()
            readable = loop.create_future()
            # Duplicates the descriptor, because a loop allows one reader per descriptor.
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
        # For another operation the call would fail, and replace the error that this thread may be reading.
        if self._was_given_up and self._finish is received:
            self._handle.library.kolo_ticket_cancel(self._ticket)
        self._handle.park(self._ticket, self._buffers)


def _set(future: Any) -> None:
    if not future.done():
        future.set_result(None)


def received(ticket: Any) -> Received:
    """Returns the result of a finished receive."""
    got = _c.kolo_received()
    check(library().kolo_ticket_received(ticket, byref(got)))
    return Received(got.source, got.count)
