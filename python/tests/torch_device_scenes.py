"""Scenes of `kolo.torch` with tensors on the stand-in of a GPU; `torch_device_test.py` starts them.

    torch_device_scenes.py SCENE    with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and KOLO_DEVICE=cuda
"""

import contextlib
import os
import sys
import threading
import time
from unittest import mock

import torch
import torch.distributed as dist
from support import play, raises
from torch.nn.parallel import DistributedDataParallel

import kolo
import kolo.horovod as hvd
import kolo.torch
import stand_in
from torch_stand_in import DEFAULT, SIDE, Gpu, Stream, on, recorded

COUNT = 1000
PATIENCE_S = 40


def expect(actual, expected, what):
    if not torch.equal(actual, torch.full_like(actual, expected)):
        raise AssertionError(f"{what}: {actual} instead of {expected}")


def total():
    return float(sum(range(1, dist.get_world_size() + 1)))


def wait_until(is_true, what):
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        if time.monotonic() > end:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.001)


def streams():
    """An operation begins after the work of the current stream, and `Work.wait` makes a stream wait for its result. The
    stream cannot advance meanwhile, so the thread does not wait for it."""
    mine, size = float(dist.get_rank() + 1), dist.get_world_size()
    calls = {
        "all_reduce": lambda x, out: dist.all_reduce(x, async_op=True),
        "broadcast": lambda x, out: dist.broadcast(x, 0, async_op=True),
        "all_gather": lambda x, out: dist.all_gather_into_tensor(out, x, async_op=True),
        "reduce_scatter": lambda x, out: dist.reduce_scatter_tensor(out, x, async_op=True),
    }
    for _ in range(3):
        for name, call in calls.items():
            before, after = stand_in.Stream(), stand_in.Stream()
            x, source = torch.zeros(size * COUNT), torch.full((size * COUNT,), mine)
            out = torch.zeros(size * x.numel() if name == "all_gather" else COUNT)
            seen = torch.zeros_like(x if name in ("all_reduce", "broadcast") else out)
            let_go = before.hold()
            before.copy(x, source)
            with on(before):
                work = call(x, out)
            with on(after):
                work.wait()
                after.copy(seen, x if seen.shape == x.shape and name != "all_gather" else out)
            expect(seen, 0.0, f"{name} before its input")
            let_go()
            after.synchronize()
            if name == "all_gather":
                for rank, part in enumerate(seen.split(x.numel())):
                    expect(part, rank + 1.0, name)
            else:
                expect(seen, 1.0 if name == "broadcast" else total(), name)
    let_go = before.hold()
    with on(before):
        work = kolo.torch._parameters.backend_of(None).allreduce([x], dist.AllreduceOptions())
        work.wait()
    assert not work.is_completed(), "it is complete before its input"
    let_go()
    wait_until(work.is_completed, "it is complete")
    assert work.is_success() and work.exception() is None


def errors():
    """A disagreement is an error of `wait`, of a future and of `exception`, although results are on a GPU."""
    for use in (lambda work: work.wait(), lambda work: work.get_future().wait()):
        with raises((kolo.MismatchError, RuntimeError), "all_reduce"):
            use(dist.all_reduce(torch.ones(3 + dist.get_rank()), async_op=True))
    x = torch.ones(3)
    dist.all_reduce(x)
    expect(x, float(dist.get_world_size()), "after errors")


class Model(torch.nn.Module):
    """Counts the collectives of the device when the backward pass reaches the first layer."""

    def __init__(self, layers=4, width=64):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))
        self.at_the_end = lambda: None

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = layer(x).tanh()
            if index == 0:
                x.register_hook(lambda gradient: self.at_the_end())
        return x.square().mean()


def batch(step, rank=None):
    torch.manual_seed(100 * step + (dist.get_rank() if rank is None else rank))
    return torch.randn(8, 64)


