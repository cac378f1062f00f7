"""Gradients of a model's parameters as one of Kolo's gradient sets."""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, Iterable, Mapping, Sequence, Union

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

import kolo
from kolo import UsageError

from ._devices import gpu, on_gpu, stream_of, wait_for
from ._operations import Operations
from ._tensors import Staging, check_device, moved_memory, resolved, tensor_at

AnyGroup = Union[ProcessGroup, kolo.Group, None]
Tensors = Union[torch.nn.Module, Mapping[str, Any], Iterable[Tensor]]

SPARSE = "DDP without a hook and kolo.horovod.DistributedOptimizer take sparse ones"
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def group_of(group: AnyGroup) -> kolo.Group:
    """Returns the group of Kolo behind a process group; None means the default one. Raises UsageError for another
    backend."""
    if isinstance(group, kolo.Group):
        return group
    backend = backend_of(group)
    if not isinstance(backend, Operations):
        raise UsageError(f"the process group is one of {type(backend).__name__}, not of the backend kolo")
    return backend.group


def backend_of(group: ProcessGroup | None) -> Any:
    """Returns the backend of a process group, by preference Kolo's; None means the default group."""
    if group is None:
        group = torch.distributed.group.WORLD
        if group is None:
            raise UsageError("there is no process group; call init_process_group('kolo'), or pass a group of Kolo")
    if isinstance(group, Operations):
        return group
    backends = [group._get_backend(device) for device in group._device_types]
    return next((each for each in backends if isinstance(each, Operations)), backends[0])


def call_on_gradients(parameters: Iterable[Tensor], owner: Any, call: Callable[[Any, int], None]) -> None:
    """Calls `call(owner, index)` after each backward pass through the parameter of this index, as long as `owner` lives."""
    reference = weakref.ref(owner)

    def hook(index: int, _: Tensor) -> None:
        living = reference()
        if living is not None:
            call(living, index)

    hooks = [
        each.register_post_accumulate_grad_hook(functools.partial(hook, index)) for index, each in enumerate(parameters)
    ]
    weakref.finalize(owner, lambda: [each.remove() for each in hooks])


