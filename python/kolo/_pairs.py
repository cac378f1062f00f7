"""Finds the buffers of one tensor in a collective, input and result, and checks their sizes."""

from __future__ import annotations

import ctypes
from typing import Any, Iterable, NamedTuple, Sequence

from . import _c
from ._buffers import Memory, memory_of, new_array
from ._errors import UsageError


class Pair(NamedTuple):
    """The buffers of one tensor. `input` is None in place; `result` is None if this rank gets no result."""

    input: Memory | None
    result: Memory | None
    value: Any
    """What the call returns."""

    def parameter(self, counts: Sequence[int] | None) -> _c.kolo_tensor:
        """Returns this pair as a struct of the C interface; `counts` has the elements of each part if parts differ."""
        memory = self.result or self.input
        assert memory is not None
        tensor = _c.kolo_tensor(dtype=memory.dtype.code, memory=memory.kind)
        if self.input is not None:
            tensor.input, tensor.input_count = self.input.address, self.input.count
        if self.result is not None:
            tensor.result, tensor.result_count = self.result.address, self.result.count
        if counts is not None:
            tensor.counts, tensor.num_counts = (ctypes.c_size_t * len(counts))(*counts), len(counts)
        return tensor


def whole_numbers(counts: Iterable[Any]) -> list[int]:
    """Returns counts of elements as integers."""
    numbers = [int(count) for count in counts]
    if any(number < 0 for number in numbers):
        raise UsageError(f"counts are not negative: {numbers}")
    return numbers


class Parts:
    """The numbers of elements of the ranks' parts: `counts`, or equal parts if that is None."""

    def __init__(self, rank: int, size: int, counts: Sequence[int] | None = None) -> None:
        self.rank = rank
        self.size = size
        self.counts = whole_numbers(counts) if counts is not None else None
        if self.counts is not None and len(self.counts) != size:
            raise UsageError(f"there are {len(self.counts)} counts for {size} ranks")

    def mine(self, each: int) -> int:
        return each if self.counts is None else self.counts[self.rank]

    def all(self, each: int) -> int:
        return each * self.size if self.counts is None else sum(self.counts)

    def each_of(self, memory: Memory, what: str) -> int:
        """Checks that `memory` can hold the parts of all ranks, and returns the elements of an equal part."""
        if self.counts is None and memory.count % self.size:
            ranks = f"each of {self.size} ranks"
            raise UsageError(f"{what} has {memory.count} elements, not as many for {ranks}; give counts")
        if self.counts is not None and memory.count != self.all(0):
            raise UsageError(f"{what} has {memory.count} elements where the counts say {self.all(0)}")
        return memory.count // self.size

    def shape_of_part(self, memory: Memory, what: str) -> tuple[int, ...]:
        """Returns the shape of this rank's part of an array whose first dimension is the rank."""
        if self.counts is not None:
            return (self.counts[self.rank],)
        if not memory.shape or memory.shape[0] != self.size:
            raise UsageError(
                f"{what} has the shape {memory.shape}; its first dimension is to be the {self.size} ranks. "
                f"Reshape it, or pass `out`, with which only numbers of elements count"
            )
        return memory.shape[1:]


def _result(out: Any, source: Memory, count: int) -> Memory:
    result = memory_of(out, "out", writable=True)
    if result.is_device != source.is_device:
        kinds = ("host", "device")
        raise UsageError(f"out is in {kinds[result.is_device]} memory, x in {kinds[source.is_device]} memory")
    if result.dtype is not source.dtype:
        raise UsageError(f"out has elements of {result.dtype.name}, x of {source.dtype.name}")
    if result.count != count:
        raise UsageError(f"out has {result.count} elements where {count} are needed")
    if result.overlaps(source):
        raise UsageError("x and out overlap; leave one of them out to work in place")
    return result


def _needed(out: Any) -> Any:
    if out is None:
        raise UsageError("this rank needs `out`: without x the result's size is not known here")
    return out


def _new_result(shape: tuple[int, ...], source: Memory, x: Any) -> Any:
    if source.is_device:
        raise UsageError("x is in device memory, and NumPy has no arrays there; pass `out`")
    return new_array(shape, source.dtype, like=x)


