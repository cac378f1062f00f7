"""Adasum: averages gradients that have the same direction, and sums gradients that are orthogonal.

    Adasum(a, b) = (1 - a·b / (2 |a|²)) a + (1 - a·b / (2 |b|²)) b

Adasum combines pairs of ranks, then pairs of these results, and so on. Maleki et al., "Scaling distributed training
with adaptive summation", MLSys 2021.

Every result is a linear combination of the ranks' tensors, so the inner products of these tensors (n x n numbers)
determine the factor of each tensor:

    all_to_all    rank r gets part r of all ranks' tensors
    all_reduce    sums the inner products of the parts to those of the whole tensors
    all_gather    part r of the result, from rank r

Each rank sends as much as in an all-reduce. Any number of ranks is supported.
"""

from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor

from kolo.torch._tensors import number_memory

from ._job import ProcessSet
from ._operations import Handle, Operation, staged

# If the parts of a combination cancel, its square has an error of about 1e-15 of their squares, so smaller values count
# as zero.
_ZERO = 1e-14


def factors(products: Tensor) -> Tensor:
    """Returns the factor of each rank's tensor in the result. `products` are the inner products of the ranks' tensors,
    float64 [n, n]."""
    combined = list(torch.eye(len(products), dtype=products.dtype, device=products.device))
    while len(combined) > 1:
        pairs = [_pair(a, b, products) for a, b in zip(combined[::2], combined[1::2])]
        combined = pairs + combined[2 * len(pairs) :]
    return combined[0]


def _pair(a: Tensor, b: Tensor, products: Tensor) -> Tensor:
    common = a @ products @ b
    return _share(common, a, products) * a + _share(common, b, products) * b


def _share(common: Tensor, a: Tensor, products: Tensor) -> Tensor:
    square = a @ products @ a
    parts = a.square() @ products.diagonal()
    return torch.ones_like(square) if square <= _ZERO * parts else 1 - common / (2 * square)


def start_adasum(tensors: Sequence[Tensor], name: str, in_place: bool, process_set: ProcessSet) -> Handle:
    """Combines each of `tensors`, out of place or in place. Tensors of one type share messages. `name` is the name of
    the operation. Errors: ValueError for elements that are not real floating-point numbers."""
    for tensor in tensors:
        if not tensor.is_floating_point():
            raise ValueError(f"hvd.Adasum combines floating-point numbers, not {tensor.dtype}")
    results = [tensor.detach() if in_place else torch.empty_like(tensor) for tensor in tensors]
    handles = []
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [index for index, tensor in enumerate(tensors) if tensor.dtype == dtype]
        handles.append(
            _start([tensors[i].detach() for i in alike], [results[i] for i in alike], f"{name}.{dtype}", process_set)
        )
    return _Together(handles, list(tensors) if in_place else results)


class _Together:
    """Several operations, whose results are returned together."""

    def __init__(self, handles: list[Handle], value: list[Tensor]) -> None:
        self._handles = handles
        self._value = value

    def done(self) -> bool:
        return all(handle.done() for handle in self._handles)

    def result(self) -> list[Tensor]:
        for handle in self._handles:
            handle.result()
        return self._value


def _start(tensors: Sequence[Tensor], results: Sequence[Tensor], name: str, process_set: ProcessSet) -> Handle:
    """Works like `start_adasum`, for tensors of one type."""
    group = process_set.group()
    size = group.size
    widths = [-(-tensor.numel() // size) for tensor in tensors]
    mine = tensors[0].new_zeros(size, sum(widths))  # [receiving rank, that rank's parts of all tensors]
    for tensor, part in zip(tensors, mine.split(widths, dim=1)):
        padded = torch.nn.functional.pad(tensor.reshape(-1), (0, part.numel() - tensor.numel()))
        part.copy_(padded.view_as(part))
    parts = torch.empty_like(mine)  # [source rank, that rank's part for this rank]

    def multiply() -> Handle:
        doubles = [part.double() for part in parts.split(widths, dim=1)]
        products = torch.stack([part @ part.t() for part in doubles])
        ticket = group.all_reduce(number_memory(products), name=f"{name}.products", wait=False)
        return staged(ticket, lambda: combine(doubles, products), f"{name}.products", process_set)

    def combine(doubles: list[Tensor], products: Tensor) -> Handle:
        on_host = products.cpu()  # On a GPU each comparison would wait for the device.
        shares = [factors(each).to(mine.device) for each in on_host]
        combined = torch.cat([share @ part for share, part in zip(shares, doubles)]).to(mine.dtype)
        whole = torch.empty_like(mine)
        ticket = group.all_gather(number_memory(combined), out=number_memory(whole), name=f"{name}.results", wait=False)

        def unpack() -> None:
            for result, part in zip(results, whole.split(widths, dim=1)):
                result.copy_(part.reshape(-1)[: result.numel()].view_as(result))

        return Operation([ticket], results, unpack)

    ticket = group.all_to_all(number_memory(mine), out=number_memory(parts), name=f"{name}.parts", wait=False)
    return staged(ticket, multiply, f"{name}.parts", process_set)
