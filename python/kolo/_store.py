"""A key-value store of the program, through which ranks find each other."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

from . import _c


class Store(Protocol):
    """What `kolo.open(store=...)` needs. All ranks share it; keys begin with the `job` of `kolo.open`."""

    def set(self, key: str, value: bytes) -> object:
        """Stores a value under a key that has none yet."""

    def get(self, key: str, timeout: float) -> bytes:
        """Waits for a value, for at most `timeout` seconds; raises TimeoutError if there is none then, and any other
        exception for a failure."""


class Callbacks:
    """The store as the C interface calls it. Exceptions end the call, and are kept in `error`."""

    def __init__(self, store: Any) -> None:
        self.error: BaseException | None = None
        self._store = store
        self._value = b""  # Valid until the next call.
        self._functions = (_c.kolo_store_set(self._set), _c.kolo_store_get(self._get))
        self.struct = _c.sized(_c.kolo_store, set=self._functions[0], get=self._functions[1])

    def _set(self, _: Any, key: bytes, value: int | None, size: int) -> int:
        try:
            self._store.set(key.decode(), ctypes.string_at(value, size) if value else b"")
        except BaseException as error:  # No exception may pass through C.
            self.error = error
            return 1
        return 0

    def _get(self, _: Any, key: bytes, timeout_ms: int, value: Any, size: Any) -> int:
        try:
            self._value = bytes(self._store.get(key.decode(), timeout_ms / 1000))
            value[0] = ctypes.cast(ctypes.c_char_p(self._value), ctypes.c_void_p).value
            size[0] = len(self._value)
        except BaseException as error:
            self.error = error
            return _c.KOLO_TIMEOUT if isinstance(error, TimeoutError) else 1
        return 0
