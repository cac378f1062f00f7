"""Keys and values that ranks share, with the semantics of MXNet's KVStore.

    kv = kolo.kv.create("dist_sync")            # in a job, or: create("dist_sync", job)
    kv.init("weight", np.ones((10, 4), np.float32))
    kv.set_optimizer("sgd", lr=0.1, momentum=0.9)
    kv.push("weight", gradient)                 # an array, or a list, which is summed
    kv.pull("weight", out=weight)
    kv.close()

Types: "local" (this rank alone), "device" (the ranks of this node), "dist_sync" (all ranks; each push is summed over
them, and the sum applied once), "dist_async" (all ranks; each push is applied alone as soon as it arrives).
"""

from __future__ import annotations

import atexit
import math
import sys
import threading
from ctypes import POINTER, byref, c_int32, c_int64, c_void_p, cast
from types import TracebackType
from typing import Any, Callable, NamedTuple, Sequence, Type, Union

from . import _c, _dtypes
from ._buffers import Memory, array_at, memory_of, new_array
from ._errors import KoloError, ShutdownError, UsageError, check
from ._group import Group
from ._handle import Owned, Owner
from ._library import library
from ._runtime import Runtime, _uncaught, open
from ._wait import call

__all__ = ["KVStore", "Version", "create"]

Key = Union[int, str]
Keys = Union[int, str, Sequence[Union[int, str]]]
_open_stores: set[KVStore] = set()


class Version(NamedTuple):
    """What the last pull of a key has read."""

    updates: int
    """Number of updates of the key."""
    slowest: int
    """Pushes that it contains of the worker that has pushed least."""


