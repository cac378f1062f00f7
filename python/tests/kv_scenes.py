"""Scenes for the ranks of the jobs in kv_test.py: `kv_scenes.py NAME`. Values identify rank, key and index."""

import itertools
import os
import signal
import threading
import time

import numpy as np
from scenes import interrupt
from support import play, raises

import kolo
from kolo._library import library
from kolo._wait import Caller

TYPES = ("local", "device", "dist_sync", "dist_async")


def value(rank, key, shape, dtype="float32"):
    return ((np.arange(np.prod(shape, dtype=int)) % 7) + 3 * rank + 5 * key).astype(dtype).reshape(shape)


def same(result, expected):
    assert result.dtype == expected.dtype and result.shape == expected.shape, (result, expected)
    assert np.array_equal(result, expected), (result, expected)


def create(kind, job, **options):
    return kolo.kv.create(kind, job, split_bytes=64, arena_bytes=16 << 20, **options)


def types(job):
    for kind, options in (*((kind, {}) for kind in TYPES), ("dist_async", {"staleness": 0})):
        with create(kind, job, **options) as kv:
            assert (kv.type, kv.num_workers) == (kind, {"local": 1, "device": job.local_size}.get(kind, job.size)), kv
            tutorial(kv)
            for key, (shape, dtype) in enumerate(itertools.product(((), (5,), (3, 4), (300, 100)), ("float32", "float64", "int64"))):
                check_key(kv, key, shape, dtype, is_bounded=bool(options))


def tutorial(kv):
    """The example of MXNet's page, with other names."""
    shape, workers = (2, 3), kv.num_workers
    kv.init("3", np.ones(shape) * 2)
    a = np.zeros(shape)
    kv.pull("3", out=a)
    assert (a == 2).all()
    if kv.type != "dist_async":  # There the last push to arrive wins.
        kv.push("3", np.ones(shape) * 8)
        kv.pull("3", out=a)
        assert (a == 8 * workers).all()
        kv.push("3", [np.ones(shape) for _ in range(4)])
        kv.pull("3", out=a)
        assert (a == 4 * workers).all()

    def update(key, pushed, stored):
        assert key in ("3", 5, 7)
        stored += pushed * 2

    kv.set_updater(update)
    kv.barrier()
    before = kv.pull("3")
    kv.barrier()
    kv.push("3", np.ones(shape))
    kv.barrier()
    same(kv.pull("3"), before + 2 * workers)
    keys = [5, 7]
    kv.init(keys, [np.ones(shape)] * 2)
    kv.push(keys, [[np.ones(shape)] * 2, np.ones(shape)])
    kv.barrier()
    b = [np.zeros(shape), [np.zeros(shape), np.zeros(shape)]]
    assert kv.pull(keys, out=b)[1] is b[1]
    assert (b[0] == 1 + 4 * workers).all() and (b[1][0] == 1 + 2 * workers).all() and (b[1][1] == b[1][0]).all()
    kv.barrier()


def add(_, pushed, stored):
    stored += pushed


def check_key(kv, key, shape, dtype, is_bounded):
    name = f"key {key}"
    kv.set_updater(add)
    kv.init(name, value(10 + kv.rank, key, shape, dtype))
    expected = value(10, key, shape, dtype)
    same(kv.pull(name), expected)
    kv.barrier()
    kv.push(name, [value(kv.rank, key, shape, dtype), np.ones(shape, dtype)], priority=-key)
    kv.barrier()
    for rank in range(kv.num_workers):
        expected = expected + value(rank, key, shape, dtype) + np.ones(shape, dtype)
    expected = expected.astype(dtype)
    same(kv.pull(name), expected)
    if len(shape) == 2:
        ids = np.array([shape[0] - 1, 0, 0])
        same(kv.row_sparse_pull(name, row_ids=ids), expected[ids])
        out = np.zeros((1, shape[1]), dtype)
        assert kv.row_sparse_pull(name, out, np.array([1])) is out
        same(out, expected[1:2])
        assert kv.row_sparse_pull(name, row_ids=np.array([], np.int64)).shape == (0, shape[1])
        outs = [np.zeros((2, shape[1]), dtype), np.zeros((1, shape[1]), dtype)]
        kv.row_sparse_pull([name, name], outs, [np.array([1, 0]), np.array([0])])
        same(outs[0], expected[[1, 0]]), same(outs[1], expected[:1])
    kv.barrier()
    pulled = kv.push_pull(name, value(kv.rank, key, shape, dtype))
    assert not is_bounded or kv.version(name).slowest == 2, kv.version(name)
    kv.barrier()
    for rank in range(kv.num_workers):
        expected = (expected + value(rank, key, shape, dtype)).astype(dtype)
    if kv.type != "dist_async":
        same(pulled, expected)
    same(kv.pull(name), expected)
    assert kv.version(name) == (2 * kv.num_workers if kv.type == "dist_async" else 2, 2), kv.version(name)
    kv.barrier()


