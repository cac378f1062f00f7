"""Scenes for the ranks of the jobs in jobs_test.py: `scenes.py NAME`. A scene ends normally or by a failed
assertion."""

import asyncio
import gc
import hashlib
import itertools
import os
import pathlib
import signal
import sys
import threading
import time
import weakref

import numpy as np
from codecs_in_numpy import Half, Largest, Signs
from support import play, raises

import kolo
from kolo import _dtypes
from kolo._library import library
from kolo.codec import CodedReducer, RankSteps

COMBINE = {
    "sum": np.add,
    "average": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "prod": np.multiply,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "premul_sum": np.add,
}


def is_of_numpy(dtype):
    try:
        return bool(np.dtype(dtype))
    except TypeError:
        return False


def contribution(rank, count, dtype):
    """Returns small numbers, so that every sum and product of a few ranks is exact."""
    values = (np.arange(count) * 7 + 3 * rank) % 4
    return values.astype(dtype)


def combined(op, ranks, count, dtype):
    parts = [contribution(rank, count, dtype) for rank in range(ranks)]
    if op == "premul_sum":
        parts = [part * np.array(rank + 1, dtype) for rank, part in enumerate(parts)]
    total = parts[0]
    for part in parts[1:]:
        total = COMBINE[op](total, part)
    if op == "average":
        total = (total / ranks).astype(dtype)  # Rounds towards zero, as Kolo's integer division does.
    return total


def same(result, expected):
    assert result.dtype == expected.dtype and result.shape == expected.shape, (result, expected)
    assert np.array_equal(result, expected), (result, expected)


def same_each(results, expected):
    assert len(results) == len(expected), (results, expected)
    for result, each in zip(results, expected):
        same(result, each)


def groups_of(job):
    """Yields the job, and a group with its ranks in reverse order."""
    yield job
    yield job.split(0, key=-job.rank, name="backwards")


def all_reduces(job):
    for group in groups_of(job):
        for op in COMBINE:
            dtypes = [dtype.name for dtype in _dtypes.dtypes() if library().kolo_op_takes(_dtypes.ops()[op], dtype.code)]
            for dtype, count in itertools.product(filter(is_of_numpy, dtypes), (0, 1, 4, 17)):
                check_all_reduce(group, op, dtype, count)
        check_all_reduce(group, "sum", "float32", 300_001)
        # The contributions and their average round to 1.
        same(group.all_reduce(np.full(100, 1 + 2**-9), "average", wire_dtype="bfloat16"), np.ones(100))


def check_all_reduce(group, op, dtype, count):
    expected = combined(op, group.size, count, dtype)
    scale = group.rank + 1.0 if op == "premul_sum" else 1.0
    x = contribution(group.rank, count, dtype)
    assert group.all_reduce(x.copy(), op, out=None, scale_before=scale) is not x
    in_place = x.copy()
    assert group.all_reduce(in_place, op, scale_before=scale) is in_place
    same(in_place, expected)
    x.flags.writeable = False
    same(group.all_reduce(x, op, out=np.empty_like(x), scale_before=scale), expected)
    ticket = group.all_reduce(x, op, out=np.empty_like(x), name=f"{op} {dtype} {count}", scale_before=scale, wait=False)
    same(ticket.wait(), expected)
    assert ticket.done()


def collectives(job):
    for group in groups_of(job):
        for dtype, count in itertools.product(("float32", "int8", "complex128", "bool"), (0, 1, 5, 40_000)):
            check_collectives(group, dtype, count, wait=True, is_list=False)
            check_collectives(group, dtype, count, wait=False, is_list=True)
        uneven(group, is_list=False)
        uneven(group, is_list=True)


def check_collectives(group, dtype, count, wait, is_list):
    """Checks all collectives. If `is_list`, passes each array in a list with a copy of it."""
    rank, size = group.rank, group.size

    def run(call, *arguments, **options):
        given = {id(each): [each, each.copy()] for each in (*arguments, *options.values()) if isinstance(each, np.ndarray)}
        if is_list:
            arguments = [given.get(id(each), each) for each in arguments]
            options = {name: given.get(id(each), each) for name, each in options.items()}
        result = call(*arguments, **options) if wait else call(*arguments, wait=False, **options).wait()
        if not is_list or result is None:
            return result
        same_each(result, [result[0]] * 2)
        return result[0]

    parts = np.stack([contribution(each, count, dtype) for each in range(size)])
    mine = parts[rank].copy()
    root = size - 1
    same(run(group.all_gather, mine), parts)
    out = np.zeros((size, count), dtype)
    out[rank] = mine
    same(run(group.all_gather, out=out), parts)
    gathered = run(group.gather, mine, root)
    assert (gathered is None) == (rank != root)
    if rank == root:
        same(gathered, parts)
    if rank == root:
        assert run(group.gather, root=root, out=out) is out
        same(out, parts)
        same(run(group.scatter, parts, root), mine)
        parts.flags.writeable = False
        assert run(group.scatter, parts, root, out=parts) is parts
    else:
        assert run(group.gather, mine, root) is None
        same(run(group.scatter, root=root, out=np.empty(count, dtype)), mine)
        same(run(group.scatter, root=root, out=np.empty(count, dtype)), mine)
    same(run(group.broadcast, mine.copy() if rank == root else np.empty(count, dtype), root), parts[root])
    same(run(group.broadcast, mine if rank == root else None, root, out=np.empty(count, dtype)), parts[root])
    mixed = np.stack([contribution(rank * size + each, count, dtype) for each in range(size)])
    expected = np.stack([contribution(each * size + rank, count, dtype) for each in range(size)])
    same(run(group.all_to_all, mixed), expected)
    assert run(group.all_to_all, out=mixed) is mixed
    same(mixed, expected)
    total = combined("sum", size, count, dtype)
    same(run(group.all_reduce, mine.copy()), total)
    same(run(group.all_reduce, mine, out=np.empty(count, dtype)), total)
    for in_place in (True, False):
        x = mine.copy()
        result = run(group.reduce, x, root, out=None if in_place or rank != root else np.empty(count, dtype))
        if rank == root:
            same(result, total)
        else:
            assert result is None
            same(x, mine)
    whole = contribution(rank, count * size, dtype).reshape(size, count)
    total = combined("sum", size, count * size, dtype).reshape(size, count)
    same(run(group.reduce_scatter, whole), total[rank])
    run(group.reduce_scatter, out=whole)
    same(whole[rank], total[rank])
    rounded = np.full((size, 7), 1 + 2**-9)
    same(group.reduce_scatter(rounded, "average", wire_dtype="bfloat16"), np.ones(7))


