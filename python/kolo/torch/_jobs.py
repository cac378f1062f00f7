"""Rendezvous of ranks, and the groups of Kolo behind process groups."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any, Iterator, Sequence
from urllib.parse import parse_qs, urlparse

from torch.distributed import DistStoreError, HashStore, Store, TCPStore
from torch.distributed.rendezvous import rendezvous

import kolo

from ._devices import open_options

Meeting = tuple[Store, int, int]
"""A store that all ranks share, this rank, and the number of ranks."""

_LONGEST = timedelta(days=365)  # Longest timeout that Kolo takes.


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
    """Adapts a store of torch to Kolo."""

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
    """Joins a job of `size` ranks that share a store of torch. Collective. `options` are as in `kolo.open`.

    Ranks of two jobs with the same port would meet in one store, because torch only counts processes. So each process
    claims its rank in the store before the ranks meet, and checks afterwards that no other process has claimed it.
    """
    # Ranks that torchrun has restarted may find the store of the former ranks.
    claim = f"kolo rank {rank} of start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    me = f"process {os.getpid()} of {socket.gethostname()}"
    times = store.add(claim, 1)
    if times == 1:
        store.set(f"{claim} is", me)
    other = bytes(store.get(f"{claim} is")).decode()
    port = os.environ.get("MASTER_PORT")
    question = f"is another job {f'at port {port}' if port else 'in this store'}?"
    if other != me:
        raise kolo.ConfigError(f"two processes are rank {rank}, {other} and {me}: {question}")
    # A store may outlive jobs, so each round of ranks has its own keys.
    comers = store.add("kolo ranks", 1)
    place: dict[str, Any] = {"store": TorchStore(store), "rank": rank, "world_size": size, "job": f"kolo {(comers - 1) // size}"}
    job = kolo.open(**place, **{**open_options(), **options})
    if store.add(claim, 0) != times:
        why = f"another process has come as rank {rank} beside {me}: {question}"
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
