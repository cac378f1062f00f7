"""Which of Kolo's groups serves a process group."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Sequence

from torch.distributed import DistStoreError

import kolo


class TorchStore:
    """A store of torch as one of Kolo's."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def get(self, key: str, timeout: float) -> bytes:
        try:
            self._store.wait([key], timedelta(seconds=timeout))
        except DistStoreError as error:
            raise TimeoutError(str(error)) from error
        return bytes(self._store.get(key))


def open_job(store: Any, rank: int, size: int, **options: Any) -> kolo.Runtime:
    """Joins a job of `size` ranks that share a store of torch. Collective; with the options of `kolo.open`."""
    # A store may outlive jobs: each round of ranks that come has keys of its own.
    comers = store.add("kolo ranks", 1)
    return kolo.open(
        store=TorchStore(store), rank=rank, world_size=size, job=f"kolo {(comers - 1) // size}", **options
    )


class Jobs:
    """The job that the default process group opened, and the groups in it."""

    def __init__(self) -> None:
        self._default: kolo.Runtime | None = None
        self._launched: kolo.Runtime | None = None  # Until the default process group takes it.
        self._kept: list[Any] = []

    def launch(self, timeout: timedelta) -> kolo.Runtime:
        """Joins the job that the launcher started, for the default process group. Collective."""
        self._launched = kolo.open(operation_timeout=_milliseconds(timeout))
        return self._launched

    def member(
        self, store: Any, rank: int, size: int, ranks: Sequence[int], name: str, timeout: timedelta
    ) -> kolo.Group:
        """The group of `size` ranks that this one is in. `ranks`: their numbers in the default group; empty: this is
        the default group. Collective over the members."""
        default = self._default
        if ranks and default is not None and default.is_open:
            return default.group(list(ranks), name=name)
        limit_ms = _milliseconds(timeout)
        if ranks:
            return open_job(store, rank, size, operation_timeout=limit_ms)
        self._kept.clear()
        launched, self._launched = self._launched, None
        if launched is not None and launched.is_open and (launched.rank, launched.world_size) == (rank, size):
            self._default = launched
        else:
            self._default = open_job(store, rank, size, operation_timeout=limit_ms)
        return self._default


    def keep(self, form: Any) -> None:
        """Keeps a process group until the default one is made anew. With TORCH_DISTRIBUTED_DEBUG=DETAIL torch holds only
        the C++ part of it, which has no operations without the part in Python."""
        self._kept.append(form)


_LONGEST = timedelta(days=365)  # That Kolo takes.


def _milliseconds(timeout: timedelta) -> int:
    return max(1, round(min(timeout, _LONGEST).total_seconds() * 1000))
