"""Scenes of `kolo.torch` with local steps and with balanced batches; `torch_test.py` starts them.

    torch_local_scenes.py SCENE    with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
"""

import copy
import io
import itertools

import torch
import torch.distributed as dist
from torch_training_scenes import (
    batch, check_same_everywhere, expect_close, expect_error, perceptron, play_in_job, sgd, train, weights_of,
)  # fmt: skip

import kolo
import kolo.torch
import torch_stand_in  # noqa: F401  (takes its place if the job asks for it)
from kolo.torch import DiLoCo, DistributedOptimizer, LocalSGD, balanced_batches
from kolo.torch._balance import deal_out


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def gathered(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return parts


def is_same_everywhere(model):
    return all(torch.equal(each, weights_of(model)) for each in gathered(weights_of(model)))


def set_weights(model, weights):
    torch.nn.utils.vector_to_parameters(weights.float(), model.parameters())


def local():
    """Each rank trains alone from the weights of rank 0, and takes the mean over ranks every three steps."""
    for make in (sgd, adam):
        torch.manual_seed(dist.get_rank())
        model = torch.nn.Linear(80, 5)
        optimizer = LocalSGD(make(model), every=3)
        check_same_everywhere(model)
        alone = copy.deepcopy(model)
        its_own = make(alone)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
        its_schedule = torch.optim.lr_scheduler.StepLR(its_own, 4, 0.5)
        for step in range(10):
            for each, of in ((model, optimizer), (alone, its_own)):
                train(each, of, [step])
            schedule.step(), its_schedule.step()
            if step % 3 == 2:
                assert optimizer.has_equal_weights
                mean = torch.stack(gathered(weights_of(alone))).mean(0)
                assert torch.allclose(weights_of(model), mean, rtol=1e-6, atol=1e-7), step
                check_same_everywhere(model)
                set_weights(alone, weights_of(model))
            else:
                assert not optimizer.has_equal_weights and not is_same_everywhere(model), step
                assert torch.equal(weights_of(model), weights_of(alone)), step
        optimizer.exchange()  # Ranks have taken one step of three.
        check_same_everywhere(model)
        before = weights_of(model)
        optimizer.exchange()
        assert torch.equal(before, weights_of(model)), "nothing has moved"
        assert isinstance(optimizer, torch.optim.Optimizer) and optimizer.param_groups is optimizer._optimizer.param_groups
        assert repr(optimizer).startswith("LocalSGD("), optimizer


def diloco():
    """Compares outer steps with Nesterov momentum on the mean movement, computed here."""
    # A code of 8 bits is off by at most one part in 127 of the largest value of its block, and so is the coded sum.
    for how, tolerance in (({}, 1e-6), ({"wire": "bfloat16"}, 2.0**-8), ({"compression": "*=int8(route=owners)"}, 2 / 127)):
        model = perceptron()
        optimizer = DiLoCo(sgd(model), every=4, outer_lr=0.5, outer_momentum=0.8, **how)
        alone = copy.deepcopy(model)
        its_own = sgd(alone)
        agreed, velocity = weights_of(model), torch.zeros_like(weights_of(model))
        for exchange in range(3):
            steps = range(4 * exchange, 4 * exchange + 4)
            train(model, optimizer, steps)
            train(alone, its_own, steps)
            moved = agreed - torch.stack(gathered(weights_of(alone))).mean(0)
            velocity = 0.8 * velocity + moved
            agreed = agreed - 0.5 * (moved + 0.8 * velocity)
            # The error of rounding is relative to the size of the movement.
            error = (weights_of(model) - agreed).abs().max() / moved.abs().max()
            assert error < tolerance + 1e-5, (how, exchange, error)
            check_same_everywhere(model)
            agreed = weights_of(model)
            set_weights(alone, agreed)


def state():
    """Training continues bit for bit from the weights and the state that each rank saved between exchanges."""
    def coded(optimizer, **options):
        return DiLoCo(optimizer, compression="*=int8(route=owners)", **options)

    for kind in (LocalSGD, DiLoCo, coded):

        def make(model, **options):
            return kind(adam(model), every=4, **options)

        whole = perceptron()
        train(whole, make(whole), range(14))
        model = perceptron()
        optimizer = make(model)
        train(model, optimizer, range(7))
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        train(model, optimizer, range(7, 9))  # These steps do not change the saved state.
        file.seek(0)
        saved = torch.load(file)
        again = perceptron()
        again.load_state_dict(saved["model"])
        optimizer = make(again, broadcast=False)
        optimizer.load_state_dict(saved["optimizer"])
        train(again, optimizer, range(7, 14))
        assert torch.equal(weights_of(again), weights_of(whole)), kind
        plain = adam(perceptron())
        plain.load_state_dict({key: each for key, each in saved["optimizer"].items() if key != "kolo"})
        optimizer.load_state_dict(plain.state_dict())
        assert optimizer.has_equal_weights


def scaled():
    """With a gradient scaler, local steps are the same, but a rank whose gradients overflow skips its own step."""
    for kind, fused in itertools.product((LocalSGD, DiLoCo), (False, True)):
        model, other = perceptron(), perceptron()
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        optimizer = kind(torch.optim.SGD(model.parameters(), lr=0.1, fused=fused), every=2)
        its_own = kind(torch.optim.SGD(other.parameters(), lr=0.1, fused=fused), every=2)
        for step in range(5):
            overflows = step == 1 and dist.get_rank() == 1
            loss = model(batch(step)).square().mean() * (float("inf") if overflows else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer), scaler.update(), optimizer.zero_grad()
            if not overflows:
                other(batch(step)).square().mean().backward()
            its_own.step(), its_own.zero_grad()
        assert scaler.get_scale() == (512.0 if dist.get_rank() == 1 else 1024.0), scaler.get_scale()
        assert not optimizer.has_equal_weights
        optimizer.exchange(), its_own.exchange()
        check_same_everywhere(model)
        expect_close(model, other, f"{kind.__name__} without a scaler")


def kept(optimizer):
    """The largest norm of this rank's residuals."""
    moved = optimizer._moved
    return max(moved.set.residual_norm(i) for i in range(len(moved.views)))


def resumed_elsewhere():
    """Weights and outer state are equal on all ranks, so that any rank may load them without residuals. These are dealt
    out anew."""
    model = perceptron()
    optimizer = DiLoCo(sgd(model), every=1, compression="*=topk(0.25,route=owners)")
    train(model, optimizer, range(3))
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, optimizer.state_dict())
    moved = [state["kolo"].pop("moved") for state in states]
    assert kept(optimizer) > 0.0
    again = perceptron()
    again.load_state_dict(model.state_dict())
    optimizer = DiLoCo(sgd(again), every=1, compression="*=topk(0.25,route=owners)", broadcast=False)
    optimizer.load_state_dict(states[0])
    assert kept(optimizer) == 0.0
    optimizer.remap_compression(moved)
    assert kept(optimizer) > 0.0


