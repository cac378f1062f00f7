"""Scenes of differential_test.py: training, sharding, pipelines, checkpoints.

Each sum has two operands, on 2 ranks or in rows and columns of 2 x 2, so both backends have equal bits: the sum of two
numbers does not depend on their order, and divisions by 2 are exact.
"""

import shutil
import tempfile

import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.algorithms.ddp_comm_hooks import (
    ddp_zero_hook,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from differential_table import me, same_everywhere, scene, size, values


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(16, 40), torch.nn.Tanh(), torch.nn.Linear(40, 24), torch.nn.Linear(24, 5))


def batch(step, rank):
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + rank))


def backward(model, step):
    model(batch(step, me()).to(next(model.parameters()).dtype)).square().mean().backward()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train_alone(model, optimizer=None, steps=range(4), after_backward=lambda: None):
    optimizer = optimizer or sgd(model)
    for step in steps:
        optimizer.zero_grad()
        backward(model, step)
        after_backward()
        optimizer.step()


def train(model, optimizer=None, steps=range(4)):
    """Trains and returns the weights, which are equal on all ranks."""
    train_alone(model, optimizer, steps)
    return weights(model)


def weights(model):
    return [same_everywhere(each.detach()) for each in model.parameters()]


def parallel(model=None, hook=None, state=None, **options):
    made = DistributedDataParallel(model or network(), **options)
    if hook is not None:
        made.register_comm_hook(state, hook)
    return made


# --- DDP --------------------------------------------------------------------------------------------


