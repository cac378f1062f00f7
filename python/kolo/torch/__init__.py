"""Kolo in PyTorch: the backend `kolo` of torch.distributed, for CPU tensors.

    torch.distributed.init_process_group("kolo")    # torchrun, mpirun and srun alike

torch 2.14 and later find the backend by its name once Kolo is installed. With torch 2.7 to 2.13, and in a source tree,
import this module first.
"""

from __future__ import annotations

import torch.distributed

from ._creation import create
from ._hooks import bf16_hook, fp16_hook, topk_hook
from ._optimizer import DistributedOptimizer
from ._parameters import broadcast_parameters
from ._top_k import TopKState

__all__ = [
    "DistributedOptimizer",
    "TopKState",
    "bf16_hook",
    "broadcast_parameters",
    "fp16_hook",
    "register",
    "topk_hook",
]


def register() -> None:
    """Makes the backend known to torch.distributed. Doing so again does nothing."""
    if "KOLO" not in torch.distributed.Backend._plugins:
        torch.distributed.Backend.register_backend("kolo", create, extended_api=True, devices=["cpu"])


register()
