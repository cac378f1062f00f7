"""Scenes for the ranks of a torch job, each with its own checks; `torch_test.py` starts them.

    torch_scenes.py SCENE    with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or SCENE_METHOD=kolo://
"""

import gc
import itertools
import os
import resource
import sys
import threading
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from support import play, raises
from torch.nn.parallel import DistributedDataParallel

import kolo
import kolo.torch
import torch_stand_in  # noqa: F401  (takes its place if the job asks for it)

METHOD = os.environ.get("SCENE_METHOD")


def check(actual, expected, what):
    if not torch.equal(actual, expected.to(actual.dtype)):
        raise AssertionError(f"{what}: {actual} instead of {expected}")


def parts():
    """Checks parts of unequal sizes, and repeated parts of 4 MiB, which FSDP needs and Gloo of torch 2.9 and JAX got
    wrong."""
    size, me = dist.get_world_size(), dist.get_rank()
    uneven = [torch.full((rank + 1,), float(me)) for rank in range(size)]
    received = [torch.empty(me + 1) for _ in range(size)]
    dist.all_to_all(received, uneven)
    assert all(torch.equal(received[rank], torch.full((me + 1,), float(rank))) for rank in range(size))
    gathered = [torch.empty(rank + 1) for rank in range(size)]
    dist.all_gather(gathered, torch.full((me + 1,), float(me)))
    assert all(torch.equal(gathered[rank], torch.full((rank + 1,), float(rank))) for rank in range(size))
    # Sums of integers below 2^24 are exact in float32.
    count = (4 << 20) // 4 // size
    inputs = (torch.arange(size * count) % 1000).float() * (me + 1)
    expected = (torch.arange(me * count, (me + 1) * count) % 1000).float() * (size * (size + 1) / 2)
    out = torch.empty(count)
    for _ in range(75):
        dist.reduce_scatter_tensor(out, inputs)
        check(out, expected, "reduce_scatter")
        dist.reduce_scatter_tensor(out, inputs, dist.ReduceOp.AVG)
        torch.testing.assert_close(out, expected / size, rtol=2 * torch.finfo(out.dtype).eps, atol=0)


def messages():
    size, me = dist.get_world_size(), dist.get_rank()
    sends = [dist.isend(torch.full((3,), float(me)), peer, tag=peer) for peer in range(size) if peer != me]
    for peer in range(size):
        if peer != me:
            got = torch.empty(3)
            assert dist.recv(got, peer, tag=me) == peer
            check(got, torch.full((3,), float(peer)), "message")
    for work in sends:
        work.wait()
    if torch.__version__ < (2, 14):  # Later versions answer these calls themselves; see docs/pytorch.md.
        any_source()


def overlaps():
    """A rank's part lies in the memory for the parts of all ranks: at the place of this rank, or at another one."""
    size, me = dist.get_world_size(), dist.get_rank()
    ranks = torch.arange(float(size)).repeat_interleave(2)
    wrong = slice(0, 2)
    for place in (slice(2 * me, 2 * me + 2), wrong):
        whole = torch.full((2 * size,), -1.0)
        whole[place] = float(me)
        dist.all_gather_into_tensor(whole, whole[place])
        check(whole, ranks, f"all_gather from {place}")
        whole = torch.arange(2.0 * size) + me
        dist.reduce_scatter_tensor(whole[place], whole)
        check(whole[place], (torch.arange(2.0) + 2 * me) * size + sum(range(size)), f"reduce_scatter to {place}")
    both = torch.zeros(2 * size + 2)
    for splits in (None, [2] * size):
        both[: 2 * size] = torch.arange(2.0 * size) + 100 * me
        dist.all_to_all_single(both[2:], both[: 2 * size], splits, splits)
        check(both[2:], 100 * ranks + torch.arange(2.0).repeat(size) + 2 * me, f"all_to_all, splits {splits}")
    both[: 2 * size] = torch.arange(2.0 * size) + 100 * me
    dist.all_to_all(list(both[2:].split(2)), list(both[: 2 * size].split(2)))
    check(both[2:], 100 * ranks + torch.arange(2.0).repeat(size) + 2 * me, "all_to_all of lists")


