#!/usr/bin/env -S python3 -B
"""Tests which objects calls accept as memory, their addresses, and errors for other objects."""

import array
import ctypes
import gc
import sys
import types
import unittest
import weakref
from unittest import mock

import support

support.load_the_library_named()
support.enter_python_with_numpy()

import numpy as np  # noqa: E402  (a Python that has it)

import kolo  # noqa: E402
from kolo import _buffers, _dlpack, _dtypes  # noqa: E402
from kolo._buffers import memory_of  # noqa: E402
from kolo._streams import stream_for  # noqa: E402


class OnlyDlpack:
    """An array that only supports DLPack, like a tensor of torch."""

    def __init__(self, inner, versions=False):
        self._inner = inner
        self._versions = versions

    def __dlpack_device__(self):
        return self._inner.__dlpack_device__()

    def __dlpack__(self, **options):
        if not self._versions and "max_version" in options:
            raise TypeError("max_version")
        return self._inner.__dlpack__(**options)


class OnlyInterface:
    def __init__(self, inner):
        self.__array_interface__ = inner.__array_interface__
        self._inner = inner


class Capsule:
    """A tensor on a device that this machine may lack."""

    def __init__(self, device, code, bits, shape=(4,), strides=None, address=0x1000):
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        self._tensor = _dlpack._Tensor(
            data=address,
            device=(device, 0),
            num_dimensions=len(shape),
            dtype=(code, bits, 1),
            shape=self._shape,
            strides=self._strides,
        )
        self._device = device

    def __dlpack_device__(self):
        return (self._device, 0)

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._tensor), b"dltensor", None)


