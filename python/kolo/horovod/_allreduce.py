"""All-reduces of tensors, dense and sparse."""

from __future__ import annotations

import operator
from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch import Tensor

from kolo import Group
from kolo.torch._sparse import begin_sums
from kolo.torch._tensors import Staging, check_dense, number_memory

from ._adasum import start_adasum
from ._job import ProcessSet, global_process_set, internal_errors
from ._operations import First, Handle, Operation, calls, name_of_tensors, synchronize
from ._reductions import Adasum, Average, Compression, Sum, check_op, chosen, name_of

__all__ = [
    "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "grouped_allreduce", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_", "sparse_allreduce_async",
]  # fmt: skip


class Reduction(NamedTuple):
    """The arguments that all reductions share."""

    name: str | None
    compression: Any
    op: int
    before: float
    after: float
    process_set: ProcessSet

    @property
    def terms(self) -> str:
        return f"{name_of(self.op)} {self.before} {self.after}"

    def compressed(self, tensors: Sequence[Tensor], function: Any) -> list[Tensor]:
        """Applies the differentiable `function` to compressed `tensors`, and decompresses the results."""
        check_dense(tensors)
        pairs = [self.compression.compress(tensor) for tensor in tensors]
        results = function.apply(self, *(tensor for tensor, _ in pairs))
        return [self.compression.decompress(result, context) for result, (_, context) in zip(results, pairs)]


def _compressed_terms(
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Reduction:
    op = chosen(op, average)
    check_op(op)
    if op == Adasum and (prescale_factor, postscale_factor) != (1.0, 1.0):
        raise ValueError("hvd.Adasum takes no prescale_factor and postscale_factor")
    return Reduction(name, compression, op, prescale_factor, postscale_factor, process_set)


def _terms(
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Reduction:
    op = chosen(op, average)
    return _compressed_terms(None, name, Compression.none, op, prescale_factor, postscale_factor, process_set)


def _start(tensors: Sequence[Tensor], reduction: Reduction, in_place: bool = False) -> Handle:
    check_dense(tensors)
    if not tensors:
        raise ValueError("the list of tensors is empty")
    name, op = reduction.name, reduction.op
    if op == Adasum:
        own_name = name_of_tensors("allreduce", name or "adasum", tensors, "")
        return start_adasum(tensors, str(own_name), in_place, reduction.process_set)
    group = reduction.process_set.group()
    staging = Staging()
    if in_place:
        results = list(tensors)
        inputs = outputs = [staging.written(tensor) for tensor in tensors]
    else:
        inputs = [staging.read(tensor) for tensor in tensors]
        results = outputs = [torch.empty_like(tensor) for tensor in inputs]
    terms = f"{reduction.terms}{' in place' if in_place else ''}"
    tickets = []
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [index for index, tensor in enumerate(tensors) if tensor.dtype == dtype]
        out = [number_memory(outputs[index]) for index in alike]
        x = out if in_place else [number_memory(inputs[index]) for index in alike]
        one = len(tensors) == 1
        own_name = name if one or not name else f"{name}.{dtype}"
        tickets.append(
            group.all_reduce(
                x[0] if one else x,
                name_of(op),
                out=None if in_place else out[0] if one else out,
                name=name_of_tensors("allreduce", own_name, [tensors[index] for index in alike], terms),
                scale_before=reduction.before,
                scale_after=reduction.after,
                wait=False,
            )
        )
    return Operation(tickets, results, staging.finish)


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, reduction: Reduction, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.reduction = reduction
        return tuple(synchronize(_start(tensors, reduction)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        return None, *_AllReduce.apply(ctx.reduction._replace(name=None), *gradients)


allreduce_async, grouped_allreduce_async = calls(
    _terms,
    _start,
    First,
    "allreduce_async",
    """Combines the elements of all ranks in a new tensor. Returns a handle for `poll` and `synchronize`.

    `op`: Average unless given. Elements are multiplied by `prescale_factor` before and by `postscale_factor` after.
    `name` identifies the operation on all ranks. Without one an operation is named after its arguments; those with the
    same arguments are then called in one order on all ranks.
    """,
)
allreduce_async_, grouped_allreduce_async_ = calls(
    _terms,
    lambda tensors, reduction: _start(tensors, reduction, in_place=True),
    First,
    "allreduce_async_",
    "As `allreduce_async`, in place.",
)
allreduce, grouped_allreduce = calls(
    _compressed_terms,
    lambda tensors, reduction: reduction.compressed(tensors, _AllReduce),
    operator.itemgetter(0),
    "allreduce",
    "The elements of all ranks combined, in a new tensor. Differentiable: gradients are combined in the same way.",
)
allreduce_, grouped_allreduce_ = calls(
    _terms,
    lambda tensors, reduction: list(synchronize(_start(tensors, reduction, in_place=True))),
    operator.itemgetter(0),
    "allreduce_",
    "As `allreduce`, in place, and not differentiable.",
)


# --- sparse tensors ---------------------------------------------------------------------------------


def sparse_allreduce_async(
    tensor: Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], Tensor]:
    """Sums or averages sparse tensors. Returns a function that returns the coalesced result.

    The operation begins when that function is called. All ranks must call such functions in the same order.
    """
    if not isinstance(tensor, Tensor) or tensor.layout != torch.sparse_coo:
        kind = tensor.layout if isinstance(tensor, Tensor) else f"a {type(tensor).__name__}"
        raise ValueError(f"sparse_allreduce_async takes a tensor of torch.sparse_coo, not {kind}")
    group = _group_of(process_set, op)
    # Kolo compares only the height and the width of tables, so the name contains the shape of other tensors.
    own_name = name if tensor.sparse_dim() == 1 and tensor.dense_dim() < 2 else f"{name} {list(tensor.shape)}"
    return lambda: _sum(group, [tensor], own_name, op)[0]


def sparse_allreduce(tensors: Sequence[Tensor], name: str, op: int, process_set: ProcessSet) -> list[Tensor]:
    """Works like `sparse_allreduce_async`, for several tensors, which share their exchanges and are summed in one type.
    Blocks."""
    return _sum(_group_of(process_set, op), tensors, name, op)


def _group_of(process_set: ProcessSet, op: int) -> Group:
    if op not in (Average, Sum):
        raise ValueError("sparse tensors are averaged or summed")
    return process_set.group()


def _sum(group: Group, tensors: Sequence[Tensor], name: str, op: int) -> list[Tensor]:
    with internal_errors():
        _, sums = begin_sums(group, tensors, name_of(op), f"allreduce.{name}")
        return sums()
