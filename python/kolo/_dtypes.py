"""The reductions of Kolo, and its element types with their names in other libraries."""

from __future__ import annotations

import functools
import itertools
import sys
from typing import Any, Callable, NamedTuple

from . import _c
from ._errors import UsageError
from ._library import library


def numbered(name_of: Callable[[int], Any], first: int) -> dict[str, int]:
    """Returns a map from names to numbers. The numbers begin with `first` and end before the first one without a
    name."""
    names = itertools.takewhile(bool, map(name_of, itertools.count(first)))
    return {name.decode(): number for number, name in enumerate(names, first)}


@functools.lru_cache(maxsize=None)
def ops() -> dict[str, int]:
    """Returns the numbers of all reductions in the C interface, by name."""
    return numbered(library().kolo_op_name, 0)


def choice(choices: dict[str, int], value: str, what: str) -> int:
    """Returns the number of the choice `value`. Raises UsageError if it is unknown; `what` names the argument."""
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise UsageError(f"{what} is one of {', '.join(choices)}, not {value!r}") from None


class DType(NamedTuple):
    """One element type."""

    code: int
    """Its number in the C interface."""
    name: str
    """Its name in Kolo's options and errors."""
    itemsize: int
    """Bytes of an element."""
    numpy: str
    """Its name in NumPy, ml_dtypes and torch."""
    dlpack: tuple[int, int]
    """Its type code and bits in DLPack."""


_SIGNED, _UNSIGNED, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_DLPACK = {"int": _SIGNED, "uint": _UNSIGNED, "float": _FLOAT, "bfloat": _BFLOAT, "complex": _COMPLEX, "bool": _BOOL}
_FLOAT8_E4M3FN, _FLOAT8_E5M2 = 10, 12
_FLOAT8 = {"float8_e4m3": ("float8_e4m3fn", _FLOAT8_E4M3FN), "float8_e5m2": ("float8_e5m2", _FLOAT8_E5M2)}
"""Names in other libraries and in DLPack."""


def _dtype(code: int, name: str, itemsize: int) -> DType:
    numpy, kind = _FLOAT8[name] if name in _FLOAT8 else (name, _DLPACK[name.rstrip("0123456789")])
    return DType(code, name, itemsize, numpy, (kind, 8 * itemsize))


@functools.lru_cache(maxsize=None)
def dtypes() -> tuple[DType, ...]:
    """Returns all element types that the library names, in its order."""
    lib = library()
    codes = numbered(lib.kolo_dtype_name, 1).items()
    return tuple(_dtype(code, name, lib.kolo_dtype_size(code)) for name, code in codes)


def of_code(code: int) -> DType:
    """Returns the type with this number in the C interface."""
    return dtypes()[code - 1]


@functools.lru_cache(maxsize=None)
def _by_name() -> dict[str, DType]:
    return {name: dtype for dtype in dtypes() for name in (dtype.name, dtype.numpy)}


_KINDS = {"f": "float", "i": "int", "u": "uint", "c": "complex", "b": "bool"}
_FORMATS = {**dict.fromkeys("efd", "f"), **dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQNc", "u"), "?": "b"}
_SWAPPED = "<" if sys.byteorder == "big" else ">"


def unknown(what: object) -> TypeError:
    return TypeError(f"elements of type {what} are not among those that Kolo takes: {', '.join(dtype.numpy for dtype in dtypes())}")


def _of_kind(kind: str, itemsize: int, what: object) -> DType:
    name = "bool" if kind == "b" else f"{_KINDS.get(kind)}{8 * itemsize}"
    try:
        return _by_name()[name]
    except KeyError:
        raise unknown(f"{name} ({what})" if kind in _KINDS else what) from None


def of_typestr(text: str) -> DType:
    """Returns the type for a type string of `__array_interface__`, such as "<f4"."""
    if text[0] in _SWAPPED + "!" and int(text[2:]) > 1:
        raise unknown(text)
    return _of_kind(text[1], int(text[2:]), text)


def typestr_of(dtype: DType) -> str:
    """Returns the type string of a type, as the inverse of `of_typestr`. Raises TypeError if there is none."""
    code, bits = dtype.dlpack
    kinds = {_SIGNED: "i", _UNSIGNED: "u", _FLOAT: "f", _COMPLEX: "c", _BOOL: "b"}
    if code not in kinds:
        raise TypeError(f"no array interface has a name for {dtype.name}; take the bytes as uint8")
    order = "|" if bits == 8 else "<" if sys.byteorder == "little" else ">"
    return f"{order}{kinds[code]}{bits // 8}"


def of_format(text: str, itemsize: int) -> DType:
    """Returns the type for a format of the buffer protocol, such as "d" or "Zf"."""
    letters = text.lstrip("@=<" if sys.byteorder == "little" else "@=>!")
    if letters[:1] == "Z" and letters[1:] in ("f", "d"):
        return _of_kind("c", itemsize, text)
    if letters not in _FORMATS:
        raise unknown(f"'{text}'")
    return _of_kind(_FORMATS[letters], itemsize, f"'{text}'")


def of_dlpack(code: int, bits: int, lanes: int) -> DType:
    for dtype in dtypes():
        if dtype.dlpack == (code, bits) and lanes == 1:
            return dtype
    names = {number: kind for kind, number in _DLPACK.items()}
    name = f"{names[code]}{bits}" if code in names else f"{code} (DLPack) of {bits} bits"
    raise unknown(name if lanes == 1 else f"{name} in vectors of {lanes}")


_numpy_dtypes: dict[Any, DType] = {}


def of_numpy(dtype: Any) -> DType:
    """Returns the type for a `numpy.dtype`, also one of ml_dtypes."""
    known = _numpy_dtypes.get(dtype)
    if known is None:
        known = _by_name().get(dtype.name)
        if known is None or known.numpy != dtype.name or not dtype.isnative:
            raise unknown(dtype)
        _numpy_dtypes[dtype] = known
    return known


def of_any(dtype: Any, what: str = "dtype") -> DType:
    """Returns the type for a user's argument: "bfloat16", numpy.float32, numpy.dtype("f4"), torch.float32. Raises
    UsageError for any other value; `what` names the argument."""
    if isinstance(dtype, DType):
        return dtype
    name = dtype if isinstance(dtype, str) else str(dtype)
    known = _by_name().get(name.rpartition("torch.")[2] if not isinstance(dtype, str) else name)
    if known is None and dtype is not None:
        numpy = sys.modules.get("numpy")
        try:
            return of_numpy(numpy.dtype(dtype)) if numpy else _of_python(dtype)
        except TypeError:
            pass
    if known is None:
        raise UsageError(f"{what}: {unknown(repr(dtype))}")
    return known


def wire_code(dtype: Any) -> int:
    """Returns the number of a wire type in the C interface; None means the type of the elements."""
    return _c.KOLO_SAME_DTYPE if dtype is None else of_any(dtype, "wire_dtype").code


def _of_python(dtype: Any) -> DType:
    for own, name in ((float, "float64"), (int, "int64"), (bool, "bool"), (complex, "complex128")):
        if dtype is own:
            return _by_name()[name]
    raise unknown(dtype)


def to_numpy(dtype: DType) -> Any:
    """Returns the `numpy.dtype` of a type. Raises ImportError without NumPy, or if the type needs ml_dtypes and it is
    missing."""
    import numpy

    try:
        return numpy.dtype(dtype.numpy)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        what = f"NumPy has {dtype.numpy} only with the package ml_dtypes; install it, or pass `out`"
        raise ImportError(what) from None
    return numpy.dtype(getattr(ml_dtypes, dtype.numpy))
