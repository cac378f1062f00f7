"""Communication hooks for DDP: gradients travel in 16 bits, or the largest of them only.

    model = DistributedDataParallel(model)
    model.register_comm_hook(None, kolo.torch.bf16_hook)

torch reads the annotations, so these are no strings.

Those in 16 bits are as torch's `bf16_compress_hook`, but sums are in float32: each contribution is rounded once, and
the result once.
"""

from typing import Any, Optional

import torch
import torch.distributed as dist

from ._operations import Operations
from ._parameters import backend_of
from ._top_k import TopKState


def bf16_hook(group: Optional[dist.ProcessGroup], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket in bfloat16. `group`: the process group; None: that of all ranks."""
    backend = backend_of(group)
    if not isinstance(backend, Operations) or bucket.buffer().dtype not in (torch.float32, torch.float64):
        return _averaged(group, bucket, torch.bfloat16)
    # Kolo casts as it copies.
    future = backend.average_as(bucket.buffer(), "bfloat16").get_future()
    return future.then(lambda done: done.value()[0])


def fp16_hook(group: Optional[dist.ProcessGroup], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket in float16. Gradients beyond its range become infinite; scale the loss, or take bfloat16."""
    return _averaged(group, bucket, torch.float16)


def topk_hook(state: TopKState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages the largest values of a bucket; the rest waits in residuals. See `TopKState`."""
    return state.average(bucket)


def _averaged(
    group: Optional[dist.ProcessGroup], bucket: dist.GradBucket, dtype: torch.dtype
) -> torch.futures.Future[torch.Tensor]:
    gradients = bucket.buffer()
    work = dist.all_reduce(gradients.to(dtype), dist.ReduceOp.AVG, group=group, async_op=True)
    assert work is not None

    def widened(done: torch.futures.Future[Any]) -> torch.Tensor:
        return gradients.copy_(done.value()[0])

    return work.get_future().then(widened)
