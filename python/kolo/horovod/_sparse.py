"""All-reduces of sparse tensors."""

from __future__ import annotations

from typing import Callable, Sequence

import torch
from torch import Tensor

from kolo import Group
from kolo.torch._sparse import begin_sums

from ._errors import internal_errors
from ._process_sets import ProcessSet, global_process_set
from ._reduce_op import Average, Sum, name_of

__all__ = ["sparse_allreduce_async"]


def sparse_allreduce_async(
    tensor: Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], Tensor]:
    """Sums or averages sparse tensors. Returns a function that gives the result, coalesced.

    The operation begins when the function is called, which all ranks do in one order.
    """
    if not isinstance(tensor, Tensor) or tensor.layout != torch.sparse_coo:
        kind = tensor.layout if isinstance(tensor, Tensor) else f"a {type(tensor).__name__}"
        raise ValueError(f"sparse_allreduce_async takes a tensor of torch.sparse_coo, not {kind}")
    group = _group_of(process_set, op)
    # Kolo compares the height and the width of tables.
    own_name = name if tensor.sparse_dim() == 1 and tensor.dense_dim() < 2 else f"{name} {list(tensor.shape)}"
    return lambda: _sum(group, [tensor], own_name, op)[0]


def sparse_allreduce(
    tensors: Sequence[Tensor], name: str, op: int, process_set: ProcessSet = global_process_set
) -> list[Tensor]:
    """The same of several tensors, which share their exchanges, at once. All are summed in one type."""
    return _sum(_group_of(process_set, op), tensors, name, op)


def _group_of(process_set: ProcessSet, op: int) -> Group:
    if op not in (Average, Sum):
        raise ValueError("sparse tensors are averaged or summed")
    return process_set.group()


def _sum(group: Group, tensors: Sequence[Tensor], name: str, op: int) -> list[Tensor]:
    with internal_errors():
        _, sums = begin_sums(group, tensors, name_of(op), f"allreduce.{name}")
        return sums()
