"""Scenes of `kolo.torch` in training: `DistributedOptimizer` and the hook for top-k; `torch_test.py` starts them.

    torch_training_scenes.py SCENE    with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
"""

import io
import math
import os
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from support import play, raises
from torch.nn.parallel import DistributedDataParallel

import kolo
import kolo.torch
import torch_stand_in
from kolo.torch import DistributedOptimizer, TopKState, topk_hook

STEPS = 10


def perceptron():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(80, 64), torch.nn.Tanh(), torch.nn.Linear(64, 66), torch.nn.Linear(66, 5))


def batch(step, part=0):
    torch.manual_seed(1000 * step + 10 * dist.get_rank() + part)
    return torch.randn(16, 80)


def weights_of(model):
    return torch.cat([each.detach().double().reshape(-1) for each in model.parameters()])


def check_same_everywhere(model):
    weights = weights_of(model)
    others = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(others, weights)
    assert all(torch.equal(other, weights) for other in others), "ranks have different weights"


def train(model, optimizer, steps=range(STEPS), **zero_grad):
    for step in steps:
        optimizer.zero_grad(**zero_grad)
        model(batch(step)).square().mean().backward()
        optimizer.step()


def with_ddp(make=perceptron, group=None, **keywords):
    return DistributedDataParallel(make(), process_group=group, **keywords)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def distributed(model, make=sgd, **keywords):
    return DistributedOptimizer(make(model), model.named_parameters(), **keywords)


def expect_close(model, expected, what):
    assert torch.allclose(weights_of(model), weights_of(expected), rtol=1e-5, atol=1e-6), what
    check_same_everywhere(model)


def expect_error(kind, texts, call):
    with raises(kind, *texts) as caught:
        call()
    return caught.error


# --- without compression ---------------------------------------------------------------------------


def optimizer():
    """Trains like DDP over Gloo, for every way to set gradients to zero, and with any optimizer."""
    gloo = dist.new_group(backend="gloo")

    def adam(model):
        return torch.optim.AdamW(model.parameters(), lr=0.01)

    for make in (sgd, adam):
        expected = with_ddp(group=gloo)
        train(expected, make(expected))
        for keywords in ({}, {"set_to_none": False}):
            model = perceptron()
            wrapped = distributed(model, make)
            train(model, wrapped, **keywords)
            expect_close(model, expected.module, (make, keywords))
        assert isinstance(wrapped, torch.optim.Optimizer) and wrapped.param_groups is wrapped._optimizer.param_groups
    model = perceptron()
    train(model, distributed(model, make, group=kolo.torch._parameters.group_of(None), broadcast=False))
    expect_close(model, expected.module, "a group of Kolo")
    model = perceptron()
    wrapped = distributed(model, make)
    for step in range(STEPS):  # The model's own zero_grad, and gradients that no hook sees.
        model.zero_grad()
        gradients = torch.autograd.grad(model(batch(step)).square().mean(), list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients):
            parameter.grad = gradient
        wrapped.step()
    expect_close(model, expected.module, "gradients by hand")


def tied():
    """Weights that two layers share have one gradient, which is sent once; a state dict names them twice."""

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1 + dist.get_rank())
            self.first, self.second = torch.nn.Linear(80, 80), torch.nn.Linear(80, 80)
            self.second.weight = self.first.weight
            self.register_buffer("kept", torch.full((3,), float(dist.get_rank())), persistent=False)

        def forward(self, x):
            return self.second(self.first(x).tanh())

    gloo = dist.new_group(backend="gloo")
    expected = with_ddp(Tied, gloo)
    train(expected, sgd(expected))
    model = Tied()
    on_stand_in = torch_stand_in.is_asked_for()  # A copy of its tensors on the processor is on it, too.
    if not on_stand_in:
        expect_error(kolo.MismatchError, ["'kept' are not equal"], lambda: kolo.torch.check_equal(model))
    kolo.torch.broadcast_parameters(model)
    assert torch.equal(model.kept, torch.zeros(3)), "a buffer that no state dict has"
    if not on_stand_in:
        kolo.torch.check_equal(model)
    check_same_everywhere(model)
    train(model, DistributedOptimizer(sgd(model), model.named_parameters(remove_duplicate=False)))
    assert model.second.weight is model.first.weight
    expect_close(model, expected.module, "tied weights")
    model = with_ddp(Tied)
    train(model, sgd(model))
    expect_close(model.module, expected.module, "tied weights with DDP")


