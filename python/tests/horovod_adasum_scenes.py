"""Scenes of horovod_scenes.py: Adasum, beside a reference in NumPy."""

import copy

import numpy as np
import torch

import kolo.horovod as hvd
from horovod_checks import check, raises, same_on_all_ranks
from horovod_training_scenes import batch, close, network, sgd, weights


def pair(a, b):
    """Of two vectors, as the paper has it."""
    product, of_a, of_b = a @ b, a @ a, b @ b
    return (1 - product / (2 * of_a) if of_a else 1) * a + (1 - product / (2 * of_b) if of_b else 1) * b


def reference(vectors):
    """Neighbours first, then pairs of pairs; of an odd number the last one waits."""
    while len(vectors) > 1:
        pairs = [pair(a, b) for a, b in zip(vectors[::2], vectors[1::2])]
        vectors = pairs + vectors[2 * len(pairs) :]
    return vectors[0]


def tensor_of(rank, count, dtype):
    generator = torch.Generator().manual_seed(100 * count + rank)
    common = torch.randn(count, generator=torch.Generator().manual_seed(count))
    return (common + torch.randn(count, generator=generator)).to(dtype)


def expected_of(count, dtype):
    each = [tensor_of(rank, count, dtype).double().numpy() for rank in range(hvd.size())]
    return torch.from_numpy(np.asarray(reference(each)))


def adasum():
    """Tensors of all types and sizes, alone and together."""
    # Elements of a sum are rounded once to the type.
    for dtype, rtol in ((torch.float32, 2e-7), (torch.float64, 1e-12), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)):
        for count in (0, 1, 5, 10_007):
            mine = tensor_of(hvd.rank(), count, dtype)
            got = hvd.allreduce(mine, op=hvd.Adasum)
            assert got.dtype == dtype
            close(got.double(), expected_of(count, dtype), f"Adasum of {count} {dtype}", rtol=rtol, atol=1e-7)
            same_on_all_ranks(got)
            check(mine, tensor_of(hvd.rank(), count, dtype), "the argument")
    sizes = (3, 0, 500, 7)
    types = (torch.float32, torch.float32, torch.float64, torch.float32)
    tensors = [tensor_of(hvd.rank(), size, dtype) for size, dtype in zip(sizes, types)]
    handles = [hvd.grouped_allreduce_async(tensors, op=hvd.Adasum) for _ in range(3)]  # Of one name, all in flight.
    for results in (hvd.synchronize(handle) for handle in handles):
        for result, size, dtype in zip(results, sizes, types):
            close(result.double(), expected_of(size, dtype), "grouped", rtol=2e-7, atol=1e-7)
    strided = tensor_of(hvd.rank(), 12, torch.float32).view(3, 4).t()
    assert hvd.allreduce_(strided, op=hvd.Adasum) is strided
    close(strided.t().reshape(-1).double(), expected_of(12, torch.float32), "in place", rtol=2e-7, atol=1e-7)
    # Equal vectors count once, orthogonal ones each in full; zeros and opposite ones are no trouble.
    same = torch.arange(1.0, 8.0)
    close(hvd.allreduce(same, op=hvd.Adasum), same, "equal on all ranks")
    unit = torch.nn.functional.one_hot(torch.tensor(hvd.rank()), hvd.size()).float()
    close(hvd.allreduce(unit, op=hvd.Adasum), torch.ones(hvd.size()), "orthogonal")
    check(hvd.allreduce(torch.zeros(5), op=hvd.Adasum), torch.zeros(5), "zeros")
    opposite = hvd.allreduce(same * (1 if hvd.rank() % 2 else -1), op=hvd.Adasum)
    assert torch.isfinite(opposite).all() and opposite.norm() <= 2 * same.norm(), opposite
    with raises(ValueError, "floating-point"):
        hvd.allreduce(torch.ones(3, dtype=torch.int32), op=hvd.Adasum)
    with raises(ValueError, "prescale_factor"):
        hvd.allreduce(torch.ones(3), op=hvd.Adasum, prescale_factor=2.0)
    with raises(ValueError, "allreduce and DistributedOptimizer only"):
        hvd.reducescatter(torch.ones(6), op=hvd.Adasum)


def adasum_optimizer():
    """The changes that each rank's own optimizer makes are combined."""
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), op=hvd.Adasum)
    ranks = [copy.deepcopy(model) for _ in range(hvd.size())]  # What each of them computes.
    optimizers = [sgd(each) for each in ranks]
    for step in range(4):
        before = [each.detach().clone() for each in model.parameters()]
        for rank, (theirs, plain) in enumerate(zip(ranks, optimizers)):
            plain.zero_grad()
            theirs(batch(step, rank)).square().mean().backward()
            plain.step()
        optimizer.zero_grad()
        model(batch(step, hvd.rank())).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for place, old in enumerate(before):
                theirs = [list(each.parameters())[place] for each in ranks]
                changes = [(each - old).double().reshape(-1).numpy() for each in theirs]
                expected = old + torch.from_numpy(np.asarray(reference(changes))).view_as(old).float()
                for each in theirs:
                    each.copy_(expected)
        close(weights(model), weights(ranks[0]), f"step {step}")
        same_on_all_ranks(weights(model))
    optimizer.synchronize()
    if hvd.size() > 1:
        with raises(AssertionError, "nothing to skip"):
            optimizer.skip_synchronize()
    hvd.DistributedOptimizer(optimizer, model.named_parameters()).zero_grad()
