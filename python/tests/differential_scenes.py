"""Scenes of differential_test.py: operations, messages, futures, groups."""

import contextlib
import gc
import itertools
import os
import threading

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
from torch._C._distributed_c10d import _make_nccl_premul_sum
from torch.distributed import _functional_collectives as functional

from differential_table import Bounded, me, noise, resources, same_everywhere, scene, size, values

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.int32, torch.int64, torch.uint8, torch.int8)
COUNTS = (1, 3, 1000, 40_001)

# --- one tensor -------------------------------------------------------------------------------------


COMPLEX = (torch.complex64, torch.complex128)
REDUCTIONS = {
    dist.ReduceOp.SUM: (*FLOATS, *WHOLE, *COMPLEX),
    **dict.fromkeys((dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT), (*FLOATS[:2], *WHOLE[:2])),
    **dict.fromkeys((dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR), WHOLE[:3]),
}


@scene()
def reductions_of_every_type():
    results = []
    for op, dtypes in REDUCTIONS.items():
        for dtype, count in itertools.product(dtypes, COUNTS):
            results.append(values(me(), count, dtype=dtype) * (1 + 2j if dtype in COMPLEX else 1))
            dist.all_reduce(results[-1], op)
        results.append(values(me(), 6, dtype=dtypes[-1]))
        dist.reduce(results[-1], 0, op)
        results[-1] = results[-1] if me() == 0 else None
    return results


@scene(alone=True)
def reductions_that_gloo_lacks():
    """Checks averages, premultiplied sums, booleans, and reduce_scatters with other operations than sums."""
    every = torch.stack([values(rank, 2 * size()).double() for rank in range(size())])
    mine = slice(2 * me(), 2 * me() + 2)
    for dtype in FLOATS:
        tensor, part = values(me(), 2 * size(), dtype=dtype), torch.empty(2, dtype=dtype)
        dist.reduce_scatter_tensor(part, tensor, dist.ReduceOp.MAX)
        assert torch.equal(part, every.amax(0)[mine].to(dtype))
        dist.reduce_scatter(part, list(tensor.split(2)), dist.ReduceOp.AVG)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        # The factor 1 / ranks and the product are rounded, each by at most one unit in the last place.
        for got, mean in ((part, every.mean(0)[mine]), (tensor, every.mean(0))):
            assert torch.allclose(got, mean.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=0)
    truth = torch.tensor([True, me() == 0, False])
    dist.all_reduce(truth, dist.ReduceOp.BAND)
    weighted = torch.full((5,), float(me()))
    dist.all_reduce(weighted, _make_nccl_premul_sum(2.0))
    assert truth.tolist() == [True, False, False] and torch.equal(weighted, torch.full((5,), size() * (size() - 1.0)))


@scene(alone=True)
def sums_of_16_bits_are_rounded_once():
    for dtype in (torch.float16, torch.bfloat16):
        parts = [noise(rank, 10_001).to(dtype) for rank in range(size())]
        mine = parts[me()].clone()
        dist.all_reduce(mine)
        total = parts[0].float()
        for part in parts[1:]:
            total += part.float()
        assert torch.equal(mine, total.to(dtype))


@scene()
def sums_of_rounded_numbers():
    results = []
    for count in (7, 5000, 100_003):
        mine = noise(me(), count)
        dist.all_reduce(mine)
        same_everywhere(mine)
        results.append(Bounded.sums(mine, [noise(rank, count) for rank in range(size())]))
    return results


@scene()
def infinities_and_nans():
    mine = torch.tensor([float("inf"), -float("inf"), float("nan"), 1.0, -0.0])
    mine[3] = float("inf") if me() == 0 else -float("inf")
    dist.all_reduce(mine)
    return mine.isnan(), mine[0], mine[1], mine[4]


