"""The collectives of a group."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal, Sequence, TypedDict, TypeVar, overload

from . import _c, _dtypes, _pairs
from ._errors import UsageError
from ._library import library
from ._pairs import Pair, Parts
from ._streams import stream_for
from ._wait import Calls, Ticket

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    Counts = Sequence[int] | Sequence[Sequence[int]] | Sequence[Sequence[Sequence[int]]]
    A = TypeVar("A", bound=NDArray[Any] | list[NDArray[Any]])
X = TypeVar("X")  # An array, or a list of arrays.


class Named(TypedDict, total=False):
    """The keyword arguments of every collective."""

    name: str | None
    stream: int | None


class Scaled(Named, total=False):
    scale_before: float
    scale_after: float


class Summed(Scaled, total=False):
    wire_dtype: Any


class Parted(Named, total=False):
    counts: Counts | None
    """Elements of each rank's part; for a list of arrays, one such list for each array."""


class SummedParts(Summed, Parted, total=False):
    pass


def call_of(
    name: str | None = None,
    stream: int | None = None,
    scale_before: float = 1.0,
    scale_after: float = 1.0,
    wire_dtype: Any = None,
) -> _c.kolo_call | None:
    """Returns the options of a call; None if all have their defaults."""
    if name is None and stream is None and wire_dtype is None and scale_before == 1.0 == scale_after:
        return None
    return _c.kolo_call(
        name=name.encode() if name else None,
        scale_before=scale_before,
        scale_after=scale_after,
        stream=stream,
        wire_dtype=_dtypes.wire_code(wire_dtype),
    )


def _call(what: str, taken: Any, pairs: list[Pair], options: Any) -> _c.kolo_call | None:
    """Returns the options of a call of the method `what`, which takes those of the class `taken`, with the stream of a
    call on device memory. Raises TypeError for others."""
    known = taken.__optional_keys__
    if not options.keys() <= known:
        wrong, its = min(options.keys() - known), ", ".join(sorted(known))
        raise TypeError(f"{what}() got an unexpected keyword argument {wrong!r}; its options are {its}")
    stream = stream_for(options.get("stream"), (each for pair in pairs for each in (pair.result, pair.input)))
    return call_of(**(options if stream is None else {**options, "stream": stream}))


def _is_list(x: Any) -> bool:
    return isinstance(x, (list, tuple))


