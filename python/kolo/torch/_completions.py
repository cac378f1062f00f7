"""The thread that completes futures."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import math
import os
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, NoReturn, Optional

import torch

import kolo
from kolo._wait import SLICE_MS

if TYPE_CHECKING:
    from ._work import KoloWork

Step = Callable[[], Optional[int]]
"""Does what is due, without blocking. Returns what `descriptor_of` gave when there is more; None at the end."""

_NO_DESCRIPTOR = -1
# The thread looks this often after what has no descriptor, and at least this often at its deadlines: the kernel counts
# milliseconds in 31 bits.
_RETRY_S = 0.01
_LONGEST_S = 3600.0


def descriptor_of(awaited: Any) -> int:
    """A descriptor that becomes readable when there is news of it, or what stands for one where none can be made."""
    try:
        return int(awaited.fileno())
    except kolo.KoloError:
        return _NO_DESCRIPTOR


class Promise:
    """A future that a thread of Python completes, with a value or an error."""

    def __init__(self) -> None:
        self._outcome: torch.futures.Future[Any] = torch.futures.Future()
        # An error that a callback raises is one for C++ as well, as opposed to `set_exception`.
        self.future: torch.futures.Future[Any] = self._outcome.then(lambda done: _value_of(done.value()))

    def keep(self, value: Callable[[], Any]) -> None:
        """Completes the future with what `value` returns or raises. The first call counts."""
        if self._outcome.done():
            return
        try:
            outcome = value()
        except Exception as error:
            outcome = _Failure(error)
        self._outcome.set_result(outcome)


class _Failure:
    """An error on its way into a future."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _value_of(outcome: Any) -> Any:
    if isinstance(outcome, _Failure):
        raise outcome.error
    return outcome


def _fail(error: Exception) -> NoReturn:
    raise error


class _Watch(NamedTuple):
    """What the thread looks after."""

    turn: int
    """Those that are due at the same time go in this order."""
    step: Step
    fail: Callable[[Exception], None]
    until: float


class Completions:
    """Calls steps as their descriptors become readable. The thread starts with the first step and sleeps on
    descriptors; it ends before the interpreter does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: deque[_Watch] = deque()
        self._turns = itertools.count()
        self._thread: threading.Thread | None = None
        self._poll = select.epoll()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._poll.register(self._reading, select.EPOLLIN)
        self._is_over = False

    def watch(self, step: Step, fail: Callable[[Exception], None], until: float = math.inf) -> None:
        """Has the thread call `step`, again and again until it returns None: when its descriptor is readable, and at
        the monotonic time `until`. What it raises goes to `fail`, which ends it."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="kolo futures", daemon=True)
                thread.start()
                self._thread = thread
            self._new.append(_Watch(next(self._turns), step, fail, until))
        self._wake()

    def future_of(self, work: KoloWork) -> torch.futures.Future[Any]:
        """A future of what `work` gives. A callback of a future, which runs in the thread that would complete this one,
        gets one that is complete."""
        promise = Promise()
        end = time.monotonic() + work.limit

        def step() -> int | None:
            pending = work.pending()
            if pending is None:
                promise.keep(lambda: work.wait() and work.finish())
            elif time.monotonic() < end:
                return descriptor_of(pending)
            else:
                raise pending.late_error(work.limit)
            return None

        def fail(error: Exception) -> None:
            promise.keep(lambda: _fail(error))

        if threading.current_thread() is self._thread:
            self._wait_for(work, end)
            self._advance(_Watch(0, step, fail, end))
            fail(kolo.ShutdownError("the process ended before the operation of a future"))  # If it is not complete.
        elif work.pending() is None:
            step()
        else:
            self.watch(step, fail, end)
        return promise.future

    def stop(self) -> None:
        """Ends the thread, whatever it waits for."""
        with self._lock:
            self._is_over = True
            thread = self._thread
        if thread is not None:
            self._wake()
            thread.join()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # It is full of news.
            os.write(self._writing, b"x")

    def _wait_for(self, work: KoloWork, end: float) -> None:
        """Waits in this thread, until it is over or the process ends."""
        while (pending := work.pending()) is not None and time.monotonic() < end and not self._is_over:
            with contextlib.suppress(kolo.KoloError):  # The work has its error; this may be the end of a slice.
                pending.wait(SLICE_MS / 1000)

    @staticmethod
    def _advance(watch: _Watch) -> int | None:
        try:
            return watch.step()
        except Exception as error:
            watch.fail(error)
        return None

    def _run(self) -> None:
        waiting: dict[int, _Watch] = {}
        others: list[_Watch] = []  # Without a descriptor.
        while True:
            now = time.monotonic()
            first = min((each.until for each in waiting.values()), default=math.inf)
            limit = min(first - now, _RETRY_S if others else _LONGEST_S)
            readable = [descriptor for descriptor, _ in self._poll.poll(max(0.0, limit))]
            if self._is_over:
                return
            with contextlib.suppress(BlockingIOError):
                os.read(self._reading, 4096)
            now = time.monotonic()
            for descriptor in [each for each, watch in waiting.items() if watch.until <= now]:
                self._poll.unregister(descriptor)
                readable.append(descriptor)
            due = others + [waiting.pop(each) for each in readable if each in waiting]
            with self._lock:
                due += self._new
                self._new.clear()
            due.sort(key=lambda each: each.turn)
            others = []
            for watch in due:
                rest = self._advance(watch)
                if rest is None:
                    continue
                if self._register(rest):
                    waiting[rest] = watch
                else:
                    others.append(watch)
            due.clear()  # No step outlives its end here.

    def _register(self, descriptor: int) -> bool:
        # One shot: the descriptor goes with its owner, and its number may come again.
        flags = select.EPOLLIN | select.EPOLLONESHOT
        try:
            self._poll.register(descriptor, flags)
        except FileExistsError:
            self._poll.modify(descriptor, flags)
        except (OSError, ValueError):  # There is none, or the kernel has no room for it.
            return False
        return True


@functools.cache
def completions() -> Completions:
    """That of the process."""
    made = Completions()
    atexit.register(made.stop)
    return made
