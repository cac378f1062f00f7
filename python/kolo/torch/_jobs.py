"""Rendezvous of ranks, and the groups of Kolo behind process groups."""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from typing import Any, Iterator, Sequence
from urllib.parse import parse_qs, urlparse

from torch.distributed import DistStoreError, HashStore, Store, TCPStore, is_torchelastic_launched
from torch.distributed.rendezvous import rendezvous

import kolo

from ._devices import open_options

Meeting = tuple[Store, int, int]
"""A store that all ranks share, this rank, and the number of ranks."""

_LONGEST = timedelta(days=365)  # Longest timeout that Kolo takes.
_ANSWERS_EVERY_S = 0.05  # Longest time for which a rank that comes waits for rank 0.


def meet_by_environment(url: str, **keywords: Any) -> Iterator[Meeting] | None:
    """Returns torch's own `env://` rendezvous if torchrun or the user has set RANK, WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT; otherwise None."""
    if not all(os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        return None
    host = os.environ["MASTER_ADDR"]
    if host.startswith("[") and host.endswith("]"):  # torch does not resolve `[fd00::1]`.
        os.environ["MASTER_ADDR"] = host[1:-1]
    return rendezvous(url, **keywords)


class TorchStore:
    """Adapts a store of torch to Kolo. The store may outlive jobs and starts that failed: torchrun keeps one for all
    starts. So each round of ranks has its own keys, and no rank meets a process of another round:

      kolo comers           number of processes that have come; rank 0 looks at it while it waits
      kolo comers RANK      the same for one rank; each process has the number that it got, and rank 0's names its round
      kolo round RANK N     name of the round of this rank's process N, by which rank 0 answers each rank's newest one

    Rank 0 answers until all keys that it waits for are there. A process that has died before is answered in vain.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self.number: int = store.add(f"kolo comers {rank}", 1)
        store.add("kolo comers", 1)
        self._round = str(self.number) if rank == 0 else ""
        self._unsent: list[tuple[str, bytes]] = []  # Set before the round was known.
        self._num_comers = 0
        self._answered = [0] * size

    def is_newest(self) -> bool:
        """Returns whether no process has come as this rank since."""
        return bool(self._store.add(f"kolo comers {self._rank}", 0) == self.number)

    def set(self, key: str, value: bytes) -> None:
        if self._round:
            self._store.set(f"{key} of round {self._round}", value)
        else:
            self._unsent.append((key, value))

    def get(self, key: str, timeout: float) -> bytes:
        end = time.monotonic() + timeout
        if not self._round:
            self._round = self._wait(f"kolo round {self._rank} {self.number}", end).decode()
            for each in self._unsent:
                self.set(*each)
        return self._wait(f"{key} of round {self._round}", end)

    def _wait(self, key: str, end: float) -> bytes:
        while self._rank == 0:
            self._answer()
            left = end - time.monotonic()
            if left <= 0 or self._store.check([key]):
                break
            time.sleep(min(left, _ANSWERS_EVERY_S))  # torch would warn of each short wait.
        try:
            left = max(end - time.monotonic(), 0.001)  # torch takes 0 for no limit.
            self._store.wait([key], timedelta(seconds=left))
            return bytes(self._store.get(key))
        except DistStoreError as error:
            self._check_newest()
            raise TimeoutError(str(error)) from error

    def _answer(self) -> None:
        num_comers = self._store.add("kolo comers", 0)
        if num_comers == self._num_comers:
            return
        self._check_newest()
        self._num_comers = num_comers
        for rank in range(1, len(self._answered)):
            newest = self._store.add(f"kolo comers {rank}", 0)
            if newest != self._answered[rank]:
                self._store.set(f"kolo round {rank} {newest}", self._round)
                self._answered[rank] = newest

    def _check_newest(self) -> None:
        if not self.is_newest():
            raise kolo.ConfigError(_another(self._rank))


def _me() -> str:
    return f"process {os.getpid()} of {socket.gethostname()}"


def _question() -> str:
    port = os.environ.get("MASTER_PORT")
    return f"is another job {f'at port {port}' if port else 'in this store'}?"


def _another(rank: int) -> str:
    return f"another process has come as rank {rank} beside {_me()}: {_question()}"


def open_job(store: Any, rank: int, size: int, **options: Any) -> kolo.Runtime:
    """Joins a job of `size` ranks that share a store of torch. Collective. `options` are as in `kolo.open`.

    Ranks of two jobs with the same port would meet in one store, because torch only counts processes. So each process
    checks before and after the ranks meet that no other process has come as its rank. Under torchrun an earlier one has
    died, and is no error.
    """
    adapted = TorchStore(store, rank, size)
    store.set(f"kolo comer {rank} {adapted.number}", _me())
    if adapted.number > 1 and not is_torchelastic_launched():
        other = bytes(store.get(f"kolo comer {rank} {adapted.number - 1}")).decode()
        if other != _me():
            raise kolo.ConfigError(f"two processes are rank {rank}, {other} and {_me()}: {_question()}")
    place: dict[str, Any] = {"store": adapted, "rank": rank, "world_size": size}
    job = kolo.open(**place, **{**open_options(), **options})
    if not adapted.is_newest():
        why = _another(rank)
        job.abort(why)
        raise kolo.ConfigError(why)
    return job


class Jobs:
    """The jobs behind the process groups of this process. If the default process group uses Kolo, there is one job, and
    the other process groups are groups of it; otherwise there is one job for each set of ranks."""

    def __init__(self) -> None:
        self._default: kolo.Runtime | None = None
        self._launched: kolo.Runtime | None = None  # Set until the default process group takes it.
        self._others: dict[tuple[int, ...], kolo.Runtime] = {}  # By ranks in the default process group.
        self._forms: list[tuple[Any, kolo.Runtime]] = []

    def meet(self, url: str, timeout: timedelta, **keywords: Any) -> Iterator[Meeting]:
        """Called by torch as rendezvous for `kolo://`, for the default process group. Collective.

        Without the variables of `env://`, rank and size come from the launcher (mpirun, srun, or none). Rank 0 then
        serves the store at a free port of the address at which other nodes reach its node.
        """
        meeting = meet_by_environment(url.replace("kolo://", "env://", 1), timeout=timeout, **keywords)
        if meeting is not None:
            yield from meeting
            return
        self._launched = job = kolo.open(operation_timeout=_milliseconds(timeout), **open_options())
        _check(url, job)
        yield _store(job, timeout), job.rank, job.world_size
        raise RuntimeError("kolo:// meets once; destroy the process group before the next init_process_group")

    def member(
        self, store: Any, rank: int, size: int, ranks: Sequence[int], name: str, timeout: timedelta
    ) -> tuple[kolo.Group, kolo.Runtime]:
        """Returns the group of `size` ranks with this rank, and its job. `ranks` are the ranks in the default group,
        empty for the default group itself. Collective over the members."""
        default, limit_ms = self._default, _milliseconds(timeout)
        if ranks and default is not None and default.is_open:
            return _group(default, ranks, name, limit_ms), default
        if ranks:
            job = self._others.get(tuple(ranks))
            if job is None:
                job = self._others[tuple(ranks)] = open_job(store, rank, size, operation_timeout=limit_ms)
            return _group(job, range(size), name, limit_ms), job
        self._forms.clear()
        launched, self._launched = self._launched, None
        if launched is not None and launched.is_open and (launched.rank, launched.world_size) == (rank, size):
            self._default = launched
        else:
            self._default = open_job(store, rank, size, operation_timeout=limit_ms)
        return self._default, self._default

    def keep(self, form: Any, job: kolo.Runtime) -> None:
        """Keeps a process group alive until it ends. With TORCH_DISTRIBUTED_DEBUG=DETAIL, torch refers only to its C++
        part, which has no operations without the Python part."""
        self._forms.append((form, job))

    def leave(self, form: Any) -> kolo.Runtime | None:
        """Removes a process group that ends. Returns the job that ends with it, if any: the job of the default process
        group ends with that group, any other job with its last process group."""
        job = next((job for each, job in self._forms if each is form), None)
        self._forms = [(each, of) for each, of in self._forms if each is not form]
        if job is None or job is self._default:
            return job if form.group is job else None
        if any(of is job for _, of in self._forms):
            return None
        self._others = {ranks: each for ranks, each in self._others.items() if each is not job}
        return job


def _milliseconds(timeout: timedelta) -> int:
    return max(1, round(min(timeout, _LONGEST).total_seconds() * 1000))


def _group(job: kolo.Runtime, ranks: Sequence[int], name: str, limit_ms: int) -> kolo.Group:
    """Creates a group in which a stall is no error before the limit. Collective. With a lower limit than the job's,
    waits end first, and the operation may go on."""
    return job._group(ranks, name, operation_timeout=max(limit_ms, job._handle.operation_timeout_ms))


def _check(url: str, job: kolo.Runtime) -> None:
    """Checks that rank and size, if the program passed them, are equal to the launcher's."""
    passed = {name: int(values[0]) for name, values in parse_qs(urlparse(url).query).items()}
    for name in ("rank", "world_size"):
        if passed.get(name, getattr(job, name)) != getattr(job, name):
            why = f"init_process_group was given {name}={passed[name]}, but the launcher says {getattr(job, name)}"
            job.abort(why)
            raise ValueError(f"{why}; with kolo:// leave it out")


def _store(job: kolo.Runtime, timeout: timedelta) -> Store:
    """Makes a store that rank 0 serves as long as it lives. Collective."""
    if job.world_size == 1:
        return HashStore()
    place = bytearray(128)
    store = None
    if job.rank == 0:
        host = job.network_address if job.num_nodes > 1 else "127.0.0.1"
        if not host:
            raise RuntimeError("no address of rank 0 answers to the other nodes; set MASTER_ADDR and use env://")
        store = TCPStore(host, 0, job.world_size, is_master=True, wait_for_workers=False, timeout=timeout)
        text = f"{host} {store.port}".encode()
        place[: len(text)] = text
    job.broadcast(place, 0, name="store of torch")
    host, port = place.rstrip(b"\0").decode().split()
    return store or TCPStore(host, int(port), job.world_size, is_master=False, timeout=timeout)