def bits(job):
    """Products with powers of two are exact, so that a fused multiply-add changes no bit."""
    lr, momentum, decay = np.float32(0.125), np.float32(0.5), np.float32(2**-10)
    with create("dist_sync", job) as kv:
        kv.set_optimizer("sgd", rescale=0.5)
        kv.set_updater(add)  # The settings begin anew.
        kv.set_optimizer("sgd", lr=1, momentum=momentum)
        kv.set_optimizer("sgd", lr=lr, weight_decay=decay)  # The momentum stays.
        for count in (1, 1000, 100_003):
            random = np.random.default_rng(count + job.rank)
            weight = np.full(count, 0.3, np.float32)
            velocity = np.zeros_like(weight)
            kv.init(f"w{count}", weight)
            for step in range(10):
                gradient = random.standard_normal(count, np.float32)
                if step % 2:
                    pulled = kv.push_pull(f"w{count}", gradient)
                else:
                    kv.push(f"w{count}", gradient)
                    pulled = kv.pull(f"w{count}")
                job.all_reduce(gradient)
                velocity = momentum * velocity + (gradient + decay * weight)
                weight = weight - lr * velocity
                same(pulled, weight)


def misuse(job):
    kv = create("dist_sync", job)
    w = np.zeros((3, 2), np.float32)
    kv.init("w", w)
    with raises(kolo.UsageError, "pull of 'v': the store has no such key"):
        kv.pull("v")
    with raises(kolo.UsageError, "push of 'v': the store has no such key"):
        kv.push("v", w)
    with raises(kolo.UsageError, "init of 'w': the key exists already"):
        kv.init("w", w)
    with raises(kolo.UsageError, "push of 'w': the shape is (2, 3), and that of the key (3, 2)"):
        kv.push("w", w.reshape(2, 3))
    with raises(kolo.UsageError, "push of 'w': float64 [6], and the key is float32 [6]"):
        kv.push("w", w.astype("float64"))
    with raises(kolo.UsageError, "pull of 'w': float32 [5], and the key is float32 [6]"):
        kv.pull("w", out=np.zeros(5, np.float32))
    with raises(kolo.UsageError, "row 3 of 3"):
        kv.row_sparse_pull("w", row_ids=np.array([3]))
    with raises(kolo.UsageError, "row_ids are int64, not float32"):
        kv.row_sparse_pull("w", row_ids=np.zeros(1, np.float32))
    with raises(kolo.UsageError, "2 keys come with a list of as many values"):
        kv.push(["w", "v"], [w])
    with raises(kolo.UsageError, "no setting learning_rate"):
        kv.set_optimizer("sgd", learning_rate=0.1)
    with raises(kolo.UsageError, "the optimizer 'lamb' is not one of"):
        kv.set_optimizer("lamb")
    with raises(kolo.UsageError, "the optimizer's lr is -1"):
        kv.set_optimizer("sgd", lr=-1)
    with raises(kolo.UsageError, "the store type 'dist' is not one of local, device, dist_sync and dist_async"):
        create("dist", job)
    with raises(kolo.MismatchError, "rank 1"):
        kv.init("v", np.zeros(3 + job.rank, np.float32))
    with raises(kolo.MismatchError, "set_optimizer"):
        kv.set_optimizer("sgd", lr=1.0 + job.rank)
    same(kv.pull("w"), w)  # It goes on.
    kv.init(1, np.float32(2))
    kv.push(1, [np.float32(3), np.float32(4)])
    same(kv.pull(1), np.array(14, np.float32))
    kv.close()
    with raises(kolo.UsageError, "the store has been closed"):
        kv.pull("w")


