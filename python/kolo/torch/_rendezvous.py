"""The rendezvous `kolo://` of torch.distributed."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Callable, Iterator
from urllib.parse import parse_qs, urlparse

from torch.distributed import HashStore, Store, TCPStore
from torch.distributed.rendezvous import rendezvous

import kolo

Meeting = tuple[Store, int, int]
"""A store that all ranks share, this rank, and the number of ranks."""

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_LOOPBACK = "127.0.0.1"


def handler(open_job: Callable[[timedelta], kolo.Runtime]) -> Callable[..., Iterator[Meeting]]:
    """What torch calls for `kolo://`. `open_job` joins the job of the launcher, with a time limit of operations.

    Where torchrun or the user has set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, it is torch's own `env://`.
    Elsewhere the launcher (mpirun, srun, or none) tells rank and size, and rank 0 serves the store at a free port of
    the address that the other nodes reach.
    """

    def meet(url: str, timeout: timedelta, **keywords: Any) -> Iterator[Meeting]:
        if all(os.environ.get(name) for name in _ENVIRONMENT):
            accept_brackets()
            yield from rendezvous(url.replace("kolo://", "env://", 1), timeout=timeout, **keywords)
            return
        job = open_job(timeout)
        _check(url, job)
        yield _store(job, timeout), job.rank, job.world_size
        raise RuntimeError("kolo:// meets once; destroy the process group before the next init_process_group")

    return meet


def accept_brackets() -> None:
    """Leaves `fd00::1` of a MASTER_ADDR `[fd00::1]`, which torch does not resolve."""
    host = os.environ["MASTER_ADDR"]
    if host.startswith("[") and host.endswith("]"):
        os.environ["MASTER_ADDR"] = host[1:-1]


def _check(url: str, job: kolo.Runtime) -> None:
    """Whether rank and size that the program passed, if any, are those of the launcher."""
    passed = {name: int(values[0]) for name, values in parse_qs(urlparse(url).query).items()}
    for name in ("rank", "world_size"):
        if passed.get(name, getattr(job, name)) != getattr(job, name):
            why = f"init_process_group was given {name}={passed[name]}, but the launcher says {getattr(job, name)}"
            job.abort(why)
            raise ValueError(f"{why}; with kolo:// leave it out")


def _store(job: kolo.Runtime, timeout: timedelta) -> Store:
    """Collective. The store lives as long as rank 0."""
    if job.world_size == 1:
        return HashStore()
    place = bytearray(128)
    store = None
    if job.rank == 0:
        host = job.network_address if job.num_nodes > 1 else _LOOPBACK
        if not host:
            raise RuntimeError("no address of rank 0 answers to the other nodes; set MASTER_ADDR and use env://")
        store = TCPStore(host, 0, job.world_size, is_master=True, wait_for_workers=False, timeout=timeout)
        text = f"{host} {store.port}".encode()
        place[: len(text)] = text
    job.broadcast(place, 0, name="store of torch")
    host, port = place.rstrip(b"\0").decode().split()
    return store or TCPStore(host, int(port), job.world_size, is_master=False, timeout=timeout)
