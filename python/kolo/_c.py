"""Kolo's C interface under its C names. The library names dtypes and operations."""

from __future__ import annotations

import ctypes
from typing import Any, TypeVar

from ._c_header import *  # noqa: F403
from ._c_header import FUNCTIONS


def declare(library: ctypes.CDLL) -> None:
    """Gives the functions of a loaded library their types. Errors: AttributeError for a missing one."""
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments


_Struct = TypeVar("_Struct", bound=ctypes.Structure)


def sized(struct: type[_Struct], **fields: Any) -> _Struct:
    """A struct that begins with its size."""
    return struct(size=ctypes.sizeof(struct), **fields)
