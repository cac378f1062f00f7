"""Reductions, and the compression of gradients."""

from __future__ import annotations

import enum
import warnings
from typing import Any

import torch

__all__ = ["Adasum", "Average", "Compression", "Max", "Min", "Product", "Sum"]


class ReduceOp(enum.IntEnum):
    """The reductions, with the numbers of Horovod."""

    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5


Average, Sum, Adasum, Min, Max, Product = ReduceOp

_NAMES = {Average: "average", Sum: "sum", Min: "min", Max: "max", Product: "prod"}


def check_op(op: int) -> None:
    """Raises ValueError unless `op` is a reduction."""
    try:
        ReduceOp(op)
    except ValueError:
        raise ValueError(f"op is one of hvd.{', '.join(each.name for each in ReduceOp)}, not {op!r}") from None


def name_of(op: int) -> str:
    """Returns Kolo's name of an elementwise reduction. Raises ValueError for other values."""
    check_op(op)
    if op == Adasum:
        raise ValueError("hvd.Adasum combines whole tensors: it is for allreduce and DistributedOptimizer only")
    return _NAMES[ReduceOp(op)]


def chosen(op: int | None, average: bool | None) -> int:
    """Returns the reduction that the argument `op`, or the deprecated argument `average`, gives; by default the
    average."""
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("op replaces average; pass only op")
    warnings.warn(
        "the argument average is deprecated; pass op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel=4
    )
    return Average if average else Sum


class Compressor:
    """Determines how gradients are sent. Another class with `compress` and `decompress` also works, without deriving
    from this one."""

    wire_dtype: str | None = None
    """The type in which DistributedOptimizer sends float32 and float64; it then calls neither function. None: it sends
    the result of `compress`."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Returns the tensor to send, and the context for `decompress`."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Returns the combined tensor for the caller."""
        return tensor


class NoneCompressor(Compressor):
    """Tensors are sent unchanged."""


class _Cast(Compressor):
    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor.to(cls.dtype) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx) if ctx.is_floating_point else tensor


class FP16Compressor(_Cast):
    """Floating-point tensors are sent as float16. Sums are in float32."""

    dtype = torch.float16
    wire_dtype = "float16"


class BF16Compressor(_Cast):
    """Floating-point tensors are sent as bfloat16, which has the range of float32. Sums are in float32."""

    dtype = torch.bfloat16
    wire_dtype = "bfloat16"


class Compression:
    """The compressors: `hvd.Compression.fp16`. Each contribution is rounded once, and the result once."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