def subgroup():
    """A subset of the ranks trains a model whose gradients are larger than the arena of their process group."""
    some = dist.new_group([0, 2])
    if dist.get_rank() == 1:
        return
    torch.manual_seed(1)
    model = torch.nn.Linear(5000, 4000)  # 80 MB
    wrapped = distributed(model, group=some, broadcast=False)
    torch.manual_seed(dist.get_rank())
    model(torch.randn(2, 5000)).square().mean().backward()
    wrapped.step()
    weights = model.weight.detach()[:3].clone()
    both = [torch.empty_like(weights) for _ in range(2)]
    dist.all_gather(both, weights, group=some)
    assert torch.equal(both[0] - both[1], torch.zeros_like(weights)), "the two ranks have different weights"


def accumulation():
    """Uses several backward passes per step, gradient clipping, schedules and closures."""
    gloo = dist.new_group(backend="gloo")

    def passes(model, optimizer, schedule, no_sync, synchronize):
        for step in range(STEPS):
            optimizer.zero_grad()
            if no_sync is not None:
                with no_sync():
                    model(batch(step)).square().mean().backward()
            else:
                model(batch(step)).square().mean().backward()
            model(batch(step, part=1)).square().mean().backward()
            synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
            schedule.step()

    def schedule_of(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)

    expected = with_ddp(group=gloo)
    theirs = sgd(expected)
    passes(expected, theirs, schedule_of(theirs), expected.no_sync, lambda: None)
    for number in (1, 2):
        model = perceptron()
        ours = distributed(model, backward_passes_per_step=number)
        passes(model, ours, schedule_of(ours), ours.no_sync if number == 1 else None, ours.synchronize)
        expect_close(model, expected.module, f"{number} passes")

    expected = with_ddp(group=gloo)
    train(expected, sgd(expected))
    model = perceptron()
    ours = distributed(model)
    for step in range(STEPS):

        def closure():
            ours.zero_grad()
            loss = model(batch(step)).square().mean()
            loss.backward()
            return loss

        assert ours.step(closure) > 0
    expect_close(model, expected.module, "a closure")

    # One rank skips a step that the other ranks make.
    model = perceptron()
    ours = distributed(model)
    model(batch(0)).square().mean().backward()
    if dist.get_rank() == 0:
        ours.zero_grad()
    else:
        ours.step()