def default_device():
    """Operations do not depend on torch's default device."""
    size, me = dist.get_world_size(), dist.get_rank()
    table = torch.sparse_coo_tensor(torch.tensor([[me]]), torch.ones(1), (size,))
    sent, got, splits = torch.full((size,), float(me)), torch.empty(size), [1] * size
    backend = kolo.torch._parameters.backend_of(None)
    with torch.device("meta"):  # Some calls of torch end this mode before they call the backend.
        works = [
            backend.barrier(None),
            backend.all_to_all_single(got, sent, splits, splits, None),
            backend.allreduce([table], dist.AllreduceOptions()),
        ]
        for work in works:
            work.wait()
    check(got, torch.arange(float(size)), "all_to_all with splits")
    check(table.to_dense(), torch.ones(size), "all_reduce of a sparse tensor")


def completed():
    """Once a work is completed, its results are in their tensors."""
    size, me = dist.get_world_size(), dist.get_rank()
    backend = kolo.torch._parameters.backend_of(None)
    parts, strided = [torch.zeros(3) for _ in range(size)], torch.full((4, 2), float(me)).t()
    works = (
        backend.allgather([parts], [torch.full((3,), float(me))]),
        backend.allreduce([strided], dist.AllreduceOptions()),
    )
    for work in works:
        while not work.is_completed():
            pass
    check(torch.stack(parts)[:, 0], torch.arange(float(size)), "all_gather")
    check(strided[0], torch.full((4,), float(sum(range(size)))), "all_reduce with strides")
    assert all(work.is_success() for work in works)


def batches():
    """Calls torch between begin and end of a batch, and sends several tensors as one operation."""
    from torch.distributed.distributed_c10d import _coalescing_manager

    size, me = dist.get_world_size(), dist.get_rank()
    ones, here = [torch.ones(3), torch.ones(2, 4)], [torch.full((2,), float(me)), torch.full((3,), float(me))]
    with _coalescing_manager(async_ops=True) as batch:
        for tensor in ones:
            dist.all_reduce(tensor)
    batch.wait()
    whole = [torch.empty(size * part.numel()) for part in here]
    with _coalescing_manager():
        for out, part in zip(whole, here):
            dist.all_gather_into_tensor(out, part)
    parts = [torch.empty(2), torch.empty(3)]
    with _coalescing_manager():
        for out, tensor in zip(parts, whole):
            dist.reduce_scatter_tensor(out, tensor)
    strided = torch.full((4, 2), float(me)).t()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch deprecates it.
        dist.all_reduce_coalesced([*ones, strided])
    for tensor in ones:
        check(tensor, torch.full_like(tensor, size * size), "all_reduce of several")
    check(strided, torch.full_like(strided, sum(range(size))), "all_reduce of several with strides")
    for part, out in zip(parts, whole):
        check(out, torch.arange(float(size)).repeat_interleave(part.numel()), "all_gather of several")
        check(part, torch.full_like(part, float(size * me)), "reduce_scatter of several")
    if torch.__version__ < (2, 14):  # torch does not call `_start_coalescing` of a group in Python.
        return
    mine, theirs, swapped = torch.full((4, 2), float(me)).t(), torch.full((3,), float(me)), torch.empty(size)
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as batch:
        dist.broadcast(mine, 1)
        dist.broadcast(theirs, 0)
        dist.all_to_all_single(swapped, torch.full((size,), float(me)))
    batch.wait()
    check(mine, torch.ones(2, 4), "broadcast of a tensor with strides in a batch")
    check(theirs, torch.zeros(3), "broadcast in a batch")
    check(swapped, torch.arange(float(size)), "all_to_all in a batch")
    ends = dist.group.WORLD._get_backend(torch.device("cpu"))
    for wrong in ((ends.end_coalescing,), (ends.start_coalescing, ends.start_coalescing)):
        with raises(kolo.UsageError, "batch of operations has begun"):
            for call in wrong:
                call()
    ends.end_coalescing()


# Calls that torch itself answers, and names from before torch 2.14.
ANSWERED = """
Options _allgather_base _reduce_scatter_base alltoall_base gather_into_tensor _start_coalescing _end_coalescing
_get_backend_name name rank size get_error bound_device_id eager_connect_single_device _set_group_uid
_add_ephemeral_timeout setUsePgForSymmMemRendezvous supports_abort_hooks supports_completion_hooks
_pybind11_conduit_v1_
""".split()