def bytes_sent():
    """A step without an exchange sends nothing. An exchange sends as many bytes as an all-reduce of the weights."""
    group = kolo.torch._parameters.group_of(None)
    for make, size in ((LocalSGD, 4), (DiLoCo, 4), (lambda *args, **more: DiLoCo(*args, wire="bfloat16", **more), 2)):
        model = perceptron()
        optimizer = make(sgd(model), every=5)
        before = group.network_bytes_sent
        train(model, optimizer, range(4))
        assert group.network_bytes_sent == before
        train(model, optimizer, range(4, 5))
        sent = group.network_bytes_sent - before
        assert abs(sent - size * weights_of(model).numel()) < 1000, (make, sent)


def some_ranks():
    """Only the ranks of a group exchange weights. Parameters without gradients keep their bits."""
    some = dist.new_group([0, 2])
    model = perceptron()
    frozen = next(model.parameters()).requires_grad_(False)
    with torch.no_grad():
        frozen.fill_(0.1 + dist.get_rank())
    if dist.get_rank() != 1:
        optimizer = LocalSGD(sgd(model), 2, some)
        train(model, optimizer, range(4))
    assert torch.equal(frozen, torch.full_like(frozen, 0.1 + dist.get_rank()))
    weights = gathered(weights_of(torch.nn.Sequential(*list(model)[1:])))
    assert torch.equal(weights[0], weights[2]) and not torch.equal(weights[0], weights[1])


