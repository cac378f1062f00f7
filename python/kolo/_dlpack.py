"""DLPack in both directions without other libraries: imports memory of objects that support it, such as CPU tensors of
torch or arrays of JAX, and exports Kolo's host memory."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

from . import _dtypes

_CPU, CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_READ_ONLY = 1
CPU_DEVICE = (_CPU, 0)


class _Device(Structure):
    _fields_ = [("kind", c_int32), ("index", c_int32)]


class _Type(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", _Device),
        ("num_dimensions", c_int32),
        ("dtype", _Type),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Versioned(Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


class _Unversioned(Structure):
    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p)]


def _python(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_get_pointer = _python("PyCapsule_GetPointer", c_void_p, ctypes.py_object, ctypes.c_char_p)
_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_new_capsule = _python("PyCapsule_New", ctypes.py_object, c_void_p, ctypes.c_char_p, c_void_p)
# These take the address of a capsule, because a capsule that is being destroyed is no object any more.
_name_of = _python("PyCapsule_GetName", ctypes.c_char_p, c_void_p)
_pointer_of = _python("PyCapsule_GetPointer", c_void_p, c_void_p, ctypes.c_char_p)


def _capsule_of(source: Any, kind: int) -> Any:
    # Kolo orders its reads by the current stream of torch and CuPy. Other libraries make the legacy default stream wait.
    is_known = type(source).__module__.partition(".")[0] in ("torch", "cupy")
    stream = {"stream": -1 if is_known else 1} if kind == CUDA else {}
    try:
        return source.__dlpack__(max_version=(1, 0), **stream)
    except TypeError:  # The object supports a version of the protocol before 1.
        return source.__dlpack__(**stream)


def export(source: Any) -> tuple[_Tensor, bool, Any]:
    """Exports an object with `__dlpack__` and `__dlpack_device__`. Returns the tensor, whether it is read-only, and the
    capsule, which keeps the tensor valid.

    Errors: TypeError for a device or an element type that Kolo does not take; any error of the object.
    """
    kind = int(source.__dlpack_device__()[0])
    if kind not in (_CPU, CUDA, _CUDA_HOST, _CUDA_MANAGED):
        raise TypeError(f"its memory is on a device of kind {kind} (DLPack); Kolo takes host memory and CUDA's")
    capsule = _capsule_of(source, kind)
    read_only = False
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        if versioned.major > 1:
            raise TypeError(f"it speaks version {versioned.major} of DLPack, where Kolo knows 1")
        read_only = bool(versioned.flags & _READ_ONLY)
        tensor = versioned.tensor
    else:
        tensor = _Tensor.from_address(_get_pointer(capsule, b"dltensor"))
    return tensor, read_only, capsule


# --- export ----------------------------------------------------------------------------------------

# The exports that consumers hold, by address: the structure, its arrays, and the owner of the memory.
_held: dict[int, tuple[Any, ...]] = {}


@ctypes.CFUNCTYPE(None, c_void_p)
def _delete(address: int) -> None:
    _held.pop(address, None)


@ctypes.PYFUNCTYPE(None, c_void_p)
def _drop_capsule(capsule: int) -> None:
    """Frees the export of a destroyed capsule, unless a consumer took it, which changes the capsule's name."""
    name = _name_of(capsule)
    if name in (b"dltensor", b"dltensor_versioned"):
        _held.pop(_pointer_of(capsule, name), None)


def capsule_of(address: int, shape: tuple[int, ...], dtype: _dtypes.DType, owner: Any, read_only: bool, versions: bool) -> Any:
    """Makes a capsule over host memory for `__dlpack__`. It keeps `owner` alive until it or its consumer is
    destroyed."""
    extents = (c_int64 * len(shape))(*shape)
    code, bits = dtype.dlpack
    tensor = _Tensor(address, _Device(_CPU, 0), len(shape), _Type(code, bits, 1), extents, None, 0)
    deleter = ctypes.cast(_delete, c_void_p)
    managed: Any
    if versions:
        managed = _Versioned(1, 0, None, deleter, _READ_ONLY if read_only else 0, tensor)
    else:
        managed = _Unversioned(tensor, None, deleter)
    place = ctypes.addressof(managed)
    _held[place] = (managed, extents, owner)
    return _new_capsule(place, b"dltensor_versioned" if versions else b"dltensor", ctypes.cast(_drop_capsule, c_void_p))