def alone(steps):
    """Returns the weights after training by one rank with the batches of all ranks."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(dist.get_world_size()):
            (model(batch(step, rank)) / dist.get_world_size()).backward()
        optimizer.step()
    return [each.detach().clone() for each in model.parameters()]


def expect_weights(model, expected, what, **tolerance):
    for mine, other in zip(model.parameters(), expected):
        torch.testing.assert_close(mine.detach(), other, msg=lambda text: f"{what}: {text}", **tolerance)


def overlap():
    """The first bucket is summed on the device while the backward pass has not ended: its last part waits for that."""
    steps = 4
    expected = alone(steps)

    def in_ddp(model):
        return DistributedDataParallel(model, bucket_cap_mb=0.02), torch.optim.SGD(model.parameters(), lr=0.5)

    def by_optimizer(model):
        plain = torch.optim.SGD(model.parameters(), lr=0.5)
        return model, kolo.torch.DistributedOptimizer(plain, model.named_parameters())

    for make in (in_ddp, by_optimizer):
        model = Model()
        wrapped, optimizer = make(model)
        for step in range(steps):
            optimizer.zero_grad()
            loss = wrapped(batch(step))
            dist.barrier()
            before = stand_in.collectives()
            if step > 1:  # After DDP has rebuilt its buckets in the order of the backward pass.
                model.at_the_end = lambda: wait_until(lambda: stand_in.collectives() > before, "a bucket is summed")
            loss.backward()
            optimizer.step()
        expect_weights(model, expected, make.__name__)


def hooks():
    """Training with hooks follows that without, and the values are those of 16 bits."""
    expected = alone(3)
    for hook in (kolo.torch.bf16_hook, kolo.torch.fp16_hook):
        model = Model()
        parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
        parallel.register_comm_hook(None, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        before = stand_in.collectives()
        for step in range(3):
            optimizer.zero_grad()
            parallel(batch(step)).backward()
            optimizer.step()
        assert stand_in.collectives() >= before + 3, "the hook does not use the device"
        expect_weights(model, expected, hook.__name__, rtol=0.02, atol=0.002)


def sharded():
    """FSDP2 trains as one rank does."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    expected = alone(3)
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    before = stand_in.collectives()
    for step in range(3):
        optimizer.zero_grad()
        model(batch(step)).backward()
        optimizer.step()
    assert stand_in.collectives() > before, "FSDP does not use the device"
    for mine, other in zip(model.parameters(), expected):
        torch.testing.assert_close(mine.full_tensor(), other)


def refused():
    """Memory that is not of the device, and operations that Kolo has only in host memory, are refused by name."""
    own = torch.ones(4)
    with raises(kolo.UsageError, "memory of cuda:1", "a stand-in"):
        dist.all_reduce(FOREIGN)
    with raises(kolo.UsageError, "memory of cuda:1"):
        dist.send(FOREIGN, 1 - dist.get_rank())
    with raises(kolo.UsageError, "memory of cuda:1"):
        dist.all_gather([torch.empty(4) for _ in range(dist.get_world_size())], FOREIGN)
    with raises(kolo.UsageError, "memory of cuda:1"):
        kolo.torch._parameters.group_of(None).register_gradients("set", {"w": kolo.torch._tensors.number_memory(FOREIGN)})
    host = kolo.Memory(own.data_ptr(), 4, "float32", own)
    with raises(kolo.UsageError, "out is in host memory, x in device memory"):
        kolo.torch._parameters.group_of(None).all_reduce(kolo.torch._tensors.number_memory(own), out=host)
    with raises(kolo.UsageError, "sparse tensors of torch in host memory"):
        dist.all_reduce(torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (3,)))
    with raises(kolo.UsageError, "TopKState takes gradients in host memory"):
        kolo.torch.TopKState(Model())
    with raises(kolo.UsageError, "meta"):
        kolo.torch.broadcast_parameters([torch.empty(3, dtype=torch.int32, device="meta")])
    Gpu.is_elsewhere, model = True, Model()
    with raises(kolo.UsageError, "set_device"):
        kolo.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    hvd.init()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    model(batch(0)).backward()
    with raises(kolo.UsageError, "set_device"):
        optimizer.step()
    Gpu.is_elsewhere = False
    hvd.shutdown()
    dist.all_reduce(own)
    expect(own, float(dist.get_world_size()), "after refusals")


