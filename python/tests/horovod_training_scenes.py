"""Scenes of horovod_scenes.py. Optimizers, their state and batch normalization are compared with one process that has
the batches of all ranks, and Adasum with a reference in NumPy."""

import copy
import warnings

import numpy as np
import torch

import kolo
import kolo.horovod as hvd
import torch_stand_in
from horovod_checks import check, raises, same_on_all_ranks
from kolo.horovod._adasum import factors


def network(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Tanh(), torch.nn.Linear(50, 5))


def batch(step, rank, count=16):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(count, 20, generator=generator)


def joined(step, count=16):
    return torch.cat([batch(step, rank, count) for rank in range(hvd.size())])


def weights(model):
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()])


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def alone(make=sgd, steps=8, seed=1):
    """Returns the weights of one process that trains on the batches of all ranks."""
    model = network(seed)
    optimizer = make(model)
    for step in range(steps):
        optimizer.zero_grad()
        model(joined(step)).square().mean().backward()
        optimizer.step()
    return weights(model)


def trained(make=sgd, zero_grad=lambda optimizer: optimizer.zero_grad(), steps=8, **arguments):
    model = network()
    optimizer = hvd.DistributedOptimizer(make(model), named_parameters=model.named_parameters(), **arguments)
    for step in range(steps):
        zero_grad(optimizer)
        model(batch(step, hvd.rank())).square().mean().backward()
        optimizer.step()
    same_on_all_ranks(weights(model))
    return weights(model)


def close(actual, expected, what, rtol=1e-5, atol=1e-6):
    assert torch.allclose(actual, expected, rtol=rtol, atol=atol), f"{what}: {(actual - expected).abs().max()}"


def optimizers():
    """Ranks train like one process with all batches, up to the order of additions."""
    expected = alone()
    close(trained(), expected, "gradients that are None before each pass")
    close(trained(zero_grad=lambda each: each.zero_grad(set_to_none=False)), expected, "gradients that are kept")
    close(trained(gradient_predivide_factor=4.0), expected, "predivided")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        close(trained(num_groups=2), expected, "groups")
    assert any("num_groups is deprecated" in str(each.message) for each in caught)

    def adam(model):
        return torch.optim.AdamW(model.parameters(), lr=0.01)

    close(trained(adam), alone(adam), "AdamW", atol=1e-4)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16, Rounded):
        weights_now = trained(compression=compression)
        close(weights_now, expected, compression, rtol=0.02, atol=0.02)
        assert hvd.size() == 1 or not torch.equal(weights_now, expected), f"{compression} changes nothing"

    # Beyond the range of float16, which has a scale only in host memory.
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    steep = torch.optim.SGD(model.parameters(), lr=1.0)
    steep = hvd.DistributedOptimizer(steep, model.named_parameters(), compression=hvd.Compression.fp16)
    for _ in range(3):
        steep.zero_grad()
        (model(torch.ones(1, 3)) * 2.0**20).sum().backward()
        steep.step()
    is_finite = torch.isfinite(model.weight).all()
    assert is_finite != torch_stand_in.is_asked_for() and (model.weight < 0).all(), model.weight

    def summed(model):
        return torch.optim.SGD(model.parameters(), lr=0.1 / hvd.size(), momentum=0.9)

    close(trained(summed, op=hvd.Sum), expected, "sums")
    close(trained(steps=1, op=hvd.Max), trained(steps=1, op=hvd.Max), "largest elements")


class Rounded:
    """A user's compressor."""

    @staticmethod
    def compress(tensor):
        return tensor.bfloat16().reshape(-1), tensor.shape

    @staticmethod
    def decompress(tensor, shape):
        return tensor.float().view(shape)


