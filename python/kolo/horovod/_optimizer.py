"""DistributedOptimizer."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections import Counter
from typing import Any, Callable, Iterable, Iterator, NoReturn, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from ._allreduce import grouped_allreduce
from ._gradients import Exchange
from ._job import ProcessSet, global_process_set, internal_errors, size
from ._reductions import Adasum, Average, Compression, check_op

__all__ = ["DistributedOptimizer"]


def DistributedOptimizer(  # noqa: N802  # Horovod's name
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Parameter]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns an optimizer like `optimizer`, whose `step` first combines the gradients of all ranks. Gradients are sent
    while the backward pass computes others.

    named_parameters: names for errors, usually `model.named_parameters()`, of all parameters.
    compression: `hvd.Compression.fp16` or `bf16`, or a class of yours.
    backward_passes_per_step: number of backward passes for which gradients accumulate before they are sent.
    op: the reduction; with Adasum each rank updates by its own gradients, and the changes of parameters are combined.
    gradient_predivide_factor: an average divides gradients by this before the sum, and multiplies the result by it.
    groups, num_groups: checked, and then ignored, because Kolo itself plans buckets.
    sparse_as_dense: sends sparse gradients as dense ones.
    process_set: the ranks that combine gradients; on other ranks `step` uses the rank's own gradients.

    To change gradients before the update:

        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()

    Errors: ValueError for wrong arguments; `step`, `synchronize` and `zero_grad` document their errors.
    """
    check_op(op)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=hvd.Average")
    if num_groups != 0:
        warnings.warn("the argument num_groups is deprecated; pass groups", DeprecationWarning, stacklevel=2)
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step is at least 1, not {backward_passes_per_step}")
    _check_groups(num_groups if groups is None else groups)
    parameters = _named(optimizer, named_parameters)

    is_shared = process_set.included() and size() > 1
    if op == Adasum and is_shared:
        made = _wrapped(optimizer, _AdasumSteps)
        made._hvd_process_set = process_set
        made._hvd_compression = compression
        return made
    made = _wrapped(optimizer, _Distributed)
    if is_shared:
        made._hvd_exchange = Exchange(
            parameters, process_set, op, compression, gradient_predivide_factor, sparse_as_dense, backward_passes_per_step
        )
    return made


def _named(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, Parameter]] | None
) -> dict[str, Parameter]:
    """Returns the parameters of the optimizer that need gradients, by name. The order is that of `named_parameters`, if
    given."""
    ours = {
        id(parameter): (f"parameter {index}.{place}", parameter)
        for index, group in enumerate(optimizer.param_groups)
        for place, parameter in enumerate(group["params"])
    }
    named = list(ours.values()) if named_parameters is None else list(named_parameters)
    if any(not isinstance(each, tuple) or len(each) != 2 for each in named):
        raise ValueError("named_parameters is a list of pairs of name and parameter, such as model.named_parameters()")
    twice = [name for name, times in Counter(name for name, _ in named).items() if times > 1]
    if twice:
        raise ValueError(f"named_parameters has names more than once: {', '.join(twice)}")
    keys = {id(parameter) for _, parameter in named}
    missing = [name for key, (name, _) in ours.items() if key not in keys]
    if missing:
        raise ValueError(
            f"named_parameters lacks parameters of the optimizer: {', '.join(missing)} (by group and place)"
        )
    first_names: dict[int, str] = {}
    for name, parameter in named:
        if id(parameter) in ours and parameter.requires_grad:
            first_names.setdefault(id(parameter), name)
    return {name: ours[key][1] for key, name in first_names.items()}


def _check_groups(groups: Any) -> None:
    if groups is None or (isinstance(groups, int) and groups >= 0):
        return
    if not isinstance(groups, list):
        raise ValueError("groups is a number of groups, or a list of lists of parameters")
    members = [each for group in groups for each in group]
    if any(not isinstance(each, Tensor) for each in members):
        raise ValueError("groups has something other than parameters")
    if len({id(each) for each in members}) < len(members):
        raise ValueError("groups has a parameter twice")


class _Wrapping(torch.optim.Optimizer):
    """Base of the classes that override methods of an optimizer's class."""


