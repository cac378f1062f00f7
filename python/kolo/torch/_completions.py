"""The thread that completes futures."""

from __future__ import annotations

import atexit
import functools
import math
import os
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, NoReturn, Optional

import torch

if TYPE_CHECKING:
    from ._work import KoloWork

Step = Callable[[], Optional[int]]
"""Does what is due, without blocking. Returns a descriptor that is readable when there is more; None at the end."""


class Promise:
    """A future that a thread of Python completes, with a value or an error."""

    def __init__(self) -> None:
        self._outcome: torch.futures.Future[Any] = torch.futures.Future()
        # An error that a callback raises is one for C++ as well, as opposed to `set_exception`.
        self.future: torch.futures.Future[Any] = self._outcome.then(lambda done: _value_of(done.value()))

    def keep(self, value: Callable[[], Any]) -> None:
        """Completes the future with what `value` returns or raises. To be called once."""
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


class Completions:
    """Calls steps as their descriptors become readable. The thread starts with the first step and sleeps on
    descriptors; it ends before the interpreter does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: deque[tuple[Step, float]] = deque()
        self._thread: threading.Thread | None = None
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._is_over = False

    def watch(self, step: Step, until: float = math.inf) -> None:
        """Has the thread call `step`, again and again until it returns None: when its descriptor is readable, and at
        the monotonic time `until`. It raises nothing."""
        with self._lock:
            self._new.append((step, until))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kolo futures", daemon=True)
                self._thread.start()
        os.write(self._writing, b"x")

    def future_of(self, work: KoloWork) -> torch.futures.Future[Any]:
        """A future of what `work` gives."""
        promise = Promise()
        end = time.monotonic() + work.limit

        def step() -> int | None:
            pending = work.pending()
            if pending is None:
                promise.keep(lambda: work.wait() and work.finish())
            elif time.monotonic() < end:
                return pending.fileno()
            else:
                promise.keep(lambda: _fail(pending.late_error(work.limit)))
            return None

        if work.is_completed():
            step()
        else:
            self.watch(step, end)
        return promise.future

    def stop(self) -> None:
        """Ends the thread, whatever it waits for."""
        with self._lock:
            self._is_over = True
            thread = self._thread
        if thread is not None:
            os.write(self._writing, b"x")
            thread.join()

    def _run(self) -> None:
        poll = select.epoll()
        poll.register(self._reading, select.EPOLLIN)
        waiting: dict[int, tuple[Step, float]] = {}
        while True:
            first = min((until for _, until in waiting.values()), default=math.inf)
            limit = None if math.isinf(first) else max(0.0, first - time.monotonic())
            due = [waiting.pop(descriptor) for descriptor, _ in poll.poll(limit) if descriptor != self._reading]
            if self._is_over:
                return
            for descriptor in [each for each, (_, until) in waiting.items() if until <= time.monotonic()]:
                poll.unregister(descriptor)
                due.append(waiting.pop(descriptor))
            try:
                os.read(self._reading, 4096)
            except BlockingIOError:
                pass
            with self._lock:
                due += self._new
                self._new.clear()
            for step, until in due:
                rest = step()
                if rest is None:
                    continue
                # One shot: the descriptor goes with its owner, and its number may come again.
                waiting[rest] = (step, until)
                try:
                    poll.register(rest, select.EPOLLIN | select.EPOLLONESHOT)
                except FileExistsError:
                    poll.modify(rest, select.EPOLLIN | select.EPOLLONESHOT)
            due.clear()  # No step outlives its end here.


@functools.cache
def completions() -> Completions:
    """That of the process."""
    made = Completions()
    atexit.register(made.stop)
    return made
