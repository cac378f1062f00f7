"""An optimizer whose gradients are averaged over all ranks during the backward pass."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

import kolo
from kolo import UsageError

from ._parameters import SPARSE, AnyGroup, ParameterGradients, broadcast_parameters, call_on_gradients, group_of


class WrappedOptimizer(torch.optim.Optimizer):
    """Forwards parameter groups, state and unknown attributes to a wrapped optimizer. A subclass defines `step`."""

    _optimizer: torch.optim.Optimizer
    _step_supports_amp_scaling = False
    """A fused optimizer takes the scale of a gradient scaler from attributes, which the scaler would set here."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        # The base class is not initialised, because groups and state belong to the wrapped optimizer.
        self._optimizer = optimizer

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self._optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self._optimizer.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return self._optimizer.defaults

    def __getattr__(self, name: str) -> Any:
        if name == "_optimizer":  # The wrapped optimizer is not set yet.
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._optimizer!r})"


class DistributedOptimizer(WrappedOptimizer):
    """Wraps an optimizer of torch, for a model that is not wrapped in DDP:

        optimizer = torch.optim.AdamW(model.parameters())
        optimizer = kolo.torch.DistributedOptimizer(optimizer, model.named_parameters())
        ...
        optimizer.zero_grad()
        loss(model(batch)).backward()      # gradients travel as they are computed
        optimizer.step()                   # waits for the averages

    Gradients are in Kolo's arena, where the ranks of a node sum them without a copy. As in torch, `step` uses `p.grad`;
    None means that this rank has no gradient. After `zero_grad()`, which sets `p.grad` to None, autograd allocates a
    tensor, which is copied to the arena. After `zero_grad(set_to_none=False)`, autograd adds its new tensor to the
    zeros in the arena, which takes more memory traffic than the copy.

    Between the backward pass and `step` or `synchronize`, `p.grad` belongs to Kolo: neither read nor change it.
    Afterwards `p.grad` is the average in the arena, also for a parameter that this rank did not use. For a parameter
    that no rank used it is zeros, not None, so momentum and weight decay still apply.

    Parameter groups, state, schedulers and hooks belong to the wrapped optimizer.

    Threads: the thread of the backward pass. Errors: as `GradientSet`; UsageError names rank and parameter.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, Tensor]] | None = None,
        *,
        compression: str | None = None,
        wire_dtype: Any = None,
        op: str = "average",
        divisor: str = "all_ranks",
        backward_passes_per_step: int = 1,
        broadcast: bool = True,
        group: AnyGroup = None,
    ) -> None:
        """Wraps `optimizer`, and broadcasts the parameters of rank 0 unless `broadcast` is False. Collective.

        `named_parameters` gives the names for errors, rules of compression and checkpoints. Without them, a parameter
        is named by group and index.
        `compression`, `wire_dtype`, `op` and `divisor` are as in `kolo.Group.register_gradients`.
        `backward_passes_per_step` is the number of passes whose gradients are summed before they are sent; see also
        `no_sync`. The sum is not divided by that number.
        `group` is a process group of the backend kolo, or a group of Kolo; None means the default process group.
        """
        super().__init__(optimizer)
        if isinstance(optimizer, torch.optim.LBFGS):
            raise UsageError("LBFGS calls its closure as often as a rank's own loss demands, so ranks would differ")
        if isinstance(optimizer, torch.optim.SparseAdam):
            raise UsageError(f"SparseAdam takes sparse gradients, and DistributedOptimizer averages dense ones; {SPARSE}")
        if backward_passes_per_step < 1:
            raise UsageError(f"backward_passes_per_step is {backward_passes_per_step}, and at least 1 is needed")
        self._rank_group = group_of(group)
        self._gradients = ParameterGradients(
            _named(optimizer, named_parameters),
            self._rank_group,
            "gradients of DistributedOptimizer",
            compression=compression,
            wire_dtype=wire_dtype,
            op=op,
            divisor=divisor,
        )
        self._parameters = self._gradients.parameters
        self._passes_per_step = backward_passes_per_step
        self._passes = [0] * len(self._parameters)  # Number of passes since the last averages.
        # By gradient, the version of its tensor when it was sent; None if it was not sent.
        self._sent: list[int | None] = [None] * len(self._parameters)
        self._accumulates = False
        self._is_synchronized = False
        if broadcast:
            broadcast_parameters(self._parameters, group=self._rank_group)
        call_on_gradients(self._parameters, self, DistributedOptimizer._accumulated)

    # --- a step ------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Waits for the averages, unless `synchronize` has done so, and updates the parameters. A `closure` computes
        loss and gradients; the gradients are averaged after each of its calls."""
        try:
            if closure is not None:
                return self._optimizer.step(lambda: self._averaged(closure))
            if not self._is_synchronized:
                self.synchronize()
            return self._optimizer.step()
        finally:
            self._is_synchronized = False

    def synchronize(self) -> None:
        """Waits for the averages, so that work before `step` can use them: clipping, a gradient scaler's `unscale_`.
        Call it on every rank, once a step.

        Errors: DeadlineError and KeyboardInterrupt, after which it may be called again.
        """
        self._check_parameters()
        changed = []
        for index, parameter in enumerate(self._parameters):
            view = self._gradients.views[index]
            if self._sent[index] is not None:
                if parameter.grad is not view or view._version != self._sent[index]:
                    changed.append(self._gradients.names[index])
            elif parameter.grad is None:
                self._gradients.absent(index)
                self._sent[index] = view._version
            else:
                self._adopt(index)
                self._send(index)
            parameter.grad = view
        self._gradients.wait()
        self._passes = [0] * len(self._passes)
        self._sent = [None] * len(self._sent)
        self._is_synchronized = True
        if changed:
            raise UsageError(
                f"rank {self._rank_group.rank}: the gradients of {', '.join(map(repr, changed[:5]))} were changed after "
                "the backward pass had sent them; call synchronize() before clipping, and do not wrap the model in DDP"
            )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Works like torch's `zero_grad`; the class comment says which argument is faster. After a backward pass
        without `step` it first waits for the averages, so that a rank may skip a step that other ranks make."""
        if any(sent is not None for sent in self._sent):
            self.synchronize()
        self._is_synchronized = False
        self._passes = [0] * len(self._passes)
        self._optimizer.zero_grad(set_to_none)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in the block only accumulate gradients, which the next pass after the block, or `step`,
        sends."""
        before, self._accumulates = self._accumulates, True
        try:
            yield
        finally:
            self._accumulates = before

    @property
    def gradients(self) -> kolo.GradientSet:
        """The gradient set: `plan`, `statistics`, `set_samples`, `residual_norm`, `flush_residuals`."""
        return self._gradients.set

    def _accumulated(self, index: int) -> None:
        """Called when a backward pass has written the gradient. Sends it after the last pass of a step."""
        if self._sent[index] is not None:
            raise UsageError(
                f"rank {self._rank_group.rank}: a second backward pass wrote the gradient of "
                f"{self._gradients.names[index]!r}, which is on its way; set backward_passes_per_step, or make all "
                "passes but the last one in no_sync()"
            )
        self._adopt(index)
        self._is_synchronized = False
        if self._accumulates:
            return
        self._passes[index] += 1
        if self._passes[index] == self._passes_per_step:
            self._send(index)

    def _adopt(self, index: int) -> None:
        """Moves the gradient to the arena, unless it already is there."""
        parameter, view = self._parameters[index], self._gradients.views[index]
        gradient = parameter.grad
        if gradient is view:
            return
        assert gradient is not None
        self._gradients.check(index, gradient)
        with torch.no_grad():
            view.copy_(gradient)
        parameter.grad = view

    def _send(self, index: int) -> None:
        self._sent[index] = self._gradients.views[index]._version
        self._gradients.ready(index)

    def _averaged(self, closure: Callable[[], Any]) -> Any:
        with torch.enable_grad():
            loss = closure()
        self.synchronize()
        return loss

    def _check_parameters(self) -> None:
        """Raises UsageError for a parameter with a gradient that is not in the set."""
        for parameter in parameters_of(self._optimizer):
            if parameter.grad is not None and parameter not in self._gradients:
                self._gradients.index_of(parameter)

    # --- the wrapped optimizer ---------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        raise UsageError("add_param_group() comes before the optimizer is wrapped, when ranks agree on its gradients")

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the wrapped optimizer, which can load it, with this rank's compression state under
        "kolo". With compression, each rank must save its own state."""
        return {**self._optimizer.state_dict(), "kolo": self._gradients.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores this rank's state bit for bit, on the same number of ranks. A state of the wrapped optimizer alone
        has no residuals; see also `remap_compression`."""
        plain = dict(state_dict)
        compression = plain.pop("kolo", None)
        if compression is not None:
            self._gradients.load_state_dict(compression)
        self._optimizer.load_state_dict(plain)

    def remap_compression(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Restores the entries "kolo" of all former ranks, on another number of ranks. Collective, with equal states.
        Load the rest of a state without that entry."""
        self._gradients.remap_compression(states)


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _named(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, Tensor]] | None
) -> list[tuple[str, Tensor]]:
    """Returns the optimizer's parameters with their names, in the order of the model. Frozen ones may have no name."""
    if named_parameters is None:
        return [
            (f"{number}.{index}", parameter)
            for number, group in enumerate(optimizer.param_groups)
            for index, parameter in enumerate(group["params"])
        ]
    ours = set(parameters_of(optimizer))
    named: list[tuple[str, Tensor]] = []
    seen: set[Tensor] = set()
    for name, parameter in named_parameters:
        if parameter in ours and parameter not in seen:  # A tied parameter has one gradient and several names.
            named.append((name, parameter))
            seen.add(parameter)
    missing = {parameter for parameter in ours - seen if parameter.requires_grad}
    if missing:
        shapes = ", ".join(f"one of shape {list(parameter.shape)}" for parameter in list(missing)[:5])
        raise UsageError(f"named_parameters has no names of {len(missing)} of the optimizer's parameters: {shapes}")
    return named
