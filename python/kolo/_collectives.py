"""The collectives of a group."""

from __future__ import annotations

import itertools
from ctypes import c_int32, c_size_t, pointer
from typing import TYPE_CHECKING, Any, Callable, Literal, Sequence, overload

from . import _c, _dtypes, _pairs
from ._buffers import Memory
from ._errors import UsageError
from ._handle import Handle
from ._library import library
from ._pairs import Pair, Parts
from ._ticket import Ticket
from ._types import Named, Parted, Scaled, Summed, SummedParts, X
from ._wait import Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from ._types import Counts, D

OPS = {
    "sum": _c.KOLO_SUM,
    "min": _c.KOLO_MIN,
    "max": _c.KOLO_MAX,
    "prod": _c.KOLO_PROD,
    "average": _c.KOLO_AVERAGE,
    "bit_and": _c.KOLO_BIT_AND,
    "bit_or": _c.KOLO_BIT_OR,
    "bit_xor": _c.KOLO_BIT_XOR,
    "premul_sum": _c.KOLO_PREMUL_SUM,
}


def choice(choices: dict[str, int], value: str, what: str) -> int:
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise UsageError(f"{what} is one of {', '.join(choices)}, not {value!r}") from None


def _call(
    name: str | None,
    scale_before: float = 1.0,
    scale_after: float = 1.0,
    counts: list[int] | None = None,
    stream: int | None = None,
    wire_dtype: Any = None,
) -> _c.kolo_call | None:
    is_plain = name is None and counts is None and stream is None and wire_dtype is None
    if is_plain and scale_before == 1.0 == scale_after:
        return None
    return _c.sized(
        _c.kolo_call,
        name=name.encode() if name else None,
        scale_before=scale_before,
        scale_after=scale_after,
        counts=(c_size_t * len(counts))(*counts) if counts else None,
        num_counts=len(counts) if counts else 0,
        stream=stream,
        wire_dtype=None if wire_dtype is None else pointer(c_int32(_dtypes.of_any(wire_dtype).code)),
    )


def _is_list(x: Any) -> bool:
    return isinstance(x, (list, tuple))


