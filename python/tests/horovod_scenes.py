"""Scenes for the ranks of a job of kolo.horovod, each with its own checks; `horovod_test.py` starts them.

horovod_scenes.py SCENE[,SCENE...]    with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or under mpirun
"""

import gc
import os
import shutil
import socket
import tempfile

import torch
from support import play

import kolo
import kolo.horovod as hvd
from horovod_checks import check, raises, same_on_all_ranks
from horovod_operation_scenes import *  # noqa: F403
from horovod_training_scenes import *  # noqa: F403
from horovod_training_scenes import batch, network, optimizers, sgd, weights

# --- errors -----------------------------------------------------------------------------------------


def misuse():
    """Each rank detects wrong arguments and a wrong order of calls alone."""
    model = network()
    named = list(model.named_parameters())
    twice = [*named[:-1], (named[0][0], named[-1][1])]
    for arguments, text in (
        ({"named_parameters": twice}, "names more than once: 0.weight"),
        ({"named_parameters": named[1:]}, "lacks parameters of the optimizer: parameter 0.0"),
        ({"named_parameters": list(model.parameters())}, "pairs of name and parameter"),
        ({"backward_passes_per_step": 0}, "at least 1"),
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "needs op=hvd.Average"),
        ({"op": 17}, "op is one of hvd.Average, Sum, Adasum"),
        ({"groups": "many"}, "groups is a number of groups"),
        ({"groups": [["weight"]]}, "something other than parameters"),
        ({"groups": [[named[0][1]], [named[0][1]]]}, "a parameter twice"),
    ):
        with raises(ValueError, text):
            hvd.DistributedOptimizer(sgd(model), **arguments)
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())

    def backward():
        model(batch(0, hvd.rank())).square().mean().backward()

    backward()
    with raises(AssertionError, "zero_grad() was called after backward()"):
        optimizer.zero_grad()
    with raises(AssertionError, "more than backward_passes_per_step=1 times"):
        backward()
    optimizer.step()
    optimizer.zero_grad()
    backward()
    optimizer.load_state_dict(optimizer.state_dict())
    backward()
    optimizer.step()
    extra = torch.nn.Parameter(torch.ones(2))
    optimizer.add_param_group({"params": [extra]})
    backward()
    with raises(ValueError, "parameter 0 of group 1", "wrap the optimizer anew"):
        optimizer.step()
    optimizer = hvd.DistributedOptimizer(optimizer, [*model.named_parameters(), ("extra", extra)])
    backward()
    optimizer.step()
    ones = torch.ones(2)
    for text, call in (
        ("pass only op", lambda: hvd.allreduce(ones, average=True, op=hvd.Sum)),
        ("op is one of", lambda: hvd.allreduce(ones, op=17)),
        ("NoneType", lambda: hvd.allreduce(None)),
        ("NoneType", lambda: hvd.allreduce(None, compression=hvd.Compression.fp16)),
        ("NoneType", lambda: hvd.allgather(None)),
        ("NoneType", lambda: hvd.alltoall(None)),
        ("NoneType", lambda: hvd.reducescatter(None)),
        ("NoneType", lambda: hvd.broadcast(None, 0)),
        ("NoneType", lambda: hvd.sparse_allreduce_async(None, "x", hvd.Sum)),
        ("a tensor of torch.sparse_coo, not torch.strided", lambda: hvd.sparse_allreduce_async(ones, "x", hvd.Sum)),
        ("sparse", lambda: hvd.allreduce(ones.to_sparse())),
        ("meta", lambda: hvd.allreduce(torch.ones(2, device="meta"))),
        ("averaged or summed", lambda: hvd.sparse_allreduce_async(ones.to_sparse(), "x", hvd.Max)),
        ("list of tensors is empty", lambda: hvd.grouped_allreduce([])),
        ("without dimensions", lambda: hvd.allgather(torch.tensor(1.0))),
        ("splits for", lambda: hvd.alltoall(torch.ones(4), [4])),
        ("whole numbers", lambda: hvd.alltoall(torch.ones(4), torch.ones(hvd.size()))),
        ("are not rows", lambda: hvd.alltoall(torch.ones(4), [5] * hvd.size())),
        ("root_rank 9", lambda: hvd.broadcast(ones, 9)),
        ("KOLO_TIMELINE=trace.json", lambda: hvd.start_timeline("trace.json")),
        ("LBFGS", lambda: hvd.broadcast_optimizer_state(torch.optim.LBFGS(network().parameters()), root_rank=0)),
        ("a dict or a list", lambda: hvd.broadcast_parameters(3, root_rank=0)),
        ("other things than tensors, which hvd.broadcast_object takes: epoch", lambda: hvd.broadcast_parameters({"epoch": 3}, 0)),
        ("two dimensions", lambda: hvd.SyncBatchNorm(3)(torch.ones(3))),
        ("floating-point", lambda: hvd.allreduce(ones.int(), op=hvd.Adasum)),
        ("prescale_factor", lambda: hvd.allreduce(ones, op=hvd.Adasum, prescale_factor=2.0)),
        ("allreduce and DistributedOptimizer only", lambda: hvd.reducescatter(ones, op=hvd.Adasum)),
    ):
        with raises(ValueError, text):
            call()
    hvd.stop_timeline()


