"""Handles of the C library, which are released when nothing uses them any more."""

from __future__ import annotations

import collections
import os
import threading
from ctypes import byref, c_int
from typing import Any, Callable

from ._library import library


class Owned:
    """Owns a pointer, which is released when its owner and all objects made from it have dropped it.

    It counts users and has no `__del__`, because the finalizers of a reference cycle run in any order. Threads: any.
    Calls may be reentrant, because the garbage collector may run at any point.
    """

    def __init__(self, pointer: Any, release: Callable[[Any], Any], made_of: Owned | None = None) -> None:
        self.pointer = pointer
        self._release_pointer = release
        self._made_of = made_of
        self._process = os.getpid()
        # Methods of a deque are atomic.
        self._users = collections.deque([self])
        self._not_released = collections.deque([self])
        if made_of is not None:
            made_of.hold()

    def is_ours(self) -> bool:
        """Returns False in a forked process, which must not release anything."""
        return os.getpid() == self._process

    def hold(self) -> None:
        self._users.append(self)

    def drop(self) -> None:
        self._users.pop()
        if self._users or not self.is_ours():
            return
        try:
            self._not_released.pop()
        except IndexError:  # Another thread releases it.
            return
        self._release()
        if self._made_of is not None:
            self._made_of.drop()

    def is_released(self) -> bool:
        return not self._not_released

    def _release(self) -> None:
        self._release_pointer(self.pointer)


class Owner:
    """Base class of an object that owns a pointer, and drops it when the object is destroyed."""

    _owned: Owned

    def __del__(self) -> None:
        if hasattr(self, "_owned"):
            self._owned.drop()


class Handle(Owned):
    """Owns the `kolo_runtime*`, and operations in flight without a ticket."""

    def __init__(self, pointer: Any, operation_timeout_ms: int) -> None:
        self.library = library()
        self.operation_timeout_ms = operation_timeout_ms
        """0: no limit."""
        self.texts = threading.RLock()
        """Held while a text of the library is read, which its next call replaces."""
        self._parked: collections.deque[tuple[Any, Any]] = collections.deque()
        self._kept: collections.deque[tuple[Owned, Any]] = collections.deque()
        self._has_ended = False
        super().__init__(pointer, self.library.kolo_release)

    def park(self, ticket: Any, buffers: Any) -> None:
        """Keeps the buffers of an operation in flight, for which no thread will wait, until the operation is done."""
        if self.is_released():
            self.library.kolo_ticket_release(ticket)
        else:
            self._parked.append((ticket, buffers))
            if self._has_ended:  # No operation begins any more, which would sweep.
                self.sweep()

    def keep(self, owned: Owned, buffers: Any) -> None:
        """Keeps a set of gradients that is in the middle of an iteration, and its buffers, until the job has ended."""
        self._kept.append((owned, buffers))
        if self._has_ended:
            self.let_go()

    def let_go(self) -> None:
        """Drops all kept sets, because the job has ended and no memory is in use."""
        self._has_ended = True  # First, so that `keep` in another thread leaves none behind.
        while self._kept:
            try:
                owned, _ = self._kept.popleft()
            except IndexError:  # Another thread also lets go.
                return
            owned.drop()

    def sweep(self) -> None:
        """Drops kept operations that are done. Costs nothing if there are none."""
        if not self._parked:
            return
        done = c_int()
        for _ in range(len(self._parked)):
            try:
                ticket, buffers = self._parked.popleft()
            except IndexError:  # Another thread also sweeps.
                return
            self.library.kolo_ticket_test(ticket, byref(done))
            if done.value:
                self.library.kolo_ticket_release(ticket)
            else:
                self._parked.append((ticket, buffers))

    def _release(self) -> None:
        super()._release()
        while self._parked:
            ticket, _ = self._parked.popleft()
            self.library.kolo_ticket_release(ticket)