def uneven(group, is_list):
    """Checks parts with different sizes on each rank, of one array or of several."""
    rank, size = group.rank, group.size

    def some(each):
        return each if is_list else each[0]

    def check(results, expected):
        same_each(results if is_list else [results], expected if is_list else expected[:1])

    counts = [[3 * each for each in range(size)], [5] * size, [int(each == 1) for each in range(size)]]
    parts = [[np.full(count, 10 * i + each) for each, count in enumerate(one)] for i, one in enumerate(counts)]
    whole = [np.concatenate(each) for each in parts]
    mine = [each[rank] for each in parts]
    options = {"counts": some(counts)}
    check(group.all_gather(some(mine), **options), whole)
    check(group.all_gather(some(mine), **options, wait=False).wait(), whole)
    gathered = group.gather(some(mine), **options)
    assert (gathered is None) == (rank != 0)
    check(gathered if rank == 0 else some(whole), whole)
    out = [np.empty_like(each) for each in mine]
    check(group.scatter(some(whole) if rank == 0 else None, **options, out=some(out)), mine)
    check(group.reduce_scatter(some([each.copy() for each in whole]), **options), [each * size for each in mine])
    tables = [[[sender + i * receiver for receiver in range(size)] for sender in range(size)] for i in (2, 0)]
    sent = [np.concatenate([np.full(table[rank][each], 10 * rank + each) for each in range(size)]) for table in tables]
    got = [np.concatenate([np.full(table[each][rank], 10 * each + rank) for each in range(size)]) for table in tables]
    check(group.all_to_all(some(sent), counts=some(tables)), got)
    check(group.all_to_all(some(sent), counts=some([sum(table, []) for table in tables])), got)
    both_ways = [[sender + receiver for receiver in range(size)] for sender in range(size)]
    sent = np.concatenate([np.full(count, 10 * rank + each) for each, count in enumerate(both_ways[rank])])
    got = np.concatenate([np.full(count, 10 * each + rank) for each, count in enumerate(both_ways[rank])])
    same(group.all_to_all(out=sent, counts=both_ways), got)


def given_up(job):
    """Uses gradients of a flat buffer; the last rank's batch raises after the first gradient."""
    flat = np.full(10, job.rank + 1, np.float32)
    held = job.register_gradients("flat", np.split(flat, [3]))
    for _ in range(2):
        flat[:] = job.rank + 1
        try:
            held.ready(0)
            if job.rank == job.size - 1:
                raise ValueError("a bad batch")
            held.ready(1)
        except ValueError:
            held.give_up()
        held.wait(60)
        ranks = np.arange(job.size) + 1.0
        expected = np.repeat([ranks.mean(), ranks[:-1].sum() / job.size], [3, 7])
        same(flat, expected.astype(np.float32))


def equal(job):
    weights = {"weight": np.full((3, 4), 2.0), "bias": np.arange(5)}
    job.check_equal("weights", weights)
    job.check_equal("weights in a list", list(weights.values()))
    if job.rank == job.size - 1:
        weights["bias"][1] = 7
    with raises(kolo.MismatchError, f"'bias' of rank {job.size - 1} differs from that of rank 0") as caught:
        job.check_equal("weights", weights)
    assert "'weight'" not in str(caught.error), caught.error


def gradients(job):
    for options in ({}, {"op": "sum"}, {"wire_dtype": "bfloat16"}, {"divisor": "samples"}):
        weight = np.full((3, 4), job.rank, np.float32)
        spec = {"weight": weight, "bias": kolo.Gradient((5,)), "scale": kolo.Gradient((), "float32")}
        held = job.register_gradients(f"model {options}", spec, **options)
        assert held.names == ("weight", "bias", "scale") and len(held) == 3
        for step in range(1, 4):
            if "divisor" in options:
                held.set_samples(1 + 2 * job.rank)
            weight[:] = job.rank + step
            held["bias"][:] = 2 * job.rank
            held[2][()] = 1
            held.ready("weight")
            held.ready(-1)
            if job.rank == 0 and not options:
                held.absent("bias")
            else:
                held.ready(1)
            held.wait_one("weight", 60)
            assert 0 in held.take_combined()
            held.wait()
            assert held.take_combined() == []
            ranks = np.arange(job.size)
            weights = 2 * ranks + 1 if "divisor" in options else np.ones(job.size)
            divisor = 1 if options.get("op") == "sum" else weights.sum()
            same(weight, np.full((3, 4), (weights * (ranks + step)).sum() / divisor, np.float32))
            same(held["bias"], np.full(5, (weights * 2 * ranks).sum() / divisor, np.float32))
            assert held["scale"].shape == ()
        assert held.plan["gradients"] == 3 and held.statistics["too_large"] == 0
    for bad in (lambda: held[7], lambda: held["nothing"], lambda: held.ready("nothing")):
        with raises((kolo.UsageError, IndexError)):
            bad()
    bias = held["bias"]
    del held
    gc.collect()
    bias[:] = 1  # The array keeps the set alive.