@scene()
def many_at_once():
    tensors = [values(me() + each, 10 + each) for each in range(60)]
    works = [dist.all_reduce(each, async_op=True) for each in tensors]
    for work in reversed(works):
        work.wait()
    return tensors


@scene()
def nothing_and_scalars():
    results = [torch.empty(0), torch.empty(3, 0), torch.tensor(float(me()))]
    for each in results:
        dist.all_reduce(each)
        dist.broadcast(each, size() - 1)
    return results


@scene()
def strides_without_gaps():
    whole = values(me(), 6, 8)
    for part in (whole.t(), whole[2:4], whole.view(2, 3, 8).permute(2, 0, 1)):
        dist.all_reduce(part)
    other = values(me(), 5, 4).t()
    dist.broadcast(other, 1)
    return whole, other.contiguous()


@scene(alone=True)
def strides_with_gaps():
    """Gloo ignores strides, and uses the memory from the first element on."""
    whole = values(me(), 6, 8)
    expected = sum(values(rank, 6, 8) for rank in range(size()))
    dist.all_reduce(whole[::2])
    dist.all_reduce(whole[1::2, ::3])
    dist.broadcast(whole[1::2, 1::3], 1)
    for row, column in itertools.product(range(6), range(8)):
        if row % 2 == 0 or column % 3 == 0:
            assert whole[row, column] == expected[row, column]
        else:
            assert whole[row, column] == values(1 if column % 3 == 1 else me(), 6, 8)[row, column]


@scene()
def conjugated_and_negated():
    """Uses lazily conjugated and negated tensors as inputs only, because torch does not write to them."""
    conjugated = torch.complex(values(me(), 2 * size()), values(me() + 1, 2 * size())).conj()
    negated = conjugated.imag
    assert conjugated.is_conj() and negated.is_neg()
    results = [torch.empty_like(conjugated.resolve_conj()), torch.empty(2 * size())]
    for got, sent in zip(results, (conjugated, negated)):
        work = dist.group.WORLD.send([sent], (me() + 1) % size(), 0)
        dist.group.WORLD.recv([got], (me() - 1) % size(), 0).wait()
        work.wait()
    parts = [torch.empty(2 * size()) for _ in range(size())]
    dist.all_gather(parts, negated)
    whole, mine, exchanged = torch.empty(2 * size() ** 2), torch.empty(2), torch.empty(2 * size())
    dist.all_gather_into_tensor(whole, negated)
    dist.reduce_scatter_tensor(mine, negated)
    dist.all_to_all_single(exchanged, negated)
    return results, parts, whole, mine, exchanged


@scene()
def operations_with_each_root():
    """Results of ranks other than the root are undefined."""
    results = []
    for root in range(size()):
        for dtype in (*FLOATS, *WHOLE, torch.complex64):
            results.append(values(me(), 257).to(dtype))
            dist.broadcast(results[-1], root)
        mine, part = values(me(), 100 + root), torch.empty(6)
        dist.reduce(mine, root)
        parts = [torch.empty(6) for _ in range(size())] if me() == root else None
        dist.gather(values(me(), 6), parts, root)
        dist.scatter(part, [values(rank + root, 6) for rank in range(size())] if me() == root else None, root)
        results += [mine if me() == root else None, parts, part]
    return results


@scene(alone=True)
def types_that_are_only_moved():
    """Moves types for which Gloo has no scalar type."""
    for dtype in (torch.bool, torch.int16, torch.uint16, torch.float8_e4m3fn):
        mine = values(me(), 2, 257).to(dtype)
        parts = [torch.empty_like(mine) for _ in range(size())]
        dist.all_gather(parts, mine)
        for rank, part in enumerate(parts):
            assert torch.equal(part.view(torch.uint8), values(rank, 2, 257).to(dtype).view(torch.uint8))
        dist.broadcast(mine, 1)
        assert torch.equal(mine.view(torch.uint8), parts[1].view(torch.uint8))


