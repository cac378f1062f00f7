"""The operations of torch.distributed over one of Kolo's groups."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, Callable, Optional, Sequence, TypeVar

import torch
from torch import Tensor
from torch._C._distributed_c10d import Backend, ReduceOp

import kolo
from kolo import Memory, Ticket, UsageError

from ._completions import Order
from ._exchange import exchange
from ._sparse import begin_sums
from ._tensors import Staging, check_one_type, concatenated, moved_memory, number_memory, overlap, put
from ._work import Awaited, KoloWork, nothing, together

_T = TypeVar("_T")

_NAMES = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "average",
    ReduceOp.PRODUCT: "prod",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.BAND: "bit_and",
    ReduceOp.BOR: "bit_or",
    ReduceOp.BXOR: "bit_xor",
    ReduceOp.PREMUL_SUM: "premul_sum",
}

# Marks an exception that was already being handled when the process group was made, as in an `except` clause.
_HANDLED = "_is_handled_by_user_of_kolo"

Leave = Callable[[Any], Optional[kolo.Runtime]]
"""Removes a process group that ends from those in use. Returns the job that ends with it, if any."""


class Operations:
    """The base of both forms of a process group, with torch's operations as calls of Kolo.

    A form derives first from this class and then from a class of torch. Methods have the names of torch 2.14; options
    that are ignored may be left out, as in older torch. Operations of torch have no names: Kolo matches operations with
    equal arguments in the order in which each rank calls them. Results have the same bits on all ranks and in every
    run, as for all operations of Kolo.

    Threads: any; all ranks must begin collectives in the same order. The call or `Work.wait` raises the errors of Kolo,
             which name rank, peer and operation.
    """

    rank: Callable[[], int]
    size: Callable[[], int]

    def __init__(self, group: kolo.Group, timeout: timedelta, leave: Leave) -> None:
        super().__init__(group.rank, group.size)  # type: ignore[call-arg]  # torch's class
        self.group = group
        """Kolo's group for this process group."""
        self._leave = leave
        if error := sys.exc_info()[1]:  # It is already being handled, so it is no reason to end the group.
            setattr(error, _HANDLED, True)
        self._options = Backend.Options("kolo", timeout=timeout)
        self._sequence = 0
        self._order = Order()
        self._batch: list[KoloWork] | None = None  # Work since `start_coalescing`.

    # --- properties ----------------------------------------------------------------------------------

    def getBackendName(self) -> str:  # noqa: N802  # torch's name
        return "kolo"

    def set_timeout(self, timeout: timedelta) -> None:
        self._options._timeout = timeout

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    # --- one tensor from or to all -----------------------------------------------------------------

    def broadcast(self, tensors: list[Tensor], opts: Any) -> KoloWork:
        tensor = _only(tensors)
        staging = Staging()
        buffer = moved_memory(staging.written(tensor))
        return self._collective(self.group.broadcast, buffer, opts.rootRank, staging=staging, result=tensors)

    def allreduce(self, tensors: list[Tensor], opts: Any) -> KoloWork:
        # Unlike Gloo, Kolo takes only one tensor.
        if _only(tensors).layout != torch.strided:  # torch calls `allreduce_sparse` only on GPUs.
            return self.allreduce_sparse(tensors, opts)
        return self.allreduce_coalesced(tensors, opts)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any) -> KoloWork:
        staging = Staging()
        check_one_type(tensors)
        buffers = [number_memory(staging.written(tensor)) for tensor in tensors]
        return self._collective(
            self.group.all_reduce, _one_or_list(buffers), staging=staging, result=tensors, **_reduction(opts.reduceOp)
        )

    def average_as(self, tensor: Tensor, wire_dtype: str) -> KoloWork:
        """Averages a contiguous tensor, and sends it with another element type. torch has no such operation."""
        return self._collective(
            self.group.all_reduce,
            number_memory(tensor),
            "average",
            wire_dtype=wire_dtype,
            staging=Staging(),
            result=[tensor],
        )

    def allreduce_sparse(self, tensors: list[Tensor], opts: Any) -> KoloWork:
        tensor = _only(tensors)
        op = _reduction(opts.reduceOp)["op"]
        if tensor.layout != torch.sparse_coo or op not in ("sum", "average"):
            raise UsageError(f"Kolo sums and averages sparse tensors of torch.sparse_coo, not {op} of {tensor.layout}")
        self._order.begin("all_reduce of sparse tensors", 1)
        self._sequence += 1
        ticket, sums = begin_sums(self.group, tensors, op)
        return self._work([ticket], lambda: put(tensor, *sums()), tensors)

    def reduce(self, tensors: list[Tensor], opts: Any) -> KoloWork:
        tensor = _only(tensors)
        staging = Staging()
        buffer = number_memory(staging.written(tensor))
        return self._collective(
            self.group.reduce, buffer, opts.rootRank, staging=staging, result=tensors, **_reduction(opts.reduceOp)
        )

    # --- parts of all ranks ------------------------------------------------------------------------

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any) -> KoloWork:
        return self._parts(self.group.all_gather, [tensor], [output], [output])

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> KoloWork:
        return self._parts(self.group.all_gather, inputs, outputs, outputs)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> KoloWork:
        parts, staging = _only(outputs), Staging()
        counts = [part.numel() for part in parts]
        whole = [staging.joined(parts)]
        return self._parts(self.group.all_gather, [_only(inputs)], whole, parts, staging=staging, counts=counts)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> KoloWork:
        staging = Staging()
        # One list of parts for each rank, or for each tensor.
        parts_of = list(zip(*outputs)) if len(outputs) == self.size() else outputs
        wholes = [staging.joined(parts) for parts in parts_of]
        result = [part for parts in outputs for part in parts]
        return self._parts(self.group.all_gather, inputs, wholes, result, staging=staging)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> KoloWork:
        staging = Staging()
        parts = outputs[0] if self.rank() == opts.rootRank else []
        whole = [staging.joined(parts)] if parts else []
        return self._parts(self.group.gather, [_only(inputs)], whole, parts, opts.rootRank, staging=staging)

    def gather_single(self, output: Tensor, tensor: Tensor, opts: Any) -> KoloWork:
        whole = [output] if self.rank() == opts.rootRank else []
        return self._parts(self.group.gather, [tensor], whole, [output], opts.rootRank)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> KoloWork:
        whole = [concatenated(inputs[0])] if self.rank() == opts.rootRank else []
        return self._parts(self.group.scatter, whole, [_only(outputs)], outputs, opts.rootRank)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> KoloWork:
        output, parts = _only(outputs), _only(inputs)
        options = {"counts": [part.numel() for part in parts], **_reduction(opts.reduceOp)}
        return self._parts(self.group.reduce_scatter, [concatenated(parts)], [output], outputs, **options)

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any) -> KoloWork:
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> KoloWork:
        return self._parts(self.group.reduce_scatter, inputs, outputs, outputs, **_reduction(opts.reduceOp))

    def _parts(
        self,
        call: Callable[..., Ticket],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        result: Any,
        *arguments: Any,
        staging: Staging | None = None,
        counts: list[int] | None = None,
        **keywords: Any,
    ) -> KoloWork:
        """Begins a collective on parts of all ranks. `inputs` or `outputs` are empty on ranks without them. `counts`
        has the elements of each rank's part."""
        staging = staging or Staging()
        check_one_type(outputs, inputs)
        memory_of = number_memory if "op" in keywords else moved_memory
        ins, outs = [staging.read(tensor) for tensor in inputs], [staging.written(tensor) for tensor in outputs]
        # With FSDP, a rank's part already is in the result. It is copied: this rank cannot know where the parts of
        # other ranks lie, and an operation is in place on all ranks or on none.
        if overlap(ins, outs):
            gives_part = sum(map(torch.numel, ins)) < sum(map(torch.numel, outs))
            ins, outs = ([each.clone() for each in ins], outs) if gives_part else (ins, list(map(staging.apart, outs)))
        sent, got = [memory_of(each) for each in ins], [memory_of(each) for each in outs]
        if counts is not None and len(set(counts)) > 1:  # Elements of Kolo, which may be bytes.
            scale = inputs[0].element_size() // (sent or got)[0].dtype.itemsize
            keywords["counts"] = [scale * count for count in counts]
        x, out = _one_or_list(sent), _one_or_list(got)
        return self._collective(call, x, *arguments, out=out, staging=staging, result=result, **keywords)

    # --- parts of all ranks for all ranks ----------------------------------------------------------

    def all_to_all_single(
        self, output: Tensor, tensor: Tensor, output_splits: list[int], input_splits: list[int], opts: Any
    ) -> KoloWork:
        staging = Staging()
        check_one_type([output], [tensor])
        sent, got = staging.read(tensor), staging.written(output)
        if overlap([sent], [got]):
            sent = sent.clone()
        if not output_splits and not input_splits:
            return self._collective(
                self.group.all_to_all, moved_memory(sent), out=moved_memory(got), staging=staging, result=[output]
            )
        return self._exchange(
            _split(sent, input_splits, self.size()), _split(got, output_splits, self.size()), staging, [output]
        )

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> KoloWork:
        staging = Staging()
        check_one_type(outputs, inputs)
        sent = [staging.read(tensor) for tensor in inputs]
        got = [staging.written(tensor) for tensor in outputs]
        if overlap(sent, got):
            sent = [each.clone() for each in sent]
        return self._exchange(sent, got, staging, outputs)

    def _exchange(self, sent: list[Tensor], got: list[Tensor], staging: Staging, result: list[Tensor]) -> KoloWork:
        self._order.begin("all_to_all with counts", 1)
        self._sequence += 1
        return self._work(exchange(self.group, sent, got, self._sequence), staging.finish, result, staging.on_gpu)

    # --- messages ----------------------------------------------------------------------------------

    def send(self, tensors: list[Tensor], peer: int, tag: int = 0) -> KoloWork:
        tensor = _only(tensors)
        staging = Staging()
        ticket = self.group.send(moved_memory(staging.read(tensor)), peer, tag, wait=False)
        return self._work([ticket], nothing, tensors, staging.on_gpu)

    def recv(self, tensors: list[Tensor], peer: int, tag: int = 0) -> KoloWork:
        return self._receive(tensors, peer, tag)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> KoloWork:
        return self._receive(tensors, kolo.ANY_RANK, tag)

    def _receive(self, tensors: list[Tensor], peer: int, tag: int) -> KoloWork:
        tensor = _only(tensors)
        staging = Staging()
        buffer = moved_memory(staging.written(tensor))
        ticket = self.group.recv(buffer, peer, tag, wait=False)
        return self._work([ticket], staging.finish, tensors, staging.on_gpu)

    # --- batches -----------------------------------------------------------------------------------

    def start_coalescing(self) -> None:
        """Begins a batch of operations. They start at once, as without a batch; `end_coalescing` returns the work of
        the batch."""
        if self._batch is not None:
            raise UsageError("a batch of operations has begun already")
        self._batch = []

    def end_coalescing(self) -> KoloWork:
        """Ends the batch, and returns its work."""
        if self._batch is None:
            raise UsageError("no batch of operations has begun")
        works, self._batch = self._batch, None
        return together(works, self._options._timeout)

    # --- all ranks together ------------------------------------------------------------------------

    def barrier(self, opts: Any) -> KoloWork:
        arrived = torch.zeros(1, dtype=torch.uint8, device="cpu")
        return self._collective(
            self.group.all_reduce, number_memory(arrived), name="barrier of torch", staging=Staging(), result=[]
        )

    def abort(self) -> None:
        """Leaves the job, so that no rank waits for this rank."""
        job = self._leave(self)
        if job is not None:
            job.abort("aborted the process group")

    def shutdown(self) -> None:
        """Ends the process group when all its ranks do. While an exception unwinds, as in a `finally`, it ends the
        group at once, because the other ranks may never end it."""
        job = self._leave(self)
        if job is None:
            return
        error = sys.exc_info()[1]
        try:
            job.__exit__(None if error is None or hasattr(error, _HANDLED) else type(error), error, None)
        except kolo.KoloError:  # The job has failed before, and an earlier call has raised the error.
            job.abort("left a job that failed")

    # --- implementation ------------------------------------------------------------------------------

    def _collective(
        self, call: Callable[..., Ticket], *arguments: Any, staging: Staging, result: Any, **keywords: Any
    ) -> KoloWork:
        self._order.begin(call.__name__, *(tensor.nbytes for tensor in result))
        self._sequence += 1
        return self._work([call(*arguments, wait=False, **keywords)], staging.finish, result, staging.on_gpu)

    def _work(
        self, tickets: Sequence[Awaited], finish: Callable[[], None], result: Any, on_gpu: Tensor | None = None
    ) -> KoloWork:
        work = KoloWork(tickets, finish, result, self._options._timeout, on_gpu)
        if self._batch is not None:
            self._batch.append(work)
        return work