def compression(job):
    rng = np.random.default_rng(7)
    grads = job.register_gradients("sparse", {"w": kolo.Gradient((128, 64))}, compression="topk(0.1)")
    for _ in range(3):
        grads["w"][:] = rng.standard_normal((128, 64))
        grads.ready(0)
        grads.wait()
    state = grads.save_compression()
    norm = grads.residual_norm("w")
    grads.load_compression(state)
    grads.remap_compression([state] * job.size)
    grads.drop_residuals()
    grads.flush_residuals()
    assert isinstance(grads.flags("w"), kolo.GradientFlags)
    assert isinstance(state, bytes) and norm >= -1


def codes(job):
    """2-bit sums equal those of NumPy; int8 errs by at most one step of the values and one of the sum."""
    specs = {"plain": "2bit(0.5,rule=lossless)", "coded": "2bit(0.5)", "int8": "int8"}
    sets = {name: job.register_gradients(name, {"w": kolo.Gradient((128, 64))}, compression=spec)
            for name, spec in specs.items()}
    kept = np.zeros((job.size, 128, 64), np.float32)
    kept_sums = np.zeros((128, 64), np.float32)

    def code(values, threshold):
        sent = np.where(values >= threshold, threshold, np.where(values <= -threshold, -threshold, 0))
        values -= sent
        return sent.astype(np.float32)

    for step in range(4):
        every = [np.random.default_rng([rank, step]).standard_normal((128, 64)).astype(np.float32)
                 for rank in range(job.size)]
        kept += every
        sums = code(kept, np.float32(0.5)).sum(0)
        kept_sums += sums
        expected = {"plain": sums, "coded": code(kept_sums, np.float32(0.5 * job.size))}
        for name, grads in sets.items():
            grads["w"][:] = every[job.rank]
            grads.ready(0)
            grads.wait()
            if name in expected:
                same(np.array(grads["w"]), expected[name] / np.float32(job.size))
            elif step == 0:
                assert np.abs(grads["w"] - np.mean(every, axis=0)).max() <= 2 * 2.0**-4
        assert np.isclose(sets["plain"].residual_norm("w"), np.linalg.norm(kept[job.rank]))


def power_sgd(job):
    """A sum of two products of vectors is sent whole by factors of two columns, on all ranks alike."""
    grads = job.register_gradients("factors", {"w": kolo.Gradient((128, 64))}, compression="powersgd(2)")
    random = np.random.default_rng(3)
    for _ in range(3):
        a, b = random.standard_normal((128, 2)), random.standard_normal((2, 64))
        grads["w"][:] = (job.rank + 1) * a @ b
        grads.ready(0)
        grads.wait()
        assert np.abs(grads["w"] - (job.size + 1) / 2 * a @ b).max() < 1e-3
        assert grads.residual_norm("w") < 1e-2
    got = np.array(grads["w"])
    same(got, job.broadcast(got.copy()))
    grads["w"][:] = random.standard_normal((128, 64))
    grads.ready(0)
    grads.wait()
    assert grads.residual_norm("w") > 10
    assert grads.flags("w") & kolo.GradientFlags.SPARSE


def coded(job):
    """A codec in NumPy makes the same sums and residuals as its steps without messages."""
    for codec in (Half(), Signs(), Largest()):
        reducer = CodedReducer(job, codec)
        members = [RankSteps(codec, rank, job.size) for rank in range(job.size)]
        for step in range(4):
            every = [{name: np.random.default_rng([rank, step, i]).standard_normal(shape).astype(np.float32)
                      for i, (name, shape) in enumerate({"w": (30, 41), "b": 2}.items())}
                     for rank in range(job.size)]
            own = {name: values.copy() for name, values in every[job.rank].items()}
            if step == 2:
                state = reducer.state_dict()
                bad = {name: values.copy() for name, values in own.items()}
                if job.rank == job.size - 1:
                    bad["b"][0] = np.inf
                assert not reducer.all_reduce(bad)
                assert all(np.isnan(values).all() for values in bad.values())
                for name, residuals in reducer.state_dict().items():
                    same(residuals[0], state[name][0])
                    same(residuals[1], state[name][1])
                reducer = CodedReducer(job, codec)
                reducer.load_state_dict(state)
            op = ("sum", "average")[step % 2]
            assert reducer.all_reduce(own, op)
            shares = [member.contribute(each) for member, each in zip(members, every)]
            sums = [member.merge([each[rank] for each in shares]) for rank, member in enumerate(members)]
            for member, each in zip(members, every):
                member.finish(sums, each, op)
            for name, values in own.items():
                same(values, every[job.rank][name])
                for got, kept in zip(reducer.state_dict()[name], members[job.rank].kept[name]):
                    same(got, kept)
        with raises(kolo.UsageError, "sum or average, not max"):
            reducer.all_reduce({"w": np.zeros(3, np.float32)}, "max")


