"""A rank's connection to its job."""

from __future__ import annotations

import atexit
import gc
import math
import os
import re
import sys
import threading
from ctypes import byref, c_char_p, c_void_p, cast, string_at
from ctypes import pointer as pointer_to
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Sequence

from . import _c, _dtypes
from ._buffers import Memory, array_at
from ._errors import KoloError, UsageError, check
from ._group import Group
from ._handle import Handle, Owned, Owner
from ._library import library, nvidia_nccl
from ._wait import Caller, call

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Open runtimes, which stay here until they are closed or aborted, or the process ends.
_open_runtimes: set[Runtime] = set()


class Runtime(Group):
    """One rank's connection to its job, and the group of all ranks. `kolo.open` makes it.

        with kolo.open() as job:
            job.all_reduce(x)

    If the block ends by an exception, the rank leaves the job at once, so that the other ranks fail instead of waiting.
    If it ends normally, it closes the job, which waits for the other ranks. The end of the process does the same for an
    open runtime, but takes `sys.exit(1)` for a normal end.

    Threads: any.
    """

    world_size: int
    """Number of ranks in the job; equal to `size`."""
    local_rank: int
    """This process's rank within its node."""
    local_size: int
    """Number of ranks on this node."""
    node: int
    """Index of this node, from 0 to num_nodes - 1."""
    num_nodes: int
    """Number of nodes in the job."""

    def __init__(self, pointer: Any = None) -> None:
        if pointer is None:
            raise UsageError("kolo.open() makes a Runtime: job = kolo.open()")
        lib = library()
        handle = Handle(pointer, _milliseconds(_setting(pointer, "operation_timeout")))
        super().__init__(handle, handle, lib.kolo_world(pointer), "")
        place = _c.kolo_place()
        check(lib.kolo_get_place(pointer, byref(place)))
        for name in ("world_size", "local_rank", "local_size", "node", "num_nodes"):
            setattr(self, name, getattr(place, name))
        _open_runtimes.add(self)

    @property
    def is_open(self) -> bool:
        """False after `close` or `abort`, and in a forked process, which is not a rank of the job."""
        return self in _open_runtimes and self._handle.is_ours()

    def _name_in_errors(self) -> str:
        return ""

    def setting(self, name: str) -> str:
        """Returns the value of an option in force, as text."""
        with self._handle.texts:
            return _setting(self._handle.pointer, name)

    @property
    def link_costs(self) -> str:
        """The link costs in force, as text for the option `link_costs`."""
        with self._handle.texts:
            return str(library().kolo_link_costs(self._handle.pointer).decode())

    @property
    def network_address(self) -> str:
        """The numeric address at which other nodes reach this node; empty if all ranks share a node."""
        with self._handle.texts:
            return str(library().kolo_network_address(self._handle.pointer).decode())

    def allocate(self, shape: int | Sequence[int], dtype: Any = "float32") -> NDArray[Any]:
        """Allocates a NumPy array in memory that the other ranks of the node can read directly, which saves copies.

        Its contents are undefined. The memory is freed with the last array over it, and may outlive `close`. Not
        collective. Without NumPy, the result is a memoryview of bytes. Raises ResourceError, which names the bytes
        needed and the limit, the option `group_arena_bytes`.
        """
        dimensions = (shape,) if isinstance(shape, int) else tuple(int(extent) for extent in shape)
        if any(extent < 0 for extent in dimensions):
            raise UsageError(f"a shape has no negative extents: {dimensions}")
        kind = _dtypes.of_any(dtype)
        count = math.prod(dimensions)
        owner = _ArenaMemory(self._handle, max(1, count * kind.itemsize))
        return array_at(Memory(owner.address, count, kind, owner, shape=dimensions))

    def leave_thread(self) -> None:
        """Stops counting the calling thread as a user of the job until its next call. Call it in a thread of a pool
        whose task is over: Kolo tells a deadlock from a slow rank by the threads that may still call."""
        check(library().kolo_leave_thread(self._handle.pointer))

    def close(self) -> None:
        """Waits until all ranks close the job, and ends it. Collective; later calls fail. Closing again does
        nothing."""
        if not self.is_open:
            return
        pointer = self._handle.pointer
        call(library().kolo_close, pointer, runtime=pointer, keep=self)
        self._leave()

    def abort(self, why: str) -> None:
        """Leaves the job at once, because this rank cannot go on. The other ranks fail with PeerLostError, which quotes
        `why`. Not collective. Threads: any."""
        if not self.is_open:
            return
        check(library().kolo_abort(self._handle.pointer, why.encode()))
        self._leave()

    def _leave(self) -> None:
        _open_runtimes.discard(self)
        self._handle.sweep()
        self._handle.let_go()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or (isinstance(error, SystemExit) and not error.code):
            self.close()
        else:
            self.abort(_why(error))


class _ArenaMemory(Owner):
    """Owns memory that `kolo_allocate` returned."""

    def __init__(self, handle: Handle, size: int) -> None:
        lib = library()
        data = c_void_p()
        check(lib.kolo_allocate(handle.pointer, size, byref(data)))
        self.address: int = data.value or 0
        self._owned = Owned(data, lambda place: lib.kolo_free(handle.pointer, place), made_of=handle)


