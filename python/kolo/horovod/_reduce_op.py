"""The reductions."""

from __future__ import annotations

import enum
import warnings

__all__ = ["Adasum", "Average", "Max", "Min", "Product", "Sum"]


class ReduceOp(enum.IntEnum):
    """How elements of different ranks are combined. The numbers are Horovod's."""

    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5


Average = ReduceOp.Average
Sum = ReduceOp.Sum
Adasum = ReduceOp.Adasum
Min = ReduceOp.Min
Max = ReduceOp.Max
Product = ReduceOp.Product

_NAMES = {Average: "average", Sum: "sum", Min: "min", Max: "max", Product: "prod"}


def check_op(op: int) -> None:
    """Errors: ValueError unless it is a reduction."""
    try:
        ReduceOp(op)
    except ValueError:
        raise ValueError(f"op is one of hvd.{', '.join(each.name for each in ReduceOp)}, not {op!r}") from None


def name_of(op: int) -> str:
    """Kolo's name of a reduction of elements. Errors: ValueError for others."""
    check_op(op)
    if op == Adasum:
        raise ValueError("hvd.Adasum combines whole tensors: it is for allreduce and DistributedOptimizer only")
    return _NAMES[ReduceOp(op)]


def chosen(op: int | None, average: bool | None) -> int:
    """The reduction that the arguments `op` and `average`, its predecessor, say: by default the average."""
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("op replaces average; pass only op")
    warnings.warn(
        "the argument average is deprecated; pass op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel=4
    )
    return Average if average else Sum