def failing(job):
    kv = create("dist_sync", job, servers=[1])
    kv.init("w", np.zeros(3, np.float32))

    def update(key, pushed, stored):
        raise LookupError("no update")

    kv.set_updater(update)
    with raises(kolo.KoloError, "the updater of 'w' returned 1") as failed:
        kv.push("w", np.ones(3, np.float32))
        kv.barrier()
    assert job.rank == 0 or isinstance(failed.error.__cause__, LookupError), repr(failed.error.__cause__)
    job.abort("the updater failed")


def asking(job):
    """An updater that calls its own store would wait for itself."""
    kv = create("local", job)
    kv.init("w", np.zeros(3, np.float32))
    kv.set_updater(lambda *_: kv.pull("w"))
    with raises(kolo.KoloError, "the updater of 'w' returned 1") as failed:
        kv.push("w", np.ones(3, np.float32))
        kv.barrier()
    assert "calls its own store" in str(failed.error.__cause__), repr(failed.error.__cause__)
    job.abort("the updater failed")


def callers(job):
    """The main thread's calls are made by one thread, and by a second one while an interrupted call goes on."""
    threads, gradient = [], np.ones(64, np.float32)
    callers = 2 if job.rank == 0 else 1
    with create("dist_sync", job) as kv:
        kv.set_updater(lambda *_: threads.append(threading.get_ident()))
        kv.init("w", gradient)
        for _ in range(5):
            kv.push("w", gradient)
        assert len(set(threads)) == 1 and threading.get_ident() not in threads, threads
        if job.rank == 0:
            interrupt(lambda: kv.push("w", gradient))
        job.check_equal("between", [gradient])
        if job.rank == 1:
            kv.push("w", gradient)
        while len(Caller.idle) < callers:
            time.sleep(0.01)
        for _ in range(5):
            kv.push("w", gradient)
        assert len(threads) == 11 and len(set(threads)) <= callers, threads
        assert sum(isinstance(thread, Caller) for thread in threading.enumerate()) == callers


def in_turn(job):
    """A call waits for an earlier one that still runs, as an interrupted one may."""
    order, begun, go_on = [], threading.Event(), threading.Event()

    def update(*_):
        begun.set()
        assert go_on.wait(60)
        order.append("push")

    with create("local", job) as kv:
        kv.init("w", np.zeros(1, np.float32))
        kv.set_updater(update)
        first = threading.Thread(target=lambda: kv.push("w", np.ones(1, np.float32)))
        second = threading.Thread(target=lambda: (kv.barrier(), order.append("barrier")))
        first.start()
        assert begun.wait(60)
        second.start()
        second.join(0.3)
        go_on.set()
        first.join(), second.join()
        assert order == ["push", "barrier"], order


def forked(job):
    """A forked process has no part in the store, and ends without it."""
    kv = create("dist_async", job)
    kv.init("w", np.zeros(3, np.float32))
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # Rather than wait for ever.
        with raises(kolo.UsageError, "was forked"):
            kv.pull("w")
        library().kolo_parameters_release(kv._pointer)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    same(kv.pull("w"), np.zeros(3, np.float32))
    kv.close()


def left_to_the_job(job):
    kv = create("dist_async", job)
    kv.init("w", np.zeros(3, np.float32))
    kv.push("w", np.ones(3, np.float32))
    kv.barrier()


def left_open():
    kv = kolo.kv.create("dist_async")
    kv.init("w", np.zeros(3, np.float32))
    kv.push("w", np.ones(3, np.float32))
    kv.barrier()
    same(kv.pull("w"), np.ones(3, np.float32))


def left_by_an_exception():
    with raises(LookupError, "no data"), kolo.kv.create("local") as kv:
        raise LookupError("no data")
    assert not kv._job.is_open


SCENES = {
    each.__name__: each
    for each in (types, bits, misuse, failing, asking, callers, in_turn, forked, left_to_the_job)
}

if __name__ == "__main__":
    import sys

    if sys.argv[1] in ("left_open", "left_by_an_exception"):
        globals()[sys.argv[1]]()
    else:
        with kolo.open() as job:
            play(SCENES, job)
