"""All-reduces of sparse tensors."""

from __future__ import annotations

import math
from typing import Callable

import torch
from torch import Tensor

from kolo import Group, Ticket


def begin_sum(group: Group, tensor: Tensor, op: str, name: str | None = None) -> tuple[Ticket, Callable[[], Tensor]]:
    """Sums or averages sparse tensors of one shape. Returns a ticket, and what gives the result afterwards, coalesced.

    Each rank's elements go to the ranks that sum them, and the sums to all, so the bytes do not grow with the number of
    ranks as long as they have elements at the same indices. Types other than float32 and float64 are summed in float32.
    """
    # A tensor of k sparse dimensions is a table with a row for each of their indices.
    sparse_shape, row_shape = tensor.shape[: tensor.sparse_dim()], tensor.shape[tensor.sparse_dim() :]
    rows = tensor._values().detach()
    if rows.dtype not in (torch.float32, torch.float64):
        rows = rows.float()
    indices = torch.zeros(rows.shape[0], dtype=torch.int64)
    for extent, along in zip(sparse_shape, tensor._indices()):
        indices = indices * extent + along
    ticket = group.sparse_all_reduce(
        indices.contiguous().numpy(),
        rows.reshape(rows.shape[0], math.prod(row_shape)).contiguous().numpy(),
        math.prod(sparse_shape),
        name=name,
        op=op,
        result="rows",
        wait=False,
    )

    def result() -> Tensor:
        sums = ticket.wait()
        along = torch.stack(torch.unravel_index(torch.from_numpy(sums.indices), sparse_shape))
        values = torch.from_numpy(sums.rows).view(-1, *row_shape).to(tensor.dtype)
        return torch.sparse_coo_tensor(along, values, tensor.shape, is_coalesced=True, check_invariants=False)

    return ticket, result