def whole(x: Any, out: Any) -> Pair:
    """Returns the buffers of one tensor, in place unless `out` is another array."""
    if out is None or out is x:
        memory = memory_of(x, "x", writable=True)
        return Pair(None, memory, x)
    source = memory_of(x, "x")
    return Pair(source, _result(out, source, source.count), out)


def copied(x: Any, out: Any, is_root: bool) -> Pair:
    """Returns the buffers of one tensor in a broadcast, in place unless `out` is another array."""
    if is_root or out is None:
        return whole(x, out)
    result = memory_of(out, "out", writable=True)
    return Pair(result, result, out)  # No input is read on this rank.


def reduced(x: Any, out: Any, is_root: bool) -> Pair:
    """Returns the buffers of one tensor in a reduce. It is in place on all ranks, because only the root knows whether
    it passed `out`; the root first copies x to `out`."""
    if not is_root:
        source = memory_of(x, "x")
        return Pair(None, source, None)  # In place, but only the root's buffer changes.
    pair = whole(x, out)
    if pair.input is not None and pair.result is not None:
        if pair.input.is_device:
            raise UsageError("a reduce in device memory is in place; leave out `out`")
        ctypes.memmove(pair.result.address, pair.input.address, pair.input.nbytes)
    return pair._replace(input=None)


def _in_place(out: Any, parts: Parts) -> Pair:
    """Returns the buffers of a tensor in place: `out` has the parts of all ranks, as input and result."""
    result = memory_of(_needed(out), "out", writable=True)
    parts.each_of(result, "out")
    return Pair(None, result, out)


def gathered(x: Any, out: Any, parts: Parts, has_result: bool = True) -> Pair:
    """Returns the buffers for a gather: `x` is this rank's part, `out` the parts of all ranks. Without x, this rank's
    part is in `out`."""
    if x is None:
        return _in_place(out, parts)
    source = memory_of(x, "x")
    if source.count != parts.mine(source.count):
        raise UsageError(f"x has {source.count} elements where the counts say {parts.mine(0)}")
    if not has_result:
        return Pair(source, None, None)
    total = parts.all(source.count)
    if out is None:
        shape = (parts.size, *source.shape) if parts.counts is None else (total,)
        out = _new_result(shape, source, x)
    return Pair(source, _result(out, source, total), out)


def scattered(x: Any, out: Any, parts: Parts) -> Pair:
    """Returns the buffers for a scatter: `x` has the parts of all ranks, `out` is this rank's part. Without x, all
    parts are in `out`."""
    if x is None:
        return _in_place(out, parts)
    source = memory_of(x, "x")
    part = parts.mine(parts.each_of(source, "x"))
    if out is None:
        out = _new_result(parts.shape_of_part(source, "x"), source, x)
    return Pair(source, _result(out, source, part), out)


def scattered_from(x: Any, out: Any, parts: Parts) -> Pair:
    """Works like `scattered`, for the root of a scatter. If `out` is x, this rank's part stays in x."""
    if out is None or out is not x:
        return scattered(x, out, parts)
    source = memory_of(x, "x")
    parts.each_of(source, "x")
    return Pair(source, None, x)


def received(out: Any, parts: Parts) -> Pair:
    """Returns the buffer of a rank that is not the root of a scatter: `out` is this rank's part."""
    result = memory_of(_needed(out), "out", writable=True)
    if result.count != parts.mine(result.count):
        raise UsageError(f"out has {result.count} elements where the counts say {parts.mine(0)}")
    return Pair(None, result, out)


def exchanged(x: Any, out: Any, sent: Parts, got: Parts) -> Pair:
    """Returns the buffers for an all-to-all: `x` has a part for each rank, `out` a part from each rank. Without x,
    `out` has the parts for each rank, which the result replaces."""
    if x is None:
        return _in_place(out, sent)
    source = memory_of(x, "x")
    part = sent.each_of(source, "x")
    total = got.all(part)
    if out is None:
        out = _new_result(source.shape if got.counts is None else (total,), source, x)
    return Pair(source, _result(out, source, total), out)
