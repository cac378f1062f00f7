"""The devices of libkolo_c_on_stand_ins.so, a libkolo for tests, in jobs with `device=cuda`: streams that are threads,
and memory that is any host memory. The stream 0 is the calling thread itself: its work is done when it calls Kolo, and
where a stream of a GPU would wait, the thread does."""

import ctypes

from kolo._buffers import memory_of
from kolo._library import library


def _functions():
    return ctypes.CDLL(library()._name)


class Stream:
    """A stream on which a scene enqueues copies."""

    def __init__(self):
        make = _functions().kolo_stand_in_stream
        make.restype = ctypes.c_void_p
        self.handle = make()
        self._kept = []

    def copy(self, target, source):
        to, of = memory_of(target), memory_of(source)
        addresses = (ctypes.c_void_p(each) for each in (self.handle, to.address, of.address))
        _functions().kolo_stand_in_copy(*addresses, ctypes.c_size_t(of.nbytes))
        self._kept.append((target, source))

    def hold(self):
        """Enqueues work that ends when the function that this returns is called."""
        gate = ctypes.c_int(0)
        _functions().kolo_stand_in_hold(ctypes.c_void_p(self.handle), ctypes.byref(gate))
        self._kept.append(gate)

        def let_go():
            gate.value = 1

        return let_go

    def synchronize(self):
        _functions().kolo_stand_in_synchronize(ctypes.c_void_p(self.handle))


def collectives():
    """Returns the number of collectives that the device of this rank has completed."""
    return _functions().kolo_stand_in_collectives()


def mark_foreign(array, text):
    """Makes devices that are opened from now on refuse an array, as memory that `text` describes."""
    _functions().kolo_stand_in_mark_foreign(ctypes.c_void_p(memory_of(array).address), text.encode())