def rows(job):
    indices = np.array([2, job.rank, 2])
    values = np.ones((3, 4), np.float32)
    expected = np.zeros((100_000, 4), np.float32)
    expected[2] += 2 * job.size
    for rank in range(job.size):
        expected[rank] += 1
    for exchange, result in itertools.product(("rows", "table"), ("rows", "table", "auto")):
        if (exchange, result) == ("table", "rows"):
            continue  # A table does not show which rows were summed.
        got = job.sparse_all_reduce(indices, values, len(expected), exchange=exchange, result=result)
        table = np.zeros_like(expected)
        got.add_to(table)
        same(table, expected)
        assert got.is_table == (result == "table" or (result == "auto" and exchange == "table"))
        scaled = job.sparse_all_reduce(
            indices, values, len(expected), exchange=exchange, result=result, scale_before=0.5, scale_after=3
        )
        table = np.zeros_like(expected)
        scaled.add_to(table)
        same(table, 1.5 * expected)
    assert got.is_table
    kept = got.rows
    del got
    gc.collect()
    same(kept, expected)  # The array keeps the memory alive.
    tickets = [
        job.sparse_all_reduce(indices, (i + 1) * values, len(expected), name=f"table {i}", result="table", wait=False)
        for i in range(3)
    ]
    for i, ticket in reversed(list(enumerate(tickets))):
        same(ticket.wait().rows, (i + 1) * expected)
        assert ticket.wait() is ticket.wait()  # A repeated wait has the same result.
    first = np.zeros((5, 2), np.float32)
    first[0] = 3 * job.size
    large, small = job.sparse_all_reduce(
        [indices, np.array([0])], [values, np.full((1, 2), 3, np.float32)], [len(expected), 5], result="table"
    )
    same(large.rows, expected)
    same(small.rows, first)
    ticket = job.sparse_all_reduce([indices], [values], [len(expected)], result="table", wait=False)
    same(ticket.wait()[0].rows, expected)
    job.sparse_all_reduce(indices, values.copy(), len(expected), name="dropped", wait=False)
    gc.collect()
    none = np.empty(0, np.int64)
    empty = job.sparse_all_reduce(none, np.empty((0, 4), np.float32), 10, exchange="rows", result="rows")
    assert empty.rows.shape == (0, 4) and len(empty.indices) == 0


def row_bits(job):
    """The bits show that sums of rows are added in rank order. Rank 1 has no rows in every second round."""
    rng = np.random.default_rng(job.rank)
    digest = hashlib.sha256()
    for number in range(4):
        count = 0 if job.rank == 1 and number % 2 == 0 else 300 + 100 * job.rank
        values = rng.uniform(-1, 1, (count, 33)).astype(np.float32)
        got = job.sparse_all_reduce(rng.integers(0, 500, count), values, 3000, exchange="rows", result="table")
        digest.update(got.rows.tobytes())
    print("rows", digest.hexdigest())


# Sizes on both sides of each limit at which messages are sent differently.
MESSAGE_COUNTS = (0, 1, 1024, 1025, 65_536, 65_537, 1_000_000)


def message_round(job, names_peer):
    """Every rank sends to every rank, including itself."""
    got = np.empty(MESSAGE_COUNTS[-1], np.float32)
    for tag, count in enumerate(MESSAGE_COUNTS):
        mine = contribution(job.rank, count, "float32")
        sent = [job.send(mine, peer, tag, wait=False) for peer in range(job.size)]
        heard = []
        for peer in range(job.size):
            source, length = job.recv(got, peer if names_peer else kolo.ANY_RANK, tag)
            assert length == count, (length, count)
            same(got[:count], contribution(source, count, "float32"))
            heard.append(source)
        assert sorted(heard) == list(range(job.size))
        for ticket in sent:
            ticket.wait()
        job.barrier()  # Otherwise a message of the next round could match a receive from any rank in this one.


def all_ways(job):
    before = job.network_bytes_sent
    message_round(job, names_peer=True)
    message_round(job, names_peer=False)
    print(f"all messages were right, {job.network_bytes_sent - before} bytes to other nodes")


def unfit(job):
    """Rank 0 sends the last rank messages that do not fit by length and by type; both can go on."""
    last, values = job.size - 1, np.zeros(100_000, np.float32)
    for place in (values[:10], values.view(np.int64)) if job.rank in (0, last) else ():
        with raises(kolo.MismatchError) as caught:
            if job.rank == 0:
                job.send(values, last, 77)
            else:
                job.recv(place, 0, 77)
        print("refused:", caught.error.what)
    all_ways(job)


def receive(job):
    """All ranks but the last wait for a message from the last rank, or from any rank. The last rank sends none."""
    message_round(job, names_peer=True)
    print("in the middle", flush=True)
    if job.rank == job.size - 1:
        sys.stdin.readline()
    else:
        job.recv(np.empty(10), job.size - 1 if job.rank % 2 == 0 else kolo.ANY_RANK, 5)