def lost():
    """A rank dies in training; the errors of the other ranks name it."""
    model = Model()
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    if dist.get_rank() == 1:
        os._exit(9)
    with raises((kolo.PeerLostError, RuntimeError), "rank 1"):
        for step in range(1000):
            parallel(batch(step)).backward()
            optimizer.step()
    with raises(kolo.PeerLostError, "rank 1"):
        dist.all_reduce(torch.ones(3))
    print("lost rank 1", flush=True)
    os._exit(0)


def lost_later():
    """A rank dies after the operation is enqueued on all devices. It ends with an error, which later waits raise."""
    stream = stand_in.Stream()
    let_go = stream.hold()
    x = torch.ones(COUNT)
    with on(stream):
        work = kolo.torch._parameters.backend_of(None).allreduce([x], dist.AllreduceOptions())
        work.wait()
    assert not work.is_completed()
    if dist.get_rank() == 1:
        os._exit(9)
    wait_until(work.is_completed, "it ends")
    for use in (work.wait, work.get_future().wait):
        with raises((kolo.PeerLostError, RuntimeError), "rank 1"):
            use()
    assert isinstance(work.exception(), kolo.PeerLostError) and not work.is_success()
    let_go()
    print("lost rank 1", flush=True)
    os._exit(0)


def default_streams():
    """Calls of the core without a stream take the current one of torch."""
    job = kolo.torch._parameters.group_of(None)
    stream = stand_in.Stream()
    x, source = torch.zeros(COUNT), torch.full((COUNT,), float(dist.get_rank() + 1))
    memory = kolo.torch._tensors.number_memory(x)
    gradients = job.register_gradients("g", {"x": memory}, op="sum")
    for begin, end in (
        (lambda: job.all_reduce(memory, name="x", wait=False), lambda ticket: ticket.wait()),
        (lambda: gradients.ready("x"), lambda _: gradients.wait()),
    ):
        x.zero_()
        let_go = stream.hold()
        stream.copy(x, source)
        with on(stream):
            begun = begin()
        expect(x, 0.0, "before its input")
        let_go()
        end(begun)
        expect(x, total(), "a sum")


def futures():
    """Another thread copies the results of a future on a stream of its own; torch keeps their memory for that stream, and
    the streams of waits come after it."""
    own, parts = Stream(), [torch.zeros(COUNT) for _ in range(dist.get_world_size())]
    with on(own), recorded() as calls:
        work = dist.all_gather(parts, torch.full((COUNT,), float(dist.get_rank())), async_op=True)
        work.get_future().wait()
        work.wait()
    for rank, part in enumerate(parts):
        expect(part, float(rank), "a part")
    kept = {what for stream, verb, what in calls if (stream, verb) == (SIDE, "keep")}
    assert kept >= {part.data_ptr() for part in parts} and len(kept) == 2 * len(parts), calls
    assert {verb for stream, verb, _ in calls if stream is SIDE} >= {"stream", "event"}, calls
    assert (own, "order", SIDE) in calls, calls
    assert "future" in [verb for _, verb, _ in calls], calls
    assert DEFAULT not in [stream for stream, *_ in calls], calls


def callbacks():
    """A future that a callback takes is complete when the stream of futures can wait for it; the device is not done."""
    kolo.torch._completions.SLICE_MS = 1000 * PATIENCE_S  # The time that a wait for the device would take here.
    store, late, taken, works = dist.distributed_c10d._get_default_store(), torch.ones(COUNT), threading.Event(), []

    def take(_):
        store.set("taking", "")
        with on(held):
            works.append(kolo.torch._parameters.backend_of(None).allreduce([late], dist.AllreduceOptions()))
        works[0].get_future().wait()
        taken.set()

    first = dist.all_reduce(torch.ones(3), async_op=True)
    if dist.get_rank() == 0:
        Gpu.side, held = stand_in.Stream(), stand_in.Stream()
        let_go = held.hold()
        first.get_future().then(take)
        assert taken.wait(PATIENCE_S / 2), "a callback waits for the device"
        assert not works[0].is_completed()
        let_go()
        wait_until(works[0].is_completed, "it is complete")
        Gpu.side = SIDE
    else:
        first.wait()
        store.wait(["taking"])
        time.sleep(0.2)  # The operation cannot be enqueued when the callback takes the future.
        dist.all_reduce(late)
    expect(late, float(dist.get_world_size()), "a sum")