def _reduction(op: Any) -> dict[str, Any]:
    """Returns the keywords `op` and `scale_before` of Kolo's operations for a `ReduceOp` or a `RedOpType`."""
    kind = op.op if isinstance(op, ReduceOp) else op
    name = _NAMES.get(kind)
    if name is None:
        raise UsageError(f"Kolo has no reduction {op}; it has {', '.join(str(each) for each in _NAMES)}")
    if name != "premul_sum":
        return {"op": name}
    _, factor = op.__getstate__()  # Older torch has no attribute for the factor.
    return {"op": name, "scale_before": float(factor)}


def _only(tensors: Sequence[_T]) -> _T:
    """Returns the only tensor of a list. Raises UsageError unless there is exactly one. torch has lists for historical
    reasons, for several devices per process."""
    if len(tensors) != 1:
        raise UsageError(f"Kolo takes one tensor here, not {len(tensors)}; a `_coalesced` operation takes several")
    return tensors[0]


def _one_or_list(buffers: list[Memory]) -> Any:
    return buffers if len(buffers) > 1 else buffers[0] if buffers else None


def _split(tensor: Tensor, splits: list[int], size: int) -> list[Tensor]:
    """Splits a tensor along the first dimension into one part for each rank."""
    if not splits:
        if tensor.shape[0] % size != 0:
            raise UsageError(f"{tensor.shape[0]} rows are not as many for each of {size} ranks; give the split sizes")
        splits = [tensor.shape[0] // size] * size
    if sum(splits) != tensor.shape[0] or len(splits) != size:
        raise UsageError(f"split sizes {splits} for {size} ranks do not make up the {tensor.shape[0]} rows of the tensor")
    return list(tensor.split(splits))