def mismatch():
    """Ranks that disagree get the same error, which names both sides; the job goes on."""
    with raises(hvd.HorovodInternalError, "'allreduce.x'", "all_reduce float32 [3] average", "[4]"):
        hvd.allreduce(torch.ones(3 + hvd.rank()), name="x")
    with raises(hvd.HorovodInternalError) as caught:
        hvd.allgather(torch.ones(2, 3 + hvd.rank()), name="rows")
    assert isinstance(caught.error.__cause__, kolo.MismatchError), caught.error
    # By now the thread that begins second stages has called Kolo, and still runs.
    hvd.synchronize(hvd.allgather_async(torch.ones(2)))
    me = hvd.rank()
    types = (torch.int32, torch.float32)
    for disagree in (
        lambda: hvd.allgather(torch.ones(4, dtype=types[me])),
        lambda: hvd.synchronize(hvd.allgather_async(torch.ones(4, 3 + me))),
        lambda: hvd.alltoall(torch.ones(4, 3 + me)),
        lambda: hvd.allreduce(torch.ones(4, dtype=types[me])),
        lambda: hvd.broadcast(torch.ones(4 + me), 0),
    ):
        with raises(hvd.HorovodInternalError, "ranks wait for different tensors"):
            disagree()
    with raises(hvd.HorovodInternalError, "ranks disagree", "'allgather rows'"):
        hvd.grouped_allgather([torch.ones(4)] * (1 + me))
    # Equal numbers of elements in different shapes.
    shapes = ((2, 3), (3, 2))
    flat = ((4,), (4, 1))
    for verb, disagree in {
        "allreduce.z": lambda: hvd.allreduce(torch.ones(shapes[me]), name="z"),
        "allreduce torch.float32": lambda: hvd.allreduce_(torch.ones(shapes[me])),
        "40 shapes": lambda: hvd.grouped_allreduce([torch.ones(1, 1, 1, *shapes[me])] * 40),
        "broadcast torch.float32": lambda: hvd.broadcast(torch.ones(flat[me]), 0),
        "allgather.z": lambda: hvd.allgather(torch.ones(flat[me]), name="z"),
        "alltoall torch.float32": lambda: hvd.alltoall(torch.ones(2, *shapes[me])),
        "reducescatter torch.float32": lambda: hvd.reducescatter(torch.ones(2, *shapes[me])),
        "allreduce.rows": lambda: hvd.sparse_allreduce_async(torch.ones(shapes[me]).to_sparse(), "rows", hvd.Sum)(),
        "allreduce.adasum": lambda: hvd.allreduce(torch.ones(shapes[me]), op=hvd.Adasum),
    }.items():
        with raises(hvd.HorovodInternalError, verb):
            disagree()
    handle = hvd.allreduce_async(torch.ones(3 + hvd.rank()), name="y")
    with raises(hvd.HorovodInternalError, "'allreduce.y'"):
        hvd.synchronize(handle)
    with raises(hvd.HorovodInternalError, "'broadcast.weight'"):
        hvd.broadcast_parameters({"weight": torch.ones(3 + hvd.rank())}, root_rank=0)
    model = torch.nn.Linear(3 + hvd.rank(), 2)
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    model(torch.ones(1, 3 + hvd.rank())).sum().backward()
    with raises(hvd.HorovodInternalError, "weight"):
        optimizer.step()
    hvd.barrier()