def accumulation():
    """Makes several backward passes for each step, and clips between `synchronize` and `step`."""
    model, theirs = network(), network()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), backward_passes_per_step=2)
    plain = sgd(theirs)
    for step in range(0, 8, 2):
        optimizer.zero_grad()
        plain.zero_grad()
        for each in (step, step + 1):
            model(batch(each, hvd.rank())).square().mean().backward()
            theirs(joined(each)).square().mean().backward()
        optimizer.synchronize()
        for each in (model, theirs):
            torch.nn.utils.clip_grad_norm_(each.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()
        plain.step()
    close(weights(model), weights(theirs), "two passes for a step, clipped")
    optimizer.set_backward_passes_per_step(1)
    optimizer.zero_grad()
    model(batch(9, hvd.rank())).square().mean().backward()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.synchronize()
        optimizer.step()
    assert any("skip_synchronize" in str(each.message) for each in caught)
    # A closure computes the gradients.
    alike = copy.deepcopy(model)
    plain = sgd(alike)
    plain.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each, other, samples in ((model, optimizer, batch(10, hvd.rank())), (alike, plain, joined(10))):

        def closure(model=each, optimizer=other, samples=samples):
            optimizer.zero_grad()
            loss = model(samples).square().mean()
            loss.backward()
            return loss

        other.step(closure)
    close(weights(model), weights(alike), "a closure")
    # After fewer passes than announced, `step` sends the accumulated gradients.
    optimizer.set_backward_passes_per_step(3)
    optimizer.zero_grad()
    model(torch.full((1, 20), float(hvd.rank()))).sum().backward()
    optimizer.step()
    same_on_all_ranks(weights(model))


def branches():
    """Some ranks, or all ranks, do not use parts of the model in a step."""
    shared, mine = (
        torch.nn.Linear(4, 4, bias=False),
        torch.nn.ModuleList(torch.nn.Linear(4, 1, bias=False) for _ in range(hvd.size() + 1)),
    )
    model = torch.nn.ModuleDict({"shared": shared, "branches": mine})
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    for step in range(3):
        before = copy.deepcopy(model)
        optimizer.zero_grad()
        used = (hvd.rank() + step) % hvd.size()
        x = torch.full((1, 4), float(hvd.rank() + 1))
        mine[used](shared(x)).sum().backward()
        optimizer.step()
        same_on_all_ranks(weights(model))
        for branch in range(hvd.size()):
            rank = (branch - step) % hvd.size()
            gradient = before.shared(torch.full((1, 4), float(rank + 1))) / hvd.size()
            close(mine[branch].weight, before.branches[branch].weight - gradient, "a branch")
        close(mine[-1].weight, before.branches[-1].weight, "the one that nobody uses")


def bags():
    torch.manual_seed(3)
    shapes = ((30, 4, torch.float32), (7, 2, torch.float32), (9, 3, torch.float64), (5, 4, torch.float64))
    return torch.nn.ModuleList(torch.nn.Embedding(*shape, sparse=True, dtype=dtype) for *shape, dtype in shapes)


def loss_of_bags(model, rank, step):
    rows = (torch.arange(4) * (rank + 1) + step) % 5
    return sum(table(rows).square().sum() for table in model)


def tables():
    """Sparse gradients of embeddings are exchanged by rows, with shared exchanges for one type, or as dense gradients.
    One rank has no gradient in the first step."""
    exchanged, whole = [], kolo.Group.sparse_all_reduce

    def counted(group, indices, rows, *args, **options):
        exchanged.append(sorted(str(each.dtype) for each in rows))
        return whole(group, indices, rows, *args, **options)

    for sparse_as_dense, kind in ((False, torch.optim.SGD), (True, torch.optim.SGD), (False, torch.optim.SparseAdam)):
        ours, theirs = bags(), bags()
        plain = kind(theirs.parameters(), lr=0.5)
        optimizer = hvd.DistributedOptimizer(
            kind(ours.parameters(), lr=0.5), ours.named_parameters(), sparse_as_dense=sparse_as_dense
        )
        exchanged.clear()
        for step in range(3):
            ranks = [rank for rank in range(hvd.size()) if step > 0 or rank > 0]
            optimizer.zero_grad()
            plain.zero_grad()
            if hvd.rank() in ranks:
                loss_of_bags(ours, hvd.rank(), step).backward()
            (sum(loss_of_bags(theirs, rank, step) for rank in ranks) / hvd.size()).backward()
            kolo.Group.sparse_all_reduce = counted
            try:
                optimizer.step()
            finally:
                kolo.Group.sparse_all_reduce = whole
            plain.step()
            for mine, reference in zip(ours, theirs):
                close(mine.weight, reference.weight, f"{kind.__name__} of an embedding, as dense: {sparse_as_dense}")
        assert exchanged == (not sparse_as_dense) * 3 * [["float32", "float32"], ["float64", "float64"]], exchanged


def states():
    """Copies the optimizer state and options of one rank to all ranks, before and after wrapping."""
    for make in (
        lambda model, lr: torch.optim.Adam(model.parameters(), lr=lr, amsgrad=True),
        lambda model, lr: torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9),
        lambda model, lr: torch.optim.SGD(model.parameters(), lr=lr),
    ):
        model = network(hvd.rank())
        optimizer = make(model, 0.01 * (hvd.rank() + 1))
        if hvd.rank() == 0:
            model(batch(0, 0)).square().mean().backward()
            optimizer.step()
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        wrapped = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        assert isinstance(wrapped, type(optimizer)) and type(wrapped).__name__ == type(optimizer).__name__
        hvd.broadcast_optimizer_state(wrapped, root_rank=0)
        states_of = hvd.allgather_object(wrapped.state_dict())
        for state in states_of:
            assert str(state) == str(states_of[0]), state
        assert wrapped.param_groups[0]["lr"] == 0.01
        model(batch(1, hvd.rank())).square().mean().backward()
        wrapped.step()
        scheduler.step()
        assert wrapped.param_groups[0]["lr"] == 0.005, "schedulers of the optimizer that was wrapped"
        same_on_all_ranks(weights(model))
        hvd.broadcast_parameters(list(model.named_parameters()), root_rank=0)
        hvd.broadcast_parameters(list(model.parameters()), root_rank=0)


