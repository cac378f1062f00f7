"""The thread that completes futures."""

from __future__ import annotations

import atexit
import functools
import os
import select
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ._work import KoloWork


class Completions:
    """Completes futures of works as their tickets get done, in whatever order. The thread starts with the first
    future and sleeps on descriptors; it ends before the interpreter does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: deque[tuple[KoloWork, torch.futures.Future[Any]]] = deque()
        self._thread: threading.Thread | None = None
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._is_over = False

    def future_of(self, work: KoloWork) -> torch.futures.Future[Any]:
        """A future of what `work` gives."""
        inner: torch.futures.Future[Any] = torch.futures.Future()
        # An error that a callback raises is one for C++ as well, as opposed to `set_exception`.
        future = inner.then(lambda done: _value_of(done.value()))
        if work.is_completed():
            inner.set_result(_outcome(work))
            return future
        with self._lock:
            self._new.append((work, inner))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kolo futures", daemon=True)
                self._thread.start()
        os.write(self._writing, b"x")
        return future

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
        waiting: dict[int, tuple[KoloWork, torch.futures.Future[Any]]] = {}
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
            for work, inner in due:
                pending = next((ticket for ticket in work.tickets if not ticket.done()), None)
                if pending is None:
                    inner.set_result(_outcome(work))
                    continue
                # One shot: the descriptor goes with its ticket, and its number may come again.
                descriptor = pending.fileno()
                waiting[descriptor] = (work, inner)
                try:
                    poll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
                except FileExistsError:
                    poll.modify(descriptor, select.EPOLLIN | select.EPOLLONESHOT)


class _Failure:
    """An error on its way into a future."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _outcome(work: KoloWork) -> Any:
    try:
        work.wait()
        return work.finish()
    except Exception as error:
        return _Failure(error)


def _value_of(outcome: Any) -> Any:
    if isinstance(outcome, _Failure):
        raise outcome.error
    return outcome


@functools.cache
def completions() -> Completions:
    """That of the process."""
    made = Completions()
    atexit.register(made.stop)
    return made
