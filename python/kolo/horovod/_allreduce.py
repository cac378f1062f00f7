"""All-reduces of tensors."""

from __future__ import annotations

import operator
from typing import Any, Sequence

import torch
from torch import Tensor

from kolo.torch._tensors import Staging, check_dense, number_memory

from ._adasum import start_adasum
from ._calls import First, calls
from ._compression import Compression
from ._handles import Handle, Operation, synchronize
from ._names import name_of_tensors
from ._process_sets import ProcessSet, global_process_set
from ._reduce_op import Adasum, check_op, chosen, name_of

__all__ = [
    "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "grouped_allreduce", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_",
]  # fmt: skip


class _Reduction:
    """What an all-reduce and the one of its gradients have in common."""

    def __init__(
        self, name: str | None, compression: Any, op: int, before: float, after: float, process_set: ProcessSet
    ) -> None:
        check_op(op)
        if op == Adasum and (before, after) != (1.0, 1.0):
            raise ValueError("hvd.Adasum takes no prescale_factor and postscale_factor")
        self.name = name
        self.compression = compression
        self._op = op
        self._before = before
        self._after = after
        self._process_set = process_set

    def start(self, tensors: Sequence[Tensor], name: str | None, in_place: bool = False) -> Handle:
        check_dense(tensors)
        if not tensors:
            raise ValueError("the list of tensors is empty")
        if self._op == Adasum:
            name = name_of_tensors("allreduce", name or "adasum", tensors, "")
            return start_adasum(tensors, str(name), in_place, self._process_set)
        group = self._process_set.group()
        staging = Staging()
        if in_place:
            results = list(tensors)
            inputs = outputs = [staging.written(tensor) for tensor in tensors]
        else:
            inputs = [staging.read(tensor) for tensor in tensors]
            results = outputs = [torch.empty_like(tensor) for tensor in inputs]
        terms = f"{name_of(self._op)} {self._before} {self._after}{' in place' if in_place else ''}"
        tickets = []
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = [index for index, tensor in enumerate(tensors) if tensor.dtype == dtype]
            x = [number_memory(outputs[index]) for index in alike]
            if not in_place:
                out, x = x, [number_memory(inputs[index]) for index in alike]
            else:
                out = None
            one = len(tensors) == 1
            own_name = name if one or not name else f"{name}.{dtype}"
            tickets.append(
                group.all_reduce(
                    x[0] if one else x,
                    name_of(self._op),
                    out=out and (out[0] if one else out),
                    name=name_of_tensors("allreduce", own_name, [tensors[index] for index in alike], terms),
                    scale_before=self._before,
                    scale_after=self._after,
                    wait=False,
                )
            )
        return Operation(tickets, results, staging.finish)


def _compressed(tensors: Sequence[Tensor], reduction: _Reduction) -> list[Tensor]:
    check_dense(tensors)
    compression = reduction.compression
    pairs = [compression.compress(tensor) for tensor in tensors]
    reduced = _AllReduce.apply(reduction, reduction.name, *(tensor for tensor, _ in pairs))
    return [compression.decompress(tensor, context) for tensor, (_, context) in zip(reduced, pairs)]


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, reduction: _Reduction, name: str | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.reduction = reduction
        return tuple(synchronize(reduction.start(tensors, name)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        return None, None, *_AllReduce.apply(ctx.reduction, None, *gradients)


def _in_place(tensors: Sequence[Tensor], reduction: _Reduction) -> list[Tensor]:
    return list(synchronize(reduction.start(tensors, reduction.name, in_place=True)))


# What calls take behind their tensors.


def _terms(
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> _Reduction:
    return _Reduction(name, None, chosen(op, average), prescale_factor, postscale_factor, process_set)


def _compressed_terms(
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> _Reduction:
    return _Reduction(name, compression, chosen(op, average), prescale_factor, postscale_factor, process_set)


allreduce_async, grouped_allreduce_async = calls(
    _terms,
    lambda tensors, reduction: reduction.start(tensors, reduction.name),
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
    lambda tensors, reduction: reduction.start(tensors, reduction.name, in_place=True),
    First,
    "allreduce_async_",
    "As `allreduce_async`, in place.",
)
allreduce, grouped_allreduce = calls(
    _compressed_terms,
    _compressed,
    operator.itemgetter(0),
    "allreduce",
    "The elements of all ranks combined, in a new tensor. Differentiable: gradients are combined in the same way.",
)
allreduce_, grouped_allreduce_ = calls(
    _terms, _in_place, operator.itemgetter(0), "allreduce_", "As `allreduce`, in place, and not differentiable."
)
