"""A process group in the form that torch 2.14 and later take: a backend for some devices of a group."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Backend

import kolo

from ._operations import Leave, Operations


class KoloBackend(Operations, Backend):
    """The backend `kolo` for CPU tensors; other devices of the process group may have other backends."""

    def __init__(self, group: kolo.Group, name: str, timeout: timedelta, leave: Leave) -> None:
        super().__init__(group, timeout, leave)
        self._options.group_name = name  # type: ignore[assignment]  # torch's own kind of str

    @property
    def options(self) -> Backend.Options:
        return self._options

    @property
    def supports_coalescing(self) -> bool:
        return True

    @property
    def supports_splitting(self) -> bool:
        return False

    # For want of an answer here, torch 2.15 would ask itself without end.
    supports_reconfigure = False
    supports_window = False
    supports_shrinking = False
    _supports_time_estimate = False

    def supports_tensor_alloc(self, device: Any) -> bool:
        """False: torch 2.15 cannot hand the tensor's options to a backend in Python."""
        return False
