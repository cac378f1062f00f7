"""Waits that a signal interrupts: Python runs its handlers, and so raises KeyboardInterrupt, only between calls of
its main thread."""

from __future__ import annotations

import math
import threading
import time
from ctypes import byref, c_int
from typing import Any, Callable, NamedTuple

from ._errors import DeadlineError, check
from ._library import library

SLICE_MS = 100
"""After at most this long a wait of the main thread looks for signals."""

_LONGEST_MS = 24 * 3_600_000  # Of one step: any time-out, also an infinite one, is a number of steps.

Step = Callable[[int], bool]
"""Waits for at most so many milliseconds (negative: as long as the library does), and returns whether it is over."""


def is_interruptible() -> bool:
    """Whether the caller's thread is the one that handles signals."""
    return threading.current_thread() is threading.main_thread()


class Subject(NamedTuple):
    """What is waited for, as an error names it."""

    name: str
    rank: int
    """The one that waits, in its group."""
    group: str
    """The group as errors of the library name it, "'pp' [2, 5]"; empty: the job."""
    peer: int | None = None
    """The rank that the wait is for; None: any."""


def wait(step: Step, limit: float | None, default_ms: int, subject: Callable[[], Subject]) -> None:
    """Waits until `step` says that it is over.

    `limit` is in seconds; None: `default_ms`, where 0 is for ever.
    Errors: DeadlineError; those of `step`; KeyboardInterrupt, and whatever a handler of signals raises.
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


def late_error(subject: Subject, limit_ms: float, setting: str = "") -> DeadlineError:
    """The error of a wait that took `limit_ms` in vain."""
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
    """The step of a wait in the C interface: `function(*arguments, timeout_ms, &done)`."""
    done = c_int()
    reference = byref(done)

    def step(timeout_ms: int) -> bool:
        check(function(*arguments, timeout_ms, reference))
        return bool(done.value)

    return step


class _Call(threading.Thread):
    """One call of the C interface in a thread of its own, which nobody waits for when the process ends."""

    def __init__(self, function: Callable[..., int], arguments: tuple[Any, ...], keep: Any) -> None:
        super().__init__(name="kolo call", daemon=True)
        self._function = function
        self._arguments = arguments
        self._keep = keep
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            check(self._function(*self._arguments))  # Here, because the library keeps an error for its thread.
        except Exception as error:
            self.error = error


def call(function: Callable[..., int], *arguments: Any, runtime: Any = None, keep: Any = None) -> None:
    """Makes a call that blocks and has no ticket. The main thread has it made by another thread, and leaves the
    `runtime` meanwhile: Kolo tells a deadlock from a slow rank by the threads that could still call.

    After an exception of a handler of signals, such as KeyboardInterrupt, the call goes on until the runtime leaves
    the job; its arguments, and `keep`, stay alive.
    """
    if not is_interruptible():
        check(function(*arguments))
        return
    thread = _Call(function, arguments, keep)
    thread.start()
    if runtime is not None:
        check(library().kolo_leave_thread(runtime))
    thread.join()
    if thread.error is not None:
        raise thread.error
