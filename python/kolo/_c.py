"""The declarations of <kolo/kolo_c.h> for ctypes: constants and structs by name, and FUNCTIONS."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, sizeof
from typing import TYPE_CHECKING, Any

from . import _header

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


class Sized(Structure):
    """A struct that begins with its size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=sizeof(self), **fields)


_types: dict[str, Any] = {
    "void": None, "double": ctypes.c_double, "int": ctypes.c_int, "size_t": ctypes.c_size_t, "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
}  # fmt: skip
"""Types by their names in C; the structs are added below."""


def _type(text: str) -> Any:
    words = text.replace("const", "").replace(" ", "")
    base = words.rstrip("*")
    stars = len(words) - len(base)
    if base == "char":
        kind: Any = ctypes.c_char_p
    elif base == "void" and stars or f"typedef struct {base} {base};" in _header.TEXT:  # An opaque type.
        kind = ctypes.c_void_p
    else:
        kind, stars = _types.get(base, ctypes.c_int32), stars + 1  # A type without an entry is an enumeration.
    for _ in range(stars - 1):
        kind = POINTER(kind)
    return kind


def _define_struct(name: str, fields: list[tuple[_header.Type, str]]) -> None:
    """Defines a struct and its callback types, which are named like kolo_store_set for the field `set` of
    kolo_store."""
    types = []
    for kind, field in fields:
        made = ctypes.CFUNCTYPE(*map(_type, kind)) if isinstance(kind, list) else _type(kind)
        types.append((field, made))
        if isinstance(kind, list):
            globals()[f"{name}_{field}"] = made
    base = Sized if fields[0] == ("size_t", "size") else Structure
    _types[name] = globals()[name] = type(name, (base,), {"_fields_": types})


globals().update(_header.constants())
for _name, _fields in _header.structs().items():
    _define_struct(_name, _fields)

FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    name: (_type(result), [_type(each) for each in _header.types_of(arguments)])
    for result, name, arguments in _header.functions()
}
"""Result type and argument types of each function."""