class Collectives(Calls):
    """The collectives of a group.

    **Results.** `all_reduce`, `broadcast` and `reduce` write the result to `x`; the other methods make a new NumPy
    array. With `out`, they only read `x` and write the result to `out`. Each method returns the array with the result.
    With `out`, only the numbers of elements must fit, not the shapes; without it, the first dimension of an array with
    a part for each rank is the rank. An operation is in place on all ranks or on none; in `reduce`, `gather` and
    `scatter`, only the root chooses.

    **Arrays** are contiguous, and of one type on all ranks: NumPy arrays, objects with the buffer protocol or with
    `__dlpack__` (tensors of torch), or `kolo.Memory`. A list of arrays of one type is one operation: the arrays share
    one agreement and their messages, and the result is a list. Its `counts` are a list with the counts of each array.
    Arrays in device memory are used after the work enqueued on `stream`, a cudaStream_t; without one, after that of
    the current stream (docs/how-to/gpu.md). Such operations need `out` for the result.

    **Names.** `name` identifies an operation on all ranks. Without it an operation is named after its arguments; all
    ranks must then call operations with equal arguments in the same order.

    **wait=False** starts the operation and returns a `Ticket`. Until the ticket is done, the arrays belong to Kolo.

    Threads: any; all ranks must begin operations without a name in the same order, in each group.
    Errors: UsageError at the call; MismatchError, the same on every rank, if ranks disagree; PeerLostError;
            StallError; DeadlineError. A KeyboardInterrupt ends the wait, but the operation goes on.
    """

    rank: int
    size: int

    # --- on a tensor -------------------------------------------------------------------------------

    @overload
    def all_reduce(
        self, x: X, op: str = ..., *, out: X | None = ..., wait: Literal[True] = ..., **options: Unpack[Summed]
    ) -> X: ...
    @overload
    def all_reduce(
        self, x: X, op: str = ..., *, out: X | None = ..., wait: Literal[False], **options: Unpack[Summed]
    ) -> Ticket[X]: ...
    @overload
    def all_reduce(
        self, x: X, op: str = ..., *, out: X | None = ..., wait: bool, **options: Unpack[Summed]
    ) -> X | Ticket[X]: ...

    def all_reduce(self, x: Any, op: str = "sum", *, out: Any = None, wait: bool = True, **options: Unpack[Summed]) -> Any:
        """Combines the elements of all ranks, on all ranks.

        `op` is sum, average, min, max or another reduction of docs/how-to/operations.md. `scale_before` multiplies this
        rank's contribution, `scale_after` the result. Both are equal on all ranks, except that in a premul_sum
        `scale_before` may differ. With `wire_dtype="bfloat16"`, float32 or float64 without scales is sent in 16 bits:
        each contribution is rounded once, and the float32 sum once.
        """
        arrays = _Arrays(x, out)
        pairs = [_pairs.whole(*each) for each in arrays.each]
        call = _call("all_reduce", Summed, pairs, options)
        return self._run("all_reduce", arrays, pairs, call, wait, _dtypes.choice(_dtypes.ops(), op, "op"))

    @overload
    def broadcast(
        self, x: X | None = ..., root: int = ..., *, out: X | None = ..., wait: Literal[True] = ..., **options: Unpack[Named]
    ) -> X: ...
    @overload
    def broadcast(
        self, x: X | None = ..., root: int = ..., *, out: X | None = ..., wait: Literal[False], **options: Unpack[Named]
    ) -> Ticket[X]: ...
    @overload
    def broadcast(
        self, x: X | None = ..., root: int = ..., *, out: X | None = ..., wait: bool, **options: Unpack[Named]
    ) -> X | Ticket[X]: ...

    def broadcast(
        self, x: Any = None, root: int = 0, *, out: Any = None, wait: bool = True, **options: Unpack[Named]
    ) -> Any:
        """Copies `x` of rank `root` to `x` of all ranks, or to `out` if all ranks pass `out`; then only the root needs
        `x`."""
        is_root = self.rank == root
        arrays = _Arrays(x if is_root or out is None else None, out)
        pairs = [_pairs.copied(*each, is_root) for each in arrays.each]
        return self._run("broadcast", arrays, pairs, _call("broadcast", Named, pairs, options), wait, root)

    @overload
    def reduce(
        self, x: X, root: int = ..., op: str = ..., *, out: X | None = ..., wait: Literal[True] = ..., **options: Unpack[Scaled]
    ) -> X | None: ...
    @overload
    def reduce(
        self, x: X, root: int = ..., op: str = ..., *, out: X | None = ..., wait: Literal[False], **options: Unpack[Scaled]
    ) -> Ticket[X | None]: ...
    @overload
    def reduce(
        self, x: X, root: int = ..., op: str = ..., *, out: X | None = ..., wait: bool, **options: Unpack[Scaled]
    ) -> X | None | Ticket[X | None]: ...

    def reduce(
        self, x: Any, root: int = 0, op: str = "sum", *, out: Any = None, wait: bool = True, **options: Unpack[Scaled]
    ) -> Any:
        """Combines the elements of all ranks on rank `root`. That rank gets the result in `x`, or in `out` if it passes
        `out`. On other ranks, `x` is only read and the method returns None."""
        arrays = _Arrays(x, out)
        pairs = [_pairs.reduced(*each, self.rank == root) for each in arrays.each]
        call = _call("reduce", Scaled, pairs, options)
        return self._run("reduce", arrays, pairs, call, wait, root, _dtypes.choice(_dtypes.ops(), op, "op"))

    # --- on tensors with a part for each rank ------------------------------------------------------

    @overload
    def reduce_scatter(self, x: A, op: str = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[SummedParts]) -> A: ...
    @overload
    def reduce_scatter(self, x: A, op: str = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[SummedParts]) -> Ticket[A]: ...
    @overload
    def reduce_scatter(self, x: object = ..., op: str = ..., *, out: X, wait: Literal[True] = ..., **options: Unpack[SummedParts]) -> X: ...
    @overload
    def reduce_scatter(self, x: object = ..., op: str = ..., *, out: X, wait: Literal[False], **options: Unpack[SummedParts]) -> Ticket[X]: ...
    @overload
    def reduce_scatter(self, x: object = ..., op: str = ..., *, out: object = ..., wait: bool = ..., **options: Unpack[SummedParts]) -> Any: ...

    def reduce_scatter(
        self,
        x: Any = None,
        op: str = "sum",
        *,
        out: Any = None,
        counts: Counts | None = None,
        wait: bool = True,
        **options: Unpack[Summed],
    ) -> Any:
        """Combines `x` of all ranks, which has a part for each rank; rank r gets part r of the result.

        Shape:  x is [size, ...], the result [...]. With `counts`, the elements of each rank's part, the same on all
                ranks, the result has one dimension.
        Without x, in place: `out` has the parts of all ranks, and only this rank's part changes.
        `wire_dtype`: as in `all_reduce`.
        """
        arrays = _Arrays(x, out)
        parts = self._parts(counts, arrays)
        pairs = [_pairs.scattered(*each, its) for each, its in zip(arrays.each, parts)]
        call = _call("reduce_scatter", Summed, pairs, options)
        return self._run("reduce_scatter", arrays, pairs, call, wait, _dtypes.choice(_dtypes.ops(), op, "op"), counts=_counts(parts))

    @overload
    def all_gather(self, x: A, *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]) -> A: ...
    @overload
    def all_gather(self, x: A, *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]) -> Ticket[A]: ...
    @overload
    def all_gather(self, x: object = ..., *, out: X, wait: Literal[True] = ..., **options: Unpack[Parted]) -> X: ...
    @overload
    def all_gather(self, x: object = ..., *, out: X, wait: Literal[False], **options: Unpack[Parted]) -> Ticket[X]: ...
    @overload
    def all_gather(self, x: object = ..., *, out: object = ..., wait: bool = ..., **options: Unpack[Parted]) -> Any: ...

    def all_gather(
        self, x: Any = None, *, out: Any = None, counts: Counts | None = None, wait: bool = True, **options: Unpack[Named]
    ) -> Any:
        """Copies `x` of all ranks, in rank order, to all ranks.

        Shape:  x is [...], the result [size, ...]. With `counts`, the elements of each rank's `x`, the same on all
                ranks, the result has one dimension.
        Without x, in place: this rank's part already is at its offset in `out`.
        """
        arrays = _Arrays(x, out)
        parts = self._parts(counts, arrays)
        pairs = [_pairs.gathered(*each, its) for each, its in zip(arrays.each, parts)]
        return self._run("all_gather", arrays, pairs, _call("all_gather", Named, pairs, options), wait, counts=_counts(parts))

    @overload
    def gather(self, x: A, root: int = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]) -> A | None: ...
    @overload
    def gather(self, x: A, root: int = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]) -> Ticket[A | None]: ...
    @overload
    def gather(self, x: object = ..., root: int = ..., *, out: X, wait: Literal[True] = ..., **options: Unpack[Parted]) -> X | None: ...
    @overload
    def gather(self, x: object = ..., root: int = ..., *, out: X, wait: Literal[False], **options: Unpack[Parted]) -> Ticket[X | None]: ...
    @overload
    def gather(self, x: object = ..., root: int = ..., *, out: object = ..., wait: bool = ..., **options: Unpack[Parted]) -> Any: ...

    def gather(
        self,
        x: Any = None,
        root: int = 0,
        *,
        out: Any = None,
        counts: Counts | None = None,
        wait: bool = True,
        **options: Unpack[Named],
    ) -> Any:
        """Copies `x` of all ranks, in rank order, to rank `root`; on other ranks the method returns None. Shapes are as
        in `all_gather`.

        If the root passes no `x`, it is in place: its part already is at its offset in `out`.
        """
        is_root = self.rank == root
        arrays = _Arrays(x if is_root else _given(x), out)
        parts = self._parts(counts, arrays)
        pairs = [_pairs.gathered(*each, its, is_root) for each, its in zip(arrays.each, parts)]
        call = _call("gather", Named, pairs, options)
        return self._run("gather", arrays, pairs, call, wait, root, counts=_counts(parts))

    @overload
    def scatter(self, x: A, root: int = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]) -> A: ...
    @overload
    def scatter(self, x: A, root: int = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]) -> Ticket[A]: ...
    @overload
    def scatter(self, x: object = ..., root: int = ..., *, out: X, wait: Literal[True] = ..., **options: Unpack[Parted]) -> X: ...
    @overload
    def scatter(self, x: object = ..., root: int = ..., *, out: X, wait: Literal[False], **options: Unpack[Parted]) -> Ticket[X]: ...
    @overload
    def scatter(self, x: object = ..., root: int = ..., *, out: object = ..., wait: bool = ..., **options: Unpack[Parted]) -> Any: ...

    def scatter(
        self,
        x: Any = None,
        root: int = 0,
        *,
        out: Any = None,
        counts: Counts | None = None,
        wait: bool = True,
        **options: Unpack[Named],
    ) -> Any:
        """Copies part r of `x` of rank `root` to rank r. Shapes are as in `reduce_scatter`. Other ranks pass only
        `out`.

        If the root passes `x` also as `out`, it is in place: its part stays in `x`, which does not change.
        """
        is_root = self.rank == root
        arrays = _Arrays(x if is_root else None, out)
        parts = self._parts(counts, arrays)
        pairs = [
            _pairs.scattered_from(_given(given), result, its) if is_root else _pairs.received(result, its)
            for (given, result), its in zip(arrays.each, parts)
        ]
        call = _call("scatter", Named, pairs, options)
        return self._run("scatter", arrays, pairs, call, wait, root, counts=_counts(parts))

    @overload
    def all_to_all(self, x: A, *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]) -> A: ...
    @overload
    def all_to_all(self, x: A, *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]) -> Ticket[A]: ...
    @overload
    def all_to_all(self, x: object = ..., *, out: X, wait: Literal[True] = ..., **options: Unpack[Parted]) -> X: ...
    @overload
    def all_to_all(self, x: object = ..., *, out: X, wait: Literal[False], **options: Unpack[Parted]) -> Ticket[X]: ...
    @overload
    def all_to_all(self, x: object = ..., *, out: object = ..., wait: bool = ..., **options: Unpack[Parted]) -> Any: ...

    def all_to_all(
        self, x: Any = None, *, out: Any = None, counts: Counts | None = None, wait: bool = True, **options: Unpack[Named]
    ) -> Any:
        """Copies part r of `x` of rank s to part s of the result of rank r.

        Shape: x and the result are [size, ...]. With `counts[sender][receiver]`, the same on all ranks, the result has
               one dimension.
        Without x, in place: `out` has the parts for all ranks, and afterwards the parts from all ranks. Any two ranks
        send each other equally many elements.
        """
        arrays = _Arrays(x, out)
        flats = [_flat(each, self.size) for each in arrays.counts_of_each(counts)]
        pairs = [_pairs.exchanged(*each, *self._sent_and_got(flat)) for each, flat in zip(arrays.each, flats)]
        return self._run("all_to_all", arrays, pairs, _call("all_to_all", Named, pairs, options), wait, counts=flats)

    # --- implementation -----------------------------------------------------------------------------

    def _parts(self, counts: Any, arrays: _Arrays) -> list[Parts]:
        return [Parts(self.rank, self.size, each) for each in arrays.counts_of_each(counts)]

    def _sent_and_got(self, flat: list[int] | None) -> tuple[Parts, Parts]:
        """Returns the parts that this rank sends to all ranks, and the parts that it receives from all ranks."""
        sent = flat and flat[self.rank * self.size : (self.rank + 1) * self.size]
        return Parts(self.rank, self.size, sent), Parts(self.rank, self.size, flat and flat[self.rank :: self.size])

    def _run(
        self,
        what: str,
        arrays: _Arrays,
        pairs: list[Pair],
        call: _c.kolo_call | None,
        wait: bool,
        *arguments: int,
        counts: Sequence[list[int] | None] | None = None,
    ) -> Any:
        """Begins an operation. `arguments` are the C function's arguments between the tensors and the call; `counts`
        has the counts of each tensor."""
        if not pairs:
            raise UsageError("the list of arrays is empty")
        each = zip(pairs, counts or itertools.repeat(None))
        tensors = (_c.kolo_tensor * len(pairs))(*(pair.parameter(its) for pair, its in each))
        values = [pair.value for pair in pairs]
        value = values if arrays.is_list and any(each is not None for each in values) else values[0]
        name = call.name.decode() if call is not None and call.name else what
        # The ticket also keeps the group alive until the operation is done.
        ticket = Ticket(self._handle, (self, pairs), lambda _: value, self._subject(name))
        ticket.begin(getattr(library(), f"kolo_{what}"), self._pointer, tensors, len(pairs), *arguments, call)
        return ticket.wait() if wait else ticket


