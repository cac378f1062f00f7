"""All-reduces of sparse tensors."""

from __future__ import annotations

import math
from typing import Callable

import torch
from torch import Tensor

from kolo import Group

from ._errors import internal_errors
from ._process_sets import ProcessSet, global_process_set
from ._reduce_op import Average, Sum, name_of


def sparse_allreduce_async(
    tensor: Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], Tensor]:
    """Sums or averages sparse tensors. Returns a function that gives the result, coalesced.

    Each rank's elements go to the ranks that sum them, and the sums to all, so the bytes do not grow with the number of
    ranks as long as they have elements at the same indices. That begins when the function is called, which all ranks
    do in one order.
    """
    if op not in (Average, Sum):
        raise ValueError("sparse tensors are averaged or summed")
    group = process_set.group()

    def result() -> Tensor:
        with internal_errors():
            return _sum(tensor, group, name, name_of(op))

    return result


def _sum(tensor: Tensor, group: Group, name: str, op: str) -> Tensor:
    """A tensor of k sparse dimensions is a table with a row for each of their indices."""
    sparse_shape = tensor.shape[: tensor.sparse_dim()]
    height, width = math.prod(sparse_shape), math.prod(tensor.shape[tensor.sparse_dim() :])
    rows = tensor._values()
    if rows.dtype not in (torch.float32, torch.float64):
        rows = rows.float()
    indices = torch.zeros(rows.shape[0], dtype=torch.int64)
    for extent, along in zip(sparse_shape, tensor._indices()):
        indices = indices * extent + along
    sums = group.sparse_all_reduce(
        indices.contiguous().numpy(),
        rows.detach().reshape(rows.shape[0], width).contiguous().numpy(),
        height,
        name=f"allreduce.{name}",
        op=op,
        result="rows",
    )
    flat = torch.from_numpy(sums.indices)
    along = torch.stack(torch.unravel_index(flat, sparse_shape))
    values = torch.from_numpy(sums.rows).view(-1, *tensor.shape[tensor.sparse_dim() :]).to(tensor.dtype)
    return torch.sparse_coo_tensor(along, values, tensor.shape, is_coalesced=True, check_invariants=False)