def table():
    """Each operation of torch's Backend class is supported, or refused by an error that names the backend."""
    if torch.__version__ < (2, 14):
        return
    import torch._C._distributed_c10d as c10d

    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    base = c10d.Backend
    store = dist.distributed_c10d._get_default_store()
    refused = {
        "split": (store, [0], backend.options),
        "merge": (store, backend.options, 0, 1),
        "shrink": ([1],),
        "new_window": (),
        "get_reconfigure_handle": (),
        "reconfigure": (c10d.ReconfigureOptions(),),
        "register_abort_hook": (1, print),
        "unregister_abort_hook": (1,),
        "monitored_barrier": (),
        "suspend": (),
        "resume": (),
        "memory_stats": (),
        "mem_allocator": None,
        "_start_time_estimate": (),
        "_end_time_estimate": (),
        "_enable_collectives_timing": (),
        "_register_on_completion_hook": (print,),
        "_wait_for_pending_works": (),
    }
    for name, arguments in refused.items():
        if not hasattr(base, name):
            assert torch.__version__ < (2, 15), name  # New in 2.15.
            continue
        with raises(RuntimeError, "kolo") as caught:
            value = getattr(backend, name)
            if arguments is not None:
                value(*arguments)
        assert "\n" not in str(caught.error), (name, caught.error)
    with raises(RuntimeError, "Backend kolo does not support allocateTensor"):
        backend.allocate_tensor(3, dtype=torch.float32, device=torch.device("cpu"))
    offered = {name for name in dir(base) if getattr(type(backend), name) is not getattr(base, name)}
    known = {*offered, *ANSWERED, *refused, "allocate_tensor"}
    unknown = [name for name in dir(base) if name not in known and not name.startswith("__")]
    # This list is for 2.15. A newer torch may call more operations, and 2.14 calls others, which its class refuses.
    assert not unknown or not (2, 15) <= torch.__version__ < (2, 16), unknown

    me, size = dist.get_rank(), dist.get_world_size()
    opts = c10d.GatherOptions()
    opts.rootRank = 1
    out = torch.zeros(size, 2).t() if me == 1 else torch.empty(0)
    backend.gather_single(out, torch.full((2,), float(me)), opts).wait()
    if me == 1:
        check(out.reshape(-1), torch.arange(float(size)).repeat_interleave(2), "gather into one tensor")


def any_source():
    """After a receive, torch asks for its source; works report when they are done."""
    size, me = dist.get_world_size(), dist.get_rank()
    work = dist.isend(torch.full((3,), float(me)), (me + 1) % size)
    got = torch.empty(3)
    assert dist.recv(got) == (me - 1) % size
    check(got, torch.full((3,), float((me - 1) % size)), "from any source")
    work.wait()
    assert work.is_completed()
    work, apart = dist.isend(torch.full((3,), float(me)), (me + 1) % size), torch.zeros(3, 2)[:, 0]
    receive = kolo.torch._parameters.backend_of(None).recv_anysource([apart], 0)
    assert receive.source_rank() == (me - 1) % size
    check(apart, torch.full((3,), float((me - 1) % size)), "from any source, apart")
    work.wait()


def trained(wrap):
    """Trains a small model that `wrap` parallelises; returns its weights and last losses."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Tanh(), torch.nn.Linear(50, 5))
    parallel = wrap(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
    for step in range(12):
        torch.manual_seed(100 * step + dist.get_rank())
        loss = parallel(torch.randn(16, 20)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()])


def ddp():
    """DDP trains with Kolo's hooks as without them, up to the rounding of sent values."""
    expected = trained(DistributedDataParallel)
    for hook in (kolo.torch.bf16_hook, kolo.torch.fp16_hook):

        def hooked(model):
            parallel = DistributedDataParallel(model)
            parallel.register_comm_hook(None, hook)
            return parallel

        assert torch.allclose(trained(hooked), expected, rtol=0.05, atol=0.02), hook


