"""A stand-in for a GPU, for scenes of torch in jobs with `device=cuda`; see stand_in.py.

Tensors on the CPU with floating-point or complex elements count as tensors on the GPU, all others stay in host memory.
torch computes at once, in the calling thread. So its current stream is this thread, which is the stream 0. Scenes may
set another stream as the current one: work on it begins only when the scene lets it.
"""

import contextlib
import ctypes
import os

import torch

import kolo._streams
from kolo.torch import _devices


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

    def keep(self, tensor):
        pass

    def future(self, tensor):
        return torch.futures.Future()

    def tensor_at(self, memory, dtype):
        data = (ctypes.c_char * memory.nbytes).from_address(memory.address)
        data._memory = memory
        return torch.frombuffer(data, dtype=dtype).view(memory.shape)

    def index(self):
        return 0


@contextlib.contextmanager
def on(stream):
    """Makes a `stand_in.Stream` torch's current stream."""
    before, Gpu.current = Gpu.current, stream.handle
    try:
        yield
    finally:
        Gpu.current = before


def is_asked_for():
    return os.environ.get("KOLO_DEVICE") == "cuda"


if is_asked_for():
    _devices.Seam.gpu = Gpu()
    kolo._streams.torch_stream = _devices.Seam.gpu.stream