def balanced():
    """With given rates, ranks get every sample once, and the weights of one rank that trains on all samples."""
    size, rank = dist.get_world_size(), dist.get_rank()
    samples, batch_size = 50 * size + 7, 6
    torch.manual_seed(3)
    x, y = torch.randn(samples, 80), torch.randn(samples, 5)
    data = torch.utils.data.TensorDataset(x, y)
    batches = balanced_batches(data, batch_size, rates=[1 + rank for rank in range(size)])
    loader = torch.utils.data.DataLoader(data, batch_sampler=batches)
    model, alone = torch.nn.Linear(80, 5), torch.nn.Linear(80, 5)
    alone.load_state_dict(model.state_dict())
    kolo.torch.broadcast_parameters(model)
    kolo.torch.broadcast_parameters(alone)
    optimizer = DistributedOptimizer(sgd(model), model.named_parameters())
    its_own = sgd(alone)
    for epoch in range(2):
        batches.set_epoch(epoch)
        order = torch.randperm(samples, generator=torch.Generator().manual_seed(epoch))
        seen = []
        for step, (inputs, targets) in enumerate(loader):
            joint = order[step * batch_size * size :][: batch_size * size]
            seen.append(len(inputs))
            if len(joint) == batch_size * size:
                assert len(inputs) == deal_out(batch_size * size, range(1, size + 1))[rank]
            with batches.computing() as weight:
                (weight * (model(inputs) - targets).square().mean()).backward()
            optimizer.step(), optimizer.zero_grad()
            (alone(x[joint]) - y[joint]).square().mean().backward()
            its_own.step(), its_own.zero_grad()
        totals = sum(int(each) for each in gathered(torch.tensor(sum(seen))))
        left = samples % (batch_size * size)
        assert len(seen) == len(batches) and totals == samples - (left if left < size else 0), (totals, samples)
    expect_close(model, alone, "a rank with the joint batch")
    uneven = [len(each) for each in balanced_batches(size * 8 + size - 1, 8)]
    assert uneven == [8], uneven  # The last step has fewer samples than ranks.
    expect_error(kolo.UsageError, ["rates [1]"], lambda: balanced_batches(100, 2, rates=[1]))
    expect_error(kolo.UsageError, ["do not fill a step"], lambda: balanced_batches(3, 2))


def measured():
    """The test gives the sampler its times: rank 1 takes twice as long. The loaders take indices ahead."""
    batches = balanced_batches(6000, 12)
    rank = dist.get_rank()
    ahead = 3 + 2 * rank  # Ranks take indices for different numbers of steps ahead.
    indices = iter(batches)
    waiting = [next(indices) for _ in range(ahead)]
    steps = []
    for _ in range(60):
        steps.append(waiting.pop(0))
        waiting.append(next(indices))
        batches._ahead.popleft()
        with torch.device("meta"):  # A default device of the program.
            batches._add(0.01 * (1 + rank))
    lengths = torch.tensor([len(each) for each in steps])
    assert torch.equal(sum(gathered(lengths)), torch.full_like(lengths, 24)), "ranks change at one step"
    assert lengths[0] == 12 and lengths[-1] == (16, 8)[rank], lengths
    # The decision after step 20 takes effect at the first step whose indices no rank had taken: 20 and 5 ahead.
    assert (lengths == 12).sum() == 25, lengths


def misuse():
    model = perceptron()
    expect_error(kolo.UsageError, ["every is 0"], lambda: LocalSGD(sgd(model), 0))
    group = {"params": [torch.nn.Parameter(torch.zeros(2))]}
    LocalSGD(sgd(model), 2).add_param_group(dict(group))
    expect_error(kolo.UsageError, ["before the optimizer is wrapped"], lambda: DiLoCo(sgd(model), 2).add_param_group(group))
    frozen = next(model.parameters()).requires_grad_(False)
    optimizer = DiLoCo(sgd(model), 2)
    frozen.requires_grad_(True)
    expect_error(kolo.UsageError, ["required no gradient"], lambda: train(model, optimizer, range(2)))
    expect_error(kolo.UsageError, ["int9"], lambda: DiLoCo(sgd(model), 1, compression="int9"))


if __name__ == "__main__":
    play_in_job(globals())