class ParameterGradients:
    """The gradients of some parameters, in Kolo's arena, under the names of the parameters.

    Gradients and residuals belong to parameters, not to buckets of DDP or of Kolo, which may change.
    """

    set: kolo.GradientSet
    parameters: list[Tensor]
    """Those of the given ones that require gradients, by index in the set."""
    names: tuple[str, ...]
    views: list[Tensor]
    """The gradients as tensors, by index in the set; they keep the memory alive."""

    def __init__(
        self, named_parameters: Iterable[tuple[str, Tensor]], group: kolo.Group, kind: str, **options: Any
    ) -> None:
        """Registers the gradients. Collective. `options` are as in `Group.register_gradients`.

        Errors: UsageError, which names the parameter, for a duplicate name, or for a parameter that is neither on the
                CPU nor on the GPU, or has no real floating-point elements; MismatchError, the same on all ranks, if
                their models differ.
        """
        named = list(named_parameters)
        parameters = _checked((name, each) for name, each in named if each.requires_grad)
        self._frozen = {each: name for name, each in named if not each.requires_grad}
        self._owner = kind.rpartition(" ")[2]
        group = _with_room(group, kind, parameters.values())
        self.set = group.register_gradients(
            group._new_name(kind),
            {
                name: kolo.Gradient(tuple(each.shape), each.dtype, is_device=gpu().holds(each))
                for name, each in parameters.items()
            },
            **options,
        )
        self.parameters = list(parameters.values())
        self.names = self.set.names
        self.views = [tensor_at(self.set.memory(i), each.device) for i, each in enumerate(self.parameters)]
        self._on_gpu = on_gpu(self.views)
        self._index = {each: i for i, each in enumerate(self.parameters)}
        self._group = group

    def __contains__(self, parameter: Tensor) -> bool:
        return parameter in self._index

    def index_of(self, parameter: Tensor) -> int:
        """Returns the index of a parameter's gradient. Raises UsageError if the set has no gradient for the
        parameter."""
        try:
            return self._index[parameter]
        except KeyError:
            name = self._frozen.get(parameter)
            which = f"the parameter {name!r}, which" if name else f"a parameter of shape {list(parameter.shape)}, which was new or"
            raise UsageError(
                f"rank {self._group.rank}: {self._owner} does not know {which} required no gradient when {self._owner} was "
                "made; unfreeze parameters before that, or make it again afterwards"
            ) from None

    def ready(self, index: int) -> None:
        """Marks a gradient, after the work enqueued on the current stream."""
        self.set.ready(index, stream=stream_of(self.views[index]))

    def absent(self, index: int) -> None:
        self.set.absent(index, stream=stream_of(self.views[index]))

    def wait(self) -> None:
        """Waits for the averages, as `wait_for` of _devices.py."""
        wait_for(self.set, self._on_gpu)

    def check(self, index: int, gradient: Tensor) -> None:
        """Raises UsageError unless `gradient` is a dense tensor."""
        if gradient.layout != torch.strided:
            raise UsageError(
                f"rank {self._group.rank}: the gradient of {self.names[index]!r} is {gradient.layout}; {self._owner} "
                f"averages dense gradients: make the embedding with sparse=False; {SPARSE}"
            )

    # --- checkpoints -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's compression state: residuals, steps, exponents. Each rank must save its own state."""
        state = torch.frombuffer(bytearray(self.set.save_compression()), dtype=torch.uint8)
        return {"rank": self._group.rank, "ranks": self._group.size, "compression": state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores this rank's state, bit for bit. Errors: UsageError for the state of another rank, or of another
        number of ranks; DataError for the state of another model."""
        if (state["rank"], state["ranks"]) != (self._group.rank, self._group.size):
            raise UsageError(
                f"rank {self._group.rank} of {self._group.size} loads the compression state of rank {state['rank']} of "
                f"{state['ranks']}; for another number of ranks, load the states of all by remap_compression()"
            )
        self.set.load_compression(_bytes(state))

    def remap_compression(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Restores the states of all former ranks, on any number of ranks; the sum of residuals is preserved.
        Collective, with equal states. Raises UsageError unless there is one state of each rank."""
        ordered = sorted(states, key=lambda state: int(state["rank"]))
        if [state["rank"] for state in ordered] != list(range(ordered[0]["ranks"] if ordered else 1)):
            raise UsageError(f"states of the ranks {[state['rank'] for state in ordered]}: one of each is needed")
        self.set.remap_compression([_bytes(state) for state in ordered])


def broadcast_parameters(tensors: Tensors, root: int = 0, group: AnyGroup = None) -> None:
    """Copies values from rank `root` to all ranks. `tensors` is a module, whose parameters and buffers are copied, a
    state dict, or a list of tensors. Collective; all ranks pass tensors of equal types and shapes in the same order."""
    for alike in by_kind(_named(tensors).values()):
        staging = Staging()
        group_of(group).broadcast([moved_memory(staging.written(each)) for each in alike], root)
        staging.finish()


def by_kind(tensors: Iterable[Tensor]) -> Iterable[list[Tensor]]:
    """Returns the tensors that have elements, in lists of one type and one kind of memory."""
    kinds: dict[tuple[torch.dtype, bool], list[Tensor]] = {}
    for each in tensors:
        if each.numel() > 0:
            kinds.setdefault((each.dtype, gpu().holds(each)), []).append(each)
    return kinds.values()


def check_equal(tensors: Tensors, name: str = "weights", group: AnyGroup = None) -> None:
    """Checks that all ranks have the same values, bit by bit. `tensors` is a module, whose parameters and buffers are
    compared, a state dict, or a list of tensors. Collective. Raises MismatchError, the same on every rank, which names
    the tensors that differ and the ranks that differ from rank 0."""
    hashed = {key: each.detach().cpu().contiguous() for key, each in _named(tensors).items()}
    group_of(group).check_equal(name, {key: moved_memory(resolved(each)) for key, each in hashed.items()})


def _named(tensors: Tensors) -> dict[str, Tensor]:
    if isinstance(tensors, torch.nn.Module):
        tensors = {
            **dict(tensors.named_parameters(remove_duplicate=False)),
            **dict(tensors.named_buffers(remove_duplicate=False)),
        }
    named = tensors if isinstance(tensors, Mapping) else {str(i): each for i, each in enumerate(tensors)}
    return {key: each for key, each in named.items() if isinstance(each, Tensor)}


def _checked(named_parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    parameters: dict[str, Tensor] = {}
    for name, parameter in named_parameters:
        if name in parameters:
            raise UsageError(f"two parameters are called {name!r}")
        check_device(parameter, f"the parameter {name!r}")
        if parameter.dtype not in _FLOATS:
            types = ", ".join(map(str, _FLOATS))
            raise UsageError(f"the parameter {name!r} is of {parameter.dtype}; kolo.torch averages {types}")
        parameters[name] = parameter
    if not parameters:
        raise UsageError("there are no parameters that require gradients")
    return parameters


def _with_room(group: kolo.Group, kind: str, parameters: Iterable[Tensor]) -> kolo.Group:
    """Returns a group whose arena has room for a gradient of each parameter: `group` itself if it is the job, whose
    arena is large (`arena_bytes`), or else a new group of its ranks for these gradients alone."""
    if isinstance(group, kolo.Runtime):
        return group
    gradients = sum(each.numel() * each.element_size() for each in parameters)
    # Padding is less than the contents of a bucket. The size is address space; memory is committed when it is used.
    return group.group(range(group.size), name=f"{kind} of {group.name}", arena_bytes=2 * gradients + (1 << 20))


def _bytes(state: Mapping[str, Any]) -> bytes:
    return bytes(state["compression"].numpy())
