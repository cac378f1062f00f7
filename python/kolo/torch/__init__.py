"""Kolo in PyTorch: the backend `kolo` of torch.distributed, for tensors on the CPU and on CUDA devices.

    torch.distributed.init_process_group("kolo")                            # under torchrun
    torch.distributed.init_process_group("kolo", init_method="kolo://")     # mpirun, srun, torchrun or none

torch 2.14 and later find the backend by its name if Kolo is installed. With torch 2.7 to 2.13, in a source tree, and
for `kolo://`, import this module first.
"""

from __future__ import annotations

from typing import Any

import torch.distributed
from torch.distributed.rendezvous import register_rendezvous_handler

from ._balance import balanced_batches
from ._hooks import TopKState, bf16_hook, fp16_hook, topk_hook
from ._local import DiLoCo, LocalSGD
from ._optimizer import DistributedOptimizer
from ._parameters import broadcast_parameters, check_equal
from ._process_group import DEVICES, create, jobs

__all__ = [
    "DiLoCo", "DistributedOptimizer", "LocalSGD", "TopKState", "balanced_batches", "bf16_hook", "broadcast_parameters", "check_equal", "fp16_hook",
    "register", "topk_hook",
]  # fmt: skip


def register() -> None:
    """Registers the backend and the rendezvous with torch.distributed. Repeated calls do nothing."""
    if "KOLO" not in torch.distributed.Backend._plugins:
        make: Any = create  # `create` returns a Backend or a ProcessGroup, by torch's version.
        torch.distributed.Backend.register_backend("kolo", make, extended_api=True, devices=DEVICES)
        register_rendezvous_handler("kolo", jobs.meet)


register()