@scene()
def large_tensors():
    mine = values(me(), 3_000_001)
    dist.all_reduce(mine)
    return mine


# --- parts ------------------------------------------------------------------------------------------


@scene()
def gathers_to_all():
    results = []
    for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8):
        parts = [torch.empty(4, 5, dtype=dtype) for _ in range(size())]
        dist.all_gather(parts, values(me(), 4, 5).to(dtype))
        whole = torch.empty(4 * size(), 5, dtype=dtype)
        dist.all_gather_into_tensor(whole, values(me(), 4, 5).to(dtype))
        results += [parts, whole]
    strided = [torch.empty(5, 4).t() for _ in range(size())]
    dist.all_gather(strided, values(me(), 5, 4).t())
    nothing = [torch.empty(0) for _ in range(size())]
    dist.all_gather(nothing, torch.empty(0))
    return results, [each.contiguous() for each in strided], nothing


@scene()
def reduce_scatters():
    mine = torch.empty(9)
    dist.reduce_scatter_tensor(mine, values(me(), 9 * size()))
    listed = torch.empty(4)
    dist.reduce_scatter(listed, [values(me() + rank, 4) for rank in range(size())])
    return mine, listed


@scene()
def exchanges():
    """Rank r sends r + s rows to rank s, and none to itself; then it sends equally many to each rank."""

    def rows(sender, receiver):
        return 0 if sender == receiver else sender + receiver

    sent = [rows(me(), rank) for rank in range(size())]
    received = [rows(rank, me()) for rank in range(size())]
    got = torch.empty(sum(received), 3)
    dist.all_to_all_single(got, values(me(), sum(sent), 3), received, sent)
    equal = torch.empty(3 * size(), 2)
    dist.all_to_all_single(equal, values(me(), 3 * size(), 2))
    return got, equal


# --- messages ---------------------------------------------------------------------------------------


@scene(2)
def tags_out_of_order():
    got = [torch.empty(5) for _ in range(4)]
    if me() == 0:
        for work in [dist.isend(values(tag, 5), 1, tag=tag) for tag in range(4)]:
            work.wait()
    else:
        for tag in (2, 0, 3, 1):
            dist.recv(got[tag], 0, tag=tag)
    return got if me() == 1 else None


@scene()
def batches_of_messages():
    got = [torch.empty(3 + rank) for rank in range(size())]
    operations = []
    for rank in range(size()):
        if rank != me():
            operations.append(dist.P2POp(dist.isend, values(me() + rank, 3 + me()), rank))
            operations.append(dist.P2POp(dist.irecv, got[rank], rank))
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return [each for rank, each in enumerate(got) if rank != me()]


@scene()
def messages_from_any_rank():
    if me() != 0:
        dist.send(values(me(), 8), 0)
        return None
    got = [torch.empty(8) for _ in range(size() - 1)]
    for each in got:
        dist.irecv(each).wait()
    return sorted(each.tolist() for each in got)  # They are received in any order.


@scene()
def objects():
    every = [None] * size()
    dist.all_gather_object(every, {"rank": me(), "text": "x" * (1000 * me()), "tensor": values(me(), 3)})
    listed = [("root", size()), torch.ones(2)] if me() == 1 else [None, None]
    dist.broadcast_object_list(listed, 1)
    gathered = [None] * size() if me() == 0 else None
    dist.gather_object((me(), "gathered"), gathered)
    mine = [None]
    dist.scatter_object_list(mine, [f"for {rank}" for rank in range(size())] if me() == 0 else None)
    sent = [me(), {"message": True}] if me() == 0 else [None, None]
    if me() == 0:
        dist.send_object_list(sent, 1)
    elif me() == 1:
        dist.recv_object_list(sent, 0)
    return every, listed, gathered, mine, sent


# --- sparse -----------------------------------------------------------------------------------------