def grouped_messages(job):
    peer = 1 - job.rank
    if job.rank > 1:
        return
    for count in (0, 3, 100_000):
        x = [np.arange(count, dtype=np.int32) + job.rank, np.empty(0), np.full(5, job.rank, np.uint8)]
        got = [np.empty_like(each) for each in x]
        for wait in (True, False):
            ticket = job.send(x, peer, tag=count, wait=False)
            received = job.recv(got, kolo.ANY_RANK if wait else peer, count, wait=wait)
            assert (received if wait else received.wait()) == (peer, count + 5)
            ticket.wait()
            same(got[0], np.arange(count, dtype=np.int32) + peer)
            same(got[2], np.full(5, peer, np.uint8))
    ticket = job.recv(np.empty(3), peer, 9, wait=False)
    job.send(bytes(24), peer, 8)
    job.send(np.ones(3), peer, 9)
    assert ticket.wait().source == peer
    assert job.recv(bytearray(24), peer, 8).count == 24
    # A list of one array is equivalent to that array.
    sent = job.send([np.arange(3.0)], peer, wait=False)
    longer = np.empty(4)
    assert job.recv(longer, peer) == (peer, 3)
    sent.wait()
    sent = job.send([np.arange(4), np.arange(2)], peer, tag=7, wait=False)
    with raises(kolo.MismatchError, "int64 [4] + int64 [2] with tag 7", "which receives int64 [4] + int64 [3]"):
        job.recv([np.empty(4, np.int64), np.empty(3, np.int64)], peer, 7)
    sent.wait()


class Interrupt(BaseException):
    """Like KeyboardInterrupt, but distinguishable from it."""


