"""Sets of gradients, which a backward pass marks one by one and Kolo combines bucket by bucket."""

from __future__ import annotations

import enum
import json
from ctypes import addressof, byref, c_char, c_char_p, c_double, c_int, c_size_t, c_uint32, c_void_p, string_at
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, NamedTuple, Sequence

from . import _c, _dtypes
from ._buffers import Memory, array_at, memory_of
from ._errors import UsageError, check
from ._handle import Owned
from ._library import library
from ._streams import stream_for
from ._wait import Calls, call, stepper, wait

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DIVISORS = {
    "all_ranks": _c.KOLO_ALL_RANKS,
    "contributing_ranks": _c.KOLO_CONTRIBUTING_RANKS,
    "samples": _c.KOLO_SAMPLES,
}


class Gradient(NamedTuple):
    """One gradient of a set. Without `data` it is in Kolo's arena, where it needs no copy; `GradientSet` returns the
    array."""

    shape: Sequence[int] | None = None
    """Not needed with `data`; () for a scalar."""
    dtype: Any = "float32"
    """Not needed with `data`."""
    data: Any = None
    """An array that Kolo reads and writes in place."""
    compression: str | None = None
    """For example "topk(0.01)"; None: by the rules of the set."""
    wire_dtype: Any = None
    """None: the set's."""
    is_device: bool = False
    """Without `data`: whether the gradient is in memory of the device."""


class GradientFlags(enum.IntFlag):
    """How compression treats a gradient in the next iteration."""

    SPARSE = _c.KOLO_SPARSE
    """The gradient is sent sparsely or as codes, with a residual: mark it without loss scale."""
    CORRECTS_MOMENTUM = _c.KOLO_CORRECTS_MOMENTUM
    """Kolo already applies momentum ("dgc")."""
    WARMING_UP = _c.KOLO_WARMING_UP
    """The next iteration is a dense one that precedes sparse ones."""


