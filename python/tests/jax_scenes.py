"""Scenes for the ranks of a JAX job, each with its own checks; `jax_test.py` starts them.

    jax_scenes.py SCENE    with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
from support import play, raises

import kolo
import kolo.jax

DTYPES = ("float32", "bfloat16", "float16", "int32", "uint8")


def trees(job):
    """Sums and averages trees with several types, sizes and kinds of nodes."""

    def tree_of(rank):
        def leaf(count, dtype):
            return ((jnp.arange(count) + rank) % 3 + 1).astype(dtype)

        return {
            "layers": [(leaf(count, dtype), leaf(2 * count, dtype).reshape(2, count)) for dtype in DTYPES for count in (1, 37)],
            "empty": leaf(0, "float32"),
            "none": None,
            "number": jnp.float32(rank),
        }

    mine, every = tree_of(job.rank), [tree_of(rank) for rank in range(job.size)]
    before = jax.tree.map(np.array, mine)
    total = kolo.jax.all_reduce(job, mine)
    expected = jax.tree.map(lambda *each: np.sum(np.stack([np.asarray(x, np.float64) for x in each]), 0), *every)
    assert jax.tree.structure(total) == jax.tree.structure(mine)
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda x: np.asarray(x, np.float64), total), expected)
    jax.tree.map(np.testing.assert_array_equal, mine, before)
    jax.tree.map(lambda a, b: np.testing.assert_equal((a.dtype, a.shape), (b.dtype, b.shape)), total, mine)
    assert float(kolo.jax.all_reduce(job, job.rank, "max")) == job.size - 1, "a Python number"
    mean = kolo.jax.all_reduce(job, jnp.full(5, float(job.rank)), "average")
    np.testing.assert_array_equal(mean, np.full(5, (job.size - 1) / 2))


def memory(job):
    """Neither inputs nor results are copied; sharded arrays come back sharded."""
    array = jnp.arange(1000.0)
    assert kolo.jax._on_host(array) is array
    result = kolo.jax._empty_like(array)
    assert kolo.jax._as_jax(result, array).unsafe_buffer_pointer() == result.ctypes.data
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    assert mesh.size == 2, "of --xla_force_host_platform_device_count"
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    total = kolo.jax.all_reduce(job, jax.device_put(array, sharding))
    assert total.sharding == sharding
    np.testing.assert_array_equal(total, np.arange(1000.0) * job.size)


def refused(job):
    """Unsupported calls of both forms are errors before anything is sent."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    each = {"mesh": mesh, "in_specs": jax.sharding.PartitionSpec("data"), "out_specs": jax.sharding.PartitionSpec("data")}

    def jitted(x, op="sum"):
        return kolo.jax.jit_all_reduce(job, x, op)

    for text, call in (
        ("between jitted functions", jax.jit(lambda x: kolo.jax.all_reduce(job, x))),
        ("inside shard_map", jax.jit(jax.shard_map(jitted, **each))),
        ("not for max", jax.jit(jax.grad(lambda x: jitted(x, "max").sum()))),
        ("op is one of", jax.jit(lambda x: jitted(x, "mean"))),
        ("uint32", jax.jit(lambda x: jitted(x.astype("uint32")))),
    ):
        with raises((kolo.UsageError, TypeError), text):
            call(jnp.ones(4))


def jitted_trees(job):
    """Inside jit, results equal those between jitted functions; no call is left out, and loops repeat it."""
    tree = {
        "layers": [((jnp.arange(count) + job.rank) % 3 + 1).astype(dtype) for dtype in DTYPES for count in (1, 37)],
        "empty": jnp.ones(0),
        "none": None,
        "number": float(job.rank),
    }
    for op in ("sum", "average", "max"):
        want = kolo.jax.all_reduce(job, tree, op)
        for run in (jax.jit, lambda f: f):
            got = run(lambda tree, op=op: kolo.jax.jit_all_reduce(job, tree, op))(tree)
            assert jax.tree.structure(got) == jax.tree.structure(tree)
            jax.tree.map(np.testing.assert_array_equal, got, want)
            jax.tree.map(lambda a, b: np.testing.assert_equal((a.dtype, a.shape), (b.dtype, b.shape)), got, want)
    assert jax.jit(lambda: kolo.jax.jit_all_reduce(job, {}))() == {}

    def grow(x):
        return kolo.jax.jit_all_reduce(job, x) + 1

    x = 1.0
    for _ in range(4):
        x = x * job.size + 1
    assert float(jax.jit(lambda: jax.lax.fori_loop(0, 4, lambda _, x: grow(x), 1.0))()) == x


class Recorded:
    """A group that records the elements of its all-reduces, in the order of their calls."""

    def __init__(self, group):
        self.group = group
        self.sizes = []

    def all_reduce(self, xs, *arguments, **options):
        self.sizes.append(xs[0].size)
        return self.group.all_reduce(xs, *arguments, **options)


