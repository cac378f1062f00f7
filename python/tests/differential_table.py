"""The table of scenes that `differential_test.py` runs over Gloo and over Kolo, and shared functions."""

import dataclasses
import os
from typing import Callable

import torch
import torch.distributed as dist


@dataclasses.dataclass(frozen=True)
class Scene:
    """A function without arguments that ranks call together in an open job. It returns tensors and objects."""

    name: str
    call: Callable
    ranks: tuple  # Numbers of ranks to run on; short runs use the first one.
    alone: bool  # Runs only over Kolo, checks its results, and returns nothing.


SCENES = {}


def scene(*ranks, alone=False, name=None):
    """Adds a function to the table, under this name or its own. By default it runs on 2, 3 and 4 ranks."""

    def enter(function):
        key = name or function.__name__
        assert key not in SCENES, key
        SCENES[key] = Scene(key, function, ranks or (3, 2, 4), alone)
        return function

    return enter


@dataclasses.dataclass
class Bounded:
    """Sums of rounded numbers, which backends may add in any order, and a bound for the difference between two
    orders."""

    value: torch.Tensor
    bound: torch.Tensor

    @classmethod
    def sums(cls, value, contributions):
        """The error of n - 1 additions in any order is at most (n - 1) u / (1 - (n - 1) u) times the sum of magnitudes;
        two orders differ by at most twice that."""
        additions = (len(contributions) - 1) * torch.finfo(value.dtype).eps / 2
        magnitudes = torch.stack([each.double().abs() for each in contributions]).sum(0)
        return cls(value, 2 * additions / (1 - additions) * magnitudes)


def me():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def values(rank, *shape, dtype=torch.float32):
    """Returns small integers that identify rank and index. Sums and products are exact in every type."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 3 + rank * 5) % 4 + 1).view(shape).to(dtype)


def noise(rank, *shape):
    """Returns numbers with full mantissas."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank + 1))


def same_everywhere(tensor):
    """Returns whether all ranks have the bits of rank 0."""
    first = tensor.detach().clone()
    dist.broadcast(first, 0)
    assert torch.equal(first, tensor), "ranks have different bits"
    return tensor


def resources():
    """Returns the number of descriptors and of threads of this process, and its bytes of memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), resident