class Branches(torch.nn.Module):
    """Ranks use different branches."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.branches = torch.nn.ModuleList(torch.nn.Linear(16, 4) for _ in range(3))

    def forward(self, x):
        return self.branches[me() % 2](x)


def in_world(hook):
    return lambda: parallel(hook=hook, state=dist.group.WORLD)


for name, make in {
    "ddp": parallel,
    "ddp_with_small_buckets_and_views": lambda: parallel(bucket_cap_mb=0.001, gradient_as_bucket_view=True),
    "ddp_of_a_static_graph": lambda: parallel(static_graph=True),
    "ddp_with_unused_parameters": lambda: parallel(Branches(), find_unused_parameters=True),
    "ddp_in_double": lambda: parallel(network().double()),
    "hook_of_all_reduces": in_world(default_hooks.allreduce_hook),
    "hook_in_float16": in_world(default_hooks.fp16_compress_hook),
    "hook_in_bfloat16": in_world(default_hooks.bf16_compress_hook),
    "hook_of_quantization": in_world(quantization_hooks.quantization_pertensor_hook),
    "hook_of_quantization_by_channel": in_world(quantization_hooks.quantization_perchannel_hook),
}.items():
    scene(2, name=name)(lambda make=make: train(make()))


@scene(2)
def ddp_that_accumulates():
    model = parallel()
    optimizer = sgd(model)
    for step in range(3):
        optimizer.zero_grad()
        with model.no_sync():
            backward(model, step)
        backward(model, step + 10)
        optimizer.step()
    return weights(model)


@scene(2)
def ddp_with_uneven_inputs():
    model = parallel()
    with model.join():
        train_alone(model, steps=range(3 + 2 * me()))
    return weights(model)


@scene(2)
def ddp_with_buffers():
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    model.load_state_dict({name: values(3, *each.shape).to(each.dtype) / 8 for name, each in model.state_dict().items()})
    made = parallel(model)
    return train(made), [each.clone() for each in made.buffers()]


@scene(2)
def ddp_of_sparse_gradients():
    torch.manual_seed(9)
    model = parallel(torch.nn.EmbeddingBag(30, 6, sparse=True, mode="sum"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.tensor([[step, 3 + me()], [step, 20 - me()]])).sum().backward()
        optimizer.step()
    return weights(model)


@scene(2)
def hook_of_nested_futures():
    """As in PowerSGD, a callback begins another operation, and the hook returns its future."""

    def hook(_, bucket):
        half = bucket.buffer() / 2

        def again(done):
            largest = done.value()[0].abs().max()
            dist.all_reduce(largest, dist.ReduceOp.MAX, async_op=True).get_future().wait()
            return done.value()[0].clamp(-largest, largest)

        return dist.all_reduce(half, async_op=True).get_future().then(again)

    return train(parallel(hook=hook))


def power_sgd(hook):
    state = powerSGD_hook.PowerSGDState(dist.group.WORLD, matrix_approximation_rank=1, start_powerSGD_iter=2)
    return train(parallel(hook=hook, state=state), steps=range(5))


@scene(2, alone=True)
def hook_of_power_sgd():
    """Over Gloo, its nested futures may hang. torch 2.15's batched hook fails over every backend, because its matrices
    lack a dimension."""
    for each, plain in zip(power_sgd(powerSGD_hook.powerSGD_hook), train(parallel(), steps=range(5))):
        assert each.isfinite().all() and not torch.equal(each, plain)


@scene(2)
def hook_of_post_local_sgd():
    state = post_localSGD_hook.PostLocalSGDState(dist.group.WORLD, dist.new_group([me()], use_local_synchronization=True), 2)
    model = parallel(hook=post_localSGD_hook.post_localSGD_hook, state=state)
    averager = PeriodicModelAverager(period=2, warmup_steps=2)
    optimizer = sgd(model)
    for step in range(6):
        train_alone(model, optimizer, [step])
        averager.average_parameters(model.parameters())
    return [each.detach() for each in model.parameters()]


# --- ZeRO -------------------------------------------------------------------------------------------


@scene(2)
def zero_with_buckets_and_its_state():
    model = parallel()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, parameters_as_bucket_view=True, lr=0.01)
    results = train(model, optimizer)
    optimizer.consolidate_state_dict(0)
    state = optimizer.state_dict()["state"] if me() == 0 else None
    return results, state


@scene(2, alone=True)
def zero_in_the_backward_pass():
    """Runs over Kolo only, because torch refuses this optimizer over Gloo."""
    model = DistributedDataParallel(network(), static_graph=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1)
    model.register_comm_hook(None, ddp_zero_hook.hook_with_zero_step(default_hooks.allreduce_hook, model, optimizer))
    for step in range(6):
        model.zero_grad()
        backward(model, step)
        optimizer.step()
    assert not any(torch.equal(each, other) for each, other in zip(weights(model), network().parameters()))


# --- FSDP -------------------------------------------------------------------------------------------


def full(model):
    return [same_everywhere(each.full_tensor()) for each in model.parameters()]


def sharded(mesh=None, **options):
    model = network()
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def train_sharded(model, steps=range(4)):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train_alone(model, optimizer, steps, lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5))
    return full(model)


def mesh(*shape, names=None):
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


PRECISION = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)

scene(2, name="fsdp2")(lambda: train_sharded(sharded(mesh(2))))
scene(2, name="fsdp2_in_bfloat16")(lambda: train_sharded(sharded(mesh(2), mp_policy=PRECISION)))
scene(4, name="fsdp2_in_rows_and_columns")(lambda: train_sharded(sharded(mesh(2, 2, names=("replicas", "shards")))))


@scene(2)
def fsdp1():
    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"), use_orig_params=True)
    train_alone(model, torch.optim.SGD(model.parameters(), lr=0.1), range(3))
    with FullyShardedDataParallel.summon_full_params(model):
        return [each.detach().clone() for each in model.parameters()]


# --- DTensor ----------------------------------------------------------------------------------------


@scene()
def dtensor_placements():
    rows = mesh(size())
    whole = values(0, 4 * size() + 1, 6)  # Uneven shards.
    shards = distribute_tensor(whole, rows, [Shard(0)])
    columns = shards.redistribute(rows, [Shard(1)])
    partial = DTensor.from_local(values(me(), 3, 3), rows, [Partial()])
    return (
        shards.to_local(),
        columns.to_local(),
        columns.redistribute(rows, [Replicate()]).to_local(),
        partial.redistribute(rows, [Replicate()]).to_local(),
        partial.redistribute(rows, [Shard(0)]).to_local(),
        distribute_tensor(whole, rows, [Replicate()]).to_local(),
    )


@scene(4)
def dtensor_in_rows_and_columns():
    grid = mesh(2, 2, names=("rows", "columns"))
    tensor = distribute_tensor(values(0, 8, 6), grid, [Shard(0), Shard(1)])
    moved = tensor.redistribute(grid, [Shard(1), Replicate()])
    row = grid["rows"]
    mine = values(me(), 3)
    dist.all_reduce(mine, group=row.get_group())
    return tensor.to_local(), moved.to_local(), moved.full_tensor(), mine


@scene(2)
def tensor_parallel_layers():
    model = network()
    parallelize_module(model, mesh(2), {"0": ColwiseParallel(), "2": RowwiseParallel(input_layouts=Shard(-1))})
    x = batch(0, 0).requires_grad_()
    y = model(x)
    y.sum().backward()
    return y.detach(), x.grad, [each.grad.full_tensor() if isinstance(each.grad, DTensor) else each.grad
                                for each in model.parameters()]


# --- pipelines --------------------------------------------------------------------------------------


def pipeline(schedule_of):
    torch.manual_seed(4)
    stages = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()) for _ in range(size())]
    stage = PipelineStage(stages[me()], me(), size(), torch.device("cpu"))
    schedule = schedule_of(stage, n_microbatches=4, loss_fn=lambda y, target: (y - target).square().mean())
    x, target = batch(0, 0), batch(1, 0)
    losses = []
    if me() == 0:
        schedule.step(x)
    elif me() == size() - 1:
        schedule.step(target=target, losses=losses)
    else:
        schedule.step()
    return [each.grad for each in stages[me()].parameters()], [each.detach() for each in losses]


scene(name="a_pipeline")(lambda: pipeline(ScheduleGPipe))
scene(name="a_pipeline_forward_and_backward_in_turns")(lambda: pipeline(Schedule1F1B))


# --- checkpoints ------------------------------------------------------------------------------------


def shared_folder():
    folder = [tempfile.mkdtemp() if me() == 0 else None]
    dist.broadcast_object_list(folder)
    return folder[0]


def check_restored(model, save):
    folder = shared_folder()
    state = model.state_dict()
    expected = {name: each.full_tensor().clone() for name, each in state.items()}
    save(state, folder)
    with torch.no_grad():
        for each in model.parameters():
            each.zero_()
    dist.barrier()
    checkpoint.load(state, checkpoint_id=folder)
    model.load_state_dict(state)
    restored = {name: each.full_tensor() for name, each in model.state_dict().items()}
    for name, each in restored.items():
        assert torch.equal(each, expected[name]), name
    dist.barrier()
    if me() == 0:
        shutil.rmtree(folder)
    return restored


@scene(2)
def a_checkpoint_of_shards():
    return check_restored(sharded(mesh(2)), lambda state, folder: checkpoint.save(state, checkpoint_id=folder))


@scene(2)
def a_checkpoint_in_the_background():
    group = dist.new_group(backend=dist.get_backend())

    def save(state, folder):
        checkpoint.async_save(state, checkpoint_id=folder, process_group=group).result()

    return check_restored(sharded(mesh(2)), save)
