"""Converts tensors to memory that Kolo's operations use, and back."""

from __future__ import annotations

import bisect
import ctypes
import functools
import itertools
from typing import Any, Sequence

import torch

from kolo import Memory, UsageError, _dtypes

from ._devices import gpu, on_gpu


@functools.lru_cache(maxsize=None)
def _known(dtype: torch.dtype) -> _dtypes.DType | None:
    """Returns Kolo's element type; None if Kolo does not take the type."""
    return next((own for own in _dtypes.dtypes() if getattr(torch, own.numpy, None) is dtype), None)


def number_memory(tensor: torch.Tensor) -> Memory:
    """Returns the elements of a contiguous tensor, for operations that compute with them.

    Errors: UsageError for a type that Kolo does not take.
    """
    dtype = _known(tensor.dtype)
    if dtype is None:
        names = ", ".join(f"torch.{own.numpy}" for own in _dtypes.dtypes())
        raise UsageError(f"Kolo reduces no elements of {tensor.dtype}, only those of {names}")
    return Memory(tensor.data_ptr(), tensor.numel(), dtype, tensor, is_device=gpu().holds(tensor))


def moved_memory(tensor: torch.Tensor) -> Memory:
    """Works like `number_memory`, for operations that only copy elements, of any type: unknown types are treated as
    bytes."""
    dtype, is_device = _known(tensor.dtype), gpu().holds(tensor)
    if dtype is None:
        return Memory(tensor.data_ptr(), tensor.numel() * tensor.element_size(), "uint8", tensor, is_device=is_device)
    return Memory(tensor.data_ptr(), tensor.numel(), dtype, tensor, is_device=is_device)


def check_dense(tensors: Sequence[torch.Tensor]) -> None:
    """Raises UsageError for objects that are not tensors, for sparse tensors, and for tensors that are neither in host
    memory nor on a GPU."""
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise UsageError(f"Kolo takes tensors here, not a {type(tensor).__name__}")
        if tensor.layout != torch.strided:
            raise UsageError(f"Kolo takes dense tensors here, not {tensor.layout}; call to_dense() first")
        check_device(tensor)


def check_device(tensor: torch.Tensor, what: str = "a tensor") -> None:
    """Raises UsageError for a tensor that is neither in host memory nor on a GPU; `what` names it."""
    if tensor.device.type != "cpu" and not gpu().holds(tensor):
        raise UsageError(f"{what} is on {tensor.device}; Kolo takes tensors on the CPU and on CUDA devices")


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Returns `tensor` without lazy conjugation or negation, which torch only marks by a flag of the tensor."""
    return tensor.resolve_conj().resolve_neg()


def tensor_at(memory: Memory, device: torch.device) -> torch.Tensor:
    """Returns memory of `device` as a tensor of the same shape, which keeps `memory` alive.

    Errors: UsageError for a type that torch does not have, and for memory of another GPU.
    """
    dtype = getattr(torch, memory.dtype.numpy, None)
    if dtype is None:
        raise UsageError(f"torch has no elements of type {memory.dtype.name}")
    if memory.count == 0:
        return torch.empty(memory.shape, dtype=dtype, device=device)
    if memory.is_device:
        tensor: torch.Tensor = gpu().tensor_at(memory, dtype, device)
        if tensor.data_ptr() != memory.address:
            raise UsageError(
                f"a parameter is on {device}, but Kolo has opened another GPU: call torch.cuda.set_device() before Kolo "
                "opens its device, or set KOLO_DEVICE"
            )
        return tensor
    data: Any = (ctypes.c_char * memory.nbytes).from_address(memory.address)
    data._memory = memory  # The tensor's storage holds `data`.
    return torch.frombuffer(data, dtype=dtype).view(memory.shape)


class Staging:
    """Makes contiguous copies of tensors for an operation, and copies results back afterwards. Errors: as
    `check_dense`."""

    on_gpu: torch.Tensor | None = None
    """A tensor of the operation that is on the GPU; None without one."""

    def __init__(self) -> None:
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    def _take(self, tensors: Sequence[torch.Tensor]) -> None:
        check_dense(tensors)
        if self.on_gpu is None:
            self.on_gpu = on_gpu(list(tensors))

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns `tensor`, or a contiguous copy."""
        self._take([tensor])
        return resolved(tensor.detach()).contiguous()

    def written(self, tensor: torch.Tensor) -> torch.Tensor:
        """Works like `read`, for a tensor that gets a result and may also be read."""
        self._take([tensor])
        plain = tensor.detach()
        memory = resolved(plain).contiguous()
        if memory is not plain:
            self._copies.append((plain, memory))
        return memory

    def joined(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Makes one tensor for the results of all these tensors."""
        self._take(tensors)
        check_one_type(tensors)
        total = sum(tensor.numel() for tensor in tensors)
        whole = tensors[0].new_empty(total)
        offset = 0
        for tensor in tensors:
            part = whole[offset : offset + tensor.numel()].view(tensor.shape)
            self._copies.append((tensor.detach(), part))
            offset += tensor.numel()
        return whole

    def apart(self, memory: torch.Tensor) -> torch.Tensor:
        """Returns new memory in place of `memory`, which gets the result afterwards."""
        self._copies.insert(0, (memory, torch.empty_like(memory)))  # `memory` may itself be a copy.
        return self._copies[0][1]

    def finish(self) -> None:
        """Copies the results to their tensors. Later calls do nothing."""
        for tensor, copy in self._copies:
            put(tensor, copy)
            if gpu().holds(copy):
                gpu().keep(copy)
                gpu().keep(tensor)
        self._copies.clear()


def overlap(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Returns whether memory belongs to a tensor of each list; all tensors are contiguous."""
    places = sorted((each.data_ptr(), each.data_ptr() + each.nbytes) for each in others if each.nbytes > 0)
    ends = list(itertools.accumulate((end for _, end in places), max))  # The largest end up to each place.
    for first, size in ((each.data_ptr(), each.nbytes) for each in tensors if each.nbytes > 0):
        before = bisect.bisect_left(places, (first + size, 0))  # Places that begin before the end.
        if before > 0 and ends[before - 1] > first:
            return True
    return False


def put(tensor: torch.Tensor, result: torch.Tensor) -> None:
    """Copies a result to a tensor; uses inference mode for inference tensors, which change only there."""
    with torch.no_grad(), torch.inference_mode(tensor.is_inference()):
        tensor.copy_(result)


def concatenated(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the elements of all tensors, which have one type, concatenated."""
    check_dense(tensors)
    check_one_type(tensors)
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def check_one_type(*lists: Sequence[torch.Tensor]) -> None:
    """Raises UsageError unless all tensors of all lists have one element type."""
    if len({tensor.dtype for tensors in lists for tensor in tensors}) > 1:
        raise UsageError("the tensors of one operation have one element type")

