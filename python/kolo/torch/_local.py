"""Optimizers for local steps: ranks train on their own, and exchange weights after several steps."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

import torch
from torch import Tensor

from kolo import UsageError

from ._optimizer import WrappedOptimizer, parameters_of
from ._parameters import AnyGroup, ParameterGradients, broadcast_parameters, by_kind, group_of
from ._tensors import Staging, number_memory


class LocalSGD(WrappedOptimizer):
    """Wraps an optimizer of torch. Each rank takes steps with its own gradients and state. After every `every` steps,
    the ranks replace their weights by the mean over all ranks:

        optimizer = kolo.torch.LocalSGD(torch.optim.SGD(model.parameters(), lr=0.1), every=8)

    All ranks call `step` equally often. A gradient scaler may be used: a rank whose gradients overflow leaves its
    weights as they are in that step, which counts. Do not wrap the model in DDP. Before an evaluation, a checkpoint and the end of training, call `exchange()`, or
    choose a step after which `has_equal_weights` is true. Buffers, such as running statistics, are not exchanged.

    All parameters that require gradients are exchanged, also parameters that are added later. Threads: one.
    """

    _step_supports_amp_scaling = True
    """A gradient scaler sets the scale and whether gradients overflowed, and calls `step` in any case."""

    def __init__(self, optimizer: torch.optim.Optimizer, every: int, group: AnyGroup = None, broadcast: bool = True) -> None:
        """Wraps `optimizer`, and broadcasts the parameters of rank 0 unless `broadcast` is False. Collective.

        `every` is the number of steps between two exchanges, equal on all ranks.
        `group` is a process group of the backend kolo, or a group of Kolo; None means the default process group.
        """
        super().__init__(optimizer)
        if every < 1:
            raise UsageError(f"every is {every}, and at least 1 step comes between exchanges")
        self._every = every
        self._steps = 0  # Number of steps since the last exchange.
        self._rank_group = group_of(group)
        if broadcast:
            broadcast_parameters(self._parameters(), group=self._rank_group)

    @property
    def has_equal_weights(self) -> bool:
        """True if no step has been taken since the last exchange."""
        return self._steps == 0

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes a step of the wrapped optimizer, and then exchanges weights if an exchange is due."""
        result = None
        if not self._overflowed():
            result = self._optimizer.step() if closure is None else self._optimizer.step(closure)
        self._steps += 1
        if self._steps >= self._every:
            self.exchange()
        return result

    @torch.no_grad()
    def exchange(self) -> None:
        """Exchanges weights now, unless they are equal. The next exchange is `every` steps later. Collective."""
        if self._steps == 0:
            return
        for alike in by_kind(self._parameters()):
            staging = Staging()
            memories = [number_memory(staging.written(each)) for each in alike]
            self._rank_group.all_reduce(memories, "average")
            staging.finish()
        self._steps = 0

    @torch.no_grad()
    def _overflowed(self) -> bool:
        """Returns whether a gradient scaler found an overflow. Otherwise divides the gradients by its scale."""
        scaler = vars(self)
        if scaler.get("found_inf") is not None and scaler["found_inf"].item() != 0:
            return True
        if scaler.get("grad_scale") is not None:
            for parameter in parameters_of(self._optimizer):
                if parameter.grad is not None:
                    parameter.grad.div_(scaler["grad_scale"].to(parameter.grad.device))
        return False

    def _parameters(self) -> list[Tensor]:
        """Returns the parameters that require gradients, without duplicates."""
        return list(dict.fromkeys(each for each in parameters_of(self._optimizer) if each.requires_grad))

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the wrapped optimizer, which can load it, with the steps since the last exchange under
        "kolo". Each rank must save its own state, and also its own weights unless they are equal."""
        return {**self._optimizer.state_dict(), "kolo": {"steps": self._steps}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores this rank's state. Load the weights first. If the state is of the wrapped optimizer alone, training
        continues as after an exchange, so the weights must be equal on all ranks."""
        plain = dict(state_dict)
        self._load(plain.pop("kolo", {"steps": 0}))
        self._optimizer.load_state_dict(plain)

    def _load(self, state: Mapping[str, Any]) -> None:
        self._steps = state["steps"]


class DiLoCo(LocalSGD):
    """Works like LocalSGD, with an outer optimizer: SGD with Nesterov momentum, whose gradient is the mean movement of
    the ranks since the last exchange. Exchanges may then be hundreds of steps apart:

        optimizer = kolo.torch.DiLoCo(torch.optim.AdamW(model.parameters()), every=200)

    Movements are small, so `wire="bfloat16"` halves their bytes, and `compression="int8"` quarters them, at little loss
    of accuracy. Memory: three more values for each weight, and one more if a codec keeps residuals.
    Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        every: int,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        wire: Any = None,
        compression: str | None = None,
        group: AnyGroup = None,
        broadcast: bool = True,
    ) -> None:
        """Works like `LocalSGD.__init__`. `outer_lr` and `outer_momentum` are equal on all ranks.

        `wire` and `compression` say how movements are sent, as `wire_dtype` and `compression` of
        `kolo.Group.register_gradients`. A parameter's name in rules is its index.
        """
        super().__init__(optimizer, every, group, broadcast)
        self._exchanged = self._parameters()
        self._moved = ParameterGradients(
            ((str(i), each) for i, each in enumerate(self._exchanged)),
            self._rank_group,
            "movements of DiLoCo",
            wire_dtype=wire,
            compression=compression,
        )
        self._agreed = [each.detach().clone() for each in self._exchanged]
        self._outer = torch.optim.SGD(self._agreed, lr=outer_lr, momentum=outer_momentum, nesterov=outer_momentum > 0)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        raise UsageError("add_param_group() comes before the optimizer is wrapped, when ranks agree on its weights")

    @torch.no_grad()
    def exchange(self) -> None:
        if self._steps == 0:
            return
        for parameter in self._parameters():
            self._moved.index_of(parameter)
        for i, (agreed, parameter, moved) in enumerate(zip(self._agreed, self._exchanged, self._moved.views)):
            torch.sub(agreed, parameter, out=moved)
            self._moved.ready(i)
            agreed.grad = moved
        self._moved.wait()
        self._outer.step()
        for agreed, parameter in zip(self._agreed, self._exchanged):
            agreed.grad = None
            parameter.copy_(agreed)
        self._steps = 0

    def state_dict(self) -> dict[str, Any]:
        """Works like `LocalSGD.state_dict`. The entry "kolo" also has the weights of the last exchange and the state of
        the outer optimizer, which are equal on all ranks, and this rank's residuals."""
        state = super().state_dict()
        state["kolo"].update(agreed=[each.clone() for each in self._agreed], outer=self._outer.state_dict())
        state["kolo"]["moved"] = self._moved.state_dict()
        return state

    @torch.no_grad()
    def _load(self, state: Mapping[str, Any]) -> None:
        super()._load(state)
        for agreed, saved in zip(self._agreed, state.get("agreed", self._exchanged)):
            agreed.copy_(saved)
        if "outer" in state:
            self._outer.load_state_dict(state["outer"])
        if "moved" in state:
            self._moved.load_state_dict(state["moved"])

    def remap_compression(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Restores the entries "moved" of all former ranks, on another number of ranks. Collective, with equal states.
        Load the rest of a state without that entry."""
        self._moved.remap_compression(states)
