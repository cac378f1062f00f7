"""The collectives of tensors, except all-reduces."""

from __future__ import annotations

import math
import operator
from typing import Any, Sequence

import torch
from torch import Tensor

from kolo import Memory
from kolo.torch._tensors import Staging, check_dense, moved_memory, number_memory

from ._allreduce import Reduction, allreduce, grouped_allreduce
from ._job import ProcessSet, current, global_process_set, internal_errors, rank
from ._operations import First, Handle, Operation, calls, name_of_rows, name_of_tensors, staged, synchronize
from ._reductions import Average, Compression, Sum, name_of

__all__ = [
    "allgather", "allgather_async", "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_",
    "broadcast_async", "broadcast_async_", "grouped_allgather", "grouped_allgather_async", "grouped_reducescatter",
    "grouped_reducescatter_async", "join", "reducescatter", "reducescatter_async",
]  # fmt: skip

# --- allgather --------------------------------------------------------------------------------------


def _gathering(name: str | None = None, process_set: ProcessSet = global_process_set) -> tuple[str | None, ProcessSet]:
    return name, process_set


def _gather(tensors: Sequence[Tensor], terms: tuple[str | None, ProcessSet]) -> Handle:
    name, process_set = terms
    _check_rows(tensors)
    group = process_set.group()
    sent = [Staging().read(tensor) for tensor in tensors]
    rows = torch.tensor([tensor.shape[0] for tensor in sent], device="cpu")
    rows_of = torch.empty((group.size, len(sent)), dtype=rows.dtype, device="cpu")

    def begin() -> Operation:
        outputs, tickets = [], []
        for index, tensor in enumerate(sent):
            heights = rows_of[:, index].tolist()
            outputs.append(tensor.new_empty((sum(heights), *tensor.shape[1:])))
            whole = moved_memory(outputs[-1])
            counts = _elements_of(heights, tensor, whole)
            tickets.append(
                group.all_gather(
                    moved_memory(tensor),
                    out=whole,
                    counts=counts,
                    name=name_of_rows("allgather", name, index, tensor),
                    wait=False,
                )
            )
        return Operation(tickets, outputs)

    ticket = group.all_gather(
        number_memory(rows), out=number_memory(rows_of), name=_rows_name(name, "allgather"), wait=False
    )
    return staged(ticket, begin, name, process_set)


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, terms: tuple[str | None, ProcessSet], *tensors: Tensor) -> tuple[Tensor, ...]:
        operation = _gather(tensors, terms)  # Raises an error if one is not a tensor.
        ctx.process_set = terms[1]
        ctx.rows = [tensor.shape[0] for tensor in tensors]
        return tuple(synchronize(operation))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        process_set = ctx.process_set
        averages = grouped_allreduce(gradients, process_set=process_set)
        rows_of = allgather(torch.tensor([ctx.rows], device="cpu"), process_set=process_set)
        firsts = rows_of[: process_set.rank()].sum(0).tolist()
        mine = [each.narrow(0, first, rows) for each, first, rows in zip(averages, firsts, ctx.rows)]
        return None, *mine


allgather_async, grouped_allgather_async = calls(
    _gathering,
    _gather,
    First,
    "allgather_async",
    """Concatenates the tensors of all ranks, in their order, along the first dimension, of which each rank may have
    another extent. Returns a handle for `poll` and `synchronize`.""",
)
allgather, grouped_allgather = calls(
    _gathering,
    lambda tensors, terms: list(_AllGather.apply(terms, *tensors)),
    operator.itemgetter(0),
    "allgather",
    "As `allgather_async`. Differentiable: a rank gets its part of the average of the gradients.",
)


# --- broadcast --------------------------------------------------------------------------------------


def broadcast_async_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Copies the tensor of rank `root_rank` of the job to the tensors of all ranks. Returns a handle for `poll` and
    `synchronize`."""
    staging = Staging()
    memory = moved_memory(staging.written(tensor))
    root = process_set.root(root_rank)
    own_name = name_of_tensors("broadcast", name, [tensor], f"from {root}")
    ticket = process_set.group().broadcast(memory, root, name=own_name, wait=False)
    return Operation([ticket], tensor, staging.finish)


def broadcast_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Works like `broadcast_async_`; returns the tensor."""
    synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return tensor