class Taken(unittest.TestCase):
    def check(self, source, expected, dtype=None):
        memory = memory_of(source)
        self.assertEqual(memory.address, expected.ctypes.data)
        self.assertEqual(memory.count, expected.size)
        self.assertEqual(memory.shape, expected.shape)
        self.assertEqual(memory.dtype.numpy, dtype or expected.dtype.name)

    def test_every_dtype_of_numpy_in_every_way(self):
        for dtype in _dtypes.dtypes():
            if dtype.name.startswith(("bfloat", "float8")):
                continue
            x = np.zeros((2, 3), dtype.numpy)
            with self.subTest(dtype.name):
                self.assertEqual(dtype.itemsize, x.itemsize)
                self.check(x, x)
                self.check(memoryview(x), x)
                self.check(OnlyInterface(x), x)
                if dtype.name != "bool":  # Before NumPy 1.25.
                    self.check(OnlyDlpack(x), x)

    def test_dtypes_that_numpy_does_not_have(self):
        for name, code, bits in (("bfloat16", 4, 16), ("float8_e4m3fn", 10, 8), ("float8_e5m2", 12, 8), ("bool", 6, 8)):
            with self.subTest(name):
                memory = memory_of(Capsule(1, code, bits))
                self.assertEqual((memory.dtype.numpy, memory.address, memory.count), (name, 0x1000, 4))

    def test_dtypes_of_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("no ml_dtypes")
        x = np.zeros(4, ml_dtypes.bfloat16)
        self.check(x, x)

    def test_versions_of_dlpack(self):
        x = np.zeros(4, np.float32)
        if np.lib.NumpyVersion(np.__version__) < "2.1.0":
            self.skipTest(f"NumPy {np.__version__} speaks no DLPack 1")
        self.check(OnlyDlpack(x, versions=True), x)
        x.flags.writeable = False
        self.assertTrue(memory_of(OnlyDlpack(x, versions=True)).read_only)

    def test_device_memory(self):
        memory = memory_of(Capsule(2, 2, 32))
        self.assertTrue(memory.is_device)
        self.assertFalse(memory_of(Capsule(3, 2, 32)).is_device)  # Pinned host memory.

    def test_streams_of_calls_without_one(self):
        """Arrays of torch and CuPy have the current stream of their library, other memory the legacy default stream."""

        class Device:
            id, current = 3, 0

            def __enter__(self):
                Device.current = self.id

            def __exit__(self, *_):
                Device.current = 0

        class Tensor(Capsule):
            device = Device()

            def __dlpack__(self, *, stream=None, **options):
                self.stream = stream
                return super().__dlpack__(stream=stream, **options)

        ask = types.SimpleNamespace(
            torch=types.SimpleNamespace(current_stream=lambda device: types.SimpleNamespace(cuda_stream=10 + device.id)),
            cupy=types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=20 + Device.current)),
        )
        for name, kind, current in (("torch", "Tensor", 13), ("cupy", "ndarray", 23)):
            module = types.SimpleNamespace(**{kind: Tensor, "cuda": getattr(ask, name)})
            tensor, host = Tensor(2, 2, 32), memory_of(np.zeros(4, np.float32))
            with self.subTest(name), mock.patch.dict(sys.modules, {name: module}):
                memory = memory_of(tensor)
                self.assertEqual(stream_for(None, [None, host, memory]), current)
                self.assertEqual(stream_for(None, [kolo.Memory(1, 1, "int8", memory, is_device=True)]), current)
                self.assertEqual(stream_for(0, [memory]), 0)
                self.assertIsNone(stream_for(None, [host]))
        self.assertIsNone(stream_for(None, [kolo.Memory(0x1000, 4, "float32", is_device=True)]))
        self.assertEqual(tensor.stream, 1, "other libraries order the legacy default stream themselves")
        Tensor.__module__ = "cupy.core"
        memory_of(tensor)
        self.assertEqual(tensor.stream, -1)

    def test_device_memory_for_other_libraries(self):
        memory = kolo.Memory(0x1000, 6, "float32", is_device=True, shape=(3, 2))
        expected = {"shape": (3, 2), "typestr": np.dtype("float32").str, "data": (0x1000, False), "version": 3}
        self.assertEqual(memory.__cuda_array_interface__, expected)
        self.assertFalse(hasattr(kolo.Memory(0x1000, 6, "float32"), "__cuda_array_interface__"))
        for name in ("bool", "int8", "float16", "complex128"):
            memory = kolo.Memory(0x1000, 1, name, is_device=True)
            self.assertEqual(memory.__cuda_array_interface__["typestr"], np.dtype(name).str)
        with self.assertRaisesRegex(TypeError, "no array interface has a name for bfloat16"):
            kolo.Memory(0x1000, 6, "bfloat16", is_device=True).__cuda_array_interface__

    def test_buffers_of_python(self):
        for source, dtype, count in (
            (bytearray(5), "uint8", 5),
            (array.array("d", [1, 2]), "float64", 2),
            (array.array("l", [1, 2]), "int64", 2),
            (array.array("i", [1]), "int32", 1),
            ((ctypes.c_float * 3)(), "float32", 3),
        ):
            with self.subTest(type(source).__name__):
                memory = memory_of(source, writable=True)
                self.assertEqual((memory.dtype.name, memory.count), (dtype, count))

    def test_shapes(self):
        for x in (np.zeros(()), np.zeros((0, 3)), np.zeros((4, 1, 2)), np.zeros((1, 5)).T, np.zeros((2, 3))[:1]):
            with self.subTest(x.shape):
                for source in (x, OnlyDlpack(x), OnlyInterface(x)):
                    memory = memory_of(source)
                    self.assertEqual((memory.count, memory.shape), (x.size, x.shape))
                    self.assertNotEqual(memory.address, 0)

    def test_an_empty_tensor_has_an_address(self):
        self.assertNotEqual(memory_of(Capsule(1, 2, 32, shape=(0,), address=None)).address, 0)

    def test_memory_keeps_its_owner(self):
        for wrap in (lambda x: x, OnlyDlpack, OnlyInterface, memoryview):
            x = np.zeros(4)
            alive = weakref.ref(x)
            memory = memory_of(wrap(x))
            del x
            gc.collect()
            self.assertIsNotNone(alive(), wrap)
            del memory
            gc.collect()
            self.assertIsNone(alive(), wrap)

    def test_a_bytearray_in_use_keeps_its_size(self):
        data = bytearray(4)
        memory = memory_of(data)
        with self.assertRaises(BufferError):
            data.append(0)
        del memory
        data.append(0)

    def test_what_a_user_says(self):
        for dtype in ("float32", np.float32, np.dtype("f4"), "f4"):
            self.assertEqual(kolo.Memory(16, 2, dtype).dtype.name, "float32")
        self.assertEqual(kolo.Memory(16, 2, "bfloat16").nbytes, 4)
        self.assertEqual(kolo.Memory(16, 2, "float8_e4m3fn").dtype.name, "float8_e4m3")
        self.assertEqual(kolo.Memory(16, 2, float).dtype.name, "float64")


