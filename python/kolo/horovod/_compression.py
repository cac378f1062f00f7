"""Gradients that travel in 16 bits."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Compression"]


class Compressor:
    """How gradients travel. A class of yours has `compress` and `decompress`, and need not be derived from this one."""

    wire_dtype: str | None = None
    """What DistributedOptimizer sends in place of float32 and float64; it then calls neither function. None: what
    `compress` gives."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """What is sent, and what `decompress` needs to know."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The combined tensor as the caller gets it."""
        return tensor


class NoneCompressor(Compressor):
    """Tensors travel as they are."""


class _Cast(Compressor):
    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor.to(cls.dtype) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx) if ctx.is_floating_point else tensor


class FP16Compressor(_Cast):
    """Floating-point tensors travel as float16. Sums are in float32."""

    dtype = torch.float16
    wire_dtype = "float16"


class BF16Compressor(_Cast):
    """Floating-point tensors travel as bfloat16, which has the range of float32. Sums are in float32."""

    dtype = torch.bfloat16
    wire_dtype = "bfloat16"


class Compression:
    """The compressors: `hvd.Compression.fp16`. Each contribution is rounded once, and the result once."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
