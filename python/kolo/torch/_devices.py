"""The GPU of this rank, and torch's streams on it. Tests replace `gpu` by a stand-in."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any, Callable, ContextManager

import torch

from kolo import GradientSet, Memory, _streams
from kolo._library import library
from kolo._local_ranks import most_local_ranks


class Gpu:
    """The CUDA device whose tensors Kolo takes beside those of the processor."""

    type = "cuda"

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == self.type

    def stream(self, tensor: torch.Tensor) -> int:
        """Returns the current stream of this thread, a cudaStream_t."""
        return _streams.torch_stream(tensor)

    def here(self) -> Callable[[], ContextManager[Any]]:
        """Returns a function whose contexts, in any thread, have the current stream of this thread."""
        if not torch.cuda.is_initialized():
            return contextlib.nullcontext
        return functools.partial(torch.cuda.stream, torch.cuda.current_stream())

    def aside(self, tensor: torch.Tensor) -> ContextManager[Any]:
        """Returns a context whose current stream does no other work than to wait."""
        return torch.cuda.stream(_side_stream(tensor.device))

    def event(self, tensor: torch.Tensor) -> Any:
        """Returns an event after the work enqueued on the current stream."""
        return torch.cuda.current_stream(tensor.device).record_event()

    def order(self, tensor: torch.Tensor, event: Any) -> None:
        """Makes the current stream wait for an event."""
        torch.cuda.current_stream(tensor.device).wait_event(event)

    def finish(self) -> None:
        """Waits until the work enqueued on the current stream is done, if the program uses a GPU."""
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()

    def keep(self, tensor: torch.Tensor) -> None:
        """Keeps torch from using the memory of a tensor for another one before the current stream has used it."""
        tensor.record_stream(torch.cuda.current_stream(tensor.device))

    def future(self, tensor: torch.Tensor) -> torch.futures.Future[Any]:
        """Makes a future whose completion is ordered after the current stream, and whose waits order theirs."""
        return torch.futures.Future(devices=[tensor.device])

    def tensor_at(self, memory: Memory, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Returns memory of a device as a tensor of the same shape, which keeps `memory` alive; a copy if it is of
        another device."""
        plain = Memory(memory.address, memory.nbytes, "uint8", memory, is_device=True)
        return torch.as_tensor(plain, device=device).view(dtype).view(memory.shape)

    def index(self) -> int | None:
        """Returns the index of the GPU that the program has chosen; None if it uses none so far."""
        return torch.cuda.current_device() if torch.cuda.is_initialized() else None


@functools.lru_cache(maxsize=None)
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class Seam:
    """Refers to the device in use."""

    gpu: Any = Gpu()


def gpu() -> Any:
    return Seam.gpu


def on_gpu(value: Any) -> torch.Tensor | None:
    """Returns the first tensor on the GPU in a tensor, or in lists and tuples of them; None without one."""
    if isinstance(value, torch.Tensor):
        return value if gpu().holds(value) else None
    if isinstance(value, (list, tuple)):
        return next((found for each in value if (found := on_gpu(each)) is not None), None)
    return None


def stream_of(tensor: torch.Tensor) -> int | None:
    """Returns the current stream for a tensor on the GPU; None for one in host memory."""
    return gpu().stream(tensor) if gpu().holds(tensor) else None


def wait_for(gradients: GradientSet, found: torch.Tensor | None) -> None:
    """Waits for combined gradients. If some are on the GPU, of which `found` is one, it waits only until the current
    stream waits for them."""
    if found is None:
        gradients.wait()
    else:
        gradients.wait_on(gpu().stream(found))


def open_options(by_local_rank: bool = False) -> dict[str, Any]:
    """Returns the options of a job for the GPU that the program has chosen, if Kolo has collectives there. The
    variable KOLO_DEVICE has precedence. With `by_local_rank`, a program that has not yet chosen gets a GPU by its local
    rank, if the node has one for each rank. Does not start CUDA, which a program may want to do after a fork."""
    if "KOLO_DEVICE" in os.environ or not all(map(library().kolo_built_with, (b"cuda", b"nccl"))):
        return {}
    index = gpu().index()
    if index is not None:
        return {"device": f"cuda:{index}"}
    has_enough = by_local_rank and 0 < most_local_ranks() <= torch.cuda.device_count()
    return {"device": "cuda"} if has_enough else {}