class Collectives:
    """What all ranks of a group do together.

    **Results.** `all_reduce`, `broadcast` and `reduce` change `x`; the others return a new NumPy array. With `out`,
    `x` is only read and the result is written there. Each returns the array that has the result. With `out`, shapes
    do not matter, only numbers of elements; without, the first dimension of an array with a part for each rank is
    the rank. Whether an operation is in place is the same on all ranks; of `reduce`, `gather` and `scatter` only the
    root says so.

    **Arrays** are contiguous, and of one type on all ranks: NumPy arrays, objects with the buffer protocol or with
    `__dlpack__` (tensors of torch), or `kolo.Memory`. A list of arrays of one type is one operation, with one
    agreement and common messages, and returns a list; its `counts` are a list of those of each array. Arrays in device
    memory are used after the work enqueued on `stream`, a cudaStream_t; results need an `out` there.

    **Names.** `name` identifies an operation on all ranks. Without one an operation is named after its arguments;
    operations with the same arguments must then be called in one order on all ranks.

    **wait=False** starts the operation and returns a `Ticket`. Until that is done the arrays belong to Kolo.

    Threads: any, except that operations without a name keep one order per group.
    Errors: UsageError at the call; MismatchError, the same on every rank, if ranks disagree; PeerLostError;
            StallError; DeadlineError. A KeyboardInterrupt ends the wait and not the operation.
    """

    rank: int
    size: int
    _handle: Handle
    _pointer: Any
    _subject: Callable[[str], Subject]

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

    def all_reduce(
        self,
        x: Any,
        op: str = "sum",
        *,
        out: Any = None,
        name: str | None = None,
        scale_before: float = 1.0,
        scale_after: float = 1.0,
        wire_dtype: Any = None,
        stream: int | None = None,
        wait: bool = True,
    ) -> Any:
        """Combines the elements of all ranks, on all ranks.

        `op` is sum, min, max, prod, average, bit_and, bit_or, bit_xor, or premul_sum: the sum of contributions, each
        times `scale_before` of its rank. Otherwise the scales, of contributions and of the result, are equal on all
        ranks.
        `wire_dtype`: "bfloat16" sends float32 or float64, without scales, in 16 bits. Each contribution is rounded once,
        and so is the float32 sum.
        """
        code = choice(OPS, op, "op")
        call = _call(name, scale_before, scale_after, None, stream, wire_dtype)
        if _is_list(x):
            pairs = [_pairs.whole(*each) for each in _zipped(x, out)]
            return self._run_grouped("all_reduce", _c.KOLO_ALL_REDUCE, pairs, call, wait, op=code)
        pair = _pairs.whole(x, out)
        return self._run("all_reduce", library().kolo_all_reduce, _from_to(pair) + (code,), pair, call, wait)

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
        self,
        x: Any = None,
        root: int = 0,
        *,
        out: Any = None,
        name: str | None = None,
        stream: int | None = None,
        wait: bool = True,
    ) -> Any:
        """Copies `x` of rank `root` to `x` of all ranks; with `out`, on all of them, to `out`. The others then need no
        `x`."""
        call = _call(name, stream=stream)
        is_root = self.rank == root
        if _is_list(x) or _is_list(out):
            pairs = [_pairs.copied(*each, is_root) for each in _zipped(x if is_root or out is None else None, out)]
            return self._run_grouped("broadcast", _c.KOLO_BROADCAST, pairs, call, wait, root=root)
        pair = _pairs.copied(x, out, is_root)
        if pair.input is None:
            arguments: tuple[Any, ...] = (pair.memory.parameter(), root)
            return self._run("broadcast", library().kolo_broadcast, arguments, pair, call, wait)
        return self._run("broadcast", library().kolo_broadcast_from, _from_to(pair) + (root,), pair, call, wait)

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
        self,
        x: Any,
        root: int = 0,
        op: str = "sum",
        *,
        out: Any = None,
        name: str | None = None,
        scale_before: float = 1.0,
        scale_after: float = 1.0,
        stream: int | None = None,
        wait: bool = True,
    ) -> Any:
        """Combines the elements of all ranks on rank `root`: in its `x`, or in its `out` after a copy. The other ranks'
        `x` are only read, and they get None."""
        code = choice(OPS, op, "op")
        call = _call(name, scale_before, scale_after, stream=stream)
        is_root = self.rank == root
        if _is_list(x):
            pairs = [_pairs.reduced(*each, is_root) for each in _zipped(x, out)]
            return self._run_grouped("reduce", _c.KOLO_REDUCE, pairs, call, wait, root, code)
        pair = _pairs.reduced(x, out, is_root)
        return self._run("reduce", library().kolo_reduce, _from_to(pair) + (root, code), pair, call, wait)

    # --- on tensors with a part for each rank ------------------------------------------------------

    @overload
    def reduce_scatter(
        self, x: NDArray[D], op: str = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[SummedParts]
    ) -> NDArray[D]: ...
    @overload
    def reduce_scatter(
        self, x: list[NDArray[D]], op: str = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[SummedParts]
    ) -> list[NDArray[D]]: ...
    @overload
    def reduce_scatter(
        self, x: object = ..., op: str = ..., *, out: X, wait: Literal[True] = ..., **options: Unpack[SummedParts]
    ) -> X: ...
    @overload
    def reduce_scatter(
        self, x: object = ..., op: str = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[SummedParts]
    ) -> object: ...
    @overload
    def reduce_scatter(
        self, x: NDArray[D], op: str = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[SummedParts]
    ) -> Ticket[NDArray[D]]: ...
    @overload
    def reduce_scatter(
        self, x: list[NDArray[D]], op: str = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[SummedParts]
    ) -> Ticket[list[NDArray[D]]]: ...
    @overload
    def reduce_scatter(
        self, x: object = ..., op: str = ..., *, out: X, wait: Literal[False], **options: Unpack[SummedParts]
    ) -> Ticket[X]: ...
    @overload
    def reduce_scatter(
        self, x: object = ..., op: str = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[SummedParts]
    ) -> Ticket[object]: ...
    @overload
    def reduce_scatter(
        self, x: object = ..., op: str = ..., *, out: object = ..., wait: bool, **options: Unpack[SummedParts]
    ) -> object: ...

    def reduce_scatter(
        self,
        x: Any = None,
        op: str = "sum",
        *,
        out: Any = None,
        counts: Counts | None = None,
        name: str | None = None,
        scale_before: float = 1.0,
        scale_after: float = 1.0,
        wire_dtype: Any = None,
        stream: int | None = None,
        wait: bool = True,
    ) -> Any:
        """Combines `x` of all ranks, which has a part for each rank; rank r gets part r.

        Shape:  x is [size, ...], the result [...]. With `counts`, the elements of each rank's part, the same on all
                ranks, the result has one dimension.
        Without x: in place; `out` has all parts, of which only this rank's changes.
        `wire_dtype`: as of `all_reduce`.
        """
        code = choice(OPS, op, "op")
        if _is_list(x) or _is_list(out):
            both = _zipped(x, out)
            each = self._parts_of_each(counts, len(both))
            pairs = [_pairs.scattered(*arrays, parts) for arrays, parts in zip(both, each)]
            joined = _joined([parts.counts for parts in each])
            call = _call(name, scale_before, scale_after, joined, stream, wire_dtype)
            return self._run_grouped("reduce_scatter", _c.KOLO_REDUCE_SCATTER, pairs, call, wait, op=code)
        parts = self._parts(counts)
        call = _call(name, scale_before, scale_after, parts.counts, stream, wire_dtype)
        pair = _pairs.scattered(x, out, parts)
        return self._run("reduce_scatter", library().kolo_reduce_scatter, _from_to(pair) + (code,), pair, call, wait)

    @overload
    def all_gather(
        self, x: NDArray[D], *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> NDArray[D]: ...
    @overload
    def all_gather(
        self, x: list[NDArray[D]], *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> list[NDArray[D]]: ...
    @overload
    def all_gather(self, x: object = ..., *, out: X, wait: Literal[True] = ..., **options: Unpack[Parted]) -> X: ...
    @overload
    def all_gather(
        self, x: object = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> object: ...
    @overload
    def all_gather(
        self, x: NDArray[D], *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[NDArray[D]]: ...
    @overload
    def all_gather(
        self, x: list[NDArray[D]], *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[list[NDArray[D]]]: ...
    @overload
    def all_gather(self, x: object = ..., *, out: X, wait: Literal[False], **options: Unpack[Parted]) -> Ticket[X]: ...
    @overload
    def all_gather(
        self, x: object = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[object]: ...
    @overload
    def all_gather(self, x: object = ..., *, out: object = ..., wait: bool, **options: Unpack[Parted]) -> object: ...

    def all_gather(
        self,
        x: Any = None,
        *,
        out: Any = None,
        counts: Counts | None = None,
        name: str | None = None,
        stream: int | None = None,
        wait: bool = True,
    ) -> Any:
        """Copies `x` of all ranks, in their order, to all ranks.

        Shape:  x is [...], the result [size, ...]. With `counts`, the elements of each rank's `x`, the same on all
                ranks, the result has one dimension.
        Without x: in place; this rank's part lies in its place in `out`.
        """
        if _is_list(x) or _is_list(out):
            both = _zipped(x, out)
            each = self._parts_of_each(counts, len(both))
            pairs = [_pairs.gathered(*arrays, parts) for arrays, parts in zip(both, each)]
            call = _call(name, counts=_joined([parts.counts for parts in each]), stream=stream)
            return self._run_grouped("all_gather", _c.KOLO_ALL_GATHER, pairs, call, wait)
        parts = self._parts(counts)
        call = _call(name, counts=parts.counts, stream=stream)
        pair = _pairs.gathered(x, out, parts)
        return self._run("all_gather", library().kolo_all_gather, _from_to(pair), pair, call, wait)

    @overload
    def gather(
        self, x: NDArray[D], root: int = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> NDArray[D] | None: ...
    @overload
    def gather(
        self, x: list[NDArray[D]], root: int = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> list[NDArray[D]] | None: ...
    @overload
    def gather(
        self, x: object = ..., root: int = ..., *, out: X, wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> X | None: ...
    @overload
    def gather(
        self, x: object = ..., root: int = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> object: ...
    @overload
    def gather(
        self, x: NDArray[D], root: int = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[NDArray[D] | None]: ...
    @overload
    def gather(
        self, x: list[NDArray[D]], root: int = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[list[NDArray[D]] | None]: ...
    @overload
    def gather(
        self, x: object = ..., root: int = ..., *, out: X, wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[X | None]: ...
    @overload
    def gather(
        self, x: object = ..., root: int = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[object]: ...
    @overload
    def gather(
        self, x: object = ..., root: int = ..., *, out: object = ..., wait: bool, **options: Unpack[Parted]
    ) -> object: ...

    def gather(
        self,
        x: Any = None,
        root: int = 0,
        *,
        out: Any = None,
        counts: Counts | None = None,
        name: str | None = None,
        stream: int | None = None,
        wait: bool = True,
    ) -> Any:
        """Copies `x` of all ranks, in their order, to rank `root`; the others get None. Shapes are those of
        `all_gather`.

        Without x at the root: in place there; its part lies in its place in `out`.
        """
        is_root = self.rank == root
        if _is_list(x) or _is_list(out):
            both = _zipped(x if is_root else _given(x), out)
            each = self._parts_of_each(counts, len(both))
            pairs = [_pairs.gathered(*arrays, parts, is_root) for arrays, parts in zip(both, each)]
            call = _call(name, counts=_joined([parts.counts for parts in each]), stream=stream)
            return self._run_grouped("gather", _c.KOLO_GATHER, pairs, call, wait, root)
        parts = self._parts(counts)
        call = _call(name, counts=parts.counts, stream=stream)
        pair = _pairs.gathered(x if is_root else _given(x), out, parts, is_root)
        source = _part_of(pair, pair.input, parts)
        return self._run("gather", library().kolo_gather, (source, pair.result_address, root), pair, call, wait)

    @overload
    def scatter(
        self, x: NDArray[D], root: int = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> NDArray[D]: ...
    @overload
    def scatter(
        self, x: list[NDArray[D]], root: int = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> list[NDArray[D]]: ...
    @overload
    def scatter(
        self, x: object = ..., root: int = ..., *, out: X, wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> X: ...
    @overload
    def scatter(
        self, x: object = ..., root: int = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> object: ...
    @overload
    def scatter(
        self, x: NDArray[D], root: int = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[NDArray[D]]: ...
    @overload
    def scatter(
        self, x: list[NDArray[D]], root: int = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[list[NDArray[D]]]: ...
    @overload
    def scatter(
        self, x: object = ..., root: int = ..., *, out: X, wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[X]: ...
    @overload
    def scatter(
        self, x: object = ..., root: int = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[object]: ...
    @overload
    def scatter(
        self, x: object = ..., root: int = ..., *, out: object = ..., wait: bool, **options: Unpack[Parted]
    ) -> object: ...

    def scatter(
        self,
        x: Any = None,
        root: int = 0,
        *,
        out: Any = None,
        counts: Counts | None = None,
        name: str | None = None,
        stream: int | None = None,
        wait: bool = True,
    ) -> Any:
        """Copies part r of `x` of rank `root` to rank r. Shapes are those of `reduce_scatter`; the other ranks pass no
        `x`, and need `out`.

        With x as `out` at the root: in place there; its part stays where it is, and nothing of x changes.
        """
        is_root = self.rank == root
        if _is_list(x) or _is_list(out):
            both = _zipped(x if is_root else None, out)
            each = self._parts_of_each(counts, len(both))
            pairs = [
                _pairs.scattered_from(_given(xs), outs, parts) if is_root else _pairs.received(outs, parts)
                for (xs, outs), parts in zip(both, each)
            ]
            call = _call(name, counts=_joined([parts.counts for parts in each]), stream=stream)
            return self._run_grouped("scatter", _c.KOLO_SCATTER, pairs, call, wait, root)
        parts = self._parts(counts)
        call = _call(name, counts=parts.counts, stream=stream)
        pair = _pairs.scattered_from(_given(x), out, parts) if is_root else _pairs.received(out, parts)
        arguments = (pair.input_address, _part_of(pair, pair.result, parts), root)
        return self._run("scatter", library().kolo_scatter, arguments, pair, call, wait)

    @overload
    def all_to_all(
        self, x: NDArray[D], *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> NDArray[D]: ...
    @overload
    def all_to_all(
        self, x: list[NDArray[D]], *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> list[NDArray[D]]: ...
    @overload
    def all_to_all(self, x: object = ..., *, out: X, wait: Literal[True] = ..., **options: Unpack[Parted]) -> X: ...
    @overload
    def all_to_all(
        self, x: object = ..., *, out: None = ..., wait: Literal[True] = ..., **options: Unpack[Parted]
    ) -> object: ...
    @overload
    def all_to_all(
        self, x: NDArray[D], *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[NDArray[D]]: ...
    @overload
    def all_to_all(
        self, x: list[NDArray[D]], *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[list[NDArray[D]]]: ...
    @overload
    def all_to_all(self, x: object = ..., *, out: X, wait: Literal[False], **options: Unpack[Parted]) -> Ticket[X]: ...
    @overload
    def all_to_all(
        self, x: object = ..., *, out: None = ..., wait: Literal[False], **options: Unpack[Parted]
    ) -> Ticket[object]: ...
    @overload
    def all_to_all(self, x: object = ..., *, out: object = ..., wait: bool, **options: Unpack[Parted]) -> object: ...

    def all_to_all(
        self,
        x: Any = None,
        *,
        out: Any = None,
        counts: Counts | None = None,
        name: str | None = None,
        stream: int | None = None,
        wait: bool = True,
    ) -> Any:
        """Copies part r of `x` of rank s to part s of the result of rank r.

        Shape: x and the result are [size, ...]. With `counts`, of [sender][receiver], the same on all ranks, the
               result has one dimension.
        Without x: in place; `out` has the parts for all ranks, then those of all. Each two ranks exchange as many
        elements both ways.
        """
        if _is_list(x) or _is_list(out):
            both = _zipped(x, out)
            flats = [_flat(each, self.size) for each in _counts_of_each(counts, len(both))]
            pairs = [_pairs.exchanged(*arrays, *self._sent_and_got(flat)) for arrays, flat in zip(both, flats)]
            call = _call(name, counts=_joined(flats), stream=stream)
            return self._run_grouped("all_to_all", _c.KOLO_ALL_TO_ALL, pairs, call, wait)
        flat = _flat(counts, self.size)
        call = _call(name, counts=flat, stream=stream)
        pair = _pairs.exchanged(x, out, *self._sent_and_got(flat))
        return self._run("all_to_all", library().kolo_all_to_all, _from_to(pair), pair, call, wait)

    # --- how they run ------------------------------------------------------------------------------

    def _parts(self, counts: Any) -> Parts:
        return Parts(self.rank, self.size, counts)

    def _parts_of_each(self, counts: Any, arrays: int) -> list[Parts]:
        return [self._parts(each) for each in _counts_of_each(counts, arrays)]

    def _sent_and_got(self, flat: list[int] | None) -> tuple[Parts, Parts]:
        """The parts that this rank has for all, and those that all have for it."""
        sent = flat and flat[self.rank * self.size : (self.rank + 1) * self.size]
        return Parts(self.rank, self.size, sent), Parts(self.rank, self.size, flat and flat[self.rank :: self.size])

    def _run(
        self,
        what: str,
        function: Callable[..., int],
        arguments: tuple[Any, ...],
        pair: Pair,
        call: _c.kolo_call | None,
        wait: bool,
    ) -> Any:
        return self._start(what, pair, pair.value, call, wait, function, *arguments)

    def _run_grouped(
        self,
        what: str,
        collective: int,
        pairs: list[Pair],
        call: _c.kolo_call | None,
        wait: bool,
        root: int = 0,
        op: int = _c.KOLO_SUM,
    ) -> Any:
        if not pairs:
            raise UsageError("the list of arrays is empty")
        dtype, is_device = pairs[0].memory.dtype, pairs[0].memory.is_device
        for pair in pairs:
            if pair.memory.dtype is not dtype:
                both = f"{dtype.name} and {pair.memory.dtype.name}"
                raise UsageError(f"arrays of one operation have one type, not {both}")
            if pair.memory.is_device != is_device:
                raise UsageError("arrays of one operation are all in host memory, or all in device memory")
        if is_device:
            call = call or _c.sized(_c.kolo_call, scale_before=1.0, scale_after=1.0)
            call.memory = _c.KOLO_DEVICE
        tensors = (_c.kolo_tensor * len(pairs))(
            *(_c.kolo_tensor(pair.input_address, pair.result_address, pair.count) for pair in pairs)
        )
        values = [pair.value for pair in pairs]
        value = None if all(each is None for each in values) else values
        arguments = (collective, tensors, len(pairs), dtype.code, root, op)
        return self._start(what, pairs, value, call, wait, library().kolo_grouped, *arguments)

    def _start(
        self,
        what: str,
        buffers: Any,
        value: Any,
        call: _c.kolo_call | None,
        wait: bool,
        function: Callable[..., int],
        *arguments: Any,
    ) -> Any:
        name = call.name.decode() if call is not None and call.name else what
        # The group, too, lives until the operation is done.
        ticket = Ticket(self._handle, (self, buffers), lambda _: value, self._subject(name))
        ticket.begin(function, self._pointer, *arguments, call)
        return ticket.wait() if wait else ticket


def _from_to(pair: Pair) -> tuple[Any, ...]:
    """The arguments `input` and `result` of the C interface."""
    result = pair.result
    if result is not None:
        return pair.input_address, result.parameter()
    memory = pair.memory
    return pair.input_address, _c.kolo_buffer(None, memory.count, memory.dtype.code, memory.parameter().memory)


def _part_of(pair: Pair, memory: Memory | None, parts: Parts) -> _c.kolo_buffer:
    """The buffer of this rank's part; at the root null where its part is in that of all."""
    if memory is not None:
        return memory.parameter()
    both = pair.memory
    return _c.kolo_buffer(None, parts.mine(pair.count), both.dtype.code, both.parameter().memory)


def _given(x: Any) -> Any:
    if x is None:
        raise UsageError("this rank needs an `x`")
    return x


def _zipped(x: Any, out: Any) -> list[tuple[Any, Any]]:
    """The arrays of an operation on lists, either of which may be left out."""
    xs = x if x is not None else itertools.repeat(None, len(out))
    outs = out if out is not None else itertools.repeat(None, len(x))
    if x is not None and out is not None and (not _is_list(out) or len(x) != len(out)):
        raise UsageError("x and out are lists of as many arrays")
    return list(zip(xs, outs))


def _counts_of_each(counts: Any, arrays: int) -> list[Any]:
    """The counts of each array of a list."""
    if counts is None:
        return [None] * arrays
    each = list(counts)
    if not all(hasattr(one, "__len__") for one in each):
        raise UsageError("an operation on a list of arrays takes a list of counts for each array")
    if len(each) != arrays:
        raise UsageError(f"there are counts for {len(each)} arrays, not for {arrays}")
    return each


def _joined(counts: list[list[int] | None]) -> list[int] | None:
    """Counts of all arrays, one after the other; None if there are none."""
    return [count for each in counts for count in each or []] or None


def _flat(counts: Any, size: int) -> list[int] | None:
    if counts is None:
        return None
    rows = [row if isinstance(row, (list, tuple)) or hasattr(row, "__len__") else [row] for row in counts]
    flat = [int(count) for row in rows for count in row]
    if len(flat) != size * size:
        raise UsageError(f"there are {len(flat)} counts for {size * size} pairs of ranks")
    return flat