def norms():
    """SyncBatchNorm is equivalent to one process that normalizes the batches of all ranks, which differ in size."""
    for dtype in (torch.float32, torch.float64):
        norms_of(dtype)
    if hvd.size() > 1:  # Alone it is torch's own.
        ours = hvd.SyncBatchNorm(3)
        ours(torch.ones(257, 3, dtype=torch.bfloat16)).sum().backward()
        check(ours.bias.grad, torch.full((3,), 257.0), "a gradient that 16 bits cannot hold")
        mine = torch.tensor([[256.0] * 3, [258.0] * 3], dtype=torch.bfloat16, requires_grad=True)
        out = ours(mine)
        check(out, torch.tensor([[-1.0] * 3, [1.0] * 3], dtype=torch.bfloat16), "a mean that 16 bits cannot hold")
        out[0].sum().backward()
        close(mine.grad.float(), torch.zeros(2, 3), "the gradient of two values", atol=1e-4)


def norms_of(dtype):
    torch.manual_seed(4)
    ours, theirs = hvd.SyncBatchNorm(3).to(dtype), torch.nn.BatchNorm2d(3).to(dtype)
    theirs.load_state_dict(ours.state_dict())
    counts = [rank + 1 for rank in range(hvd.size())]
    for _ in range(3):
        whole = torch.randn(sum(counts), 3, 4, 5, dtype=dtype) * 3 + 1
        first = sum(counts[: hvd.rank()])
        mine = whole[first : first + counts[hvd.rank()]].clone().requires_grad_()
        whole.requires_grad_()
        out = ours(mine)
        expected = theirs(whole)
        close(out, expected[first : first + counts[hvd.rank()]], "normalized", atol=1e-5)
        for module in (ours, theirs):
            module.zero_grad()
        (out.square() * torch.arange(5)).sum().backward()
        (expected.square() * torch.arange(5)).sum().backward()
        close(mine.grad, whole.grad[first : first + counts[hvd.rank()]], "gradient", rtol=1e-4, atol=1e-4)
        for name in ("weight", "bias"):
            total = hvd.allreduce(getattr(ours, name).grad, op=hvd.Sum)
            close(total, getattr(theirs, name).grad, name, rtol=1e-4, atol=1e-4)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        close(getattr(ours, name).float(), getattr(theirs, name).float(), name)
    ours.eval(), theirs.eval()
    close(ours(whole), theirs(whole), "evaluated")


# --- Adasum -----------------------------------------------------------------------------------------


def pair(a, b):
    """Returns the Adasum of two vectors, as in the paper."""
    product, of_a, of_b = a @ b, a @ a, b @ b
    return (1 - product / (2 * of_a) if of_a else 1) * a + (1 - product / (2 * of_b) if of_b else 1) * b


def reference(vectors):
    """Combines neighbours first, then pairs of results; of an odd number, the last one waits."""
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
    """Combines tensors of all types and sizes, alone and together."""
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
    handles = [hvd.grouped_allreduce_async(tensors, op=hvd.Adasum) for _ in range(3)]  # Calls of one name.
    for results in (hvd.synchronize(handle) for handle in handles):
        for result, size, dtype in zip(results, sizes, types):
            close(result.double(), expected_of(size, dtype), "grouped", rtol=2e-7, atol=1e-7)
    strided = tensor_of(hvd.rank(), 12, torch.float32).view(3, 4).t()
    assert hvd.allreduce_(strided, op=hvd.Adasum) is strided
    close(strided.t().reshape(-1).double(), expected_of(12, torch.float32), "in place", rtol=2e-7, atol=1e-7)
    products = torch.eye(2, dtype=torch.float64)
    with torch.device("meta"):  # The default device need not be that of the products.
        assert factors(products).tolist() == [1, 1]
    # Equal vectors count once, orthogonal ones fully; zero and opposite vectors cause no error.
    same = torch.arange(1.0, 8.0)
    close(hvd.allreduce(same, op=hvd.Adasum), same, "equal on all ranks")
    unit = torch.nn.functional.one_hot(torch.tensor(hvd.rank()), hvd.size()).float()
    close(hvd.allreduce(unit, op=hvd.Adasum), torch.ones(hvd.size()), "orthogonal")
    check(hvd.allreduce(torch.zeros(5), op=hvd.Adasum), torch.zeros(5), "zeros")
    opposite = hvd.allreduce(same * (1 if hvd.rank() % 2 else -1), op=hvd.Adasum)
    assert torch.isfinite(opposite).all() and opposite.norm() <= 2 * same.norm(), opposite


def adasum_optimizer():
    """The changes that each rank's own optimizer makes are combined."""
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), op=hvd.Adasum)
    ranks = [copy.deepcopy(model) for _ in range(hvd.size())]  # The computation of each rank, repeated here.
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
