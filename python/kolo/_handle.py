"""The runtime's handle, which lives as long as anything that was made of it, and what must outlive the user's
references."""

from __future__ import annotations

import collections
import os
from ctypes import byref, c_int
from typing import Any

from ._library import library


class Handle:
    """Owns a `kolo_runtime*`. Groups, gradient sets, arena memory and tickets hold it."""

    def __init__(self, pointer: int, operation_timeout_ms: int) -> None:
        self.pointer = pointer
        self.operation_timeout_ms = operation_timeout_ms
        """0: no limit."""
        self.is_over = False
        """The job was closed or left."""
        self.library = library()
        self._process = os.getpid()
        self._parked: collections.deque[tuple[Any, Any]] = collections.deque()
        self._kept: list[Any] = []

    def is_ours(self) -> bool:
        """False in a process that was forked from the one that opened the runtime: nothing is released there."""
        return os.getpid() == self._process

    def park(self, ticket: Any, buffers: Any) -> None:
        """Takes over an operation in flight that nobody will wait for: its buffers live until it is done."""
        self._parked.append((ticket, buffers))

    def keep(self, buffers: Any) -> None:
        """Keeps buffers as long as the runtime."""
        self._kept.append(buffers)

    def sweep(self) -> None:
        """Lets go of parked operations that are done. Cost: nothing if there are none."""
        if not self._parked:
            return
        done = c_int()
        for _ in range(len(self._parked)):
            try:
                ticket, buffers = self._parked.popleft()
            except IndexError:  # Another thread sweeps, too.
                return
            self.library.kolo_ticket_test(ticket, byref(done))
            if done.value:
                self.library.kolo_ticket_release(ticket)
            else:
                self._parked.append((ticket, buffers))

    def __del__(self) -> None:
        if not self.is_ours():
            return
        self.library.kolo_release(self.pointer)
        for ticket, _ in self._parked:
            self.library.kolo_ticket_release(ticket)
