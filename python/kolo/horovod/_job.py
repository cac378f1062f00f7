"""The job of this process, and its place in it."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, NoReturn
from weakref import WeakValueDictionary

import torch
from torch.distributed import PrefixStore, rendezvous

import kolo
from kolo.torch._jobs import open_job
from kolo.torch._rendezvous import accept_brackets
from kolo.torch._tensors import number_memory

if TYPE_CHECKING:
    from ._handles import Staged
    from ._process_sets import ProcessSet

__all__ = ["cross_rank", "cross_size", "is_initialized", "local_rank", "local_size", "rank", "size"]

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Job:
    """One connection to a job: from `init` to `shutdown`. Construction is collective."""

    runtime: kolo.Runtime
    cross_rank: int
    """Index of this node among those that have this local rank."""
    cross_size: int
    """Number of nodes that have this local rank."""

    def __init__(self) -> None:
        self.runtime = _open()
        self.process_sets: dict[int, ProcessSet] = {}
        """Those that were added, by number. The global one is not among them."""
        self.process_sets_added = 0
        self.latest_staged: WeakValueDictionary[tuple[int | None, str | None], Staged] = WeakValueDictionary()
        """The last operation in flight that has stages, by process set and name."""
        self._named: Counter[tuple[str, int | None]] = Counter()
        place = torch.tensor([self.runtime.node, self.runtime.local_rank])
        places = torch.empty((self.runtime.size, 2), dtype=place.dtype)
        self.runtime.all_gather(number_memory(place), out=number_memory(places), name="places of ranks")
        peers = places[places[:, 1] == self.runtime.local_rank, 0]
        self.cross_rank = int((peers < self.runtime.node).sum())
        self.cross_size = len(peers)

    def next_name(self, kind: str, process_set: ProcessSet) -> str:
        """A name that a set of ranks has not used, "optimizer 2". All its ranks ask for names in one order."""
        key = (kind, process_set.process_set_id)
        self._named[key] += 1
        return f"{kind} {self._named[key]}"


def _open() -> kolo.Runtime:
    """Under torchrun, ranks meet through torch's own store, so that its agent is respected and a program may start
    torch.distributed, too; otherwise as `kolo.open` does: under mpirun through PMIx."""
    if not all(os.environ.get(name) for name in _TORCHRUN):
        return kolo.open()
    accept_brackets()
    store, rank, size = next(rendezvous("env://"))
    return open_job(PrefixStore("kolo.horovod", store), rank, size)


_current: Job | None = None


def is_initialized() -> bool:
    """Whether `init` has been called, and no `shutdown` since."""
    return _current is not None


def current() -> Job:
    """The job. Errors: ValueError before `init` and after `shutdown`."""
    if _current is None:
        not_initialized()
    return _current


def not_initialized() -> NoReturn:
    raise ValueError("Kolo has not been initialized; call hvd.init() first")


def make_current(job: Job | None) -> None:
    """For `init` and `shutdown`."""
    global _current
    _current = job


def rank() -> int:
    """This process's rank, from 0 to size() - 1."""
    return current().runtime.rank


def size() -> int:
    """Number of processes in the job."""
    return current().runtime.size


def local_rank() -> int:
    """This process's rank within its node."""
    return current().runtime.local_rank


def local_size() -> int:
    """Number of processes on this node."""
    return current().runtime.local_size


def cross_rank() -> int:
    """Index of this node among those that have this local rank."""
    return current().cross_rank


def cross_size() -> int:
    """Number of nodes that have this local rank."""
    return current().cross_size