class Branches(torch.nn.Module):
    """One layer for each rank, one for all in another type, and one that is unused."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.ours = torch.nn.ModuleList(torch.nn.Linear(80, 70) for _ in range(dist.get_world_size()))
        self.common = torch.nn.Linear(70, 5, dtype=torch.bfloat16)
        self.empty = torch.nn.Parameter(torch.empty(0, 3))
        self.unused = torch.nn.Linear(3, 3)
        self.frozen = torch.nn.Linear(70, 70).requires_grad_(False)

    def forward(self, inputs):
        hidden = self.frozen(self.ours[dist.get_rank()](inputs))
        return self.common(hidden.bfloat16()).float() + self.empty.sum()


def branches():
    """Ranks use different parameters, of several types."""
    gloo = dist.new_group(backend="gloo")
    expected = with_ddp(Branches, gloo, find_unused_parameters=True)
    train(expected, torch.optim.SGD(expected.parameters(), lr=0.1))
    model = Branches()
    train(model, distributed(model, lambda of: torch.optim.SGD(of.parameters(), lr=0.1)))
    hooked = with_ddp(Branches, find_unused_parameters=True)
    hooked.register_comm_hook(TopKState(hooked, compression="none"), topk_hook)
    train(hooked, torch.optim.SGD(hooked.parameters(), lr=0.1))
    for ours in (model, hooked.module):
        check_same_everywhere(ours)
        assert torch.allclose(weights_of(ours), weights_of(expected.module), rtol=2e-2, atol=2e-3)
    # Each branch's gradient is divided by the number of ranks that have it, which is one.
    model = Branches()
    mine = model.ours[dist.get_rank()].weight
    (alone,) = torch.autograd.grad(model(batch(0)).square().mean(), mine)
    wrapped = distributed(model, divisor="contributing_ranks", broadcast=False)
    model(batch(0)).square().mean().backward()
    wrapped.synchronize()
    assert torch.allclose(mine.grad, alone)


# --- top-k -----------------------------------------------------------------------------------------


class Reference:
    """Error feedback in NumPy. The largest values of residual plus gradient are sent, of equal values the first."""

    def __init__(self, shapes, density):
        self._density = density
        zeros = {name: np.zeros(math.prod(shape), np.float32) for name, shape in shapes.items()}
        self.residuals = [dict(zeros) for _ in range(dist.get_world_size())]

    def average(self, name, gradients):
        """Returns the average that all ranks get; `gradients` has the gradients of all ranks."""
        total = np.zeros(gradients[0].size, np.float32)
        for residuals, gradient in zip(self.residuals, gradients):
            values = residuals[name] + gradient.reshape(-1)
            kept = np.argsort(-np.abs(values), kind="stable")[: math.ceil(self._density * values.size)]
            total[kept] += values[kept]
            values[kept] = 0
            residuals[name] = values
        return (total / np.float32(len(gradients))).reshape(gradients[0].shape)


class Given(torch.nn.Module):
    """Parameters whose gradients the test sets."""

    SHAPES = {"a": (64, 80), "b": (80,), "c": (70, 90), "d": (4096, 2)}

    def __init__(self):
        super().__init__()
        for name, shape in self.SHAPES.items():
            setattr(self, name, torch.nn.Parameter(torch.zeros(shape)))

    def forward(self, gradients):
        # The backward pass has another order than registration, so that DDP rebuilds its buckets.
        return sum((getattr(self, name) * gradients[name]).sum() for name in ("c", "a", "d", "b"))


def given(rank, step):
    torch.manual_seed(100 * step + rank)
    return {name: torch.randn(shape) for name, shape in Given.SHAPES.items()}


SPARSE = "topk(0.05,fp32,rule=lossless)"


def check_against_reference(model, backward, gradients):
    """Compares averages and residuals with `Reference`. `gradients` is the gradient set. Sums have two terms, so all
    bits are equal."""
    reference = Reference(Given.SHAPES, 0.05)
    ranks = range(dist.get_world_size())
    for step in range(6):
        backward(model, given(dist.get_rank(), step))
        for name, parameter in model.named_parameters():
            each = [given(rank, step)[name].numpy() for rank in ranks]
            if name == "b":  # Small tensors are sent dense.
                expected = sum(each) / np.float32(len(each))
            else:
                expected = reference.average(name, each)
            np.testing.assert_array_equal(parameter.grad.numpy(), expected, f"step {step}, {name}")
            norm = np.linalg.norm(reference.residuals[dist.get_rank()][name].astype(np.float64))
            if name != "b":
                np.testing.assert_allclose(gradients.residual_norm(name), norm, rtol=1e-6)


def top_k():
    """The hook and the optimizer keep the same residuals as NumPy, also when DDP rebuilds its buckets."""
    buckets = {}

    def noted_hook(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buckets.setdefault(bucket.index(), []).append([tuple(each.shape) for each in bucket.parameters()])
        return topk_hook(state, bucket)

    for keywords in ({}, {"gradient_as_bucket_view": True}):
        buckets.clear()
        parallel = DistributedDataParallel(Given(), bucket_cap_mb=0.03, **keywords)
        state = TopKState(parallel, compression=SPARSE)
        parallel.register_comm_hook(state, noted_hook)

        def backward(model, gradients):
            model.zero_grad()
            parallel(gradients).backward()

        check_against_reference(parallel.module, backward, state.gradients)
        assert len(buckets) > 1 and buckets[0][0] != buckets[0][1] == buckets[0][5], buckets
    model = Given()
    optimizer = distributed(model, compression=SPARSE)

    def backward(model, gradients):
        optimizer.zero_grad()
        model(gradients).backward()
        optimizer.synchronize()

    check_against_reference(model, backward, optimizer.gradients)
    parallel = with_ddp()
    state = TopKState(parallel, 0.05, warmup=3)
    parallel.register_comm_hook(state, topk_hook)
    expected = with_ddp()
    train(parallel, sgd(parallel), range(3))
    train(expected, sgd(expected), range(3))
    assert torch.equal(weights_of(parallel), weights_of(expected)), "dense steps first"
    assert state.gradients.residual_norm("0.weight") == 0
    train(parallel, sgd(parallel), range(3, STEPS))
    assert state.gradients.residual_norm("0.weight") > 0
    check_same_everywhere(parallel)


def saved(state):
    """Returns a state after a round trip through a file, loaded as untrusted data."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def checkpoint():
    """Training continues bit for bit from a saved state, with the hook and with the optimizer."""

    def hooked(model):
        parallel = DistributedDataParallel(model)
        state = TopKState(parallel, 0.05)
        parallel.register_comm_hook(state, topk_hook)
        return parallel, sgd(parallel), state

    def wrapped(model):
        optimizer = distributed(model, compression="topk(0.05)")
        return model, optimizer, None

    for make in (hooked, wrapped):
        model, optimizer, state = make(perceptron())
        train(model, optimizer, range(4))
        checkpoint = [saved(each.state_dict()) for each in (model, optimizer, state) if each is not None]
        train(model, optimizer, range(4, STEPS))
        for forgets in (False, True):
            resumed, *others = make(perceptron())
            for each, part in zip((resumed, *others), checkpoint):
                if forgets:  # Without residuals the bits differ.
                    part = {key: value for key, value in part.items() if key != "kolo"}
                if not (forgets and isinstance(each, TopKState)):
                    each.load_state_dict(part)
            train(resumed, others[0], range(4, STEPS))
            assert torch.equal(weights_of(resumed), weights_of(model)) != forgets, make
    # On another number of ranks, the sum of the residuals equals what the ranks had before.
    compression = checkpoint[1]["kolo"]
    all_states = [None] * dist.get_world_size()
    dist.all_gather_object(all_states, compression)
    _, again, _ = wrapped(perceptron())
    again.remap_compression(all_states[::-1])
    assert torch.equal(again.state_dict()["kolo"]["compression"], compression["compression"])
    other = all_states[(dist.get_rank() + 1) % len(all_states)]
    expect_error(kolo.UsageError, ["loads the compression state"], lambda: again.load_state_dict({"kolo": other}))
    expect_error(kolo.UsageError, ["one of each"], lambda: again.remap_compression([other]))


