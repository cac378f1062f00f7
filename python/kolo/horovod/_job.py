"""The job of this process: `init` and `shutdown`, the positions of ranks, and subsets of ranks."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Sequence
from weakref import WeakValueDictionary

import torch
from torch.distributed import PrefixStore, Store

import kolo
from kolo import KoloError, UsageError
from kolo._library import library
from kolo.torch._devices import open_options
from kolo.torch._jobs import meet_by_environment, open_job
from kolo.torch._tensors import number_memory

if TYPE_CHECKING:
    from ._operations import Staged

__all__ = [
    "HorovodInternalError", "ProcessSet", "add_process_set", "ccl_built", "cross_rank", "cross_size", "cuda_built",
    "ddl_built", "global_process_set", "gloo_built", "gloo_enabled", "init", "is_initialized", "local_rank",
    "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank", "remove_process_set",
    "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip


class HorovodInternalError(RuntimeError):
    """An operation failed. Its `__cause__` is the error of Kolo, with rank, peer and tensor as fields."""


@contextlib.contextmanager
def internal_errors() -> Iterator[None]:
    """Converts errors of Kolo to HorovodInternalError, except UsageError, which is a ValueError of the caller."""
    try:
        yield
    except UsageError:
        raise
    except KoloError as error:
        raise HorovodInternalError(str(error)) from error


# --- this job --------------------------------------------------------------------------------------


class Job:
    """A connection to a job, from `init` to `shutdown`. The constructor is collective."""

    def __init__(self) -> None:
        self.runtime, store = _open()
        self.process_sets: dict[int, ProcessSet] = {}
        """Added process sets, by number; the global one is not among them."""
        self.process_sets_added = 0
        self.latest_staged: WeakValueDictionary[tuple[int | None, str | None], Staged] = WeakValueDictionary()
        """The last `Staged` operation in flight, by process set and name."""
        self._named: Counter[tuple[str, int | None]] = Counter()
        place = torch.tensor([self.runtime.node, self.runtime.local_rank], device="cpu")
        places = torch.empty((self.runtime.size, 2), dtype=place.dtype, device="cpu")
        self.runtime.all_gather(number_memory(place), out=number_memory(places), name="places of ranks")
        del store  # All ranks have met, so rank 0 may cease to serve it.
        peers = places[places[:, 1] == self.runtime.local_rank, 0]
        self.cross_rank = int((peers < self.runtime.node).sum())
        self.cross_size = len(peers)

    def next_name(self, kind: str, process_set: ProcessSet) -> str:
        """Returns a name that is new in a process set, such as "optimizer 2". All its ranks ask for names in the same
        order."""
        key = (kind, process_set.process_set_id)
        self._named[key] += 1
        return f"{kind} {self._named[key]}"


def _open() -> tuple[kolo.Runtime, Store | None]:
    """Opens the job, and returns the store that other ranks may still use. Under torchrun, ranks meet through torch's
    own store, so that the program may also start torch.distributed; otherwise they meet as in `kolo.open`, under mpirun
    through PMIx."""
    meeting = meet_by_environment("env://")
    if meeting is None:
        return kolo.open(**open_options(by_local_rank=True)), None
    store, rank, size = next(meeting)
    return open_job(PrefixStore("kolo.horovod", store), rank, size, **open_options(by_local_rank=True)), store


_current: Job | None = None


def is_initialized() -> bool:
    """Returns whether `init` was called, without a later `shutdown`."""
    return _current is not None


def current() -> Job:
    """Returns the job. Raises ValueError before `init` and after `shutdown`."""
    if _current is None:
        raise ValueError("Kolo has not been initialized; call hvd.init() first")
    return _current


def rank() -> int:
    """Returns this process's rank, from 0 to size() - 1."""
    return current().runtime.rank


def size() -> int:
    """Returns the number of processes in the job."""
    return current().runtime.size


