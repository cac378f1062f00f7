"""Process groups in the forms that different versions of torch need."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, ProcessGroup

import kolo

from ._jobs import Jobs
from ._operations import Leave, Operations


DEVICES = ["cpu", "cuda"]
"""The devices whose tensors Kolo takes."""


class KoloBackend(Operations, Backend):
    """The form for torch 2.14 and later: a backend for the tensors of a process group on the CPU, on CUDA devices, or
    on both; it may have other backends for the others."""

    def __init__(self, group: kolo.Group, name: str, timeout: timedelta, leave: Leave) -> None:
        super().__init__(group, timeout, leave)
        self._options.group_name = name  # type: ignore[assignment]  # torch's own kind of str

    @property
    def options(self) -> Backend.Options:
        return self._options

    supports_coalescing = True
    supports_splitting = False
    # Without this attribute, torch 2.15 recurses without end.
    supports_reconfigure = False
    supports_window = False
    supports_shrinking = False
    _supports_time_estimate = False

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Returns False, because torch 2.15 cannot pass the tensor's options to a backend in Python."""
        return False


class KoloProcessGroup(Operations, ProcessGroup):
    """The form for older torch, where a backend cannot be written in Python: a whole process group, which has no
    backends for other devices."""

    def __init__(self, group: kolo.Group, name: str, timeout: timedelta, leave: Leave) -> None:
        super().__init__(group, timeout, leave)
        self._name = name

    # torch asks the backends of a group for its name and devices, but this group has none.

    def getGroupName(self) -> str:  # noqa: N802  # torch's name
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802  # torch's name
        self._name = name

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(each) for each in DEVICES]

    # --- operations by their names in older torch ------------------------------------------------------

    _allgather_base = Operations.all_gather_single
    allgather_into_tensor_coalesced = Operations.all_gather_single_coalesced
    _reduce_scatter_base = Operations.reduce_scatter_single
    reduce_scatter_tensor_coalesced = Operations.reduce_scatter_single_coalesced
    alltoall_base = Operations.all_to_all_single


jobs = Jobs()
"""The jobs of this process."""


def create(opts: Any, backend_options: Any = None) -> Operations:
    """Called by torch for each process group. Returns this rank's backend, or in older torch its process group."""
    group, job = jobs.member(
        opts.store,
        opts.group_rank,
        opts.group_size,
        opts.global_ranks_in_group,
        str(opts.group_id),
        opts.timeout,
    )
    # torch requires the same order on all ranks, so ranks that call different operations get an error, which quotes
    # both.
    group.keep_order()
    is_new = torch.__version__ >= (2, 14)  # type: ignore[operator]  # Its type compares with tuples.
    form = (KoloBackend if is_new else KoloProcessGroup)(group, str(opts.group_id), opts.timeout, jobs.leave)
    jobs.keep(form, job)
    return form