class Refused(unittest.TestCase):
    def refused(self, source, *words, writable=False):
        with self.assertRaises(kolo.UsageError) as caught:
            memory_of(source, "gradient", writable=writable)
        for word in ("gradient", *words):
            self.assertIn(word, str(caught.exception))

    def test_arrays_that_are_not_contiguous(self):
        x = np.zeros((4, 4))
        for bad in (x.T, x[:, :2], x[::2]):
            for source in (bad, OnlyDlpack(bad), OnlyInterface(bad), memoryview(bad)):
                self.refused(source, "numpy.ascontiguousarray(gradient)")

    def test_read_only_results(self):
        x = np.zeros(4)
        x.flags.writeable = False
        for source in (x, memoryview(x), b"abc", np.float64(1)):
            self.refused(source, "read-only", writable=True)
            memory_of(source)  # Allowed as an input.

    def test_dtypes(self):
        for dtype in (np.uint16, ">f4", "U1", object, [("a", "f4")], np.longdouble):
            x = np.zeros(2, dtype)
            self.refused(x, "float32, float64")
        short = np.zeros(2, np.uint16)
        for source in (OnlyDlpack(short), OnlyInterface(short), memoryview(short)):
            self.refused(source, "elements of type uint16")
            if x.dtype != object:
                self.refused(OnlyInterface(x), "float32, float64")
        self.refused(array.array("H", [1]), "float32, float64")
        self.refused(Capsule(1, 2, 128), "float32, float64")

    def test_what_is_no_array(self):
        for source in (3, 1.5, [1.0, 2.0], "text", None):
            self.refused(source, type(source).__name__)

    def test_devices(self):
        self.refused(Capsule(10, 2, 32), "device of kind 10")

    def test_errors_of_the_array_itself(self):
        class NeedsDetach:
            def __dlpack_device__(self):
                return (1, 0)

            def __dlpack__(self, **_):
                raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

        self.refused(NeedsDetach(), "tensor.detach()")


class Results(unittest.TestCase):
    def test_arrays_over_memory(self):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        alive = weakref.ref(x)
        view = _buffers.array_at(memory_of(x))
        view[1, 2] = 9
        self.assertEqual(x[1, 2], 9)
        del x
        gc.collect()
        self.assertIsNotNone(alive())
        self.assertEqual(np.from_dlpack(view)[1, 2], 9)

    def test_memory_is_exported_by_dlpack(self):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        alive = weakref.ref(x)
        view = np.from_dlpack(memory_of(x))
        self.assertEqual((view.shape, view.ctypes.data), ((2, 3), x.ctypes.data))
        x[1, 2] = 9
        del x
        gc.collect()
        self.assertIsNotNone(alive(), "the consumer keeps the memory")
        self.assertEqual(view[1, 2], 9)
        del view
        gc.collect()
        self.assertIsNone(alive())

    def test_a_capsule_that_nobody_takes(self):
        x = np.zeros(3)
        alive = weakref.ref(x)
        for version in (None, (1, 0)):
            memory_of(x).__dlpack__(max_version=version)
        del x
        gc.collect()
        self.assertIsNone(alive())
        self.assertEqual(_dlpack._held, {})

    def test_memory_that_is_not_exported(self):
        for memory, why in ((kolo.Memory(1, 2, "float32", is_device=True), "device"), (kolo.Memory(1, 2, "float32", read_only=True), "read-only")):
            with self.assertRaisesRegex(BufferError, why):
                memory.__dlpack__()

    def test_new_arrays_are_like_the_input(self):
        made = _buffers.new_array((2,), _dtypes.of_any("int32"), like=np.zeros(1, np.int32))
        self.assertEqual((made.dtype, made.shape), (np.int32, (2,)))

    def test_overlap(self):
        x = np.zeros(4)
        self.assertTrue(memory_of(x[:3]).overlaps(memory_of(x[2:])))
        self.assertFalse(memory_of(x[:2]).overlaps(memory_of(x[2:])))


if __name__ == "__main__":
    support.main()
