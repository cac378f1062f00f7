"""The exchange of an optimizer's gradients between ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from kolo import Gradient, GradientSet
from kolo.torch._devices import gpu, on_gpu, stream_of, wait_for
from kolo.torch._parameters import call_on_gradients
from kolo.torch._tensors import tensor_at

from ._allreduce import allreduce_, sparse_allreduce
from ._job import Job, ProcessSet, current, internal_errors
from ._reductions import Max, name_of

_WIRE_DTYPES = (torch.float32, torch.float64)


class Exchange:
    """Combines the gradients of some parameters over all ranks, once per step. Each gradient is sent as soon as
    `passes_per_step` backward passes have computed it.

    Gradients are copied to Kolo's arena, which the other ranks of the node can read, and back, so the program may set
    them to None or keep them. Sparse gradients are exchanged row by row. In the first step of a job all ranks agree on
    which gradients are sparse, so in that step no exchange overlaps the backward pass.

    Threads: first the thread of the backward pass, then the thread of `finish`.
    """

    def __init__(
        self,
        parameters: dict[str, Parameter],
        process_set: ProcessSet,
        op: int,
        compression: Any,
        predivide_factor: float,
        sparse_as_dense: bool,
        passes_per_step: int,
    ) -> None:
        self._name = ""
        self._names = list(parameters)
        self._parameters = list(parameters.values())
        self._process_set = process_set
        self._op = op
        self._kolo_op = name_of(op)
        self._compression = compression
        self._predivide_factor = predivide_factor
        self._sparse_as_dense = sparse_as_dense
        self._job: Job | None = None
        self._sparse_dims: dict[int, int] = {}
        self._dense: dict[int, _Dense] = {}
        self._set: GradientSet | None = None
        self._on_gpu: Tensor | None = None
        """A gradient of the set that is on a GPU; None without one."""
        self._passes_per_step = passes_per_step
        self._passes_left = [passes_per_step] * len(parameters)
        call_on_gradients(self._parameters, self, Exchange._count)

    @property
    def has_begun(self) -> bool:
        """Whether gradients of the current step have been computed."""
        return any(left < self._passes_per_step for left in self._passes_left)

    @torch.no_grad()
    def _count(self, index: int) -> None:
        """Counts a backward pass that has computed a gradient, and sends the gradient after the last pass, or in
        `finish` if this is the first step."""
        if self._passes_left[index] == 0:
            raise AssertionError(
                f"the gradient {self._names[index]!r} was computed more than backward_passes_per_step="
                f"{self._passes_per_step} times before step() or synchronize(); pass a larger backward_passes_per_step "
                "to hvd.DistributedOptimizer to accumulate gradients"
            )
        self._passes_left[index] -= 1
        if self._passes_left[index] == 0 and self._job is current() and index in self._dense:
            with internal_errors():
                self._send(self._dense[index])

    def check_covers(self, param_groups: list[dict[str, Any]]) -> None:
        """Raises ValueError if a parameter would be updated by this rank's gradient alone."""
        covered = set(map(id, self._parameters))
        for index, group in enumerate(param_groups):
            for place, parameter in enumerate(group["params"]):
                if parameter.requires_grad and id(parameter) not in covered:
                    raise ValueError(
                        f"parameter {place} of group {index} was added, or needs gradients, only since "
                        "hvd.DistributedOptimizer was called, so ranks would drift apart; wrap the optimizer anew"
                    )

    @torch.no_grad()
    def finish(self) -> None:
        """Sends the remaining gradients, and stores the combined gradient in every parameter. Gradients that this rank
        does not have count as zeros. Collective."""
        if self._job is not current():
            self._agree()
        for dense in self._dense.values():
            if not dense.is_sent:
                self._send(dense)
        self._exchange_rows()
        if self._set is not None:
            wait_for(self._set, self._on_gpu)
        for dense in self._dense.values():
            self._receive(dense)
        self.reset()

    def reset(self, passes_per_step: int | None = None) -> None:
        """Drops the current step, and sets the number of backward passes. Collective if gradients of the step were
        sent."""
        self._passes_per_step = passes_per_step or self._passes_per_step
        self._passes_left = [self._passes_per_step] * len(self._passes_left)
        if self._set is None or not any(dense.is_sent for dense in self._dense.values()):
            return
        for dense in self._dense.values():
            if not dense.is_sent:
                self._set.absent(dense.place, stream=stream_of(dense.view))
            dense.is_sent = False
        wait_for(self._set, self._on_gpu)

    def _agree(self) -> None:
        """Agrees with the other ranks on which gradients are sparse, and on names, shapes and types of dense
        gradients."""
        self._name = current().next_name("optimizer", self._process_set)
        sparse_dims = torch.tensor([self._sparse_dim(parameter) for parameter in self._parameters], device="cpu")
        allreduce_(sparse_dims, name=f"{self._name}.sparse", op=Max, process_set=self._process_set)
        self._sparse_dims = {index: dim for index, dim in enumerate(sparse_dims.tolist()) if dim > 0}
        specs: dict[str, Gradient] = {}
        self._dense = {}
        self._set = None
        for index, (name, parameter) in enumerate(zip(self._names, self._parameters)):
            if index not in self._sparse_dims and parameter.numel() > 0:
                dense = _Dense(name, parameter, len(specs), self._compression)
                self._dense[index] = dense
                specs[name] = dense.gradient
        if specs:
            self._set = self._process_set.group().register_gradients(self._name, specs, op=self._kolo_op)
            for dense in self._dense.values():
                dense.view = tensor_at(self._set.memory(dense.place), dense.device)
            self._on_gpu = on_gpu([dense.view for dense in self._dense.values()])
        self._job = current()

    def _sparse_dim(self, parameter: Parameter) -> int:
        """Returns the number of sparse dimensions of a gradient that is exchanged by rows; 0 if it is dense or None."""
        gradient = parameter.grad
        return 0 if gradient is None or not gradient.is_sparse or self._sparse_as_dense else gradient.sparse_dim()

    def _send(self, dense: _Dense) -> None:
        assert self._set is not None
        gradient = dense.parameter.grad
        if gradient is None:
            self._set.absent(dense.place, stream=stream_of(dense.view))
        else:
            if gradient.is_sparse:
                if not self._sparse_as_dense:
                    raise ValueError(
                        f"the gradient {dense.name!r} was dense in the first step and is sparse now; pass "
                        "sparse_as_dense=True to hvd.DistributedOptimizer"
                    )
                gradient = gradient.to_dense()
            dense.write(gradient)
            if self._predivide_factor != 1.0:
                dense.view.div_(self._predivide_factor)
            self._set.ready(dense.place, stream=stream_of(dense.view))
        dense.is_sent = True

    def _receive(self, dense: _Dense) -> None:
        dense.is_sent = False
        parameter = dense.parameter
        if not parameter.requires_grad:
            return
        combined = dense.read()
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        if parameter.grad.is_sparse:
            parameter.grad = combined.mul(self._predivide_factor).to_sparse(parameter.grad.sparse_dim())
            return
        parameter.grad.copy_(combined)
        if self._predivide_factor != 1.0:
            parameter.grad.mul_(self._predivide_factor)

    def _exchange_rows(self) -> None:
        """Exchanges sparse gradients. All gradients of one type share their exchanges."""
        for is_double in (False, True):
            indices = [i for i in self._sparse_dims if (self._parameters[i].dtype == torch.float64) == is_double]
            if not indices:
                continue
            name = f"{self._name}.rows of {'float64' if is_double else 'float32'}"
            sums = sparse_allreduce([self._sparse_gradient(i) for i in indices], name, self._op, self._process_set)
            for index, total in zip(indices, sums):
                self._parameters[index].grad = total

    def _sparse_gradient(self, index: int) -> Tensor:
        parameter = self._parameters[index]
        gradient = parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(parameter)
        return gradient if gradient.is_sparse else gradient.to_sparse(self._sparse_dims[index])


class _Dense:
    """A dense gradient, which is exchanged through its copy in the arena."""

    view: Tensor
    """Its memory in the arena."""

    def __init__(self, name: str, parameter: Parameter, place: int, compression: Any) -> None:
        self.name = name
        self.parameter = parameter
        self.place = place
        """Its index in the gradient set."""
        self.is_sent = False
        wire_dtype = getattr(compression, "wire_dtype", None) if parameter.dtype in _WIRE_DTYPES else None
        self._compression = None if wire_dtype else compression
        self._context: Any = None
        sample = parameter.detach()
        if self._compression is not None:
            sample, self._context = compression.compress(torch.zeros_like(sample))
        self.device = sample.device
        self.gradient = Gradient(sample.shape, sample.dtype, wire_dtype=wire_dtype, is_device=gpu().holds(sample))

    def write(self, gradient: Tensor) -> None:
        if self._compression is not None:
            gradient, self._context = self._compression.compress(gradient)
        self.view.copy_(gradient)

    def read(self) -> Tensor:
        return self.view if self._compression is None else self._compression.decompress(self.view, self._context)