def apart():
    """Ranks that train apart exchange weights in the current stream. A part of the model may be in host memory."""
    own, model = Stream(), Model()
    optimizer = kolo.torch.DiLoCo(torch.optim.SGD(model.parameters(), lr=0.1), every=1)
    model(batch(0)).backward()
    with on(own), recorded() as calls:
        optimizer.step()
    places = [view.data_ptr() for view in optimizer._moved.views]
    assert [call[2] for call in calls if call[:2] == (own, "stream")] == [*places, places[0]], calls
    Gpu.in_host = {each.data_ptr() for each in model.layers[0].parameters()}
    optimizer = kolo.torch.LocalSGD(torch.optim.SGD(model.parameters(), lr=0.1), every=1)
    model(batch(1)).backward()
    optimizer.step()
    kolo.torch.check_equal([each.detach().view(torch.int32) for each in model.parameters()])
    Gpu.in_host = ()


def measured():
    """The time of a rank is that of its GPU, which works on after the calls have returned."""
    for rates, waits in ((None, 2), ([1.0] * dist.get_world_size(), 0)):
        batches = kolo.torch.balanced_batches(100, 2, rates=rates)
        next(iter(batches))
        with recorded() as calls, batches.computing():
            pass
        assert [call[1] for call in calls] == ["finish"] * waits, calls


def choice():
    """A job of Horovod gets GPUs by local rank if the node has one for each rank; the questions do not start CUDA."""
    devices = kolo.torch._devices
    with mock.patch.object(devices.Seam, "gpu", devices.Gpu()), mock.patch.dict(os.environ):
        del os.environ["KOLO_DEVICE"]
        for ranks, gpus, chosen in ((2, 2, True), (2, 1, False), (1, 0, False), (4, 8, True)):
            os.environ["LOCAL_WORLD_SIZE"] = str(ranks)
            with mock.patch("torch.cuda.device_count", lambda: gpus), mock.patch("torch.cuda.is_available", None):
                assert devices.open_options(by_local_rank=True) == ({"device": "cuda"} if chosen else {}), (ranks, gpus)
                assert devices.open_options() == {} and devices.Gpu().here() is contextlib.nullcontext
        del os.environ["LOCAL_WORLD_SIZE"], os.environ["WORLD_SIZE"]
        for text, ranks in (("4(x2),3", 4), ("12", 12), ("2,16(x30)", 16)):
            os.environ["SLURM_STEP_TASKS_PER_NODE"] = text
            assert kolo._local_ranks.most_local_ranks() == ranks, text


def order_of_waits():
    """Work asks its tickets in their order, and only until one is not done."""
    class Ticket:
        def __init__(self, is_over):
            self.done = self.enqueued = is_over

    asked = []
    tickets = [Ticket(lambda number=number: asked.append(number) or number < 2) for number in range(5)]
    for on_gpu in (None, torch.ones(1)):
        work = kolo.torch._work.KoloWork(tickets, lambda: None, [], None, on_gpu)
        tickets[0].wait = tickets[1].wait = lambda: None
        asked.clear()
        assert work.awaited() is tickets[2] and 3 not in asked, asked


def stages():
    """The second stage of an operation of Horovod begins in the stream of the call, whichever thread begins it."""
    hvd.init()
    own, rank = Stream(), hvd.rank()
    with recorded() as calls:
        with on(own):
            handle = hvd.allgather_async(torch.full((rank + 1, 3), float(rank)))
        wait_until(lambda: "stream" in [verb for _, verb, _ in calls], "the second stage begins")
        assert [stream for stream, verb, _ in calls if verb == "stream"] == [own], calls
        got = hvd.synchronize(handle)
    expect(got[0], 0.0, "rows of rank 0")
    expect(got[1:3], 1.0, "rows of rank 1")
    hvd.shutdown()


FOREIGN = torch.ones(4)
PLAIN = ("errors", "lost")  # Scenes in which one backend is that of all devices.

if __name__ == "__main__":
    stand_in.mark_foreign(FOREIGN, "memory of cuda:1")
    dist.init_process_group("kolo" if sys.argv[1] in PLAIN else "cpu:kolo,cuda:kolo")
    play(globals())
    dist.destroy_process_group()
