"""What ranks of a JAX job do, each scene with its own checks; `jax_test.py` starts them.

    jax_scenes.py SCENE    with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import jax
import jax.numpy as jnp
import numpy as np

import kolo
import kolo.jax

DTYPES = ("float32", "bfloat16", "float16", "int32", "uint8")


def trees(job):
    """Sums and averages of trees with several types, sizes and kinds of nodes."""

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
    """Neither what is read nor what is written is copied; sharded arrays come back sharded."""
    from kolo.jax import _trees

    array = jnp.arange(1000.0)
    assert _trees._on_host(array) is array
    result = _trees._empty_like(array)
    assert _trees._as_jax(result, array).unsafe_buffer_pointer() == result.ctypes.data
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    assert mesh.size == 2, "of --xla_force_host_platform_device_count"
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    total = kolo.jax.all_reduce(job, jax.device_put(array, sharding))
    assert total.sharding == sharding
    np.testing.assert_array_equal(total, np.arange(1000.0) * job.size)


def inside_jit(job):
    try:
        jax.jit(lambda x: kolo.jax.all_reduce(job, x))(jnp.ones(3))
    except kolo.UsageError as error:
        assert "between jitted functions" in str(error), error
    else:
        raise AssertionError("no error")


def training(job):
    """A small network trains as one rank with all samples would."""

    def loss_of(weights, inputs, targets):
        hidden = jnp.tanh(inputs @ weights["first"] + weights["bias"])
        return jnp.mean((hidden @ weights["last"] - targets) ** 2)

    gradient_of = jax.jit(jax.value_and_grad(loss_of))
    update = jax.jit(lambda weights, gradients: jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients))
    random = np.random.default_rng(5)
    start = {
        "first": jnp.asarray(random.normal(size=(8, 32)) / 3, jnp.float32),
        "bias": jnp.zeros(32),
        "last": jnp.asarray(random.normal(size=(32, 1)) / 6, jnp.float32),
    }

    ours, alone, losses = start, start, []
    for _ in range(60):
        inputs = random.normal(size=(16 * job.size, 8)).astype(np.float32)
        targets = inputs.sum(1, keepdims=True)
        share = slice(16 * job.rank, 16 * (job.rank + 1))
        loss, gradients = gradient_of(ours, inputs[share], targets[share])
        loss, gradients = kolo.jax.all_reduce(job, (loss, gradients), "average")
        ours = update(ours, gradients)
        whole, gradients = gradient_of(alone, inputs, targets)
        alone = update(alone, gradients)
        np.testing.assert_allclose(loss, whole, rtol=1e-4)
        losses.append(float(loss))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), ours, alone)
    assert losses[-1] < 0.5 * losses[0], losses


def main():
    with kolo.open() as job:
        for scene in sys.argv[1].split(","):
            globals()[scene](job)


main()