class GradientSet:
    """A registered set of gradients. In each iteration mark every gradient, in any order, and wait:

        gradients = job.register_gradients("model", {"weight": (gradient array), "bias": kolo.Gradient((10,))})
        gradients["bias"][:] = ...
        gradients.ready("bias")      # its bucket starts when all of its gradients are ready
        ...
        gradients.wait()             # every gradient is now the average over all ranks

    `gradients[i]` and `gradients[name]` are NumPy arrays over the memory that Kolo uses. From `ready` until `wait`
    returns, that memory belongs to Kolo. The set keeps the user's arrays alive; arrays in the arena keep the set alive.

    Threads: any for `ready` and `absent`; one for `wait`.
    """

    name: str
    names: tuple[str, ...]
    """Names of the gradients, by index."""

    def __init__(self, group: Any, pointer: Any, name: str, specs: dict[str, tuple[Gradient, Memory | None]]) -> None:
        self.name = name
        self.names = tuple(specs)
        self._group = group
        self._pointer = pointer
        self._owned = Owned(pointer, library().kolo_gradients_release, made_of=group._owned)
        self._index = {each: index for index, each in enumerate(self.names)}
        self._user_memory = [memory for _, memory in specs.values()]
        self._is_device = [_is_device(*each) for each in specs.values()]
        self._shapes = [tuple(gradient.shape or ()) for gradient, _ in specs.values()]
        self._taken = (c_size_t * len(specs))()
        self._is_open = False  # Between a mark and the end of its iteration.

    # --- memory ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, which: int | str) -> NDArray[Any]:
        memory = self.memory(which)
        if memory.is_device:
            raise UsageError("the gradient is in device memory, which NumPy has no arrays for; see memory()")
        return array_at(memory)

    def memory(self, which: int | str) -> Memory:
        """Returns the memory of a gradient, which never moves."""
        index = self._at(which)
        view = _c.kolo_buffer()
        check(library().kolo_gradients_view(self._pointer, index, byref(view)))
        is_device = view.memory == _c.KOLO_DEVICE
        owner = (self, self._user_memory[index])
        return Memory(
            view.data, view.count, _dtypes.of_code(view.dtype), owner, is_device=is_device, shape=self._shapes[index]
        )

    def _at(self, which: int | str) -> int:
        if isinstance(which, str):
            try:
                return self._index[which]
            except KeyError:
                raise UsageError(f"the set {self.name!r} has no gradient {which!r}") from None
        index = which if which >= 0 else which + len(self.names)
        if not 0 <= index < len(self.names):
            raise IndexError(f"the set {self.name!r} has {len(self.names)} gradients, not a number {which}")
        return index

    # --- an iteration ------------------------------------------------------------------------------

    def ready(self, which: int | str, *, stream: int | None = None) -> None:
        """Marks a gradient as complete. A gradient in device memory is complete after the work enqueued on `stream`, as
        in collectives. May sum small buckets in the caller's thread."""
        self._mark("ready", stream, self._at(which))

    def absent(self, which: int | str, *, stream: int | None = None) -> None:
        """Marks a gradient as unused by this rank in this iteration: it counts as zeros, and after `wait` its array has
        the combined value."""
        self._mark("absent", stream, self._at(which))

    def give_up(self, *, stream: int | None = None) -> None:
        """Marks every gradient that is not marked in this iteration as absent. Use it if this rank cannot compute them,
        for example because its batch raises. Then call `wait` and the optimizer's step as the other ranks do, and all
        weights stay equal: gradients that this rank has marked count, the rest count as zeros. Pass `stream` if its
        work may use gradients in device memory."""
        self._mark("give_up", stream)

    def _mark(self, how: str, stream: int | None, *index: int) -> None:
        self._is_open = True
        which = [i for i in index or range(len(self)) if self._is_device[i]]
        if stream is None and not which:
            check(getattr(library(), f"kolo_gradients_{how}")(self._pointer, *index))
        else:
            on = stream_for(stream, (self._user_memory[i] for i in which))
            check(getattr(library(), f"kolo_gradients_{how}_on")(self._pointer, *index, on))

    def wait(self, timeout: float | None = None) -> None:
        """Waits until every gradient has the combined value.

        `timeout` is in seconds; None means the option `operation_timeout`.
        Errors: DeadlineError or KeyboardInterrupt, after which `wait` may be called again. After any other error the
                set stays failed.
        """
        self._wait(timeout, self.name, library().kolo_gradients_wait)
        self._is_open = False

    def wait_one(self, which: int | str, timeout: float | None = None) -> None:
        """Waits until one gradient has the combined value, so that the optimizer can update layer by layer. Mark all
        gradients first, and end the iteration by `wait`; until then only read the array.

        `timeout` and errors: as in `wait`.
        """
        index = self._at(which)
        self._wait(timeout, f"{self.names[index]} of {self.name}", library().kolo_gradients_wait_one, index)

    def _wait(self, timeout: float | None, subject: str, function: Any, *arguments: int) -> None:
        step = stepper(function, self._pointer, *arguments)
        wait(step, timeout, self._group._handle.operation_timeout_ms, lambda: self._group._subject(subject))

    def fileno(self) -> int:
        """Returns a descriptor for `select` and event loops. It is readable while there are combined gradients for
        `take_combined` to return, and once the set has failed; it may also be readable without cause. The set owns it;
        only poll it."""
        descriptor = c_int()
        check(library().kolo_gradients_event(self._pointer, byref(descriptor)))
        return descriptor.value

    def take_combined(self) -> list[int]:
        """Returns the indices of the gradients that were combined since the last call in this iteration. Never blocks.
        End the iteration by `wait`, in the same thread; until then only read the arrays.

        Errors: the error of a set that has failed.
        """
        count = c_size_t()
        check(library().kolo_gradients_take_combined(self._pointer, self._taken, byref(count)))
        return self._taken[: count.value]

    def wait_on(self, stream: int | None = None) -> None:
        """Blocks until all work on gradients in device memory is enqueued, and makes `stream` wait for the values."""
        self._call(library().kolo_gradients_wait_on, stream_for(stream, self._user_memory))
        self._is_open = False

    def set_samples(self, samples: float) -> None:
        """Sets this rank's number of samples for this and all later iterations, for the divisor "samples"."""
        check(library().kolo_gradients_set_samples(self._pointer, samples))

    # --- plan and statistics -------------------------------------------------------------------------

    @property
    def plan(self) -> dict[str, Any]:
        """The plan in force: buckets, algorithm, bytes on the wire, and decisions on compression."""
        return self._read(library().kolo_gradients_plan)

    @property
    def statistics(self) -> dict[str, Any]:
        """The number of values beyond the range of a 16-bit wire, and compression statistics."""
        return self._read(library().kolo_gradients_statistics)

    def _read(self, function: Callable[..., bytes]) -> dict[str, Any]:
        with self._group._handle.texts:
            return dict(json.loads(function(self._pointer)))

    def flags(self, which: int | str) -> GradientFlags:
        """Returns how compression treats a gradient in the next iteration."""
        flags = c_uint32()
        check(library().kolo_gradients_flags(self._pointer, self._at(which), byref(flags)))
        return GradientFlags(flags.value)

    # --- compression, between two iterations --------------------------------------------------------

    def flush_residuals(self) -> None:
        """Makes the next iteration dense and sends all residuals with it. Collective."""
        self._call(library().kolo_gradients_flush)

    def drop_residuals(self) -> None:
        """Discards all residuals. Collective."""
        self._call(library().kolo_gradients_drop)

    def save_compression(self) -> bytes:
        """Returns this rank's compression state for its checkpoint."""
        state, size = c_void_p(), c_size_t()
        check(library().kolo_gradients_save(self._pointer, byref(state), byref(size)))
        return string_at(state, size.value) if size.value else b""

    def load_compression(self, state: bytes) -> None:
        """Restores a state of the same set on the same number of ranks."""
        check(library().kolo_gradients_load(self._pointer, state, len(state)))

    def remap_compression(self, states: Sequence[bytes]) -> None:
        """Restores the states of all former ranks, in rank order, on any number of ranks. Collective, with equal
        states."""
        copies = [(c_char * len(state)).from_buffer_copy(state) for state in states]
        addresses = (c_void_p * len(copies))(*(addressof(copy) for copy in copies))
        sizes = (c_size_t * len(copies))(*(len(state) for state in states))
        self._call(library().kolo_gradients_remap, addresses, sizes, len(copies), keep=copies)

    def residual_norm(self, which: int | str) -> float:
        """Returns the Euclidean norm of a gradient's residual on this rank; -1 if the gradient is sent dense."""
        norm = c_double()
        name = self.names[self._at(which)].encode()
        check(library().kolo_gradients_residual_norm(self._pointer, name, byref(norm)))
        return norm.value

    def _call(self, function: Any, *arguments: Any, keep: Any = None) -> None:
        """Makes a call that blocks and has no ticket."""
        call(function, self._pointer, *arguments, runtime=self._group._handle.pointer, keep=(self, keep))

    def __repr__(self) -> str:
        return f"<kolo.GradientSet {self.name!r}: {len(self)} gradients>"

    def __del__(self) -> None:
        if not hasattr(self, "_is_open"):  # Its registration failed.
            return
        if self._is_open:  # Releasing the set would wait for the iteration, and a finalizer must not wait.
            self._group._handle.keep(self._owned, self._user_memory)
        else:
            self._owned.drop()


