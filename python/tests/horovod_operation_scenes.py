"""Scenes of horovod_scenes.py: places, operations, process sets."""

import sys
import warnings

import torch

import kolo.horovod as hvd
import torch_stand_in
from horovod_checks import check, raises, values
from kolo.horovod import _job, _operations

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int32, torch.int64, torch.uint8, torch.int8)


def places():
    """Checks ranks, sizes and constant answers."""
    assert sorted(hvd.allgather_object(hvd.rank())) == list(range(hvd.size()))
    assert 0 <= hvd.local_rank() < hvd.local_size()
    sizes = hvd.allgather_object((hvd.local_size(), hvd.cross_size(), hvd.cross_rank()))
    assert len(sizes) == hvd.size() and 0 <= hvd.cross_rank() < hvd.cross_size()
    if len(sys.argv) > 2:  # nodes=[2, 1]
        expected = {"2,1": [(2, 2, 0), (2, 1, 0), (1, 2, 1)]}[sys.argv[2]]
        assert sizes == expected, sizes
    assert hvd.mpi_threads_supported()
    built = (hvd.mpi_built(), hvd.mpi_enabled(), hvd.gloo_built(), hvd.gloo_enabled())
    assert not any(built) and not hvd.rocm_built() and not hvd.ddl_built() and not hvd.ccl_built()
    if torch_stand_in.is_asked_for():
        assert hvd.cuda_built() and hvd.nccl_built() == 1
    else:
        assert hvd.cuda_built() >= bool(hvd.nccl_built()), "NCCL without CUDA"
    hvd.barrier()


