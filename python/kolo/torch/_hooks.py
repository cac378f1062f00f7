"""Communication hooks for DDP, which send gradients in 16 bits, or only their largest values.

    model = DistributedDataParallel(model)
    model.register_comm_hook(None, kolo.torch.bf16_hook)

This module has no `from __future__ import annotations`, because torch reads the annotations.

The 16-bit hooks correspond to torch's `bf16_compress_hook`, but sums are in float32: each contribution is rounded once,
and the result once.
"""

import dataclasses
import threading
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import kolo
from kolo import UsageError

from ._completions import Promise, completions, descriptor_of
from ._devices import gpu, on_gpu
from ._operations import Operations
from ._parameters import AnyGroup, ParameterGradients, backend_of, group_of


@dataclasses.dataclass(eq=False)
class _Bucket:
    """A bucket of DDP in flight."""

    buffer: Tensor
    parts: dict[int, Tensor]
    """The parameters' places in the bucket, by index in the gradient set."""
    is_last: bool
    promise: Promise


class TopKState(ParameterGradients):
    """State of `topk_hook`, which has a residual for each parameter, with the values that are not sent yet.

        model = DistributedDataParallel(model)
        state = kolo.torch.TopKState(model, density=0.01)
        model.register_comm_hook(state, kolo.torch.topk_hook)

    It corresponds to torch's `PowerSGDState`, but it is made from the model, because residuals belong to parameters,
    and DDP rebuilds its buckets after the first step. For each parameter the largest values of gradient plus residual
    are sent, in the same share on all ranks; see docs/how-to/compression.md. Biases and other small tensors are sent
    dense.

    Threads: the thread of the backward pass. Call `state_dict` and similar methods between two backward passes.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        density: float = 0.01,
        *,
        warmup: int = 0,
        compression: Optional[str] = None,
        process_group: AnyGroup = None,
    ) -> None:
        """Collective over the ranks of `process_group`. None means the group of a model in DDP, or the default group.

        `density` is the share of the values to send, and `warmup` the number of dense steps before. `compression`
        replaces both by a spec of Kolo, such as "powersgd(4)", or rules by parameter name, such as
        "embedding*=bf16,*=topk(0.01,dgc,warmup=100)".
        """
        module = model
        if isinstance(model, DistributedDataParallel):
            module = model.module
            process_group = model.process_group if process_group is None else process_group
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        if (found := on_gpu(list(module.parameters()))) is not None:
            raise UsageError(f"TopKState takes gradients in host memory, not those on {found.device}")
        super().__init__(
            ((name, each) for name, each in module.named_parameters() if name not in ignored),
            group_of(process_group),
            "gradients of TopKState",
            compression=compression or f"topk({density!r},warmup={warmup})",
        )
        self._lock = threading.Lock()
        self._buckets: list[_Bucket] = []  # In flight, in the order of their hooks.
        self._marked: set[int] = set()  # In this iteration.
        self._combined: set[int] = set()
        self._is_watched = False

    @property
    def gradients(self) -> kolo.GradientSet:
        """The gradient set: `plan`, `statistics`, `residual_norm`, `flush_residuals`, `drop_residuals`."""
        return self.set

    def average(self, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Used by the hook. Returns a future of the bucket's averages, which are in the bucket's memory."""
        parts = self._parts(bucket)
        torch._foreach_copy_([self.views[index] for index in parts], list(parts.values()))
        pending = _Bucket(bucket.buffer(), parts, bucket.is_last(), Promise())
        with self._lock:  # Added before its gradients are marked, because the averages may be complete at once.
            self._buckets.append(pending)
            is_watched, self._is_watched = self._is_watched, True
        if not is_watched:
            completions().watch(self._advance, self._fail)
        for index in parts:
            self.set.ready(index)
        self._marked.update(parts)
        if pending.is_last:
            self._mark_others()
        return pending.promise.future

    def _parts(self, bucket: dist.GradBucket) -> dict[int, Tensor]:
        parts = {}
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            index = self.index_of(parameter)
            self.check(index, gradient)
            parts[index] = gradient
        return parts

    def _mark_others(self) -> None:
        """Marks gradients that are in no bucket of DDP as absent; they count as zeros."""
        for index in range(len(self.set)):
            if index not in self._marked:
                self.set.absent(index)
        self._marked.clear()

    def _advance(self) -> Optional[int]:
        """Completes the futures of averaged buckets. It completes the last future of an iteration after Kolo has ended
        the iteration, because DDP then goes on. Threads: the thread that completes futures."""
        combined = self.set.take_combined()
        with self._lock:
            self._combined.update(combined)
            is_over = len(self._combined) == len(self.set)
        if is_over:
            self.set.wait()  # Returns at once, or after a vote of the ranks on the plan.
        descriptor = None if is_over else descriptor_of(self.set)
        with self._lock:
            due = [each for each in self._buckets if is_over or self._is_due(each)]
            self._buckets = [each for each in self._buckets if each not in due]
            if is_over:
                self._combined.clear()
                self._is_watched = False
        for each in due:
            each.promise.keep(lambda: self._result(each))
        return descriptor

    def _is_due(self, bucket: _Bucket) -> bool:
        return not bucket.is_last and bucket.parts.keys() <= self._combined

    def _result(self, bucket: _Bucket) -> Tensor:
        torch._foreach_copy_(list(bucket.parts.values()), [self.views[index] for index in bucket.parts])
        return bucket.buffer

    def _fail(self, error: Exception) -> None:
        with self._lock:
            failed, self._buckets = self._buckets, []
            self._combined.clear()
            self._is_watched = False

        def fail() -> None:
            raise error

        for each in failed:
            each.promise.keep(fail)


def bf16_hook(group: Optional[dist.ProcessGroup], bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Averages a bucket in bfloat16. `group` is the process group; None means the group of all ranks."""
    backend = backend_of(group)
    is_cast = bucket.buffer().dtype in (torch.float32, torch.float64) and not gpu().holds(bucket.buffer())
    if not isinstance(backend, Operations) or not is_cast:
        return _averaged(group, bucket, torch.bfloat16)
    # Kolo converts while it copies.
    future = backend.average_as(bucket.buffer(), "bfloat16").get_future()
    return future.then(lambda done: done.value()[0])


def fp16_hook(group: Optional[dist.ProcessGroup], bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Averages a bucket in float16. Gradients beyond its range become infinite; scale the loss, or use bfloat16."""
    return _averaged(group, bucket, torch.float16)


def topk_hook(state: TopKState, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Averages the largest values of a bucket; the other values stay in residuals. See `TopKState`."""
    return state.average(bucket)


def _averaged(
    group: Optional[dist.ProcessGroup], bucket: dist.GradBucket, dtype: torch.dtype
) -> torch.futures.Future[Tensor]:
    gradients = bucket.buffer()
    work = dist.all_reduce(gradients.to(dtype), dist.ReduceOp.AVG, group=group, async_op=True)
    assert work is not None

    def widened(done: torch.futures.Future[Any]) -> Tensor:
        return gradients.copy_(done.value()[0])

    return work.get_future().then(widened)
