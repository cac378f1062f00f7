"""A process group in the form that torch before 2.14 takes, where a backend cannot be written in Python."""

from __future__ import annotations

from datetime import timedelta

import torch
from torch._C._distributed_c10d import ProcessGroup

import kolo

from ._operations import Leave, Operations


class KoloProcessGroup(Operations, ProcessGroup):
    """A whole process group, so that no other backend serves other devices of it."""

    def __init__(self, group: kolo.Group, name: str, timeout: timedelta, leave: Leave) -> None:
        super().__init__(group, timeout, leave)
        self._name = name

    # torch asks the backends of a group for its name and devices, and this one has none.

    def getGroupName(self) -> str:  # noqa: N802  # torch's name
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802  # torch's name
        self._name = name

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    # --- operations by their names of that time ----------------------------------------------------

    _allgather_base = Operations.all_gather_single
    allgather_into_tensor_coalesced = Operations.all_gather_single_coalesced
    _reduce_scatter_base = Operations.reduce_scatter_single
    reduce_scatter_tensor_coalesced = Operations.reduce_scatter_single_coalesced
    alltoall_base = Operations.all_to_all_single
