"""Subsets of the ranks that run operations of their own."""

from __future__ import annotations

from typing import Any, Iterable, Sequence

import kolo

from ._errors import internal_errors
from ._job import Job, current, is_initialized, rank

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]

# Address space of a member's arena, of which a rank has 16 GiB for all of its sets (the option `group_arena_bytes`).
_ARENA_BYTES = 1 << 30


class ProcessSet:
    """A set of ranks, for the argument `process_set` of operations once `init` or `add_process_set` has it.

    `ranks`: of the job, which are sorted. Roots of operations are ranks of the job, too.
    Errors: ValueError unless they are integers.
    """

    process_set_id: int | None = None
    """Its number; None: it is not part of the job."""
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
        """Number of ranks; None if it is not part of the job."""
        return None if self.process_set_id is None else len(self._ranks())

    def rank(self) -> int | None:
        """This process's rank in the set; None if that is not part of the job.

        Errors: ValueError if this process is not in the set.
        """
        return None if self.process_set_id is None else self.group().rank

    def included(self) -> bool | None:
        """Whether this process is in the set."""
        return None if self.ranks is None else rank() in self._ranks()

    def group(self) -> kolo.Group:
        """Kolo's group of these ranks. Errors: ValueError if the set is not part of the job, or has not this rank."""
        if self.process_set_id is None:
            raise ValueError(f"{self} is not part of the job; pass it to hvd.init or hvd.add_process_set first")
        if self._group is None:
            raise ValueError(f"rank {rank()} is not in {self}")
        return self._group

    def root(self, root_rank: int) -> int:
        """The rank in the group of a rank of the job. Errors: ValueError if the set has it not."""
        try:
            return self._ranks().index(root_rank)
        except ValueError:
            raise ValueError(f"root_rank {root_rank} is not in {self}") from None

    def _ranks(self) -> Sequence[int]:
        return self.ranks or ()

    def found(self, job: Job, number: int) -> None:
        """Makes it part of the job. Collective over its members."""
        if rank() in self._ranks():
            self._group = job.runtime.group(self._ranks(), arena_bytes=_ARENA_BYTES)
        self.process_set_id = number

    def leave(self) -> None:
        """It is not part of a job any more."""
        self._group = None
        self.process_set_id = None

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    __repr__ = __str__


class _GlobalProcessSet(ProcessSet):
    """All ranks of the job, whichever that is."""

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
    """Adds a set of ranks to the job and returns it. Called by all ranks, in one order.

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
    """Removes a set from the job. Called by all ranks. Returns whether it was part of the job; the global one stays."""
    removed = current().process_sets.pop(process_set.process_set_id or 0, None)
    if removed is None:
        return False
    removed.leave()
    return True


def add_all(process_sets: Sequence[Any]) -> None:
    """For `init`. Errors: ValueError that names the entry."""
    for index, process_set in enumerate(process_sets):
        try:
            add_process_set(process_set)
        except ValueError as error:
            raise ValueError(f"process_sets[{index}]: {error}") from None
