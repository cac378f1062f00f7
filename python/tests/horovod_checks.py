"""Shared checks of the scenes of kolo.horovod."""

import torch
from support import raises  # noqa: F401

import kolo.horovod as hvd


def values(rank, shape, dtype=torch.float32):
    """Returns small integers, so that sums and products are exact in every type."""
    return ((torch.arange(torch.Size(shape).numel()).view(shape) + rank) % 3 + 1).to(dtype)


def check(actual, expected, what):
    if actual.shape != expected.shape or not torch.equal(actual.double(), expected.double()):
        raise AssertionError(f"{what}: {actual} instead of {expected}")


def same_on_all_ranks(tensor):
    check(tensor, hvd.broadcast(tensor, 0), "other bits than on rank 0")
