"""The beginning and the end of a job, and what it was built with."""

from __future__ import annotations

from typing import Any, Sequence

import kolo

from ._errors import internal_errors
from ._job import Job, current, is_initialized, make_current
from ._process_sets import ProcessSet, add_all

__all__ = [
    "ccl_built", "cuda_built", "ddl_built", "gloo_built", "gloo_enabled", "init", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "rocm_built", "shutdown", "start_timeline", "stop_timeline",
]  # fmt: skip


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Joins the job. Collective. Doing so again does nothing; after `shutdown` it joins another one.

    `comm`: None, or all ranks of the job, as a list or as a communicator of mpi4py: Kolo's jobs are those of the
    launcher. `process_sets`: sets to add at once; "dynamic" is taken, and says nothing: sets may always be added.
    Errors: ValueError for another `comm`, and for process sets as `add_process_set` has them.
    """
    if is_initialized():
        return
    with internal_errors():
        job = Job()
    make_current(job)
    try:
        _check_is_world(comm, job.runtime)
        if process_sets is not None and not isinstance(process_sets, str):
            add_all(process_sets)
        elif process_sets is not None and process_sets.lower() != "dynamic":
            raise ValueError(f'process_sets is a list of hvd.ProcessSet, or "dynamic", not {process_sets!r}')
    except ValueError:  # Of the arguments, which all ranks have alike.
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
    """Waits until all ranks call it, and leaves the job. Without a job it does nothing."""
    if not is_initialized():
        return
    job = current()
    for process_set in job.process_sets.values():
        process_set.leave()
    make_current(None)
    with internal_errors():
        job.runtime.close()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Does nothing where the option `timeline` has this path already.

    Errors: ValueError otherwise: Kolo writes a timeline from the start of a job or not at all.
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
    """True: Kolo makes no call of MPI, so a program may use MPI in any thread."""
    return True


def _no() -> bool:
    """False: Kolo moves bytes itself."""
    return False


mpi_enabled = mpi_built = gloo_enabled = gloo_built = ddl_built = ccl_built = cuda_built = rocm_built = _no


def nccl_built() -> int:
    """0: tensors are in host memory."""
    return 0
