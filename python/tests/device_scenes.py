"""Scenes of `kolo` with device memory, on stand-ins; `device_test.py` starts them.

    device_scenes.py SCENE    with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and KOLO_DEVICE=cuda
"""

import select
import sys

import numpy as np
from support import play, raises

import kolo
import stand_in

COUNT = 1000


def on_device(array):
    return kolo.Memory(array.ctypes.data, array.size, array.dtype, array, is_device=True, shape=array.shape)


def filled(job):
    return np.full(COUNT, job.rank + 1.0, np.float32)


def total(job):
    return job.size * (job.size + 1) / 2


def streams(job):
    """Every kind of call begins after the work of its stream, and a stream waits for a collective."""
    before, after = stand_in.Stream(), stand_in.Stream()
    x, seen = np.zeros(COUNT, np.float32), np.zeros(COUNT, np.float32)
    let_go = before.hold()
    before.copy(x, filled(job))
    ticket = job.all_reduce(on_device(x), name="x", stream=before.handle, wait=False)
    assert select.select([ticket.enqueued_fileno()], [], [], 60)[0] and ticket.enqueued() and not ticket.done()
    ticket.wait_on(after.handle)
    after.copy(seen, x)
    assert not seen.any() and not ticket.done()
    let_go()
    after.synchronize()
    assert np.all(seen == total(job))
    ticket.wait()
    ticket.wait_on(after.handle)

    peer = (job.rank + 1) % job.size
    let_go = before.hold()
    before.copy(x, filled(job))
    sent = job.send(on_device(x), peer, stream=before.handle, wait=False)
    received = job.recv(on_device(seen), wait=False)
    assert not sent.done() and not received.enqueued()
    let_go()
    received.wait_on(after.handle)
    sent.wait()
    assert np.all(seen == (job.rank - 1) % job.size + 1)

    gradients = job.register_gradients("set", {"a": kolo.Gradient((COUNT,), is_device=True)}, op="sum")
    memory = gradients.memory("a")
    assert memory.is_device
    for stream in (before.handle, None):
        let_go = before.hold()
        before.copy(stand_in_view(memory), filled(job))
        if stream is None:  # The default stream is this thread.
            let_go()
            before.synchronize()
        gradients.ready("a", stream=stream)
        gradients.wait_on(after.handle)
        after.copy(seen, stand_in_view(memory))
        let_go()
        after.synchronize()
        assert np.all(seen == total(job))


def stand_in_view(memory):
    """Returns the array of device memory, which is host memory here."""
    return kolo.Memory(memory.address, memory.count, memory.dtype, memory)


def refused(job):
    """Memory of another device is refused by every call."""
    bad, good = on_device(FOREIGN), on_device(np.ones(COUNT, np.float32))
    row = kolo.Memory(bad.address, COUNT, "float32", FOREIGN, is_device=True, shape=(1, COUNT))
    for call in (
        lambda: job.all_reduce(bad),
        lambda: job.all_reduce(good, out=bad),
        lambda: job.all_reduce([good, bad]),
        lambda: job.broadcast(bad),
        lambda: job.reduce(bad),
        lambda: job.all_gather(out=bad),
        lambda: job.reduce_scatter(out=bad),
        lambda: job.all_to_all(out=bad),
        lambda: job.send(bad, job.rank),
        lambda: job.recv(bad, job.rank),
        lambda: job.sparse_all_reduce(np.zeros(1, np.int64), row, 3),
        lambda: job.register_gradients("foreign", {"w": bad}),
    ):
        with raises(kolo.UsageError, "memory of cuda:1, where that of a stand-in is expected"):
            call()
    with raises(kolo.UsageError, "out is in host memory, x in device memory"):
        job.all_reduce(good, out=np.ones(COUNT, np.float32))
    with raises(kolo.UsageError, "in host memory"):
        job.all_reduce([good, np.ones(COUNT, np.float32)])
    job.all_reduce(good)
    assert np.all(good.owner == job.size)


FOREIGN = np.ones(COUNT, np.float32)

if __name__ == "__main__":
    stand_in.mark_foreign(FOREIGN, "memory of cuda:1")
    with kolo.open() as member:
        play(globals(), member)
    sys.exit(0)