def values_of_futures():
    """Futures have flat lists, as over Gloo; Kolo refuses calls on lists that Gloo would sum."""
    me, size = dist.get_rank(), dist.get_world_size()
    mine = torch.full((2,), float(me))
    got = dist.gather(mine, [torch.zeros(2) for _ in range(size)] if me == 1 else None, 1, async_op=True).get_future().wait()
    assert len(got) == (size if me == 1 else 0), got
    assert dist.barrier(async_op=True).get_future().wait() == []
    group = dist.group.WORLD
    two = [mine.clone(), mine.clone()]
    refused = (
        lambda: group.allreduce(two, dist.AllreduceOptions()),
        lambda: group.broadcast(two, dist.BroadcastOptions()),
        lambda: group.allgather([list(torch.zeros(size, 2)), list(torch.zeros(size, 2))], two),
    )
    for call in refused:
        with raises(kolo.UsageError, "one tensor here, not 2"):
            call()
    check(torch.stack(two), torch.stack([mine, mine]), "tensors of calls that are refused")


def begun_by_all(begin):
    """Returns the result of `begin`. Rank 1 begins after rank 0, whose operations cannot be over before."""
    if dist.get_rank() == 1:
        dist.recv(torch.empty(1), 0)
    begun = begin()
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), 1)
    return begun


def inference():
    """Results are copied to tensors of inference mode, by a wait or a future, in that mode or outside."""
    me, size = dist.get_rank(), dist.get_world_size()
    ranks = torch.arange(float(size))

    def gathered():
        parts = [torch.empty(3) for _ in range(size)]
        return lambda: dist.all_gather(parts, torch.full((3,), float(me)), async_op=True), lambda: torch.stack(parts)[:, 0], ranks

    def strided():
        tensor = torch.full((4, 2), float(me)).t()
        return lambda: dist.all_reduce(tensor, async_op=True), lambda: tensor[0], torch.full((4,), float(sum(ranks)))

    def sparse():
        tensor = torch.sparse_coo_tensor(torch.tensor([[me]]), torch.ones(1), (size,))
        return lambda: dist.all_reduce(tensor, async_op=True), tensor.to_dense, torch.ones(size)

    def exchanged():
        got = torch.zeros(2 * size).view(2, size).t()
        splits = [1] * size
        return (
            lambda: dist.all_to_all_single(got, torch.full((size, 2), float(me)), splits, splits, async_op=True),
            lambda: got[:, 1],
            ranks,
        )

    waits = (lambda work: work.wait(), lambda work: work.get_future().wait())
    for make, wait, *modes in itertools.product((gathered, strided, sparse, exchanged), waits, *[(True, False)] * 3):
        with torch.inference_mode(modes[0]):
            begin, result, expected = make()
        with torch.inference_mode(modes[1]):
            work = begun_by_all(begin)
        with torch.inference_mode(modes[2]):
            wait(work)
        check(result(), expected, f"{make.__name__} in modes {modes}")
    tensor = torch.ones(2, 2, requires_grad=True) * 1.0
    loss = (tensor * tensor).sum()
    with torch.inference_mode():
        dist.all_reduce(tensor.t())
    with raises(RuntimeError, "modified by an inplace operation"):
        loss.backward()


def patient():
    """Uses timeouts of more milliseconds than the kernel allows, and of more years than Kolo allows."""
    for timeout in (timedelta(days=30), timedelta(seconds=180_000_000), timedelta(days=100_000_000)):
        group = dist.new_group(timeout=timeout)
        tensors = torch.ones(3), torch.ones(3)
        works = begun_by_all(lambda: [dist.all_reduce(each, group=group, async_op=True) for each in tensors])
        works[0].get_future().wait()
        works[1].wait()
        for tensor in tensors:
            check(tensor, torch.full((3,), float(dist.get_world_size())), f"within {timeout}")
    dist.destroy_process_group()
    dist.init_process_group("kolo", init_method=METHOD, timeout=timedelta(seconds=180_000_000))
    dist.all_reduce(tensors[0])


def starved():
    """Uses more futures at a time than there are descriptors; no thread may fail."""
    died = []
    threading.excepthook = lambda end: died.append(end.exc_value)
    dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()  # The thread of futures has its descriptors now.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(each) for each in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, most))
    tensors = [torch.full((2,), float(i)) for i in range(100)]
    futures = begun_by_all(lambda: [dist.all_reduce(each, async_op=True).get_future() for each in tensors])
    for future in futures:
        future.wait()
    for i, tensor in enumerate(tensors):
        check(tensor, torch.full((2,), float(i * dist.get_world_size())), f"future {i}")
    assert not died, died