class _Known(NamedTuple):
    """What the store knows of a key."""

    key: Key
    shape: tuple[int, ...]
    dtype: _dtypes.DType

    def shape_of(self, count: int) -> tuple[int, ...]:
        """The shape of so many elements, which are whole rows."""
        return (count // math.prod(self.shape[1:]), *self.shape[1:]) if self.shape else ()


class KVStore(Owner):
    """Keys and values that ranks share. `kolo.kv.create` makes it. Keys are strings or integers, one of them or a list;
    values are arrays in host memory.

    Threads: one at a time; a call waits until an earlier one has ended, also one that a signal has interrupted.
    """

    type: str
    """local, device, dist_sync or dist_async."""
    rank: int
    """This rank among the workers."""
    num_workers: int
    """Number of workers."""

    def __init__(self, group: Group, owns_job: bool, options: _c.kolo_parameters_options) -> None:
        self._group = group
        self._job = group if owns_job else None
        self._pointer = c_void_p()
        self._known: dict[str, _Known | None] = {}
        self._versions: dict[str, Version] = {}
        self._updaters: list[Any] = []
        self._optimizer: dict[str, dict[str, float]] = {}
        self._in_use = threading.Lock()
        self._updating: set[int] = set()  # Threads that run an updater.
        self._error: BaseException | None = None
        call(library().kolo_parameters_open, group._pointer, byref(options), byref(self._pointer), runtime=group._handle.pointer, keep=group)
        self._owned = Owned(self._pointer, library().kolo_parameters_release, made_of=group._owned)
        self.type = options.type.decode()
        self.rank = library().kolo_parameters_rank(self._pointer)
        self.num_workers = library().kolo_parameters_workers(self._pointer)
        _open_stores.add(self)

    def init(self, key: Keys, value: Any) -> None:
        """Creates a key with rank 0's value. All ranks call it, with equal shapes."""

        def each(key: Key, value: Any) -> None:
            memory, name = memory_of(value, f"the value of {key!r}"), str(key)
            shape = tuple(memory.shape)
            former = self._known.get(name)
            self._known[name] = _Known(key, shape, memory.dtype)  # Others may push before this call returns.
            try:
                check(library().kolo_parameters_init(self._pointer, name.encode(), byref(memory.parameter()), math.prod(shape[1:])))
            except KoloError:
                self._known[name] = former
                raise

        self._for_each(each, key, value)

    def push(self, key: Keys, value: Any, priority: int = 0) -> None:
        """Merges an array, or the sum of a list of arrays, into the key's value: by the optimizer or updater, without
        one by assigning it. Returns when the sum over all ranks is applied; for dist_async when the array may be
        changed again. `priority` is ignored: pushes go out in the order of the calls."""

        def each(key: Key, value: Any) -> None:
            check(library().kolo_parameters_push(self._pointer, str(key).encode(), *self._buffers(key, value)))

        self._for_each(each, key, value)

    def pull(self, key: Keys, out: Any = None, priority: int = 0) -> Any:
        """Reads the value into `out`, an array or a list of them (default: a new array), and returns `out`."""

        def each(key: Key, out: Any) -> Any:
            places = out if isinstance(out, (list, tuple)) else [self._new(key) if out is None else out]
            for place in places:
                self._read(key, library().kolo_parameters_pull, place, (None, 0))
            return out if isinstance(out, (list, tuple)) else places[0]

        return self._for_each(each, key, out)

    def push_pull(self, key: Keys, value: Any, out: Any = None, priority: int = 0) -> Any:
        """A push and a pull, which except for dist_async all ranks call. Without `out` returns a new array."""

        def each(key: Key, value: Any, out: Any) -> Any:
            place = self._new(key) if out is None else out
            self._read(key, library().kolo_parameters_push_pull, place, (), self._buffers(key, value))
            return place

        return self._for_each(each, key, value, out)

    def row_sparse_pull(self, key: Keys, out: Any = None, row_ids: Any = ()) -> Any:
        """Reads only the rows `row_ids`, int64 in any order, into the rows of `out` (default: a new array), and returns
        it."""

        def each(key: Key, out: Any, row_ids: Any) -> Any:
            ids = memory_of(row_ids, "row_ids")
            if ids.dtype.name != "int64":
                raise UsageError(f"row_ids are int64, not {ids.dtype.name}")
            place = self._new(key, ids.count) if out is None else out
            if ids.count:
                self._read(key, library().kolo_parameters_pull, place, (cast(ids.address, POINTER(c_int64)), ids.count))
            return place

        return self._for_each(each, key, out, row_ids)

    def version(self, key: Key) -> Version:
        """What the last pull of this key has read."""
        return self._versions[str(key)]

    def set_optimizer(self, name: str = "sgd", **settings: float) -> None:
        """From now on pushes are float32 gradients for this optimizer: sgd, adam or adamw. It goes on from the state
        and the settings of the optimizer before it, if that has the same name, so that the learning rate may change.
        All ranks call it alike.

        Settings: lr, momentum, weight_decay, beta1, beta2, epsilon, rescale (multiplies gradients).
        """
        known = [field for field, _ in _c.kolo_optimizer._fields_[2:]]
        unknown = settings.keys() - set(known)
        if unknown:
            raise UsageError(f"an optimizer has no setting {', '.join(sorted(unknown))}; it has {', '.join(known)}")
        defaults = {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "rescale": 1.0}
        merged = {**self._optimizer.get(name, defaults), **settings}
        optimizer = _c.kolo_optimizer(name=name.encode(), **merged)

        def set_it() -> None:
            check(library().kolo_parameters_set_optimizer(self._pointer, byref(optimizer)))
            self._optimizer = {name: merged}

        self._run(set_it)

    def set_updater(self, updater: Callable[[Any, Any, Any], object]) -> None:
        """From now on pushes are applied by `updater(key, pushed, value)`, which changes the NumPy array `value` in
        place: the whole value, or the rows of it that live on this rank. It calls no method of the store. For
        dist_async another thread calls it. All ranks call `set_updater`."""

        def update(_: Any, name: bytes, __: int, value: Any, pushed: Any) -> int:
            self._updating.add(threading.get_ident())
            try:
                known = self._known[name.decode()]
                assert known is not None  # Or there is no key to update.
                updater(known.key, *(_array(each[0], known, self) for each in (pushed, value)))
            except BaseException as error:  # No exception may pass through C.
                self._error = error
                return 1
            finally:
                self._updating.discard(threading.get_ident())
            return 0

        function = _c.kolo_updater_update(update)
        struct = _c.kolo_updater(update=function)
        self._updaters.append(function)

        def set_it() -> None:
            check(library().kolo_parameters_set_updater(self._pointer, byref(struct)))
            self._optimizer = {}

        self._run(set_it)
        del self._updaters[:-1]  # They have no calls left.

    def barrier(self) -> None:
        """Waits until all ranks have called it and all their earlier pushes are applied."""
        self._run(lambda: check(library().kolo_parameters_barrier(self._pointer)))

    def close(self) -> None:
        """Waits until all ranks close the store, and ends it, with the job that it has opened, if any."""
        _open_stores.discard(self)
        self._run(lambda: check(library().kolo_parameters_close(self._pointer)))
        if isinstance(self._job, Runtime):
            self._job.close()

    def __enter__(self) -> KVStore:
        return self

    def __exit__(self, kind: Type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None or (isinstance(error, SystemExit) and not error.code):
            self.close()
        elif isinstance(self._job, Runtime):
            _open_stores.discard(self)
            self._job.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<kolo.kv.KVStore {self.type!r}: worker {self.rank} of {self.num_workers}>"

    def _for_each(self, one: Callable[..., Any], key: Any, *lists: Any) -> Any:
        """Calls `one` for the key, or for each key of a list, together with one entry of each other list."""
        if not isinstance(key, (list, tuple)):
            return self._run(lambda: one(key, *lists))
        for entries in lists:
            if entries is not None and (not isinstance(entries, (list, tuple)) or len(entries) != len(key)):
                raise UsageError(f"{len(key)} keys come with a list of as many values")
        columns = [[None] * len(key) if entries is None else entries for entries in lists]
        return self._run(lambda: [one(*row) for row in zip(key, *columns)])

    def _run(self, function: Callable[[], Any]) -> Any:
        """Calls `function` so that signals interrupt the wait for it."""
        if threading.get_ident() in self._updating:  # It would wait for the call that runs the updater.
            raise UsageError("an updater calls its own store")
        results = []

        def run() -> int:
            with self._in_use:  # An interrupted call still runs.
                results.append(function())
            return int(_c.KOLO_OK)

        try:
            call(run, runtime=self._group._handle.pointer, keep=self)
        except KoloError as error:
            cause, self._error = self._error, None
            raise error from cause
        return results[0]

    def _buffers(self, key: Key, value: Any) -> tuple[Any, int]:
        values = value if isinstance(value, (list, tuple)) else [value]
        memories = [memory_of(each, f"the value of {key!r}") for each in values]
        known = self._known.get(str(key))
        for memory in memories:
            if known is not None and tuple(memory.shape) != known.shape:
                raise UsageError(f"push of {key!r}: the shape is {tuple(memory.shape)}, and that of the key {known.shape}")
        buffers = (_c.kolo_buffer * len(memories))(*(memory.parameter() for memory in memories))
        buffers._memories = memories  # Lives as long as they are in use.
        return buffers, len(memories)

    def _new(self, key: Key, rows: int | None = None) -> Any:
        known = self._known.get(str(key))
        if known is None:
            raise UsageError(f"pull of {key!r}: the store has no such key; init creates it")
        return new_array(known.shape if rows is None else (rows, *known.shape[1:]), known.dtype)

    def _read(self, key: Key, function: Any, out: Any, rows: tuple[Any, ...], values: tuple[Any, ...] = ()) -> None:
        version, name = _c.kolo_parameters_version(), str(key)
        memory = memory_of(out, "out", writable=True)
        check(function(self._pointer, name.encode(), *values, byref(memory.parameter()), *rows, byref(version)))
        self._versions[name] = Version(version.updates, version.slowest)


def create(
    type: str = "local",
    group: Group | None = None,
    *,
    servers: Sequence[int] = (),
    staleness: int | None = None,
    split_bytes: int = 256 << 10,
    in_flight_bytes: int = 64 << 20,
    name: str = "store",
    arena_bytes: int = 4 << 30,
) -> KVStore:
    """Creates a store for the ranks of `group` (default: a job of its own, as by `kolo.open`). Collective, with equal
    options.

    `servers`: the ranks that keep values (default: all). `staleness`, for dist_async: a worker waits while another one
    has made more than this number of pushes of the key less; None: it never waits. Keys of more than `split_bytes` are
    shared out among the servers. `in_flight_bytes`, for dist_async: bytes of pushes on their way. The store's own group
    has `name` and `arena_bytes`, address space that holds the sums of pushes, except for dist_async.
    """
    options = _c.kolo_parameters_options(
        type=type.encode(),
        servers=(c_int32 * len(servers))(*servers),
        num_servers=len(servers),
        staleness=-1 if staleness is None else staleness,
        split_bytes=split_bytes,
        in_flight_bytes=in_flight_bytes,
        name=name.encode(),
        arena_bytes=arena_bytes,
    )
    return KVStore(open() if group is None else group, group is None, options)


def _array(buffer: _c.kolo_buffer, known: _Known, owner: object) -> Any:
    return array_at(Memory(buffer.data, buffer.count, known.dtype, owner, shape=known.shape_of(buffer.count)))


@atexit.register
def _end() -> None:
    """Closes the stores that are still open, before their jobs end. No thread can be started any more."""
    for store in [] if _uncaught() is not None else list(_open_stores):
        try:
            if store._owned.is_ours():
                check(library().kolo_parameters_close(store._pointer))
        except ShutdownError:  # The job has been closed first.
            pass
        except KoloError as error:
            print(error, file=sys.stderr)