class Store(Protocol):
    """The interface of a store for `kolo.open(store=...)`, which all ranks share. Keys begin with the `job` of
    `kolo.open`."""

    def set(self, key: str, value: bytes) -> object:
        """Stores a value under a new key."""

    def get(self, key: str, timeout: float) -> bytes:
        """Waits for a value, for at most `timeout` seconds. Raises TimeoutError if there is none by then, and any other
        exception for a failure."""


class Callbacks:
    """The callbacks of the C interface for a store. If the store raises, the callback fails and keeps the exception in
    `error`."""

    def __init__(self, store: Any) -> None:
        self.error: BaseException | None = None
        self._store = store
        self._value = b""  # Valid until the next call.
        self._functions = (_c.kolo_store_set(self._set), _c.kolo_store_get(self._get))
        self.struct = _c.kolo_store(set=self._functions[0], get=self._functions[1])

    def let_go(self) -> BaseException | None:
        """Drops the store, because the library makes no more calls, and returns `error`. The functions and this object
        refer to each other, so the store would otherwise stay until the garbage collector runs."""
        error = self.error
        self.__dict__.clear()
        return error

    def _set(self, _: Any, key: bytes, value: int | None, size: int) -> int:
        try:
            self._store.set(key.decode(), string_at(value, size) if value else b"")
        except BaseException as error:  # No exception may pass through C.
            self.error = error
            return 1
        return 0

    def _get(self, _: Any, key: bytes, timeout_ms: int, value: Any, size: Any) -> int:
        try:
            self._value = bytes(self._store.get(key.decode(), timeout_ms / 1000))
            value[0] = cast(c_char_p(self._value), c_void_p).value
            size[0] = len(self._value)
        except BaseException as error:
            self.error = error
            return _c.KOLO_TIMEOUT if isinstance(error, TimeoutError) else 1
        return 0


def open(  # noqa: A001  # As in `kolo.open`.
    *,
    store: Store | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    job: str = "kolo",
    **options: Any,
) -> Runtime:
    """Joins the job. Collective.

    Rank, size and rendezvous come from the environment: mpirun, torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT),
    srun, or none of them for a job of one rank. With a `store`, which all ranks share, they come from `rank` and
    `world_size`, and `job` is the prefix of all keys; it differs for each job in a store.

    `options` are listed in docs/options.md: `kolo.open(fusion_bytes="4M", algorithm="ring")`. Other options have the
    values of KOLO_* variables, or their defaults.

    Threads: any; a store is called from another thread.
    Errors:  ConfigError and UsageError for options; DeadlineError after `connect_timeout`, which names missing ranks.
             An exception of the store is the `__cause__` of the error. After a KeyboardInterrupt end the process.
    """
    if "KOLO_NCCL_LIBRARY" not in os.environ and (nccl := nvidia_nccl()):
        options.setdefault("nccl_library", nccl)
    settings = [_c.kolo_setting(name.encode(), _text(name, value).encode()) for name, value in options.items()]
    fields: dict[str, Any] = {
        "settings": (_c.kolo_setting * len(settings))(*settings),
        "num_settings": len(settings),
        "world_size": 1,
        "job": job.encode(),
    }
    callbacks = None
    if store is not None:
        if rank is None or world_size is None:
            raise UsageError("with a store, kolo.open needs rank and world_size")
        callbacks = Callbacks(store)
        fields |= {"store": pointer_to(callbacks.struct), "rank": rank, "world_size": world_size}
    elif rank is not None or world_size is not None:
        raise UsageError("kolo.open takes rank and world_size with a store; without, the environment tells them")
    pointer = c_void_p()
    try:
        call(library().kolo_open, byref(_c.kolo_open_options(**fields)), byref(pointer), keep=callbacks)
    except KoloError as error:
        raise error from (callbacks.let_go() if callbacks is not None else None)
    if callbacks is not None:  # Not after an interrupt: then the call goes on.
        callbacks.let_go()
    return Runtime(pointer)


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    return _dtypes.of_any(value, f"the option {name}").name


def _setting(pointer: Any, name: str) -> str:
    value = c_char_p()
    check(library().kolo_get_setting(pointer, name.encode(), byref(value)))
    return (value.value or b"").decode()


def _milliseconds(text: str) -> int:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0


def _why(error: BaseException | None) -> str:
    text = str(error).partition("\n")[0]
    return type(error).__name__ + (f": {text}" if text else "")


def _uncaught() -> BaseException | None:
    """Returns the exception that ends the process, if any."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error if not hasattr(sys, "ps1") else None  # At an interactive prompt the process goes on.


@atexit.register
def _end() -> None:
    """Closes or aborts the jobs that are still open. It cannot be interrupted, because no thread can start any more."""
    error = _uncaught()
    for runtime in list(_open_runtimes):
        if not runtime.is_open:
            continue
        try:
            if error is not None:
                runtime.abort(_why(error))
                # Keeps the interpreter from searching all objects for cycles. With torch that would take a second of
                # CPU time, while torchrun waits to start the ranks again.
                gc.freeze()
            else:
                check(library().kolo_close(runtime._handle.pointer))
        except KoloError as failure:
            print(failure, file=sys.stderr)
            library().kolo_abort(runtime._handle.pointer, _why(failure).encode())
        _open_runtimes.discard(runtime)
    for thread in threading.enumerate():
        if isinstance(thread, Caller):
            thread.calls.put(None)
            thread.join(1.0)  # The thread is about to end, and must do so before the interpreter.