def interrupt(call):
    """Makes a call that waits, and ends it by a signal."""

    def handler(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with raises(Interrupt):
            call()
    finally:
        signal.signal(signal.SIGALRM, before)


def taken_back(job):
    """Cancelled receives leave their message to the next receive, and do not write to their memory."""
    peer = 1 - job.rank
    never = np.full(20_000, -1.0)
    ticket = job.recv(never, peer, wait=False)
    assert ticket.cancel() and ticket.cancel() and ticket.done()
    with raises(kolo.CancelledError, f"a receive from rank {peer}"):
        ticket.wait()
    interrupt(lambda: job.recv(never, peer))
    interrupt(lambda: job.recv(never, peer, wait=False).wait())  # Its ticket is dropped.
    with raises(kolo.DeadlineError, f"recv from rank {peer}"):
        job.recv(never, peer, wait=False).wait(0.01)
    job.barrier()
    sent = job.send(np.arange(20_000.0), peer, wait=False)
    got = np.empty(20_000)
    ticket = job.recv(got, wait=False)
    assert ticket.wait() == (peer, 20_000)
    assert not ticket.cancel() and ticket.wait() == (peer, 20_000)  # Too late.
    same(got, np.arange(20_000.0))
    assert np.all(never == -1)
    sent.wait()
    ticket = job.barrier(wait=False)
    with raises(kolo.UsageError, "receive"):
        ticket.cancel()
    ticket.wait()


def texts(job):
    """Threads that ask for settings at the same time get their own answers."""
    sys.setswitchinterval(1e-6)
    expected = {name: job.setting(name) for name in ("operation_timeout", "peer_timeout")}
    assert len(set(expected.values())) == 2
    wrong = []

    def ask(name):
        wrong.extend(text for text in (job.setting(name) for _ in range(5000)) if text != expected[name])

    threads = [threading.Thread(target=ask, args=(name,)) for name in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def first_of_each(values):
    return [value for i, value in enumerate(values) if value not in values[:i]]


def groups(job):
    with job.split(job.rank % 2, name="halves") as half:
        assert half.ranks_of_job == tuple(range(job.rank % 2, job.size, 2)) and half.name == "halves"
        half.barrier()
    own_id = np.frombuffer(os.environ.get("KOLO_NODE_ID", "").encode().ljust(8), np.uint8)
    nodes = job.all_gather(own_id).reshape(job.size, -1).tolist()
    node = job.node_group(name="node")
    assert node.size == job.local_size and node.rank == job.local_rank
    assert node.ranks_of_job == tuple(rank for rank in range(job.size) if nodes[rank] == nodes[job.rank])
    cross = job.cross_group()
    place = nodes[: job.rank].count(nodes[job.rank])
    ranks_of = [[rank for rank in range(job.size) if nodes[rank] == node_id] for node_id in first_of_each(nodes)]
    assert len(ranks_of) == job.num_nodes
    assert cross.ranks_of_job == tuple(ranks[place] for ranks in ranks_of if len(ranks) > place)
    assert job.split(None) is None
    mine = job.group([job.rank])
    same(mine.all_reduce(np.ones(2)), np.ones(2))
    last = job.size - 1
    if job.rank == last:
        time.sleep(0.1)
    assert 0 <= job.join() <= last
    assert job.network_bytes_sent >= 0 and job.setting("fusion_bytes") == "4M" and "=" in job.link_costs
    del half, node, cross, mine
    gc.collect()
    job.barrier()


def arena(job):
    x = job.allocate((100, 10), "float32")
    x[:] = job.rank
    job.all_reduce(x)
    y = x[50:]
    del x
    gc.collect()
    assert np.all(y == sum(range(job.size)))
    assert job.allocate(0).shape == (0,) and job.allocate((), "int64").shape == ()
    with raises(kolo.ResourceError, "group_arena_bytes"):
        job.allocate(1 << 50, "uint8")
    job.close()
    job.close()
    y[:] = 1  # Memory outlives the job.
    with raises(kolo.ShutdownError):
        job.all_reduce(y)


def disagree(job):
    """Rank 1 submits another shape, type, operation or name; then all ranks go on with the next tensor."""
    for call, field in itertools.product(("all_reduce", "gradients"), ("shape", "dtype", "op", "name")):
        odd = field if job.rank == 1 else None
        name, op = "odd" if odd == "name" else "even", "max" if odd == "op" else "sum"
        count, dtype = 11 if odd == "shape" else 10, "int32" if odd == "dtype" else "float32"
        with raises(kolo.MismatchError) as caught:
            if call == "all_reduce":
                job.all_reduce(np.zeros(count, dtype), op, name=name)
            else:
                job.register_gradients("set", {"same": kolo.Gradient((1,)), name: kolo.Gradient((count, 2), dtype)}, op=op)
        error = caught.error
        assert (error.verb, error.status, error.exit_status) == ("agree", kolo.Status.MISMATCH, 76), vars(error)
        assert error.tensor == "even" or call == "gradients" or field == "name", vars(error)
        print(f"{call} {field}: {error.what}")
        same(job.all_reduce(np.ones(3), name="after"), np.full(3, float(job.size)))


def order(job):
    """Calls diverge in a group that keeps one order, although each rank could still submit the other rank's call."""
    job.keep_order()
    call = job.broadcast if job.rank == 1 else job.all_reduce
    ticket = call(np.ones(5), name="mine" if job.rank == 1 else "yours", wait=False)
    with raises(kolo.MismatchError, "'mine': broadcast", "'yours': all_reduce"):
        while not ticket.done():
            time.sleep(0.01)
        ticket.wait()
    job.all_reduce(np.ones(2))
    with raises(kolo.UsageError, "keeps one order"):
        job.join()


def misuse(job):
    x = np.ones((job.size, 4))
    negative = [x.size if rank == job.rank else -1 for rank in range(job.size)]
    for wrong in (
        lambda: job.all_reduce(x, "mean"),
        lambda: job.all_reduce(x.T),
        lambda: job.all_reduce(x, out=np.ones(3)),
        lambda: job.all_reduce(x, out=np.ones((job.size, 4), np.float32)),
        lambda: job.all_reduce(x.reshape(-1)[:-1], out=x.reshape(-1)[1:]),
        lambda: job.all_reduce(x.astype(bool), "average"),
        lambda: job.all_reduce(x.astype(int), wire_dtype="bfloat16"),
        lambda: job.all_reduce(x, wire_dtype="bfloat16", scale_after=2),
        lambda: job.all_reduce([x, x.astype(int)]),
        lambda: job.all_reduce([]),
        lambda: job.broadcast(x, root=99),
        lambda: job.broadcast(),
        lambda: job.broadcast(x, root=job.rank, out=np.empty(1, np.float32)),
        lambda: job.gather(),
        lambda: job.gather(root=-1, out=x),
        lambda: job.reduce_scatter(x[0]),
        lambda: job.all_gather(x, counts=[1] * job.size),
        lambda: job.all_gather(x, counts=negative),
        lambda: job.all_to_all(x, counts=[[count, *[0] * (job.size - 1)] for count in negative]),
        lambda: job.all_gather([x, x], counts=[x.size] * job.size),
        lambda: job.all_gather([x, x], counts=[[x.size] * job.size]),
        lambda: job.all_to_all([x], counts=[[1] * job.size]),
        lambda: job.all_gather(),
        lambda: job.all_to_all(np.ones(job.size * 2 + 1)),
        lambda: job.send(x, 99),
        lambda: job.send(x, 0, tag=-1),
        lambda: job.recv(b"abc", 0),
        lambda: job.send([], 0),
        lambda: job.recv([x, b"abc"], 0),
        lambda: job.register_gradients("wrong", {"a": x.T}),
        lambda: job.register_gradients("wrong", {"a": kolo.Gradient()}),
        lambda: job.register_gradients("wrong", {"a": x, "b": x}),
        lambda: job.register_gradients("wrong", {"a": x, "b": x.reshape(-1)[3:5]}),
        lambda: job.all_reduce([x[0], x[0]], out=[x[0], x[0]]),
        lambda: job.all_reduce([x[0], x[0, 1:]], out=[x[0], x[0, 1:]]),
        lambda: job.all_reduce([np.ones(4), np.ones(3)], out=[x[0], x[0, 1:]]),
        lambda: job.recv([x[0], x[0, 1:]], 0),
        lambda: job.sparse_all_reduce(np.zeros(1, np.int32), x[:1], 10),
        lambda: job.sparse_all_reduce(np.array([10]), x[:1], 10, name="rows"),
        lambda: job.sparse_all_reduce([], [], []),
        lambda: job.sparse_all_reduce([np.array([1])], [x[:1]], 10),
        lambda: job.sparse_all_reduce([np.array([1])] * 2, [x[:1], x[:1].astype(np.int32)], [10, 10]),
        lambda: kolo.open(rank=1),
    ):
        with raises(kolo.UsageError):
            wrong()
    for options in ({"fusion_bites": "4M"}, {"fusion_bytes": "lots"}):
        with raises((kolo.UsageError, kolo.ConfigError), "fusion_bytes"):
            kolo.open(**options)
    for name, call in (
        ("wire_dtype", lambda: job.all_reduce(x, wire_dtype="bf16")),
        ("wire_dtype", lambda: job.all_reduce(x, wire_dtype=3)),
        ("dtype", lambda: job.allocate(4, "bf16")),
        ("timeline", lambda: kolo.open(timeline=["/tmp/t"])),
    ):
        with raises(kolo.UsageError, f"{name}: elements of type"):
            call()
    with raises((kolo.UsageError, kolo.ConfigError), "fusion_bytes", "lots"):  # A path is its text.
        kolo.open(fusion_bytes=pathlib.Path("lots"))
    for call in (job.all_reduce, job.broadcast, job.reduce, job.reduce_scatter, job.all_gather, job.gather, job.all_to_all):
        with raises(TypeError, f"{call.__name__}() got an unexpected keyword argument 'prescale'; its options are name"):
            call(x, prescale=2)
    device_memory(job)
    job.barrier()


def device_memory(job):
    """Uses device memory in a job without a device: some calls reach the library, others fail before."""
    host = np.zeros(4 * job.size, np.float32)
    part, parts = (kolo.Memory(host.ctypes.data, n, "float32", host, is_device=True) for n in (4, host.size))
    other = kolo.Memory(np.empty_like(host).ctypes.data, host.size, "float32", is_device=True)
    one, row_of_host = np.zeros(1, np.int64), host[:4].reshape(1, 4)
    row = kolo.Memory(host.ctypes.data, 4, "float32", host, is_device=True, shape=(1, 4))
    for call, text in (
        (lambda: job.all_gather(out=parts, stream=0), "set the option `device`"),
        (lambda: job.all_reduce([part]), "set the option `device`"),
        (lambda: job.reduce(parts, 0), "set the option `device`"),
        (lambda: job.send(part, 0), "set the option `device`"),
        (lambda: job.all_gather(part), "pass `out`"),
        (lambda: job.all_gather(part, out=host), "out is in host memory, x in device memory"),
        (lambda: job.all_reduce([part, host]), "one dtype and one kind of memory"),
        (lambda: job.reduce(parts, job.rank, out=other), "leave out `out`"),
        (lambda: job.sparse_all_reduce(one, row, 3, stream=0), "set the option `device`"),
        (lambda: job.sparse_all_reduce([one, one], [row, row_of_host], [3, 3]), "all in device memory"),
        (lambda: job.sparse_all_reduce(kolo.Memory(one.ctypes.data, 1, "int64", is_device=True), row, 3), "indices are"),
    ):
        with raises(kolo.UsageError, text):
            call()


def dropped(job):
    """Drops tickets and arrays of operations in flight."""
    pending = []
    for i in range(20):
        job.all_reduce(np.full(10_000, float(i)), name=f"dropped {i}", wait=False)
        pending.append(job.all_reduce(np.full(10_000, float(i)), name=f"held {i}", wait=False))
    job.send(np.full(50_000, 7.0), (job.rank + 1) % job.size, wait=False)
    gc.collect()
    noise = [np.full(10_000, -1.0) for _ in range(50)]
    got = np.empty(50_000)
    job.recv(got, (job.rank - 1) % job.size)
    assert np.all(got == 7) and noise
    for i, ticket in enumerate(pending):
        same(ticket.wait(), np.full(10_000, float(i * job.size)))
    job.barrier()
    job._handle.sweep()
    gc.collect()
    dropped_before_the_others_begin(job)


def dropped_before_the_others_begin(job):
    """A finalizer does not wait, and the memory lives until the operation is done."""
    x, row = np.full(10_000, float(job.rank + 1)), np.full((1, 4), float(job.rank))
    held = weakref.ref(x), weakref.ref(row)
    if job.rank > 0:
        job.recv(np.empty(1), 0)  # Sent after rank 0 has dropped its tickets.
    tickets = [
        job.all_reduce(x, name="late", wait=False),
        job.sparse_all_reduce(np.array([job.rank]), row, job.size, name="late rows", wait=False),
        job.recv(np.empty(1), job.rank, 9, wait=False),
    ]
    del x, row, tickets
    gc.collect()
    if job.rank == 0:
        assert all(each() is not None for each in held), "memory of an operation is freed"
        for peer in range(1, job.size):
            job.send(np.ones(1), peer)
    job.send(np.ones(1), job.rank, 9)
    job.barrier()
    while any(each() is not None for each in held):
        job._handle.sweep()


def cycles(job):
    """Objects of a reference cycle are finalized in any order."""
    for order in itertools.permutations(range(4)):
        alone = kolo.open() if job.size == 1 else job
        group = alone.split(0)
        held = group.register_gradients("model", {"a": kolo.Gradient((3,))})
        things = [alone, group, held, alone.allocate(10)]
        ring = [things[i] for i in order]
        ring.append(ring)
        ring.append(group.all_reduce(np.ones(5), wait=False))
        if alone is not job:
            alone.close()
        del alone, group, held, things, ring
        gc.collect()
    job.barrier()


def awaited(job):
    async def one(i):
        ticket = job.all_reduce(np.full(3, i), name=f"task {i}", wait=False)
        first, second = await asyncio.gather(waited(ticket), waited(ticket))
        assert first is second
        same(first, np.full(3, i * job.size))

    async def waited(ticket):
        return await ticket

    async def every():
        await asyncio.gather(*(one(i) for i in range(10)))

    asyncio.run(every())


def threads(job):
    errors = []

    def work(index):
        try:
            for _ in range(20):
                same(job.all_reduce(np.full(8, index), name=f"thread {index}"), np.full(8, index * job.size))
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors


def forked(job):
    """A forked process that ends does not affect the job."""
    held = job.allocate(10)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # Rather than wait for ever.
        del held, job
        gc.collect()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    job.all_reduce(held)


def early(job):
    """The last rank closes the job while the others wait for it."""
    try:
        if job.rank == job.size - 1:
            return job.close()
        job.all_reduce(np.ones(3), name="gradient 7")
    except kolo.MismatchError as error:
        print("noticed:", error)


def marked(job):
    """Returns a set whose gradient only this rank has marked."""
    gradients = job.register_gradients("alone", {"a": np.ones(3)})
    gradients.ready(0)
    return gradients


# Waits for operations that the peers do not begin.
WAITS = {
    "all_reduce": lambda job: job.all_reduce(np.ones(3)),
    "ticket": lambda job: job.all_reduce(np.ones(3), wait=False).wait(),
    "recv": lambda job: job.recv(np.ones(3), 1),
    "barrier": lambda job: job.barrier(),
    "register": lambda job: job.register_gradients("model", {"a": np.ones(3)}),
    "split": lambda job: job.split(0),
    "close": lambda job: job.close(),
    "join": lambda job: job.join(),
    "sparse": lambda job: job.sparse_all_reduce(np.array([1]), np.ones((1, 2)), 3),
    "gradients": lambda job: marked(job).wait(),
    "gradient": lambda job: marked(job).wait_one(0),
}


def interrupted(job):
    """Rank 0 is interrupted; the other ranks get the error in a later call."""
    for_whom = sys.argv[2]
    if job.rank == 0:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        WAITS[for_whom](job)
        raise AssertionError("not interrupted")
    if for_whom in ("gradients", "gradient"):  # All ranks agree on a set.
        job.register_gradients("alone", {"a": np.ones(3)})
    if for_whom in ("close", "join"):  # A receive from a rank that sends nothing more ends by itself.
        time.sleep(1)
    with raises(kolo.PeerLostError, "KeyboardInterrupt") as caught:
        job.recv(np.empty(1), 0, tag=77)
    assert caught.error.peer == 0, caught.error
    print("heard of it", flush=True)
    raise caught.error


def deadline(job):
    pair = job.group([1, 0], name="pair", arena_bytes=1 << 20)
    if job.rank == 0:
        ticket = pair.recv(np.empty(1), 0, wait=False)
        with raises(kolo.DeadlineError, "group 'pair' [1, 0]: rank 1: recv from rank 0") as caught:
            ticket.wait(0.05)
        assert (caught.error.rank, caught.error.peer, caught.error.group) == (1, 0, "'pair' [1, 0]")
        assert ticket.cancel()
        with raises(kolo.UsageError) as caught:
            pair.broadcast(np.empty(1), 7)
        assert caught.error.group == "'pair' [1, 0]", caught.error
        for call in (lambda: job.recv(np.empty(1), 1, wait=False).wait(0.05), lambda: WAITS["recv"](job)):
            with raises(kolo.DeadlineError, "rank 0: recv from rank 1") as caught:
                call()
            print("late:", caught.error)
            assert (caught.error.rank, caught.error.peer, caught.error.group) == (0, 1, "")
        job.send(np.ones(1), 1)
        # Both receives were taken back.
        assert [job.recv(np.empty(3), 1).count for _ in range(2)] == [1, 3]
        return
    ticket = job.recv(np.empty(1), 0, wait=False)
    while not ticket.done():
        try:
            ticket.wait()
        except kolo.DeadlineError:
            continue  # The wait may be repeated.
    job.send(np.ones(1), 0)
    job.send(np.ones(3), 0)


def main():
    name = sys.argv[1]
    if name == "open_only":
        kolo.open().all_reduce(np.ones(3))  # The job is not closed explicitly.
        return
    if name == "uncaught":
        job = kolo.open()
        if job.rank == 1:
            raise RuntimeError("no more data")
        job.recv(np.empty(1), 1)
    if name == "unmet":
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        kolo.open()  # The other rank never calls.
    if name == "stored":
        stored()
        return
    with kolo.open(fusion_bytes="4M") as job:
        play(globals(), job)


class FileStore:
    """Stores values as files in a folder."""

    def __init__(self, folder):
        self._folder = pathlib.Path(folder)

    def set(self, key, value):
        path = self._folder / key.encode().hex()
        path.with_suffix(".new").write_bytes(value)
        path.with_suffix(".new").rename(path)

    def get(self, key, timeout):
        end = time.monotonic() + timeout
        path = self._folder / key.encode().hex()
        while not path.exists():
            if time.monotonic() > end:
                raise TimeoutError(key)
            time.sleep(0.005)
        return path.read_bytes()


def stored():
    rank, size = int(os.environ["SCENE_RANK"]), 2
    gc.disable()
    for job in ("first", "second"):
        store = FileStore(sys.argv[2])
        held = weakref.ref(store)
        with kolo.open(store=store, rank=rank, world_size=size, job=job) as runtime:
            del store
            assert held() is None, "an open job keeps its store"
            same(runtime.all_reduce(np.ones(2)), np.full(2, float(size)))
    with raises(kolo.KoloError) as caught:
        kolo.open(store=object(), rank=rank, world_size=size)
    assert isinstance(caught.error.__cause__, AttributeError), caught.error.__cause__


if __name__ == "__main__":
    main()