def _named(values: Mapping[str, Any] | Sequence[Any]) -> Mapping[str, Any]:
    """Names the entries of a list by their index."""
    return values if isinstance(values, Mapping) else {str(i): each for i, each in enumerate(values)}


def _specs(gradients: Mapping[str, Any] | Sequence[Any]) -> dict[str, tuple[Gradient, Memory | None]]:
    """Returns the gradients by name, each with the user's memory."""
    specs: dict[str, tuple[Gradient, Memory | None]] = {}
    for name, each in _named(gradients).items():
        spec = each if isinstance(each, Gradient) else Gradient(data=each)
        memory = None
        if spec.data is not None:
            memory = memory_of(spec.data, f"the gradient {name!r}", writable=True)
            spec = spec._replace(shape=memory.shape, dtype=memory.dtype)
        if spec.shape is None:
            raise UsageError(f"the gradient {name!r} has no shape; () is that of a scalar")
        specs[name] = (spec, memory)
    return specs


def _is_device(spec: Gradient, memory: Memory | None) -> bool:
    return spec.is_device if memory is None else memory.is_device


def _struct(name: str, spec: Gradient, memory: Memory | None) -> _c.kolo_gradient:
    assert spec.shape is not None
    shape = tuple(spec.shape) or (1,)  # A scalar.
    return _c.kolo_gradient(
        name=name.encode(),
        shape=(c_size_t * len(shape))(*shape),
        num_dimensions=len(shape),
        dtype=_dtypes.of_any(spec.dtype).code,
        memory=_c.KOLO_DEVICE if _is_device(spec, memory) else _c.KOLO_HOST,
        data=memory.address if memory is not None else None,
        compression=spec.compression.encode() if spec.compression else None,
        wire_dtype=_dtypes.wire_code(spec.wire_dtype),
    )


