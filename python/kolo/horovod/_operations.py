"""Operations in flight, their names, and calls for one tensor or several."""

from __future__ import annotations

import contextlib
import inspect
import zlib
from typing import TYPE_CHECKING, Any, Callable, Protocol, Sequence, TypeVar

from torch import Tensor

from kolo import Ticket
from kolo.torch._completions import completions, descriptor_of
from kolo.torch._devices import gpu, on_gpu
from kolo.torch._work import KoloWork, nothing

from ._job import Job, ProcessSet, current, internal_errors

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

__all__ = ["poll", "synchronize"]


class Handle(Protocol):
    """An operation in flight, for `poll` and `synchronize`. The program may drop the handle and the tensors; the
    operation goes on."""

    def done(self) -> bool: ...

    def result(self) -> Any: ...


class Operation(KoloWork):
    """An operation that keeps its result. The result is `value` once `finish` has run."""

    def __init__(self, tickets: Sequence[Ticket], value: Any, finish: Callable[[], None] = nothing) -> None:
        super().__init__(tickets, finish, value, None, on_gpu(value))

    done = KoloWork.is_completed


class Staged:
    """An operation of two stages. The first stage, such as an exchange of sizes, is in flight. When it is over, `begin`
    starts the second stage, which needs the result of the first.

    Either the thread that completes futures or a thread that waits for the result starts the second stage. So other
    ranks need not wait for a rank whose program is busy.
    """

    def __init__(self, job: Job, first: Ticket, begin: Callable[[], Handle], after: Staged | None) -> None:
        """`after` is an operation whose second stage must start before the second stage of this one."""
        self._rest: Handle | None = None
        self._error: Exception | None = None
        self._begin = begin
        self._after = after
        self._first = KoloWork([first], self._start, None, None)
        self._here = gpu().here()  # The second stage uses tensors after the work of this thread.

        def step() -> int | None:
            if not first.done():
                return descriptor_of(first)
            with contextlib.suppress(Exception):  # Callers of `result` get the error.
                self._settle()
            # Otherwise Kolo would count this thread as one that may still submit operations for which other ranks wait.
            job.runtime.leave_thread()
            return None

        # Ignores errors here, because every thread that waits also gets them.
        completions().watch(step, lambda error: None)

    def _start(self) -> None:
        if self._error is not None:  # The second stage may have begun in part, so it does not begin again.
            raise self._error
        if self._after is not None:
            with contextlib.suppress(Exception):  # `after` raises its errors itself.
                self._after._settle()
            self._after = None
        try:
            self._rest = self._begin()
        except Exception as error:
            self._error = error
            raise

    def _settle(self) -> None:
        """Waits for the first stage, which starts the second one, in the stream of the call."""
        with self._here():
            self._first.wait()

    def done(self) -> bool:
        if self._first.pending() is not None:
            return False
        # True also if the first stage has failed: `result` then raises its error at once.
        with self._here():
            has_failed = self._first.exception() is not None
        return has_failed or self._started().done()

    def result(self) -> Any:
        self._settle()
        return self._started().result()

    def _started(self) -> Handle:
        assert self._rest is not None
        return self._rest


def staged(first: Ticket, begin: Callable[[], Handle], name: str | None, process_set: ProcessSet) -> Handle:
    """Makes a `Staged` operation. The second stages of operations with one name start in the order of their calls,
    which is equal on all ranks."""
    job = current()
    key = (process_set.process_set_id, name)
    handle = job.latest_staged[key] = Staged(job, first, begin, job.latest_staged.get(key))
    return handle


def poll(handle: Handle) -> bool:
    """Returns whether the operation is over, so that `synchronize` does not block."""
    return handle.done()


def synchronize(handle: Handle) -> Any:
    """Waits for an operation and returns its result: a tensor, a list of tensors for a grouped operation, or tensor and
    splits for an alltoall.

    Errors: HorovodInternalError, the same on all ranks.
    """
    with internal_errors():
        return handle.result()


# --- calls -----------------------------------------------------------------------------------------

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


def calls(
    terms: Callable[P, T], run: Callable[[Sequence[Tensor], T], R], first: Callable[[R], S], name: str, doc: str
) -> tuple[Callable[Concatenate[Tensor, P], S], Callable[Concatenate[Sequence[Tensor], P], R]]:
    """Makes the function `name` and its grouped form. Both take the arguments of `terms` after the tensors. `run`
    starts the operation, and `first` extracts the result for one tensor."""

    def single(tensor: Tensor, *args: P.args, **kwargs: P.kwargs) -> S:
        return first(run([tensor], terms(*args, **kwargs)))

    def grouped(tensors: Sequence[Tensor], *args: P.args, **kwargs: P.kwargs) -> R:
        return run(tensors, terms(*args, **kwargs))

    others = list(inspect.signature(terms).parameters.values())
    for call, own, what, text in (
        (single, name, inspect.signature(single).parameters["tensor"], doc),
        (grouped, f"grouped_{name}", inspect.signature(grouped).parameters["tensors"], f"As `{name}` for several tensors."),
    ):
        call.__name__ = call.__qualname__ = own
        call.__doc__ = text
        call.__module__ = terms.__module__
        call.__signature__ = inspect.Signature([what, *others], return_annotation=Any)  # type: ignore[union-attr]
    return single, grouped


class First:
    """The handle of an operation on one tensor, which wraps a grouped operation."""

    def __init__(self, grouped: Handle) -> None:
        self._grouped = grouped

    def done(self) -> bool:
        return self._grouped.done()

    def result(self) -> Tensor:
        return self._grouped.result()[0]


# --- names that contain shapes, so that ranks with different shapes disagree -------------------------

# Longest text of shapes in a name; a name has a digest of longer texts.
_LONGEST = 200


def name_of_tensors(verb: str, name: str | None, tensors: Sequence[Tensor], terms: str) -> str | None:
    """Returns Kolo's name for the operation `verb` that the user calls `name`. Shapes are equal on all ranks.

    Kolo compares types and numbers of elements. If these do not determine the shapes, the name contains the shapes and,
    if the user gives no name, the other `terms`. None means that Kolo chooses the name.
    """
    shapes = [tuple(tensor.shape) for tensor in tensors]
    is_told = all(len(shape) == 1 for shape in shapes)
    return _name(verb, name, [] if is_told else shapes, tensors[0], terms)


def name_of_rows(verb: str, name: str | None, part: int | None, tensor: Tensor) -> str | None:
    """Works like `name_of_tensors`, if ranks may have different numbers of rows. `part` is the number of the tensor in
    a list."""
    own = name if name is None or part is None else f"{name}.{part}"
    row = tuple(tensor.shape[1:])
    is_told = not row or (len(row) == 1 and row != (1,))
    return _name(verb, own, [] if is_told else [row], tensor, "rows")


def _name(verb: str, name: str | None, shapes: list[tuple[int, ...]], sample: Tensor, terms: str) -> str | None:
    if not shapes:
        return name and f"{verb}.{name}"
    text = " + ".join(str(list(shape)) for shape in shapes)
    if len(text) > _LONGEST:
        text = f"{len(shapes)} shapes {zlib.crc32(text.encode()):08x}"
    return f"{verb}.{name} {text}" if name else f"{verb} {sample.dtype} {text} {terms}"