def jitted_order(job):
    """Calls and jitted functions run in program order, even if JAX computes other values first. Other operations of the
    job run at the same time, in a different order on each rank."""
    recorded = Recorded(job)
    sizes = [1, 2, 1 << 20, 3, (1 << 20) + 5, 4]

    @jax.jit
    def several(k, matrix):
        late = (matrix @ matrix @ matrix)[0, 0]  # XLA prefers calls that do not need this value.
        sums = [
            kolo.jax.jit_all_reduce(recorded, jnp.full(size, k + i) + (late if i % 2 == 0 else 0))
            for i, size in enumerate(sizes)
        ]
        kolo.jax.jit_all_reduce(recorded, k)  # Its result is unused, but it must still run.
        return [each[::size] for each, size in zip(sums, sizes)]

    runs = [several(jnp.float32(k), jnp.zeros((300, 300))) for k in range(3)]
    for k, sums in enumerate(runs):
        for i, each in enumerate(sums):
            np.testing.assert_array_equal(each, (k + i) * job.size)
    jax.effects_barrier()
    assert recorded.sizes == (sizes + [1]) * 3, recorded.sizes

    other, one = np.full(1 << 20, 5, np.float32), jnp.ones(1 << 20)
    jitted = jax.jit(lambda x: kolo.jax.jit_all_reduce(job, x))
    for _ in range(2):
        if job.rank == 0:
            result, ticket = jitted(one), job.all_reduce([other], out=[np.empty_like(other)], wait=False)
        else:
            ticket, result = job.all_reduce([other], out=[np.empty_like(other)], wait=False), jitted(one)
        np.testing.assert_array_equal(ticket.wait()[0], 5 * job.size)
        np.testing.assert_array_equal(result, job.size)


def jitted_gradients(job):
    """Gradients through an all-reduce equal gradients of one process that has all ranks' functions."""
    ranks = jnp.arange(1.0, job.size + 1)
    inputs = jnp.outer(ranks, jnp.arange(1.0, 5))
    for op, times in (("sum", 1), ("average", 1 / job.size)):

        def joint(inputs, times=times):
            return jnp.sum(jnp.outer(ranks, times * inputs.sum(0)))

        def mine(x, op=op):
            both = kolo.jax.jit_all_reduce(job, {"x": x, "number": jnp.arange(3)}, op)  # Integers have no gradients.
            return (job.rank + 1) * jnp.sum(both["x"])

        want = jax.grad(joint)(inputs)[job.rank]  # Small integers, and their halves or thirds.
        np.testing.assert_allclose(jax.jit(jax.grad(mine))(inputs[job.rank]), want, rtol=1e-6)
        np.testing.assert_allclose(jax.grad(jax.jit(mine))(inputs[job.rank]), want, rtol=1e-6)

    # Batch norm over the samples of all ranks, twice, as one process computes it with all of them.
    random = np.random.default_rng(3)
    weights = jnp.asarray(random.normal(size=(2, 6, 6)) / 2, jnp.float32)
    inputs, targets = random.normal(size=(2, 8 * job.size, 6)).astype(np.float32)

    def loss_of(weights, inputs, targets, average):
        for layer in weights:
            inputs = inputs @ layer
            mean, square = average((inputs.mean(0), (inputs**2).mean(0)))
            inputs = jnp.tanh((inputs - mean) / jnp.sqrt(square - mean**2 + 1e-3))
        return jnp.mean((inputs - targets) ** 2)

    def average(tree):
        return kolo.jax.jit_all_reduce(job, tree, "average")

    share = slice(8 * job.rank, 8 * (job.rank + 1))
    whole, expected = jax.value_and_grad(loss_of)(weights, inputs, targets, lambda tree: tree)
    for of_loss in (lambda loss: loss, average):

        def shared(weights, of_loss=of_loss):
            return of_loss(loss_of(weights, inputs[share], targets[share], average))

        loss, gradient = jax.jit(lambda weights: average(jax.value_and_grad(shared)(weights)))(weights)
        # float32 rounds by 6e-8 in each of about a hundred sums; differences of squares lose another digit or two.
        np.testing.assert_allclose(loss, whole, rtol=1e-4)
        np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-4 * float(jnp.abs(expected).max()))


def jitted_lost(job):
    """A rank dies between steps; the jitted functions of the others fail with Kolo's error."""
    step = jax.jit(lambda x: kolo.jax.jit_all_reduce(job, x, "average"))
    x = step(jnp.ones(1 << 20)).block_until_ready()
    if job.rank == 1:
        os._exit(9)
    with raises(jax.errors.JaxRuntimeError, "PeerLostError", "rank 1"):
        while True:
            x = step(x).block_until_ready()
    with raises(kolo.PeerLostError) as caught:
        kolo.jax.all_reduce(job, x)
    assert caught.error.peer == 1, caught.error
    print("lost rank 1")
    raise caught.error


def main():
    with kolo.open() as job:
        play(globals(), job)


main()