class Registers(Calls):
    """Sets of gradients of a group."""

    def register_gradients(
        self,
        name: str,
        gradients: Mapping[str, Any] | Sequence[Any],
        *,
        op: str = "average",
        wire_dtype: Any = None,
        compression: str | None = None,
        divisor: str = "all_ranks",
    ) -> GradientSet:
        """Registers a set of gradients that is equal on all ranks, and plans its buckets. Collective.

        `gradients` are arrays, which Kolo then reads and writes in place, or `kolo.Gradient`s, by name or in a list.
        For a flat buffer pass `numpy.split(buffer, ends)`. Names, shapes, types and options are equal on all ranks.
        `wire_dtype` is the type to send, for example "bfloat16"; None means the option `wire_dtype`.
        `compression` has rules by name; None means the option `compression`.
        `divisor` of an average is "all_ranks", "contributing_ranks" or "samples" (see `GradientSet.set_samples`).
        """
        specs = _specs(gradients)
        structs = [_struct(key, spec, memory) for key, (spec, memory) in specs.items()]
        options = _c.kolo_gradient_options(
            op=_dtypes.choice(_dtypes.ops(), op, "op"),
            wire_dtype=_dtypes.wire_code(wire_dtype),
            compression=compression.encode() if compression is not None else None,
            divisor=_dtypes.choice(_DIVISORS, divisor, "divisor"),
        )
        pointer = c_void_p()
        array = (_c.kolo_gradient * len(structs))(*structs)
        arguments = (name.encode(), array, len(structs), byref(options), byref(pointer))
        self._call(library().kolo_register_gradients, *arguments, keep=(specs, structs))
        return GradientSet(self, pointer, name, specs)

    def check_equal(self, name: str, tensors: Mapping[str, Any] | Sequence[Any]) -> None:
        """Checks that arrays, such as the weights of a model, have the same names, types and bytes on all ranks, by
        comparing 64-bit hashes. Collective; `name` identifies the check on all ranks.

        Errors: MismatchError, the same on every rank, which names the arrays that differ and the ranks that differ from
                rank 0. UsageError for device memory.
        """
        named = {key: memory_of(each, f"the array {key!r}") for key, each in _named(tensors).items()}
        buffers = (_c.kolo_buffer * len(named))(*(each.parameter() for each in named.values()))
        names = (c_char_p * len(named))(*(key.encode() for key in named))
        self._call(library().kolo_check_equal, name.encode(), buffers, names, len(named), keep=named)