def _given(x: Any) -> Any:
    if x is None:
        raise UsageError("this rank needs an `x`")
    return x


class _Arrays:
    """The arrays of an operation: a pair `x` and `out`, or lists of them. Either may be left out."""

    def __init__(self, x: Any, out: Any) -> None:
        self.is_list = _is_list(x) or _is_list(out)
        self.each: list[tuple[Any, Any]] = [(x, out)]
        if not self.is_list:
            return
        if x is not None and out is not None and not (_is_list(x) and _is_list(out) and len(x) == len(out)):
            raise UsageError("x and out are lists of as many arrays")
        xs = x if x is not None else itertools.repeat(None, len(out))
        self.each = list(zip(xs, out if out is not None else itertools.repeat(None, len(x))))

    def counts_of_each(self, counts: Any) -> list[Any]:
        if not self.is_list:
            return [counts]
        if counts is None:
            return [None] * len(self.each)
        each = list(counts)
        if not all(hasattr(one, "__len__") for one in each):
            raise UsageError("an operation on a list of arrays takes a list of counts for each array")
        if len(each) != len(self.each):
            raise UsageError(f"there are counts for {len(each)} arrays, not for {len(self.each)}")
        return each


def _counts(parts: list[Parts]) -> list[list[int] | None]:
    return [each.counts for each in parts]


def _flat(counts: Any, size: int) -> list[int] | None:
    if counts is None:
        return None
    rows = [row if isinstance(row, (list, tuple)) or hasattr(row, "__len__") else [row] for row in counts]
    flat = _pairs.whole_numbers(count for row in rows for count in row)
    if len(flat) != size * size:
        raise UsageError(f"there are {len(flat)} counts for {size * size} pairs of ranks")
    return flat