def lost():
    """A rank dies; the others get an error that names it."""
    if hvd.rank() == 1:
        os._exit(9)
    with raises(hvd.HorovodInternalError, "rank 1"):
        while True:
            hvd.allreduce(torch.ones(3))
    print("lost rank 1")
    os._exit(0)


def served():
    """Rank 0 serves the store until the other ranks have begun their first operation."""
    hvd.shutdown()
    gather = kolo.Runtime.all_gather

    def begin(*arguments, **options):
        gc.collect()  # A cycle may hold the store.
        socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 10).close()
        return gather(*arguments, **options)

    kolo.Runtime.all_gather = begin
    hvd.init()
    kolo.Runtime.all_gather = gather


def unfinished():
    """Rank 1 dies in its last step, when rank 0 is done; the commit is left for the restart."""
    os.environ["KOLO_COMMITS"] = folder = tempfile.mkdtemp()

    @hvd.elastic.run
    def train(state):
        state.commit()
        if hvd.rank() == 1:
            os._exit(9)

    with raises(hvd.HorovodInternalError, "rank 1"):
        train(hvd.elastic.TorchState(epoch=3))
    assert os.listdir(folder) == ["commit.pt"], os.listdir(folder)
    shutil.rmtree(folder)
    hvd.shutdown()  # Raises nothing, and leaves the job.
    assert not hvd.is_initialized() and not kolo._runtime._open_runtimes
    os._exit(0)


# --- jobs -------------------------------------------------------------------------------------------


def again():
    """The job ends, and another job begins in the same processes, with process sets and communicators."""

    class Communicator:
        """Stands in for a communicator of mpi4py: it has the methods that `hvd.init` calls."""

        def __init__(self, ranks):
            self._ranks = ranks

        def Get_size(self):  # noqa: N802
            return len(self._ranks)

        def Get_rank(self):  # noqa: N802
            return self._ranks.index(rank)

    rank, size = hvd.rank(), hvd.size()
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())

    def train():
        optimizer.zero_grad()
        model(batch(0, hvd.rank())).square().mean().backward()
        optimizer.step()
        same_on_all_ranks(weights(model))

    train()
    stale = hvd.add_process_set([0])
    hvd.shutdown()
    hvd.shutdown()
    assert not hvd.is_initialized() and stale.process_set_id is None
    for call in (
        hvd.rank,
        hvd.size,
        hvd.local_rank,
        hvd.barrier,
        hvd.stop_timeline,
        lambda: hvd.allreduce(torch.ones(2)),
    ):
        with raises(ValueError, "hvd.init()"):
            call()
    one, both = hvd.ProcessSet([0]), hvd.ProcessSet([0, 1])
    hvd.init(comm=Communicator(list(range(size))), process_sets=[one, both])
    hvd.init()
    assert hvd.is_initialized() and hvd.rank() == rank and both.process_set_id == 2
    if both.included():
        check(hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=both), torch.full((2,), 2.0), "a set of init")
    hvd.shutdown()
    hvd.init(comm=list(range(size)), process_sets="dynamic")
    check(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(size)), "after another start")
    train()
    hvd.shutdown()
    with raises(ValueError, "comm is not all"):
        hvd.init(comm=[1, 0])
    assert not hvd.is_initialized()
    with raises(ValueError, "process_sets[1]", "already"):
        hvd.init(process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([0])])
    hvd.init()
    optimizers()