def _wrapped(optimizer: torch.optim.Optimizer, wrapping: type[_Wrapping]) -> Any:
    """Returns `optimizer` as an object of a new class, derived from `wrapping` and the optimizer's class. Drops an
    earlier wrapping."""
    own = type(optimizer).__bases__[1] if isinstance(optimizer, _Wrapping) else type(optimizer)
    kind = type(own.__name__, (wrapping, own), {"__module__": own.__module__})
    made: Any = object.__new__(kind)
    # Some schedulers set methods on the object itself. They are skipped, because they would hide those of the class.
    made.__dict__.update((key, value) for key, value in vars(optimizer).items() if key not in vars(wrapping))
    return made


class _Distributed(_Wrapping):
    """The methods that `DistributedOptimizer` overrides or adds."""

    _hvd_exchange: Exchange | None = None
    """None: this rank shares its gradients with no other."""
    _hvd_is_synchronized = False
    _hvd_should_synchronize = True

    def synchronize(self) -> None:
        """Waits until all gradients are combined, for programs that change them before `step`."""
        if self._hvd_exchange is not None:
            self._hvd_exchange.check_covers(self.param_groups)
            with internal_errors():
                self._hvd_exchange.finish()
        self._hvd_is_synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within the block, `step` updates the parameters without combining gradients, which `synchronize` has already
        combined."""
        self._hvd_should_synchronize = False
        try:
            yield
        finally:
            self._hvd_should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Combines the gradients of all ranks, and updates the parameters. If there is a `closure`, gradients are
        combined after each of its calls."""
        if self._hvd_should_synchronize and self._hvd_is_synchronized:
            warnings.warn(
                "step() after synchronize() combines the gradients once more; call it within "
                "optimizer.skip_synchronize()",
                stacklevel=2,
            )
        if self._hvd_should_synchronize and closure is None:
            self.synchronize()
        elif self._hvd_should_synchronize:
            closure = functools.partial(self._combined, closure)
        loss = super().step(closure)
        self._hvd_is_synchronized = False
        return loss

    def _combined(self, closure: Any) -> Any:
        loss = closure()
        self.synchronize()
        return loss

    def zero_grad(self, *arguments: Any, **keywords: Any) -> None:
        """Raises AssertionError between a backward pass and `step` or `synchronize`."""
        if self._hvd_exchange is not None and self._hvd_exchange.has_begun:
            raise AssertionError(
                "zero_grad() was called after backward() and before step() or synchronize(), while gradients may be on "
                "their way; call it after step()"
            )
        super().zero_grad(*arguments, **keywords)

    def load_state_dict(self, *arguments: Any, **keywords: Any) -> None:
        self._forget_step()
        super().load_state_dict(*arguments, **keywords)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes the number of backward passes, between two steps."""
        self._forget_step(passes)

    def _forget_step(self, *passes: int) -> None:
        """Drops the current step. Collective if gradients of the step were sent."""
        if self._hvd_exchange is not None:
            with internal_errors():
                self._hvd_exchange.reset(*passes)
        self._hvd_is_synchronized = False
        self._hvd_should_synchronize = True


class _AdasumSteps(_Wrapping):
    """Each rank updates the parameters by its own gradients; then the changes of all ranks are combined.

    State of the optimizer, such as momentum, differs between ranks.
    """

    _hvd_process_set: ProcessSet
    _hvd_compression: Any

    def synchronize(self) -> None:
        """Does nothing, because gradients are not exchanged."""

    def skip_synchronize(self) -> NoReturn:
        raise AssertionError("with op=hvd.Adasum there is nothing to skip: gradients stay on their ranks")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters, and combines the changes of all ranks."""
        parameters = [each for group in self.param_groups for each in group["params"] if each.requires_grad]
        before = [each.detach().clone() for each in parameters]
        loss = super().step(closure)
        changes: list[Tensor] = [each - old for each, old in zip(parameters, before)]
        with internal_errors():
            combined = grouped_allreduce(
                changes, None, "changes", self._hvd_compression, Adasum, process_set=self._hvd_process_set
            )
        for each, old, change in zip(parameters, before, combined):
            each.copy_(old + change)
        return loss