def local_rank() -> int:
    """Returns this process's rank within its node."""
    return current().runtime.local_rank


def local_size() -> int:
    """Returns the number of processes on this node."""
    return current().runtime.local_size


def cross_rank() -> int:
    """Returns the index of this node among the nodes that have this local rank."""
    return current().cross_rank


def cross_size() -> int:
    """Returns the number of nodes that have this local rank."""
    return current().cross_size


# --- subsets of its ranks --------------------------------------------------------------------------

# Address space of a member's arena. All process sets of a rank share 16 GiB (the option `group_arena_bytes`).
_ARENA_BYTES = 1 << 30


class ProcessSet:
    """A set of ranks. Pass it as `process_set` to operations after `init` or `add_process_set` has added it.

    `ranks` are ranks of the job; the constructor sorts them. Roots of operations are ranks of the job, too.
    Errors: ValueError unless they are integers.
    """

    process_set_id: int | None = None
    """Number of the set; None if it is not part of the job."""
    ranks: list[int] | None = None

    def __init__(self, ranks: Iterable[int]) -> None:
        try:
            self.ranks = sorted(ranks)
        except TypeError:
            raise ValueError("a ProcessSet takes a list of ranks; Kolo has none from an MPI communicator") from None
        if any(not isinstance(each, int) for each in self.ranks):
            raise ValueError(f"a ProcessSet takes a list of ranks, not {self.ranks}")
        self._group: kolo.Group | None = None

    def size(self) -> int | None:
        """Returns the number of ranks; None if the set is not part of the job."""
        return None if self.process_set_id is None else len(self._ranks())

    def rank(self) -> int | None:
        """Returns this process's rank in the set; None if the set is not part of the job.

        Errors: ValueError if this process is not in the set.
        """
        return None if self.process_set_id is None else self.group().rank

    def included(self) -> bool | None:
        """Returns whether this process is in the set."""
        return None if self.ranks is None else rank() in self._ranks()

    def group(self) -> kolo.Group:
        """Returns Kolo's group of these ranks. Raises ValueError if the set is not part of the job, or lacks this
        rank."""
        if self.process_set_id is None:
            raise ValueError(f"{self} is not part of the job; pass it to hvd.init or hvd.add_process_set first")
        if self._group is None:
            raise ValueError(f"rank {rank()} is not in {self}")
        return self._group

    def root(self, root_rank: int) -> int:
        """Translates `root_rank`, a rank of the job, to a rank of the set. Raises ValueError if the set lacks it."""
        try:
            return self._ranks().index(root_rank)
        except ValueError:
            raise ValueError(f"root_rank {root_rank} is not in {self}") from None

    def _ranks(self) -> Sequence[int]:
        return self.ranks or ()

    def found(self, job: Job, number: int) -> None:
        """Adds the set to the job. Collective over its members."""
        if rank() in self._ranks():
            self._group = job.runtime.group(self._ranks(), arena_bytes=_ARENA_BYTES)
        self.process_set_id = number

    def leave(self) -> None:
        """Removes the set from its job."""
        self._group = None
        self.process_set_id = None

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    __repr__ = __str__


class _GlobalProcessSet(ProcessSet):
    """All ranks of the current job."""

    process_set_id = 0

    def __init__(self) -> None:
        pass

    @property
    def ranks(self) -> list[int]:  # type: ignore[override]
        return list(range(current().runtime.size)) if is_initialized() else []

    def size(self) -> int:
        return current().runtime.size

    def group(self) -> kolo.Group:
        return current().runtime


