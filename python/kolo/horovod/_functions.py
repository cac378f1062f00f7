"""Functions that copy the state of one rank to all ranks: parameters, optimizers, objects."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any, Iterable

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from ._collectives import allgather, broadcast_, broadcast_async_
from ._job import ProcessSet, global_process_set, rank, size
from ._operations import synchronize

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Copies the parameters of rank `root_rank` to all ranks, in place.

    `params` is a `state_dict()`, a list of tensors or of pairs of name and tensor, or `named_parameters()`.
    Errors: ValueError for another `params`; HorovodInternalError, which names the parameter, if it differs between
            ranks.
    """
    named: list[Any]
    if isinstance(params, dict):
        named = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, Tensor):
        named = [each if isinstance(each, tuple) else (None, each) for each in params]
    else:
        raise ValueError(f"params is a dict or a list of parameters, not a {type(params).__name__}")
    others = [str(name) for name, each in named if not isinstance(each, Tensor)]
    if others:
        raise ValueError(f"params has other things than tensors, which hvd.broadcast_object takes: {', '.join(others)}")
    handles = [broadcast_async_(each, root_rank, name) for name, each in named]
    for handle in handles:
        synchronize(handle)


@dataclasses.dataclass(frozen=True)
class _Place:
    """Stands for a tensor in a state that is sent as an object."""

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: Any = None) -> None:
    """Copies the options and the state of the optimizer of rank `root_rank` to all ranks. The other ranks drop state
    that rank `root_rank` does not have. `model` is ignored.

    Errors: ValueError for LBFGS, and if the ranks' optimizers have different parameters.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of torch.optim.LBFGS cannot be broadcast")
    tensors: list[Tensor] = []

    def place_of(tensor: Tensor) -> _Place:
        tensors.append(tensor)
        return _Place(len(tensors) - 1, tuple(tensor.shape), tensor.dtype, tensor.device.type)

    state = tree_map_only(Tensor, place_of, optimizer.state_dict()) if rank() == root_rank else None
    state = broadcast_object(state, root_rank, "optimizer state")
    if rank() != root_rank:
        _check_parameters(optimizer, state)
        places = [each for each in tree_leaves(state) if isinstance(each, _Place)]
        tensors = [torch.empty(each.shape, dtype=each.dtype, device=each.device) for each in places]
    broadcast_parameters([(f"optimizer state.{index}", each) for index, each in enumerate(tensors)], root_rank)
    if rank() != root_rank:
        _take(optimizer, tree_map_only(_Place, lambda place: tensors[place.number], state))


def _check_parameters(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    here = [len(group["params"]) for group in optimizer.param_groups]
    there = [len(group["params"]) for group in state["param_groups"]]
    if here != there:
        raise ValueError(f"the optimizer has groups of {here} parameters here, of {there} on the root")


def _take(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Replaces the state in place, because schedulers and wrapped optimizers hold references to the groups."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    for mine, theirs in zip(optimizer.param_groups, state["param_groups"]):
        mine.update((key, value) for key, value in theirs.items() if key != "params")
    by_number = dict(zip(numbers, parameters))
    optimizer.state.clear()
    optimizer.state.update((by_number.get(key, key), value) for key, value in state["state"].items())


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns the object of rank `root_rank` on all ranks. The object is pickled, by cloudpickle if that is
    installed."""
    name = name or "object"
    content = _to_bytes(obj) if rank() == root_rank else None
    length = torch.tensor([0 if content is None else len(content)], device="cpu")
    broadcast_(length, root_rank, f"{name}.bytes", process_set)
    if content is None:
        content = torch.empty(int(length), dtype=torch.uint8, device="cpu")
    broadcast_(content, root_rank, name, process_set)
    return obj if rank() == root_rank else _from_bytes(content)


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """Returns the objects of all ranks, in rank order."""
    name = name or "object"
    content = _to_bytes(obj)
    lengths = allgather(torch.tensor([len(content)], device="cpu"), f"{name}.bytes").tolist()
    parts = allgather(content, name).split(lengths)
    assert len(parts) == size()
    return [_from_bytes(part) for part in parts]


def _to_bytes(obj: Any) -> Tensor:
    try:
        import cloudpickle
    except ImportError:
        pickled = pickle.dumps(obj)
    else:
        pickled = cloudpickle.dumps(obj)
    return torch.frombuffer(bytearray(pickled), dtype=torch.uint8)


def _from_bytes(content: Tensor) -> Any:
    return pickle.loads(content.numpy().tobytes())
