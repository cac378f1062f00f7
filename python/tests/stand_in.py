"""A stand-in for a GPU, for scenes of torch in jobs with the library libkolo_c_on_stand_ins.so and `device=cuda`.

Its memory is host memory: tensors on the CPU with floating-point or complex elements count as tensors on the GPU, all
others stay in host memory. torch computes at once, in the calling thread. So its current stream is this thread, whose
handle is 0: Kolo uses tensors at once, and where a stream of a GPU would wait, the thread does. Scenes may set another
stream as the current one: work on it begins only when the scene lets it.
"""

import contextlib
import ctypes
import os

import torch

import kolo
import kolo._streams
from kolo._library import library
from kolo.torch import _devices


class Stream:
    """A stream on which a scene enqueues copies."""

    def __init__(self):
        self._library = ctypes.CDLL(library()._name)
        self._library.kolo_stand_in_stream.restype = ctypes.c_void_p
        self.handle = self._library.kolo_stand_in_stream()
        self._kept = []

    def copy(self, target, source):
        pointers = (ctypes.c_void_p(each.data_ptr()) for each in (target, source))
        size = ctypes.c_size_t(source.numel() * source.element_size())
        self._library.kolo_stand_in_copy(ctypes.c_void_p(self.handle), *pointers, size)
        self._kept.append((target, source))

    def hold(self):
        """Enqueues work that ends when the function that this returns is called."""
        gate = ctypes.c_int(0)
        self._library.kolo_stand_in_hold(ctypes.c_void_p(self.handle), ctypes.byref(gate))
        self._kept.append(gate)

        def let_go():
            gate.value = 1

        return let_go

    def synchronize(self):
        self._library.kolo_stand_in_synchronize(ctypes.c_void_p(self.handle))

    @contextlib.contextmanager
    def current(self):
        before, Gpu.current = Gpu.current, self.handle
        try:
            yield
        finally:
            Gpu.current = before


class Gpu:
    """Has the functions of `kolo.torch._devices.Gpu`."""

    current = 0
    """The current stream."""
    type = "cpu"

    def holds(self, tensor):
        return tensor.is_floating_point() or tensor.is_complex()

    def stream(self, tensor):
        return Gpu.current

    def here(self):
        return contextlib.nullcontext

    def aside(self, tensor):
        return contextlib.nullcontext()

    def event(self, tensor):
        return None

    def order(self, tensor, event):
        pass

    def future(self, tensor):
        return torch.futures.Future()

    def tensor_at(self, memory, dtype):
        data = (ctypes.c_char * memory.nbytes).from_address(memory.address)
        data._memory = memory
        return torch.frombuffer(data, dtype=dtype).view(memory.shape)

    def index(self):
        return 0


def collectives():
    """Returns the number of collectives that the device of this rank has completed."""
    return ctypes.CDLL(library()._name).kolo_stand_in_collectives()


def mark_foreign(tensor, text):
    """Makes devices that are opened from now on refuse a tensor."""
    ctypes.CDLL(library()._name).kolo_stand_in_mark_foreign(ctypes.c_void_p(tensor.data_ptr()), text.encode())


def is_asked_for():
    return os.environ.get("KOLO_DEVICE") == "cuda"


if is_asked_for():
    _devices.Seam.gpu = Gpu()
    kolo._streams.torch_stream = _devices.Seam.gpu.stream
