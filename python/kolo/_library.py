"""Finds and loads libkolo."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import pathlib
from typing import Any, Iterator

from . import _c

NAME = "libkolo.so.2"


def _candidates() -> Iterator[str]:
    """Yields paths where the library may be, in order of preference: beside the package, in the build folder of a
    source tree, and in the loader's search path."""
    package = pathlib.Path(__file__).resolve().parent
    root = package.parent.parent
    yield str(package / NAME)
    if (root / "CMakeLists.txt").exists() and (root / "runtime").is_dir():
        yield str(root / "build" / "lib" / NAME)
    yield NAME


def nvidia_nccl() -> str:
    """Returns the path of NCCL in NVIDIA's Python packages, which PyTorch brings; an empty string if there is none, or
    if the process has loaded an NCCL."""
    with contextlib.suppress(OSError):
        ctypes.CDLL("libnccl.so.2", os.RTLD_NOLOAD)
        return ""
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations or []) if found else []:
        file = os.path.join(folder, "nccl", "lib", "libnccl.so.2")
        if os.path.exists(file):
            return file
    return ""


def _load(path: str) -> ctypes.CDLL:
    loaded = ctypes.CDLL(path)
    for name, (result, arguments) in _c.FUNCTIONS.items():
        try:
            function = getattr(loaded, name)
        except AttributeError as error:
            raise OSError(f"{path} does not fit this package: {error}") from None
        function.restype, function.argtypes = result, arguments
    return loaded


@functools.lru_cache(maxsize=None)
def library() -> Any:
    """Returns the C library with its functions declared. Loads it at the first call.

    Errors: ImportError that names all paths that were tried, and why each failed.
    """
    named = os.environ.get("KOLO_LIBRARY")
    tried = []
    for path in [named] if named else _candidates():
        if not named and os.sep in path and not os.path.exists(path):
            tried.append(f"{path}: no such file")
            continue
        try:
            return _load(path)
        except OSError as error:
            tried.append(str(error) if path in str(error) else f"{path}: {error}")
    places = "\n  ".join(tried)
    if named:
        raise ImportError(f"the library that KOLO_LIBRARY names cannot be loaded:\n  {places}")
    raise ImportError(f"{NAME} was not found anywhere; KOLO_LIBRARY may name it:\n  {places}")