def broadcast_async(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Works like `broadcast_async_`, in a new tensor."""
    check_dense([tensor])
    return broadcast_async_(tensor.detach().clone(), root_rank, name, process_set)


def broadcast(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Works like `broadcast_async`. Differentiable: the root gets the average of the gradients."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> Tensor:
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return synchronize(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        average = allreduce(gradient, process_set=ctx.process_set)
        return average if rank() == ctx.root_rank else torch.zeros_like(average), None, None, None


# --- alltoall ---------------------------------------------------------------------------------------


def alltoall(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor | tuple[Tensor, Tensor]:
    """Works like `alltoall_async`, but blocks. Returns the received splits only if `splits` is given.
    Differentiable."""
    output, received = _AllToAll.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


def alltoall_async(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Sends each rank a slice of the first dimension, and concatenates the slices that all ranks send to this one.

    `splits` has the number of rows for each rank; None means equally many for all ranks. Returns a handle;
    `synchronize` returns the tensor, and the number of rows that each rank has sent.
    """
    _check_rows([tensor])
    group = process_set.group()
    sent = Staging().read(tensor)
    heights = _splits(splits, tensor.shape[0], group.size)
    received_dtype = splits.dtype if isinstance(splits, Tensor) else torch.int32
    mine = torch.tensor(heights, device="cpu")
    heights_of = torch.empty((group.size, group.size), dtype=mine.dtype, device="cpu")

    def begin() -> Operation:
        received = heights_of[:, group.rank]
        output = sent.new_empty((int(received.sum()), *sent.shape[1:]))
        parts, whole = moved_memory(sent[: sum(heights)]), moved_memory(output)
        counts = [_elements_of(row, sent, parts) for row in heights_of.tolist()]
        own_name = name_of_rows("alltoall", name, None, sent)
        ticket = group.all_to_all(parts, out=whole, counts=counts, name=own_name, wait=False)
        return Operation([ticket], (output, received.to(received_dtype)))

    ticket = group.all_gather(
        number_memory(mine), out=number_memory(heights_of), name=_rows_name(name, "alltoall"), wait=False
    )
    return staged(ticket, begin, name, process_set)


def _splits(splits: Any, rows: int, size: int) -> list[int]:
    if splits is None:
        if rows % size != 0:
            raise ValueError(f"{rows} rows are not as many for each of {size} ranks; give splits")
        return [rows // size] * size
    if isinstance(splits, Tensor) and (splits.is_floating_point() or splits.is_complex()):
        raise ValueError(f"splits are whole numbers, not {splits.dtype}")
    heights = [int(height) for height in splits]
    if len(heights) != size:
        raise ValueError(f"there are {len(heights)} splits for {size} ranks")
    if min(heights) < 0 or sum(heights) > rows:
        raise ValueError(f"the splits {heights} are not rows of a tensor that has {rows}")
    return heights


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, splits: Any, name: str | None, process_set: ProcessSet) -> Any:
        operation = alltoall_async(tensor, splits, name, process_set)  # Raises an error if it is not a tensor.
        ctx.process_set = process_set
        ctx.shape = tensor.shape
        output, ctx.received = synchronize(operation)
        ctx.mark_non_differentiable(ctx.received)
        return output, ctx.received

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Any, ...]:
        sent_back, _ = alltoall(gradient, ctx.received, process_set=ctx.process_set)
        if sent_back.shape != ctx.shape:  # Some rows were sent to no rank.
            sent_back = torch.cat([sent_back, sent_back.new_zeros((ctx.shape[0] - len(sent_back), *ctx.shape[1:]))])
        return sent_back, None, None, None


# --- reducescatter ----------------------------------------------------------------------------------


def _terms(
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Reduction:
    return Reduction(name, Compression.none, op, prescale_factor, postscale_factor, process_set)


def _compressed_terms(
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Reduction:
    return Reduction(name, compression, op, prescale_factor, postscale_factor, process_set)


def _scatter(tensors: Sequence[Tensor], reduction: Reduction) -> Operation:
    name, _, op, before, after, process_set = reduction
    _check_rows(tensors)
    group = process_set.group()
    parts, tickets = [], []
    for index, tensor in enumerate(tensors):
        sent = Staging().read(tensor)
        each, more = divmod(sent.shape[0], group.size)
        heights = [each + (rank < more) for rank in range(group.size)]
        parts.append(sent.new_empty((heights[group.rank], *sent.shape[1:])))
        whole = number_memory(sent)
        tickets.append(
            group.reduce_scatter(
                whole,
                name_of(op),
                out=number_memory(parts[-1]),
                counts=_elements_of(heights, sent, whole),
                name=name_of_tensors("reducescatter", name and f"{name}.{index}", [sent], reduction.terms),
                scale_before=before,
                scale_after=after,
                wait=False,
            )
        )
    return Operation(tickets, parts)


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, reduction: Reduction, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.process_set = reduction.process_set
        ranks = reduction.process_set.group().size if reduction.op == Sum else 1
        ctx.factor = reduction.before * reduction.after * ranks
        return tuple(synchronize(_scatter(tensors, reduction)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        scaled = [gradient * ctx.factor for gradient in gradients]
        return None, *grouped_allgather(scaled, process_set=ctx.process_set)


reducescatter_async, grouped_reducescatter_async = calls(
    _terms,
    _scatter,
    First,
    "reducescatter_async",
    """Combines the tensors of all ranks and gives each a slice of the first dimension. Where ranks do not divide it,
    the first ones get a row more. Returns a handle for `poll` and `synchronize`.""",
)
reducescatter, grouped_reducescatter = calls(
    _compressed_terms,
    lambda tensors, reduction: reduction.compressed(tensors, _ReduceScatter),
    operator.itemgetter(0),
    "reducescatter",
    "As `reducescatter_async`. Differentiable, of sums and averages.",
)


# --- all ranks together -----------------------------------------------------------------------------


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Blocks until every rank has called it."""
    with internal_errors():
        process_set.group().barrier()


def join(device: int = -1) -> int:
    """For a rank that has run out of data: takes part in the operations of other ranks until all ranks have joined.
    Returns the rank that joined last. `device` is ignored."""
    with internal_errors():
        return current().runtime.join()


# --- parts ------------------------------------------------------------------------------------------


def _check_rows(tensors: Sequence[Tensor]) -> None:
    check_dense(tensors)
    if not tensors:
        raise ValueError("the list of tensors is empty")
    for tensor in tensors:
        if tensor.dim() == 0:
            raise ValueError("a tensor without dimensions has no rows; view it as one of shape [1]")


def _elements_of(heights: Sequence[int], tensor: Tensor, memory: Memory) -> list[int]:
    """Returns the elements of `memory` in these numbers of rows of `tensor`; they are bytes if Kolo lacks the tensor's
    type."""
    scale = tensor.element_size() // memory.dtype.itemsize
    return [height * math.prod(tensor.shape[1:]) * scale for height in heights]


def _rows_name(name: str | None, verb: str) -> str:
    """Returns the name of the exchange of row counts of the operation that the user calls `name`. No operation of the
    user has it."""
    return f"{verb}.{name}.rows" if name else f"{verb} rows"