# --- errors ----------------------------------------------------------------------------------------


def misuse():
    size = dist.get_world_size()
    model = torch.nn.Linear(80, 5 + dist.get_rank())
    error = expect_error(kolo.MismatchError, ["'weight'", "rank 0", "rank 1"], lambda: distributed(model))
    assert error.tensor == "weight", vars(error)

    model = perceptron()
    optimizer = distributed(model)
    model(batch(0)).square().mean().backward()
    expect_error(
        kolo.UsageError,
        [f"rank {dist.get_rank()}", "'3.", "no_sync"],
        lambda: model(batch(1)).square().mean().backward(),
    )
    expect_error(kolo.UsageError, ["'3.bias'", "were changed"], optimizer.synchronize)
    model.zero_grad()
    model(batch(0)).square().mean().backward()
    model[0].bias.grad = None
    expect_error(kolo.UsageError, ["'0.bias'", "were changed", "synchronize()"], optimizer.step)
    optimizer.zero_grad()
    model(batch(0)).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model[2].parameters(), 1e-3)
    expect_error(kolo.UsageError, ["'2.weight', '2.bias'", "before clipping"], optimizer.step)
    later = torch.nn.Parameter(torch.zeros(3))
    expect_error(kolo.UsageError, ["before"], lambda: optimizer.add_param_group({"params": [later]}))
    optimizer._optimizer.add_param_group({"params": [later]})
    later.grad = torch.zeros(3)
    expect_error(kolo.UsageError, ["shape [3]"], optimizer.step)

    other = perceptron()
    names = list(other.named_parameters())
    expect_error(kolo.UsageError, ["no names of 1 of"], lambda: DistributedOptimizer(sgd(other), names[1:]))
    expect_error(kolo.UsageError, ["at least 1"], lambda: distributed(other, backward_passes_per_step=0))
    expect_error(kolo.UsageError, ["'x'"], lambda: DistributedOptimizer(sgd(other), [("x", each) for _, each in names]))
    expect_error(kolo.UsageError, ["LBFGS"], lambda: distributed(other, lambda of: torch.optim.LBFGS(of.parameters())))
    for_sparse = ["SparseAdam", "kolo.horovod"]
    expect_error(kolo.UsageError, for_sparse, lambda: distributed(other, lambda of: torch.optim.SparseAdam(of.parameters())))
    other[0].weight.requires_grad_(False)
    unfrozen = distributed(other)
    other[0].weight.requires_grad_(True)
    other(batch(0)).square().mean().backward()
    expect_error(kolo.UsageError, ["'0.weight'", "required no gradient", "unfreeze"], unfrozen.step)
    turned = torch.nn.Linear(3, 3, dtype=torch.complex64)
    expect_error(kolo.UsageError, ["'weight'", "complex64"], lambda: distributed(turned))
    gloo = dist.new_group(backend="gloo")
    expect_error(kolo.UsageError, ["not of the backend kolo"], lambda: TopKState(other, process_group=gloo))
    table = torch.nn.Embedding(10, 4, sparse=True)
    sparse = distributed(table)
    expect_error(kolo.UsageError, ["'weight'", "sparse=False", "kolo.horovod"], lambda: table(torch.tensor([1])).sum().backward())
    table.zero_grad()
    sparse.synchronize()
    small = torch.full((3, 2), float(dist.get_rank())).t()
    kolo.torch.broadcast_parameters([small, torch.empty(0)], root=size - 1)
    assert torch.equal(small, torch.full((2, 3), size - 1.0))
    turned = {"small": small, "half": torch.ones(3, dtype=torch.float16), "epoch": 3}
    kolo.torch.check_equal(turned)
    small[0, 1] = dist.get_rank()
    expect_error(kolo.MismatchError, ["'small' of rank"], lambda: kolo.torch.check_equal(turned))


def lost():
    """A rank dies in the backward pass; the pass of other ranks fails with an error that names the rank."""
    parallel = with_ddp()
    parallel.register_comm_hook(TopKState(parallel, 0.05), topk_hook)
    if dist.get_rank() == 1:
        os._exit(9)
    for _ in range(2):
        expect_error((kolo.PeerLostError, RuntimeError), ["rank 1"], lambda: train(parallel, sgd(parallel)))
    print("lost rank 1", flush=True)
    os._exit(0)


def play_in_job(scenes):
    dist.init_process_group("kolo", timeout=timedelta(seconds=60))
    play(scenes)
    dist.destroy_process_group()


if __name__ == "__main__":
    play_in_job(globals())
