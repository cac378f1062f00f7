"""The declarations of libkolo.so's headers."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "runtime" / "include"
HEADERS = [INCLUDE / "kolo" / name for name in ("kolo_c.h", "kolo_c_gradients.h")]

COMMENT = re.compile(r"/\*.*?\*/", re.S)
FUNCTION = re.compile(r"^([a-z][\w *]*?)\b(kolo_\w+)\(([^;]*)\);", re.M)
ENUM = re.compile(r"enum \{([^}]*)\}")
STRUCT = re.compile(r"typedef struct \w+ \{(.*?)\} (\w+);", re.S)
CALLBACK = re.compile(r"(\w+) \(\*(\w+)\)\((.*)\)")


def text():
    """Of all headers, without comments."""
    return COMMENT.sub("", "\n".join(header.read_text(encoding="utf-8") for header in HEADERS))


def declared(declarations):
    """Type and name of "const char* name"."""
    kind, name = re.fullmatch(r"(.*?)(\w+)", " ".join(declarations.split())).groups()
    return kind.strip(), name


def functions():
    """Result, name and arguments of each, as they stand there."""
    return [(result.strip(), name, " ".join(arguments.split())) for result, name, arguments in FUNCTION.findall(text())]


def types_of(arguments):
    return [declared(each)[0] for each in arguments.split(",") if each.strip() not in ("", "void")]


def constants():
    """Numbers by names."""
    entries = re.findall(r"(KOLO_\w+) = (-?\d+)", " ".join(ENUM.findall(text())))
    return {name: int(number) for name, number in entries}


def structs():
    """Names of structs, each with types and names of its fields in their order. Of a callback the type is its result and
    those of its arguments."""
    return {name: list(_fields(body)) for body, name in STRUCT.findall(text())}


def _fields(body):
    for declaration in body.split(";"):
        declaration = " ".join(declaration.split())
        if not declaration:
            continue
        callback = CALLBACK.match(declaration)
        if callback:
            yield [callback[1], *types_of(callback[3])], callback[2]
            continue
        first, *others = declaration.split(",")
        kind, name = declared(first)
        yield kind, name
        for each in others:
            yield kind, each.strip()
