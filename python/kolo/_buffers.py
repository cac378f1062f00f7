"""Finds the memory of an argument: a NumPy array, an object with the buffer protocol or DLPack, or a `kolo.Memory`."""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any, Sequence

from . import _c, _dlpack, _dtypes
from ._errors import UsageError

# The address of buffers without elements, because null in the C interface means that there is no buffer.
_NOTHING = ctypes.create_string_buffer(64)
_NOWHERE = ctypes.addressof(_NOTHING)


class Memory:
    """Contiguous elements at an address, for memory that no array object describes.

    Every operation takes a Memory in place of an array. A Memory keeps `owner` alive. Other libraries can import it by
    DLPack.

        memory = kolo.Memory(tensor.data_ptr(), tensor.numel(), "bfloat16", owner=tensor)
        job.all_reduce(memory)
    """

    __slots__ = ("address", "count", "dtype", "shape", "owner", "is_device", "read_only")

    def __init__(
        self,
        address: int,
        count: int,
        dtype: Any,
        owner: object = None,
        *,
        is_device: bool = False,
        read_only: bool = False,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        self.address = address or _NOWHERE
        """Address of the first element."""
        self.count = count
        """Number of elements."""
        self.dtype = dtype if type(dtype) is _dtypes.DType else _dtypes.of_any(dtype)
        self.owner = owner
        self.is_device = is_device
        """Whether the elements are in memory of the device that the option `device` names."""
        self.read_only = read_only
        self.shape = (count,) if shape is None else shape

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.count * self.dtype.itemsize

    def overlaps(self, other: Memory) -> bool:
        """Returns whether the two memories have a byte in common."""
        return self.address < other.address + other.nbytes and other.address < self.address + self.nbytes

    @property
    def kind(self) -> int:
        """The kind of memory in the C interface."""
        return _c.KOLO_DEVICE if self.is_device else _c.KOLO_HOST

    def parameter(self) -> _c.kolo_buffer:
        """Returns this memory as a struct of the C interface."""
        return _c.kolo_buffer(self.address, self.count, self.dtype.code, self.kind)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.is_device:
            raise BufferError("Kolo exports host memory by DLPack, and this is memory of a device")
        return _dlpack.CPU_DEVICE

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, **_: Any) -> Any:
        """Exports these elements, without a copy, to `torch.from_dlpack` and similar functions."""
        self.__dlpack_device__()
        versions = max_version is not None and max_version >= (1, 0)
        if self.read_only and not versions:
            raise BufferError("this memory is read-only, which DLPack before version 1 cannot say")
        return _dlpack.capsule_of(self.address, self.shape, self.dtype, self, self.read_only, versions)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Exports device memory, without a copy, to `torch.as_tensor`, `cupy.asarray` and similar functions."""
        if not self.is_device:
            raise AttributeError("this is host memory, which __dlpack__ exports")
        data = (self.address, self.read_only)
        return {"shape": self.shape, "typestr": _dtypes.typestr_of(self.dtype), "data": data, "version": 3}

    def __repr__(self) -> str:
        return f"<kolo.Memory of {self.count} {self.dtype.name} at {self.address:#x}>"


def memory_of(source: Any, what: str = "x", *, writable: bool = False) -> Memory:
    """Returns the elements of an array, as a view.

    `what` is the name of `source` in errors. Raises UsageError if `source` is not an array, is not contiguous in C
    order, has a type that Kolo does not take, or is read-only although `writable` is true.
    """
    try:
        memory = _memory_of(source, what)
    except UsageError:
        raise
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise UsageError(f"{what}: {error}") from error
    if writable and memory.read_only:
        raise UsageError(f"{what} is read-only, and the operation writes to it; pass a writable array")
    return memory


def _memory_of(source: Any, what: str) -> Memory:
    if isinstance(source, Memory):
        return source
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(source, numpy.ndarray):
        return _of_ndarray(source, what)
    if numpy is not None and isinstance(source, numpy.generic):  # Its array interface exports a copy.
        copy = numpy.asarray(source)
        copy.flags.writeable = False
        return _of_ndarray(copy, what)
    if hasattr(source, "__dlpack__") and hasattr(source, "__dlpack_device__"):
        return _of_dlpack(source, what)
    if hasattr(source, "__array_interface__"):
        return _of_array_interface(source, what)
    try:
        view = memoryview(source)
    except TypeError:
        raise UsageError(
            f"{what} is a {type(source).__name__}, not an array; pass a NumPy array (numpy.array(...)), "
            "or anything with the buffer protocol or __dlpack__"
        ) from None
    return _of_memoryview(view, what)


def _not_contiguous(what: str) -> UsageError:
    return UsageError(
        f"{what} is not contiguous in C order; numpy.ascontiguousarray({what}) makes a copy that is "
        "(of a torch tensor: .contiguous())"
    )


def _of_ndarray(array: Any, what: str) -> Memory:
    interface = array.__array_interface__
    if interface["strides"] is not None and not array.flags.c_contiguous:
        raise _not_contiguous(what)
    address, read_only = interface["data"]
    return Memory(
        address, array.size, _dtypes.of_numpy(array.dtype), array, read_only=read_only, shape=interface["shape"]
    )


def _is_contiguous(shape: Sequence[int], strides: Sequence[int] | None, step: int) -> bool:
    """`step` is the expected stride of the last dimension. Dimensions of one element may have any stride."""
    if strides is None or 0 in shape:
        return True
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def _of_dlpack(source: Any, what: str) -> Memory:
    if getattr(source, "is_neg", bool)():  # torch refuses to export lazily conjugated tensors only.
        raise UsageError(f"{what} is negated lazily, so its memory has other elements; .resolve_neg() makes a copy")
    tensor, read_only, capsule = _dlpack.export(source)
    dimensions = tensor.num_dimensions
    shape = tuple(tensor.shape[i] for i in range(dimensions))
    dtype = _dtypes.of_dlpack(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
    if not _is_contiguous(shape, tensor.strides[:dimensions] if tensor.strides else None, 1):
        raise _not_contiguous(what)
    address, is_device = (tensor.data or 0) + tensor.byte_offset, tensor.device.kind == _dlpack.CUDA
    owner = (source, capsule)
    return Memory(address, math.prod(shape), dtype, owner, is_device=is_device, read_only=read_only, shape=shape)


def _of_array_interface(source: Any, what: str) -> Memory:
    interface = source.__array_interface__
    dtype = _dtypes.of_typestr(interface["typestr"])
    shape = tuple(interface["shape"])
    if not _is_contiguous(shape, interface.get("strides"), dtype.itemsize):
        raise _not_contiguous(what)
    data = interface.get("data")
    if data is None:
        return _of_memoryview(memoryview(source), what)
    address, read_only = data
    return Memory(address, math.prod(shape), dtype, (source, interface), read_only=read_only, shape=shape)


def _address_of(view: memoryview) -> int:
    """Returns the address of a view, also of read-only memory, unlike `ctypes.c_char.from_buffer`."""
    buffer = (ctypes.c_void_p * 16)()  # A Py_buffer, which has fewer words and begins with the address.
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), buffer, 0)
    address = buffer[0] or 0
    ctypes.pythonapi.PyBuffer_Release(buffer)
    return address


def _of_memoryview(view: memoryview, what: str) -> Memory:
    """Returns the memory of a view. The Memory keeps the view exported, so that a bytearray cannot be resized."""
    if not view.c_contiguous:
        raise _not_contiguous(what)
    dtype = _dtypes.of_format(view.format, view.itemsize)
    count = view.nbytes // view.itemsize
    return Memory(_address_of(view), count, dtype, view, read_only=view.readonly, shape=view.shape or ())


def new_array(shape: tuple[int, ...], dtype: _dtypes.DType, like: Any = None) -> Any:
    """Makes a NumPy array for a result. Its dtype is the dtype of `like` if `like` is a NumPy array.

    Errors: UsageError without NumPy.
    """
    try:
        import numpy
    except ImportError:
        raise UsageError("the result needs an array, and NumPy is not installed; pass `out`") from None
    return numpy.empty(shape, like.dtype if isinstance(like, numpy.ndarray) else _dtypes.to_numpy(dtype))


def array_at(memory: Memory) -> Any:
    """Returns host memory as a NumPy array of the same shape, which keeps `memory` alive; without NumPy, as a flat
    memoryview of bytes."""
    data: Any = (ctypes.c_char * memory.nbytes).from_address(memory.address)
    data._memory = memory  # `data` is the array's base, so this keeps `memory` alive.
    try:
        import numpy
    except ImportError:
        return memoryview(data).cast("B")
    dtype = _dtypes.to_numpy(memory.dtype)
    if memory.count == 0:
        return numpy.empty(memory.shape, dtype)
    return numpy.frombuffer(data, dtype=dtype).reshape(memory.shape)
