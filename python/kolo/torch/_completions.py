"""The thread that completes futures."""

from __future__ import annotations

import atexit
import functools
import os
import select
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Optional

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


class Completions:
    """Calls steps as their descriptors become readable. The thread starts with the first step and sleeps on
    descriptors; it ends before the interpreter does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: deque[Step] = deque()
        self._thread: threading.Thread | None = None
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._is_over = False

    def watch(self, step: Step) -> None:
        """Has the thread call `step`, again and again until it returns None. It raises nothing."""
        with self._lock:
            self._new.append(step)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kolo futures", daemon=True)
                self._thread.start()
        os.write(self._writing, b"x")

    def future_of(self, work: KoloWork) -> torch.futures.Future[Any]:
        """A future of what `work` gives."""
        promise = Promise()

        def step() -> int | None:
            pending = next((ticket for ticket in work.tickets if not ticket.done()), None)
            if pending is not None:
                return pending.fileno()
            promise.keep(lambda: work.wait() and work.finish())
            return None

        if work.is_completed():
            step()
        else:
            self.watch(step)
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
        waiting: dict[int, Step] = {}
        while True:
            due = [waiting.pop(descriptor) for descriptor, _ in poll.poll() if descriptor != self._reading]
            if self._is_over:
                return
            try:
                os.read(self._reading, 4096)
            except BlockingIOError:
                pass
            with self._lock:
                due += self._new
                self._new.clear()
            for step in due:
                descriptor = step()
                if descriptor is None:
                    continue
                # One shot: the descriptor goes with its owner, and its number may come again.
                waiting[descriptor] = step
                try:
                    poll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
                except FileExistsError:
                    poll.modify(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
            due.clear()  # No step outlives its end here.


@functools.cache
def completions() -> Completions:
    """That of the process."""
    made = Completions()
    atexit.register(made.stop)
    return made