def allreduces():
    """Checks every reduction and type, in place and out of place, blocking and asynchronous, of one tensor and of
    several."""
    size, me = hvd.size(), hvd.rank()
    ops = {
        hvd.Sum: lambda each: each.sum(0),
        hvd.Min: lambda each: each.min(0).values,
        hvd.Max: lambda each: each.max(0).values,
        hvd.Product: lambda each: each.prod(0),
    }
    for dtype in FLOATS + INTEGERS:
        for shape in ((), (0,), (5,), (3, 1000)):
            mine = values(me, shape, dtype)
            every = torch.stack([values(rank, shape, torch.float64) for rank in range(size)])
            for op, expected in ops.items():
                check(hvd.allreduce(mine, op=op), expected(every), f"allreduce {op!r} {dtype} {shape}")
            check(mine, values(me, shape, dtype), "the argument")
            tensor = mine.clone()
            assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
            check(tensor, every.sum(0), "in place")
            handles = [hvd.allreduce_async(mine, name=f"sum {dtype} {shape}", op=hvd.Sum)]
            tensor = mine.clone()
            handles.append(hvd.allreduce_async_(tensor, name=f"max {dtype} {shape}", op=hvd.Max))
            check(hvd.synchronize(handles[1]), every.max(0).values, "asynchronously, in place")
            check(tensor, every.max(0).values, "asynchronously, in place")
            check(hvd.synchronize(handles[0]), every.sum(0), "asynchronously")
            while torch_stand_in.is_asked_for() and not hvd.poll(handles[0]):
                pass  # The job may notice later than a stream that a sum is done.
            assert hvd.poll(handles[0])
    check(hvd.allreduce(torch.full((3,), float(me))), torch.full((3,), (size - 1) / 2), "the average is the default")
    scaled = hvd.allreduce(torch.ones(3), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    check(scaled, torch.full((3,), 2.0 * size), "scaled")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(hvd.allreduce(torch.ones(3), average=False), torch.full((3,), float(size)), "average=False")
    assert any(issubclass(each.category, DeprecationWarning) for each in caught)
    strided = values(me, (3, 4)).t()
    check(hvd.allreduce_(strided, op=hvd.Sum), sum(values(rank, (3, 4)).t() for rank in range(size)), "strides")
    # Sums beyond the range of float16 would be infinite if they were not in float32.
    large = torch.full((3,), 60000.0)
    check(hvd.allreduce(large, compression=hvd.Compression.fp16), torch.full((3,), 59968.0 + 32), "16-bit")
    mixed = [values(me, (2,)), values(me, (3,), torch.int64), values(me, (4,))]
    for result in (
        hvd.grouped_allreduce(mixed, op=hvd.Sum),
        hvd.synchronize(hvd.grouped_allreduce_async(mixed, op=hvd.Sum, name="mixed")),
        hvd.grouped_allreduce_([each.clone() for each in mixed], op=hvd.Sum),
    ):
        for index, (each, dtype) in enumerate(zip(result, (torch.float32, torch.int64, torch.float32))):
            check(each, sum(values(rank, (index + 2,), dtype) for rank in range(size)), "grouped")
            assert each.dtype == dtype


def lazy():
    """Every operation reads and writes the elements of tensors that torch conjugates or negates lazily."""
    size, me = hvd.size(), hvd.rank()

    def numbers(rank):
        return torch.complex(values(rank, (size, 2)), values(rank + 1, (size, 2)) + 1)

    def each_kind(rank):
        conjugated = numbers(rank).conj()
        negated = numbers(rank).conj().imag
        assert conjugated.is_conj() and negated.is_neg()
        return conjugated, negated, conjugated.t(), torch.ones(2, dtype=torch.complex64).conj()[:0]

    def same(actual, expected, what):
        plain = expected.resolve_conj().resolve_neg()
        assert actual.shape == plain.shape and torch.equal(actual, plain), f"{what}: {actual} instead of {plain}"

    for kind in range(4):
        mine = each_kind(me)[kind]
        every = [each_kind(rank)[kind] for rank in range(size)]
        total = sum(each.clone() for each in every)
        same(hvd.allreduce(mine, op=hvd.Sum), total, "allreduce")
        same(hvd.grouped_allreduce([mine, mine], op=hvd.Sum)[1], total, "grouped allreduce")
        same(hvd.broadcast(mine, size - 1), every[-1], "broadcast")
        same(hvd.allgather(mine), torch.cat(every), "allgather")
        if mine.shape == (size, 2):
            same(hvd.alltoall(mine), torch.stack([each[me] for each in every]), "alltoall")
            same(hvd.reducescatter(mine, op=hvd.Sum), total[me : me + 1], "reducescatter")
        same(hvd.allreduce_(mine, op=hvd.Sum), total, "in place")
        same(hvd.broadcast_(each_kind(me)[kind], 0), every[0], "broadcast in place")
    for mine, text in zip(each_kind(me), ("conjugate", "resolve_neg")):  # Kolo's own operations read memory.
        with raises(ValueError, text):
            hvd.global_process_set.group().all_reduce(mine)
    sparse = torch.sparse_coo_tensor([[0, me]], numbers(me)[0].conj(), (size + 1,))
    total = sum(
        torch.sparse_coo_tensor([[0, rank]], numbers(rank)[0].conj(), (size + 1,)).to_dense() for rank in range(size)
    )
    same(hvd.sparse_allreduce_async(sparse, "complex", hvd.Sum)().to_dense(), total, "sparse")
    # Beyond the integers that float32 represents exactly.
    whole = torch.sparse_coo_tensor([[0, 2]], torch.tensor([2**24 + 1, me]), (4,))
    total = torch.tensor([size * (2**24 + 1), 0, size * (size - 1) // 2, 0])
    same(hvd.sparse_allreduce_async(whole, "whole", hvd.Sum)().to_dense(), total, "sparse integers")


def collectives():
    """Checks the other operations, with parts of unequal sizes and with types that are only copied."""
    size, me = hvd.size(), hvd.rank()
    for dtype in (torch.float32, torch.int16, torch.bool, torch.bfloat16):
        mine = values(me, (me, 3), dtype)
        every = [values(rank, (rank, 3), dtype) for rank in range(size)]
        check(hvd.allgather(mine), torch.cat(every), f"allgather {dtype}")
        other = values(me, (2,), dtype)
        joined, others = hvd.grouped_allgather([mine, other], name=f"grouped {dtype}")
        check(joined, torch.cat(every), "grouped allgather")
        check(others, torch.cat([values(rank, (2,), dtype) for rank in range(size)]), "grouped allgather")
        tensor = values(me, (4,), dtype)
        check(hvd.broadcast(tensor, size - 1), values(size - 1, (4,), dtype), "broadcast")
        check(tensor, values(me, (4,), dtype), "the argument of broadcast")
        check(hvd.broadcast_(tensor, size - 1, name="in place"), values(size - 1, (4,), dtype), "broadcast_")
        check(tensor, values(size - 1, (4,), dtype), "broadcast in place")
        # Rank r sends s rows to rank s, and has one row that it sends to no rank.
        splits = list(range(size))
        sent = values(me, (sum(splits) + 1, 2), dtype)
        got, received = hvd.alltoall(sent, splits)
        first = sum(splits[:me])
        check(
            got,
            torch.cat([values(rank, (sum(splits) + 1, 2), dtype)[first : first + me] for rank in range(size)]),
            "alltoall",
        )
        assert received.tolist() == [me] * size
    got, received = hvd.synchronize(hvd.alltoall_async(torch.full((size,), me), name="equal"))
    check(got, torch.arange(size), "alltoall without splits")
    assert received.tolist() == [1] * size and received.dtype == torch.int32
    check(hvd.alltoall(torch.full((size,), me)), torch.arange(size), "alltoall without splits")
    # Handles may be waited for in a different order on each rank.
    names = ["a", "b", "c"]
    handles = {
        name: hvd.allgather_async(torch.full((me + 1,), ord(name)), name=name)
        for name in names[me % 3 :] + names[: me % 3]
    }
    for name in names:
        check(hvd.synchronize(handles[name]), torch.full((size * (size + 1) // 2,), ord(name)), "gathered " + name)
    # Operations without names do not mix either.
    for _ in range(10):
        tensors = [torch.full((3, 2), float(number)) for number in range(5)]
        handles = [hvd.allgather_async(tensor) for tensor in tensors]
        for number in range(5)[:: -1 if me == 0 else 1]:
            check(hvd.synchronize(handles[number]), torch.full((3 * size, 2), float(number)), "gathered, of one shape")
    # Nor with the exchanges of their numbers of rows, which have the same type and size.
    for number in range(20):
        handles = [hvd.alltoall_async(torch.full((size,), 100 * me + number))]
        handles += [hvd.allgather_async(torch.full((rows,), 100 * me + number)) for rows in (1, size, 1)]
        every = 100 * torch.arange(size) + number
        check(hvd.synchronize(handles[0])[0], every, "alltoall of integers")
        for handle, rows in zip(handles[1:], (1, size, 1)):
            check(hvd.synchronize(handle), every.repeat_interleave(rows), f"allgather of {rows} integers")
    # If the rows cannot be divided evenly, the first ranks get one more.
    rows = 2 * size + 1
    heights = [3] + [2] * (size - 1)
    total = sum(values(rank, (rows, 3)) for rank in range(size))
    first = sum(heights[:me])
    check(hvd.reducescatter(values(me, (rows, 3)), op=hvd.Sum), total[first : first + heights[me]], "reducescatter")
    whole, small = hvd.grouped_reducescatter([values(me, (rows, 3)), torch.ones(size)], op=hvd.Average, name="parts")
    check(whole * size, total[first : first + heights[me]], "grouped reducescatter")
    check(small, torch.ones(1), "grouped reducescatter")
    objects = hvd.allgather_object({"rank": me, "text": "x" * 1000 * me})
    assert [each["rank"] for each in objects] == list(range(size)) and len(objects[-1]["text"]) == 1000 * (size - 1)
    assert hvd.broadcast_object([1, "two"] if me == size - 1 else None, root_rank=size - 1) == [1, "two"]


def fails_part_way():
    """A second stage that fails is not begun again by those that wait for it."""
    begun = []

    def begin():
        begun.append(None)
        raise LookupError("part-way")

    runtime = _job.current().runtime
    handle = _operations.staged(runtime.barrier(wait=False), begin, "part-way", hvd.global_process_set)
    for _ in range(2):
        with raises(LookupError, "part-way"):
            hvd.synchronize(handle)
    assert len(begun) == 1, begun


def default_device():
    """Operations do not depend on torch's default device."""
    size, me = hvd.size(), hvd.rank()
    mine, model = torch.full((size,), float(me)), torch.nn.Linear(3, 2)
    table, input = torch.sparse_coo_tensor([[me]], torch.ones(1), (size,)), torch.ones(1, 3)
    hvd.shutdown()
    with torch.device("meta"):
        hvd.init()
        gathered, (exchanged, _) = hvd.allgather(mine), hvd.alltoall(mine, [1] * size)
        objects, same = hvd.allgather_object(me), hvd.broadcast_object({"rank": me}, 1)
        summed = hvd.sparse_allreduce_async(table, "table", hvd.Sum)()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
        model(input).sum().backward()
        optimizer.step()
        sampler = hvd.elastic.ElasticSampler(range(5))
    check(gathered, torch.arange(float(size)).repeat_interleave(size), "allgather")
    check(exchanged, torch.arange(float(size)), "alltoall")
    check(summed.to_dense(), torch.ones(size), "sparse sum")
    assert objects == list(range(size)) and same == {"rank": 1} and len(sampler.remaining_indices) == 5


def derivatives():
    """Gradients of operations are the same as Horovod's."""
    size, me = hvd.size(), hvd.rank()

    def gradient(call, shape, *, of=lambda y: y.sum()):
        x = values(me, shape).requires_grad_()
        of(call(x)).backward()
        return x.grad

    check(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum), (3,)), torch.full((3,), float(size)), "of a sum")
    check(gradient(hvd.allreduce, (3,)), torch.ones(3), "of an average")
    half = gradient(lambda x: hvd.allreduce(x, compression=hvd.Compression.bf16), (3,))
    check(half, torch.ones(3), "of an average in 16 bits")
    grouped = gradient(lambda x: sum(hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)), (3,))
    check(grouped, torch.full((3,), 3.0 * size), "of sums")
    check(gradient(hvd.allgather, (me + 1, 2)), torch.ones(me + 1, 2), "of an allgather")
    rows = size * (size + 1) // 2
    weights = torch.arange(float(rows))
    mine = weights[me * (me + 1) // 2 :][: me + 1]
    check(gradient(hvd.allgather, (me + 1,), of=lambda y: (y * weights).sum()), mine, "of an allgather's parts")
    root = torch.ones(3) if me == size - 1 else torch.zeros(3)
    check(gradient(lambda x: hvd.broadcast(x, size - 1), (3,)), root, "of a broadcast")
    splits = [1] * (size - 1) + [2]
    weighted = gradient(lambda x: hvd.alltoall(x, splits)[0] * (me + 1), (size + 2,))
    check(weighted, torch.tensor([*map(float, range(1, size + 1)), size, 0.0]), "of an alltoall")
    scattered = gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum) * (me + 1), (size,))
    check(scattered, torch.arange(1.0, size + 1) * size, "of a reducescatter")


def sets():
    """Passes process sets to init, adds and removes them."""
    size, me = hvd.size(), hvd.rank()
    first = hvd.ProcessSet([1, 0])
    assert first.size() is None and first.rank() is None and first.process_set_id is None
    assert hvd.add_process_set(first) is first and first.process_set_id == 1
    last = hvd.add_process_set([size - 1])
    assert first.ranks == [0, 1] and first.size() == 2 and first.included() == (me < 2)
    assert hvd.global_process_set.ranks == list(range(size)) and hvd.global_process_set.rank() == me
    if first.included():
        assert first.rank() == me
        check(hvd.allreduce(torch.full((2,), float(me)), op=hvd.Sum, process_set=first), torch.ones(2), "in a set")
        check(hvd.broadcast(torch.full((2,), float(me)), 1, process_set=first), torch.ones(2), "root in a set")
        check(
            hvd.allgather(torch.full((me + 1,), float(me)), process_set=first),
            torch.tensor([0.0, 1, 1]),
            "gather in a set",
        )
        hvd.barrier(process_set=first)
    else:
        with raises(ValueError, "is not in ProcessSet(process_set_id=1, ranks=[0, 1])"):
            hvd.allreduce(torch.ones(2), process_set=first)
    if last.included():
        check(hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=last), torch.ones(2), "a set of one")
        with raises(ValueError, "root_rank 0 is not in"):
            hvd.broadcast(torch.ones(2), 0, process_set=last)
    for ranks in ([0, 1], list(range(size))):
        with raises(ValueError, "has these ranks already"):
            hvd.add_process_set(ranks)
    for ranks in ([], [0, 0], [size], [-1]):
        with raises(ValueError, "the ranks of a process set are different ones"):
            hvd.add_process_set(ranks)
    with raises(ValueError, "takes a list of ranks"):
        hvd.ProcessSet(["0"])
    assert hvd.remove_process_set(first) and not hvd.remove_process_set(first)
    assert not hvd.remove_process_set(hvd.global_process_set) and first.process_set_id is None
    with raises(ValueError, "is not part of the job"):
        hvd.allreduce(torch.ones(2), process_set=first)
    again = hvd.add_process_set([0, 1])
    model = torch.nn.Linear(3, 2)
    torch.nn.init.ones_(model.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), process_set=again)
    model(torch.full((1, 3), float(me))).sum().backward()
    optimizer.step()
    check(model.weight, torch.full((2, 3), 1 - (0.5 if me < 2 else me)), "an optimizer of a set")


def joins():
    """Ranks run out of data and join."""
    size, me = hvd.size(), hvd.rank()
    for step in range(me + 1):
        present = size - step
        check(hvd.allreduce(torch.ones(4), name="of those that are left"), torch.full((4,), present / size), "average")
    assert hvd.join() == size - 1