def mismatch():
    """Ranks call different operations. The error names both, and the group goes on."""
    me = dist.get_rank()
    with raises(kolo.MismatchError, "all_reduce float32 [3] sum", "[4]"):
        dist.all_reduce(torch.ones(3 + me))
    for wrong in (
        lambda: dist.all_reduce(torch.ones(3 + me), async_op=True).get_future().wait(),
        lambda: dist.all_reduce(torch.ones(3, dtype=(torch.float32, torch.int32)[me])),
        lambda: dist.broadcast(torch.ones(3), me),
        lambda: dist.all_reduce(torch.ones(3)) if me == 0 else dist.all_gather([torch.ones(3)] * 2, torch.ones(3)),
    ):
        with raises(Exception, "ranks disagree"):  # torch turns a future's error into a RuntimeError.
            wrong()
    dist.barrier()


def splits():
    """Two ranks disagree about the number of rows that one sends to the other. Both errors name both numbers, and the
    group goes on."""
    me, size = dist.get_rank(), dist.get_world_size()
    some = dist.new_group()
    cases = itertools.product(((1, 2), (2, 1), (0, 1), (1, 0)), (1, 30_000), (dist.group.WORLD, some), (True, False))
    for (sent, expected), width, group, by_future in cases:
        ins, outs = [1] * size, [1] * size
        if me == 0:
            ins[1] = sent
        if me == 1:
            outs[0] = expected
        got = torch.zeros(sum(outs), width)
        what = f"rank 0 sends {sent * width} elements to rank 1, which expects {expected * width}"
        try:
            work = dist.all_to_all_single(got, torch.full((sum(ins), width), float(me)), outs, ins, group, async_op=True)
            work.get_future().wait() if by_future else work.wait()
        except (RuntimeError, kolo.MismatchError) as error:  # torch turns a future's error into a RuntimeError.
            assert me in (0, 1) and what in str(error), (what, error)
        else:
            assert me > 1, f"no error: {what}"
            check(got, torch.arange(float(size)).unsqueeze(1).expand(size, width), "rows of ranks that agree")
    with raises(kolo.MismatchError, "all_reduce float32 [3] sum", "all_to_all of torch.float32 with counts"):
        if me == 0:
            dist.all_reduce(torch.ones(3))
        else:
            dist.all_to_all(list(torch.empty(size, 2)), list(torch.ones(size, 2)))
    got = list(torch.zeros(size, 2))
    dist.all_to_all(got, list(torch.full((size, 2), float(me))))
    check(torch.stack(got), torch.arange(float(size)).unsqueeze(1).expand(size, 2), "after errors")


def diverged():
    """Calls of ranks diverge behind futures, although each rank could still submit the calls of the others."""
    me = dist.get_rank()
    some = dist.new_group()
    # Each pair has different operations, different reductions, or a barrier in place of an operation.
    apart = (
        (lambda: dist.all_reduce(torch.ones(4), async_op=True), "all_reduce float32 [4] sum"),
        (lambda: dist.broadcast(torch.ones(4), 1, async_op=True), "broadcast float32 [4] from rank 1"),
        (lambda: dist.all_reduce(torch.ones(5), async_op=True, group=some), "all_reduce float32 [5] sum"),
        (lambda: dist.barrier(async_op=True, group=some), "barrier of torch"),
    )
    for calls in (apart[:2], apart[2:]):
        with raises(Exception, "ranks disagree", *(text for _, text in calls)):  # torch turns it into a RuntimeError.
            calls[min(me, 1)][0]().get_future().wait()
    dist.barrier()


def detail():
    """Uses groups under TORCH_DISTRIBUTED_DEBUG=DETAIL. torch wraps them and checks them over Gloo, except process
    groups in Python, the form before torch 2.14."""
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    checked = dist.new_group()
    gc.collect()
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, dist.get_rank(), group=checked)
    assert objects == list(range(dist.get_world_size())), objects
    by_torch = type(checked) is dist.ProcessGroup  # A group in Python is of another class.
    with raises((RuntimeError, kolo.KoloError), "Detected mismatch" if by_torch else "ranks disagree"):
        dist.all_reduce(torch.ones(3 + dist.get_rank()), group=checked)