global_process_set: ProcessSet = _GlobalProcessSet()


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Adds a set of ranks to the job and returns it. All ranks must call it, in the same order.

    Errors: ValueError if there is a set of these ranks, or if one of them is not in the job; HorovodInternalError if a
            rank would be in more than 15 sets.
    """
    job = current()
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    ranks = added._ranks()
    if not ranks or len(set(ranks)) < len(ranks) or ranks[0] < 0 or ranks[-1] >= job.runtime.size:
        raise ValueError(f"the ranks of a process set are different ones from 0 to {job.runtime.size - 1}, not {ranks}")
    for known in (global_process_set, *job.process_sets.values()):
        if known.ranks == ranks:
            raise ValueError(f"{known} has these ranks already")
    job.process_sets_added += 1
    with internal_errors():
        added.found(job, job.process_sets_added)
    job.process_sets[job.process_sets_added] = added
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set from the job. All ranks must call it. Returns whether the set was removed; the global set never
    is."""
    removed = current().process_sets.pop(process_set.process_set_id or 0, None)
    if removed is None:
        return False
    removed.leave()
    return True


# --- begin and end -----------------------------------------------------------------------------------


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Joins the job. Collective. Repeated calls do nothing; a call after `shutdown` joins another job.

    `comm` is None, or all ranks of the job as a list or as a communicator of mpi4py, because Kolo uses the launcher's
    job. `process_sets` are sets to add; "dynamic" is ignored, because sets may always be added.
    Errors: ValueError for another `comm`, and for process sets as in `add_process_set`.
    """
    global _current
    if _current is not None:
        return
    with internal_errors():
        _current = Job()
    try:
        _check_is_world(comm, _current.runtime)
        if isinstance(process_sets, str):
            if process_sets.lower() != "dynamic":
                raise ValueError(f'process_sets is a list of hvd.ProcessSet, or "dynamic", not {process_sets!r}')
            return
        for index, process_set in enumerate(process_sets or ()):
            try:
                add_process_set(process_set)
            except ValueError as error:
                raise ValueError(f"process_sets[{index}]: {error}") from None
    except ValueError:  # All ranks have the same arguments, and so the same error.
        shutdown()
        raise


def _check_is_world(comm: Any, runtime: kolo.Runtime) -> None:
    if comm is None:
        return
    if hasattr(comm, "Get_rank"):
        is_world = comm.Get_size() == runtime.size and comm.Get_rank() == runtime.rank
    else:
        is_world = list(comm) in ([], list(range(runtime.size)))
    if not is_world:
        raise ValueError(
            f"comm is not all {runtime.size} ranks in their order; start the job with the ranks that it shall have, "
            "or give process_sets to hvd.init"
        )


def shutdown() -> None:
    """Waits until all ranks call it, and then leaves the job; at once if the job has failed. Does nothing without a
    job."""
    global _current
    if _current is None:
        return
    job, _current = _current, None
    for process_set in job.process_sets.values():
        process_set.leave()
    try:
        job.runtime.close()
    except KoloError as error:  # Horovod's raises nothing either.
        job.runtime.abort(f"left a job that failed: {error}")


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Does nothing if the option `timeline` already has this path.

    Errors: ValueError otherwise, because a timeline begins with the job.
    """
    if current().runtime.setting("timeline") != str(file_path):
        raise ValueError(
            "Kolo begins a timeline with the job: start it with the environment variable "
            f"KOLO_TIMELINE={file_path}, and rank R writes {file_path}.R"
        )


def stop_timeline() -> None:
    """Does nothing: a timeline ends with the job."""
    current()


def mpi_threads_supported() -> bool:
    """Returns True: Kolo does not call MPI, so a program may use MPI in any thread."""
    return True


def _no() -> bool:
    """Returns False: Kolo itself transports data."""
    return False


mpi_enabled = mpi_built = gloo_enabled = gloo_built = ddl_built = ccl_built = rocm_built = _no


def cuda_built() -> bool:
    """Returns whether Kolo was built with CUDA."""
    return bool(library().kolo_built_with(b"cuda"))


def nccl_built() -> int:
    """Returns 1 if Kolo was built with NCCL, which operations on CUDA tensors need, else 0."""
    return int(library().kolo_built_with(b"nccl"))
