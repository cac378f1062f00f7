"""A stand-in for a GPU, for scenes of torch in jobs with `device=cuda`; see stand_in.py.

Tensors on the CPU with floating-point or complex elements count as tensors on the GPU, all others stay in host memory.
torch computes at once, in the calling thread. So its streams are the stream 0, and differ only in name. Scenes may set
another stream as the current one: work on it begins only when the scene lets it. `recorded` tells which call comes in
which stream.
"""

import contextlib
import ctypes
import functools
import os
import threading

import torch

import kolo._streams
from kolo.torch import _devices


class Stream:
    """A stream of torch, whose work is done when it is enqueued."""

    handle = 0


DEFAULT, SIDE = Stream(), Stream()


class _Here(threading.local):
    stream = DEFAULT


_here = _Here()


class Gpu:
    """Has the functions of `kolo.torch._devices.Gpu`."""

    type = "cpu"
    side = SIDE
    """The stream of futures."""
    in_host = ()
    """The addresses of other tensors in host memory."""
    is_elsewhere = False
    """Whether Kolo's GPU is another one than that of tensors."""
    calls = None

    def _note(self, verb, what):
        if (calls := Gpu.calls) is not None:
            calls.append((_here.stream, verb, what.data_ptr() if isinstance(what, torch.Tensor) else what))

    def holds(self, tensor):
        is_number = tensor.is_floating_point() or tensor.is_complex()
        return is_number and not (Gpu.in_host and tensor.data_ptr() in Gpu.in_host)

    def stream(self, tensor):
        self._note("stream", tensor)
        return _here.stream.handle

    def here(self):
        return functools.partial(on, _here.stream)

    def aside(self, tensor):
        return on(Gpu.side)

    def event(self, tensor):
        self._note("event", tensor)
        return _here.stream

    def order(self, tensor, event):
        self._note("order", event)

    def finish(self):
        self._note("finish", None)

    def keep(self, tensor):
        self._note("keep", tensor)

    def future(self, tensor):
        self._note("future", tensor)
        return torch.futures.Future()

    def tensor_at(self, memory, dtype, device):
        if Gpu.is_elsewhere:
            return torch.empty(memory.shape, dtype=dtype)
        data = (ctypes.c_char * memory.nbytes).from_address(memory.address)
        data._memory = memory
        return torch.frombuffer(data, dtype=dtype).view(memory.shape)

    def index(self):
        return 0


@contextlib.contextmanager
def on(stream):
    """Makes a stream, or a `stand_in.Stream`, torch's current stream of this thread."""
    before, _here.stream = _here.stream, stream
    try:
        yield
    finally:
        _here.stream = before


@contextlib.contextmanager
def recorded():
    """Yields a list that gets the calls of all threads: the current stream, the verb, and the address of the tensor or
    the stream of the event."""
    Gpu.calls = calls = []
    try:
        yield calls
    finally:
        Gpu.calls = None


def is_asked_for():
    return os.environ.get("KOLO_DEVICE") == "cuda"


if is_asked_for():
    _devices.Seam.gpu = Gpu()
    kolo._streams.torch_stream = _devices.Seam.gpu.stream
