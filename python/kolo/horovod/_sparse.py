"""All-reduces of sparse tensors."""

from __future__ import annotations

from typing import Callable

from torch import Tensor

from kolo.torch._sparse import begin_sum

from ._errors import internal_errors
from ._process_sets import ProcessSet, global_process_set
from ._reduce_op import Average, Sum, name_of


def sparse_allreduce_async(
    tensor: Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], Tensor]:
    """Sums or averages sparse tensors. Returns a function that gives the result, coalesced.

    The operation begins when the function is called, which all ranks do in one order.
    """
    if op not in (Average, Sum):
        raise ValueError("sparse tensors are averaged or summed")
    group = process_set.group()

    def result() -> Tensor:
        with internal_errors():
            _, sums = begin_sum(group, tensor, name_of(op), f"allreduce.{name}")
            return sums()

    return result
