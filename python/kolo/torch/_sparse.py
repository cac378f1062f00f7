"""All-reduces of sparse tensors."""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import torch
from torch import Tensor

from kolo import Group, Ticket, UsageError

from ._devices import gpu
from ._tensors import resolved


def begin_sums(
    group: Group, tensors: Sequence[Tensor], op: str, name: str | None = None
) -> tuple[Ticket, Callable[[], list[Tensor]]]:
    """Sums or averages sparse tensors, each of which has the same shape on all ranks. They share their exchanges.
    Returns a ticket, and a function that waits for the coalesced results and returns them.

    Each rank's elements are sent to the ranks that sum them, and the sums to all ranks. So the bytes do not grow with
    the number of ranks if all ranks have elements at the same indices. Integers are summed in float64, 16-bit floats in
    float32, and complex numbers as pairs of their parts; all tensors are summed in one type.
    """
    tables = [_Table(tensor) for tensor in tensors]
    ticket = group.sparse_all_reduce(
        [table.indices for table in tables],
        [table.rows for table in tables],
        [table.height for table in tables],
        name=name,
        op=op,
        result="rows",
        wait=False,
    )
    return ticket, lambda: [table.tensor(sums) for table, sums in zip(tables, ticket.wait())]


class _Table:
    """A sparse tensor as a table, which has a row for each index of the sparse dimensions."""

    def __init__(self, tensor: Tensor) -> None:
        if gpu().holds(tensor):
            raise UsageError(f"Kolo sums sparse tensors of torch in host memory, and one is on {tensor.device}")
        shape = tuple(tensor.shape)
        self._sparse_shape, self._row_shape = shape[: tensor.sparse_dim()], shape[tensor.sparse_dim() :]
        self._dtype = tensor.dtype
        rows = resolved(tensor._values().detach())
        if rows.is_complex():
            rows = torch.view_as_real(rows)
            self._row_shape = (*self._row_shape, 2)
        if not rows.is_floating_point():
            rows = rows.double()
        elif rows.dtype not in (torch.float32, torch.float64):
            rows = rows.float()
        indices = torch.zeros(rows.shape[0], dtype=torch.int64, device="cpu")
        for extent, along in zip(self._sparse_shape, tensor._indices()):
            indices = indices * extent + along
        self.indices = indices.contiguous().numpy()
        self.rows = rows.reshape(rows.shape[0], math.prod(self._row_shape)).contiguous().numpy()
        self.height = math.prod(self._sparse_shape)

    def tensor(self, sums: Any) -> Tensor:
        """Makes the sparse tensor of the result, `kolo.Rows`."""
        along = torch.stack(torch.unravel_index(torch.from_numpy(sums.indices), self._sparse_shape))
        values = torch.from_numpy(sums.rows).view(-1, *self._row_shape)
        values = (torch.view_as_complex(values) if self._dtype.is_complex else values).to(self._dtype)
        shape = (*self._sparse_shape, *values.shape[1:])
        return torch.sparse_coo_tensor(along, values, shape, device="cpu", is_coalesced=True, check_invariants=False)