def longer():
    """The timeout of a group holds if it is longer than that of the default group."""
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    dist.init_process_group("kolo", init_method=METHOD, timeout=timedelta(seconds=2))
    slow = dist.new_group(timeout=timedelta(seconds=60))

    def wait_twice():
        for _ in range(2):
            with raises(kolo.KoloError, "barrier of torch"):
                dist.barrier()
        store.set("waited", "twice")

    if dist.get_rank() == 0:
        waiting = threading.Thread(target=wait_twice)
        waiting.start()
        dist.barrier(group=slow)
        waiting.join()
    else:
        store.wait(["waited"], timedelta(seconds=60))
        dist.barrier(group=slow)


def deadline():
    """The timeout of a group ends a wait with an error that names the operation."""
    hasty, never = dist.new_group(timeout=timedelta(milliseconds=300)), torch.full((3,), -1.0)
    if dist.get_rank() == 0:
        with raises(kolo.DeadlineError, "recv from rank 1") as caught:
            dist.recv(never, 1, group=hasty)
        assert (caught.error.rank, caught.error.peer) == (0, 1), caught.error
        for late in (lambda work: work.wait(), lambda work: work.get_future().wait()):
            with raises(Exception, "rank 0: all_reduce"):  # torch turns a future's error into a RuntimeError.
                late(dist.all_reduce(torch.ones(3), group=hasty, async_op=True))
            with raises(Exception, "recv from rank 1"):
                late(dist.irecv(never, 1, group=hasty))
    gc.collect()  # A future's error may hold its work in a cycle.
    dist.barrier()
    if dist.get_rank() == 1:
        dist.send(torch.arange(3.0), 0, group=hasty)
    else:
        got = torch.full((3,), -1.0)
        dist.recv(got, 1, group=hasty)
        check(got, torch.arange(3.0), "the message after receives that timed out")
        check(never, torch.full((3,), -1.0), "memory of receives that timed out")
    dist.barrier()


def handled():
    """A process group ends as usual if it is made and destroyed while the program handles an exception."""
    dist.destroy_process_group()
    aborts = []
    abort, kolo.Runtime.abort = kolo.Runtime.abort, lambda _, why: aborts.append(why)
    try:
        raise LookupError("the package for one GPU is missing")
    except LookupError:
        dist.init_process_group("kolo", init_method=METHOD)
        dist.all_reduce(torch.ones(3))
        dist.destroy_process_group()
    kolo.Runtime.abort = abort
    assert not aborts, aborts
    dist.init_process_group("kolo", init_method=METHOD)


def held():
    """Returns the number of descriptors of this process, and its GiB of address space."""
    (size,) = (line.split()[1] for line in open("/proc/self/status", encoding="ascii") if line.startswith("VmSize"))
    return len(os.listdir("/proc/self/fd")), int(size) / (1 << 20)


def check_held(before):
    """Checks that the arenas of a job have 65 GiB of addresses, including 1/16 GiB for a group."""
    (descriptors, size), (now, size_now) = before, held()
    assert now <= descriptors and size_now < size + 1, (before, held())


def groups():
    """A process group costs little, and nothing once it is destroyed."""
    size = dist.get_world_size()

    def made(ranks=None):
        group = dist.new_group(ranks, backend="kolo")
        if dist.get_rank() in (ranks or range(size)):
            tensor = torch.ones(3)
            dist.all_reduce(tensor, group=group)
            check(tensor, torch.full((3,), float(len(ranks or range(size)))), "in a group")
        return group

    first = made()
    before = held()
    several = [made() for _ in range(20)]
    check_held(before)
    for group in several:
        dist.destroy_process_group(group)
    for _ in range(40):
        group = made()
        dist.destroy_process_group(group)
        del group
    check_held(before)
    some = made([0, size - 1])
    for group in (first, some):
        dist.destroy_process_group(group)


beside_gloo = groups


def again():
    """The group is destroyed and made again in the same processes."""
    dist.destroy_process_group()
    dist.init_process_group("kolo", init_method=METHOD)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    check(tensor, torch.full((3,), float(dist.get_world_size())), "after another start")


def main():
    backend = "gloo" if sys.argv[1] == "beside_gloo" else "kolo"
    dist.init_process_group(backend, init_method=METHOD, timeout=timedelta(seconds=60))
    play(globals())
    dist.destroy_process_group()


main()