def beside():
    """The program also uses torch.distributed."""
    import torch.distributed as dist

    for backend in ("gloo", "kolo"):
        dist.init_process_group(backend)
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        check(tensor, hvd.allreduce(torch.ones(2), op=hvd.Sum), backend)
        dist.destroy_process_group()
        hvd.barrier()  # Otherwise a rank may reach rank 0's former store at the same address.


def unclosed():
    """The script ends without a shutdown, with operations in flight."""
    hvd.allreduce_async(torch.ones(1000))
    hvd.allgather_async(torch.ones(hvd.rank() + 1))
    os.environ["KEEP_JOB"] = "1"


# --- the state of elastic jobs, without restarts -----------------------------------------------------


def elastic_states():
    """Commits and restores elastic states, copies them to all ranks, and reads them after a restart."""
    model = network(hvd.rank())
    optimizer = sgd(model)
    sampler = hvd.elastic.ElasticSampler(range(11), shuffle=False)
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=hvd.rank(), notes=[])
    assert state.model is model and state.optimizer is optimizer and state.sampler is sampler
    state.sync()
    assert state.epoch == 0
    check(weights(model), weights(network(0)), "the model of rank 0")
    model(batch(0, 0)).sum().backward()
    optimizer.step()
    state.epoch, state.notes = 5, ["a"]
    state.save()
    saved = weights(model).clone()
    optimizer.step()
    state.notes.append("b")
    state.epoch = 6
    state.restore()
    assert (state.epoch, state.notes) == (5, ["a"])
    check(weights(model), saved, "restored")
    state.model, replaced = network(3), state.model
    state.epoch = 7
    state.restore()
    assert state.epoch == 5
    check(weights(state.model), weights(network(3)), "a model that replaced another, restored")
    torch.nn.init.ones_(replaced[0].weight)
    torch.nn.init.zeros_(state.model[0].weight)
    state.commit()
    content = state.content()["parts"]["model"]
    check(content["0.weight"], torch.zeros_like(content["0.weight"]), "a model that replaced another, committed")
    check_sampler(hvd.elastic.ElasticSampler(range(11), shuffle=True, seed=3))
    with raises(NotImplementedError, ""):
        hvd.elastic.State(hvd.broadcast_object, hvd.rank).save()


def check_sampler(sampler):
    """Checks that each sample occurs once; only the last samples may occur twice."""
    first = hvd.allgather_object(list(sampler))
    assert {len(each) for each in first} == {-(-11 // hvd.size())} and len(sampler) == len(first[0])
    assert set().union(*first) == set(range(11))
    assert (sampler.rank, sampler.num_replicas) == (hvd.rank(), hvd.size())
    assert (sampler.num_samples, sampler.total_size) == (len(sampler), hvd.size() * len(sampler))
    assert sorted(sampler.remaining_indices) == list(range(11)) and sampler.processed_num == 0
    sampler.record_batch(0, 2)
    assert sampler.processed_num == 2 * hvd.size()
    state = hvd.elastic.TorchState(sampler=sampler)
    state.sync()
    done = set().union(*(each[:2] for each in first))
    assert sampler.processed_indices == done and sampler.processed_num == len(done)
    assert set(sampler.remaining_indices) == set(range(11)) - done
    left = hvd.allgather_object(list(sampler))
    assert set().union(*left) == set(range(11)) - done
    sampler.record_batch(0, 11)
    state.sync()
    assert len(sampler) == 0 and list(sampler) == []
    before = list(first[hvd.rank()])
    sampler.set_epoch(0)
    assert list(sampler) == before
    sampler.set_epoch(1)
    assert list(sampler) != before and hvd.size() * len(sampler) >= 11


def main():
    hvd.init()
    play(globals())
    if "KEEP_JOB" not in os.environ:
        hvd.shutdown()


main()
