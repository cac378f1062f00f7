"""Reads the declarations in the headers of the C library, which are in the wheel or in the source tree."""

from __future__ import annotations

import pathlib
import re
from typing import Iterator, Union

_PACKAGE = pathlib.Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "include"
INCLUDE = _INSTALLED if _INSTALLED.exists() else _PACKAGE.parents[1] / "runtime" / "include"

_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_FUNCTION = re.compile(r"^([a-z][\w *]*?)\b(kolo_\w+)\(([^;]*)\);", re.M)
_ENUM = re.compile(r"enum \{([^}]*)\}")
_STRUCT = re.compile(r"typedef struct \w+ \{(.*?)\} (\w+);", re.S)
_CALLBACK = re.compile(r"(\w+) \(\*(\w+)\)\((.*)\)")

_headers = (INCLUDE / "kolo" / name for name in ("kolo_c.h", "kolo_c_gradients.h", "kolo_c_store.h"))
TEXT = _COMMENT.sub("", "\n".join(header.read_text(encoding="utf-8") for header in _headers))
"""The text of all headers, without comments."""


def _declared(declarations: str) -> tuple[str, str]:
    """Splits a declaration such as "const char* name" into type and name."""
    kind, name = re.findall(r"(.*?)(\w+)$", " ".join(declarations.split()))[0]
    return kind.strip(), name


def functions() -> list[tuple[str, str, str]]:
    """Returns the declared result, name and arguments of each function."""
    return [(result.strip(), name, " ".join(arguments.split())) for result, name, arguments in _FUNCTION.findall(TEXT)]


def types_of(arguments: str) -> list[str]:
    return [_declared(each)[0] for each in arguments.split(",") if each.strip() not in ("", "void")]


def constants() -> dict[str, int]:
    """Returns the values of all enumerators, by name."""
    entries = re.findall(r"(KOLO_\w+) = (-?\d+)", " ".join(_ENUM.findall(TEXT)))
    return {name: int(number) for name, number in entries}


Type = Union[str, "list[str]"]
"""The type of a field; for a callback, its result type followed by its argument types."""


def structs() -> dict[str, list[tuple[Type, str]]]:
    """Returns the types and names of the fields of each struct, in order, by the struct's name."""
    return {name: list(_fields(body)) for body, name in _STRUCT.findall(TEXT)}


def _fields(body: str) -> Iterator[tuple[Type, str]]:
    for declaration in filter(None, (" ".join(each.split()) for each in body.split(";"))):
        callback = _CALLBACK.match(declaration)
        if callback:
            yield [callback[1], *types_of(callback[3])], callback[2]
            continue
        first, *others = declaration.split(",")
        kind, name = _declared(first)
        for each in (name, *others):
            yield kind, each.strip()