@scene()
def sparse_sums():
    results = []
    for count in (0, 1, 40):
        places = (torch.arange(count) * (me() + 1)) % 30  # Some occur twice.
        results.append(torch.sparse_coo_tensor(places[None], values(me(), count, 4), (30, 4)))
        dist.all_reduce(results[-1])
    return [each.to_dense() for each in results]


@scene()
def sparse_sums_of_other_types():
    results = []
    for dtype in (torch.float64, torch.int32, torch.int64):
        tensor = torch.sparse_coo_tensor([[0, me()], [2, 1]], values(me(), 2, dtype=dtype), (5, 3))
        dist.all_reduce(tensor)
        results.append(tensor.to_dense())
    large = torch.sparse_coo_tensor([[0]], torch.tensor([2**24 + 1]), (2,))
    dist.all_reduce(large)
    deep = torch.sparse_coo_tensor([[0, 1, me() % 2], [me() % 3, 2, 1]], torch.ones(3, 4), (2, 3, 4))
    dist.all_reduce(deep)
    return results, large.to_dense(), deep.to_dense()


# --- futures ----------------------------------------------------------------------------------------


@scene()
def futures():
    chained = dist.all_reduce(values(me(), 5), async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    first = dist.all_reduce(values(me(), 6), async_op=True).get_future()
    second = dist.broadcast(values(me(), 7), 1, async_op=True).get_future()
    return chained.wait(), torch.futures.collect_all([first, second]).then(lambda all_: [f.value()[0] for f in all_.value()]).wait()


@scene()
def futures_inside_futures():
    """A callback starts another operation and waits for it, as torch's PowerSGD does."""
    last = size() - 1
    token = torch.zeros(1)
    if me() == last:  # Begins when the other ranks have their futures, which are still incomplete.
        for rank in range(last):
            dist.recv(token, rank)

    def again(_):
        mine = values(me(), 4)
        dist.all_reduce(mine, async_op=True).wait()
        return mine

    def twice(done):
        third = dist.all_reduce(done.value() + 1, async_op=True).get_future()
        return third.then(lambda inner: inner.value()[0]).wait()

    chain = dist.all_reduce(values(me(), 3), async_op=True).get_future().then(again).then(twice)
    if me() != last:
        dist.send(token, last)
    return chain.wait()


@scene(2, 3)
def futures_that_callbacks_wait_for():
    """A callback waits for futures that were taken before it ran."""
    return waited_for_in_callbacks(1)


@scene(2, 3, alone=True)
def futures_that_many_callbacks_wait_for():
    """All callbacks wait at the same time; Gloo has only two threads for them."""
    expected = sum(values(rank, 4) for rank in range(size()))
    before = resources()
    for _ in range(20):
        for got in waited_for_in_callbacks(5):
            assert all(torch.equal(each, expected) for each in got), got
    # Two threads watch futures. Threads that have waited end, but perhaps not all have ended yet.
    assert resources()[1] <= before[1] + 2 + 5, f"threads: {before[1]}, then {resources()[1]}"


def waited_for_in_callbacks(count):
    """Returns the results of the callbacks of `count` futures. These are complete before the futures for which the
    callbacks wait."""
    last = size() - 1
    token = torch.zeros(1)
    if me() == last:  # Begins when the other ranks have their futures.
        for rank in range(last):
            dist.recv(token, rank)
    firsts = [dist.all_reduce(values(me(), 3), async_op=True).get_future() for _ in range(count)]
    if me() == last:
        for rank in range(last):
            dist.recv(token, rank)
    one = dist.all_reduce(values(me(), 4), async_op=True).get_future()
    other = one.then(lambda done: done.value()[0].clone())
    both = torch.futures.collect_all([one, other])
    chains = [first.then(lambda _: [one.wait()[0], other.wait(), both.wait()[1].value()]) for first in firsts]
    if me() != last:
        dist.send(token, last)
        dist.send(token, last)
    return torch.futures.wait_all(chains)


@scene()
def many_futures():
    tensors = [values(me() + each, 3) for each in range(300)]
    pending = [dist.all_reduce(each, async_op=True).get_future() for each in tensors]
    return [each[0] for each in torch.futures.wait_all(pending)]


@scene()
def values_of_futures():
    """The future of each operation has the same tensors as Gloo's. Only for all_gather_into_tensor it has the tensor
    that was passed, and Gloo's future has the parts."""
    results = []

    def note(work):
        results.append(work.get_future().wait())

    note(dist.all_reduce(values(me(), 2), async_op=True))
    note(dist.broadcast(values(me(), 2), 0, async_op=True))
    note(dist.all_gather([torch.empty(2) for _ in range(size())], values(me(), 2), async_op=True))
    note(dist.all_to_all_single(torch.empty(size()), values(me(), size()), async_op=True))
    parts = [torch.empty(2) for _ in range(size())] if me() == 0 else None
    work = dist.gather(values(me(), 2), parts, 0, async_op=True)
    if me() == 0:
        note(work)
    work.wait()
    note(dist.scatter(torch.empty(2), [values(r, 2) for r in range(size())] if me() == 0 else None, 0, async_op=True))
    return results


# --- modes of torch ---------------------------------------------------------------------------------


@scene()
def tensors_that_need_gradients():
    leaf = torch.nn.Parameter(values(me(), 5))
    with torch.no_grad():
        dist.all_reduce(leaf)
        dist.broadcast(leaf, 1)
    return leaf.detach(), leaf.requires_grad


@scene()
def differentiable_operations():
    results = []
    for call in (
        lambda x: differentiable.all_reduce(x * 2),
        lambda x: differentiable.broadcast(x * 3, 0),
        lambda x: torch.stack(differentiable.all_gather(x)),
        lambda x: differentiable.all_to_all_single(torch.empty(size()), x[: size()].contiguous()),
    ):
        x = values(me(), 6).requires_grad_()
        y = call(x)
        (y * (me() + 1)).sum().backward()
        results += [y.detach(), x.grad]
    return results


@scene()
def functional_operations():
    group = dist.group.WORLD
    mine = values(me(), 2 * size())
    results = [
        functional.all_reduce(mine, "sum", group),
        functional.all_reduce(mine, "max", group),
        functional.all_gather_tensor(mine, 0, group),
        functional.all_gather_tensor(mine.view(2, size()), 1, group),
        functional.reduce_scatter_tensor(mine, "sum", 0, group),
        functional.all_to_all_single(mine, None, None, group),
        functional.broadcast(mine, 1, group),
        *functional.all_reduce_coalesced([mine, mine + 1], "sum", group),
    ]
    return [each + 0 for each in results]


@scene(2)
def compiled_operations():
    @torch.compile(backend="eager")
    def step(x):
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    return step(values(me(), 4)), step(values(me() + 1, 4))


# --- groups -----------------------------------------------------------------------------------------


@scene()
def subgroups():
    results = []
    for members in ([0, 1], [1, 0], list(range(1, size())), [size() - 1]):
        group = dist.new_group(members)
        if me() not in members:
            continue
        mine = values(me(), 9)
        dist.all_reduce(mine, group=group)
        other = values(me(), 4)
        dist.broadcast(other, members[-1], group=group)
        parts = [torch.empty(2) for _ in members]
        dist.all_gather(parts, values(me(), 2), group=group)
        results += [mine, other, parts, dist.get_group_rank(group, me()), dist.get_process_group_ranks(group)]
        dist.barrier(group)
    return results


@scene(4)
def groups_by_enumeration():
    results = []
    for made, _ in (dist.new_subgroups(2), dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])):
        mine = values(me(), 3)
        dist.all_reduce(mine, group=made)
        results += [mine, dist.get_world_size(made), dist.get_rank(made)]
        dist.destroy_process_group(made)
    return results


@scene()
def groups_that_overlap():
    """Runs operations of two groups, in a different order on each rank."""
    groups = [dist.new_group(), dist.new_group()]
    tensors = [values(me(), 10), values(me() + 1, 20)]
    order = (0, 1) if me() % 2 == 0 else (1, 0)
    works = [dist.all_reduce(tensors[each], group=groups[each], async_op=True) for each in order]
    for work in works:
        work.wait()
    return tensors


@scene()
def threads_with_groups_of_their_own():
    groups = [dist.new_group() for _ in range(3)]
    tensors = [values(me() + each, 50) for each in range(3)]

    def work(each):
        for _ in range(20):
            dist.all_reduce(tensors[each], dist.ReduceOp.MAX, group=groups[each])
            dist.broadcast(tensors[each], 1, group=groups[each])

    workers = [threading.Thread(target=work, args=(each,)) for each in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return tensors


def check_flat(before, rounds):
    """Checks resources; skipped over Gloo."""
    after = resources()
    if dist.get_backend() == "kolo":
        assert after[0] <= before[0] and after[1] <= before[1], f"descriptors, threads: {before[:2]}, then {after[:2]}"
        # Less than a page per round shows that nothing is leaked.
        assert after[2] <= before[2] + rounds * 4096, f"resident bytes: {before[2]}, then {after[2]}"


@scene()
def operations_again_and_again():
    """Descriptors, threads and memory stay constant while operations repeat."""

    def use(rounds):
        for number in range(rounds):
            mine = values(me() + number, 50)
            dist.all_reduce(mine, async_op=True).get_future().wait()
            got = torch.empty(4, 3)
            work = dist.isend(values(me(), 4, 3), (me() + 1) % size())
            dist.recv(got, (me() - 1) % size())
            work.wait()
            sparse = torch.sparse_coo_tensor([[number % 5]], torch.ones(1), (5,))
            dist.all_reduce(sparse)
            every = [None] * size()
            dist.all_gather_object(every, number)
        gc.collect()
        return mine, got, sparse.to_dense(), every

    rounds = 300
    use(rounds)  # Afterwards pools and caches have their final size.
    before = resources()
    results = use(rounds)
    check_flat(before, rounds)
    return results


@scene(2, 3)
def groups_made_and_destroyed():
    """Descriptors, threads and memory stay constant for any number of groups."""
    rounds = int(os.environ.get("DIFFERENTIAL_GROUPS", "300"))

    def use(count):
        total = 0.0
        for number in range(count):
            group = dist.new_group(list(range(size())) if number % 2 == 0 else [0, 1])
            if group is not dist.GroupMember.NON_GROUP_MEMBER and (number % 2 == 0 or me() < 2):
                mine = values(me() + number, 5)
                dist.all_reduce(mine, group=group)
                total += mine.sum().item()
                dist.destroy_process_group(group)
        gc.collect()
        dist.barrier()
        return total

    first = use(rounds // 10)
    before = resources()
    total = use(rounds)
    check_flat(before, rounds)
    return first, total


@scene()
def barriers():
    for _ in range(20):
        dist.barrier()
    works = [dist.barrier(async_op=True) for _ in range(5)]
    for work in works:
        work.wait()
    return [work.get_future().done() for work in works]


@scene()
def arguments_that_are_wrong():
    """Wrong arguments are an error of this rank only; the group goes on afterwards."""
    kinds = []
    for call in (
        lambda: dist.broadcast(torch.ones(2), 9),
        lambda: dist.all_gather([torch.empty(2)], torch.ones(2)),
        lambda: dist.all_to_all_single(torch.empty(4), torch.ones(4), [9] * size(), [1] * size()),
        lambda: dist.reduce_scatter_tensor(torch.empty(5), torch.ones(3)),
    ):
        with contextlib.suppress(RuntimeError, ValueError):
            call()
            kinds.append("no error")
    dist.barrier()
    return kinds
