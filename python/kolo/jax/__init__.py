"""Kolo in JAX: combines trees of arrays over all ranks, between two jitted steps or inside one.

    with kolo.open() as job:                                   # mpirun, torchrun, srun or alone
        for batch in batches:
            gradients = gradient_of(weights, batch)            # jitted; every rank has its own batch
            gradients = kolo.jax.all_reduce(job, gradients, "average")
            weights = update(weights, gradients)               # jitted

    @jax.jit
    def step(weights, batch):                                  # the same in one function
        gradients = kolo.jax.jit_all_reduce(job, gradient_of(weights, batch), "average")
        return update(weights, gradients)

Each rank is a separate JAX process: `jax.distributed` is not needed.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

import kolo
from kolo import UsageError

from .. import _dtypes

__all__ = ["all_reduce", "jit_all_reduce"]

# Alignment in bytes at which JAX adopts NumPy memory instead of copying it.
_ALIGNMENT = 64

_LINEAR = ("sum", "average")
"""Operations that are their own adjoints."""


def all_reduce(group: kolo.Group, tree: Any, op: str = "sum") -> Any:
    """Combines the arrays of a tree with those of all ranks; returns a new tree with the results.

    Shape:  a tree of arrays or numbers, of the same structure, shapes and types on all ranks; any tree of JAX. Each
            result has the shape, type and sharding of its array.
    Copies: none for arrays in host memory: Kolo reads them in place, and JAX adopts the memory of the results. Arrays
            on a GPU and sharded arrays are copied to the host and back.
    `op`: as in `Group.all_reduce`. All arrays of one type are combined in one operation.
    Errors: UsageError inside `jit` or another transformation of JAX: use `jit_all_reduce` there. Others as in
            `Group.all_reduce`.
    """
    leaves, structure = jax.tree.flatten(tree)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        raise UsageError(
            "kolo.jax.all_reduce stands between jitted functions, and was called inside one; "
            "kolo.jax.jit_all_reduce stands there"
        )
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    inputs = [_on_host(array) for array in jax.block_until_ready(arrays)]
    results = [_empty_like(array) for array in arrays]
    combine(group, inputs, results, op)
    return structure.unflatten([_as_jax(result, array) for result, array in zip(results, arrays)])


def combine(group: kolo.Group, inputs: list[Any], results: list[np.ndarray], op: str, prefix: str = "") -> None:
    """Combines arrays in host memory, in place if an input is also the result. All arrays of one type are combined in
    one operation. With a prefix, operations have names."""
    same_type: dict[Any, list[int]] = {}
    for i, result in enumerate(results):
        same_type.setdefault(result.dtype, []).append(i)
    tickets = []
    for dtype, chosen in same_type.items():
        elements = sum(results[i].size for i in chosen)
        name = f"{prefix} {op} of {dtype}: {elements} in {len(chosen)}" if prefix else None
        xs, outs = [inputs[i] for i in chosen], [results[i] for i in chosen]
        tickets.append(group.all_reduce(xs, op, out=outs, name=name, wait=False))
    for ticket in tickets:
        ticket.wait()


def _on_host(array: jax.Array) -> Any:
    """Returns the elements in host memory: the array itself, which Kolo reads by DLPack, or a copy."""
    devices = array.devices()
    is_here = len(devices) == 1 and next(iter(devices)).platform == "cpu"
    return array if is_here else np.asarray(array)


def _empty_like(array: jax.Array) -> np.ndarray:
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)


def _as_jax(result: np.ndarray, like: jax.Array) -> jax.Array:
    """Converts a result whose memory no other object uses, so that JAX may keep it."""
    return jax.device_put(result, like.sharding if like.committed else None, may_alias=True)


# --- inside jitted functions: a callback that JAX keeps in order ------------------------------------


def jit_all_reduce(group: kolo.Group, tree: Any, op: str = "sum") -> Any:
    """Combines the arrays of a tree with those of all ranks inside a function under `jax.jit`.

    Shape:     as in `all_reduce`, for arrays on one device; each result has the shape and type of its array.
    Gradients: gradients of the sum of all ranks' objectives. The adjoint of a sum is the sum of the adjoints over all
    ranks, and the adjoint of an average is their average. Other ops, and forward mode, have no gradients.
    Order:     calls run in program order, also in loops and branches, and all ranks make the same calls, from one
               thread. The operations have unique names, so other operations of the job may run at the same time.
    Copies:    arrays are copied once, and so are results.
    Errors:    UsageError or TypeError while JAX traces, inside `shard_map`, and before JAX 0.7. Other errors end the
               jitted function: where the program waits for its results, JAX raises JaxRuntimeError with the text of
               Kolo's error.
    """
    if jax.__version_info__ < (0, 7):
        raise UsageError(f"kolo.jax.jit_all_reduce needs JAX 0.7 or later, and this is {jax.__version__}")
    leaves, structure = jax.tree.flatten(tree)
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    _dtypes.choice(_dtypes.ops(), op, "op")
    for array in arrays:
        _dtypes.of_any(array.dtype)
    if jax.sharding.get_abstract_mesh().manual_axes:
        raise UsageError("kolo.jax.jit_all_reduce takes whole arrays, and was called inside shard_map or pmap")
    return structure.unflatten(_all_reduce(group, op, arrays) if arrays else [])


class _Call(NamedTuple):
    """The callable that JAX calls. Equal objects share an entry in JAX's caches."""

    group: kolo.Group
    op: str

    def __call__(self, *arrays: jax.Array) -> list[np.ndarray]:
        # Copies the arrays, which are XLA's memory, because after an interrupt the operation outlives the callback.
        results = [np.array(array) for array in arrays]
        combine(self.group, results, results, self.op, "jit_all_reduce")
        return results


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _all_reduce(group: kolo.Group, op: str, arrays: list[jax.Array]) -> list[jax.Array]:
    results = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    return io_callback(_Call(group, op), results, *arrays, ordered=True)


def _forward(group: kolo.Group, op: str, arrays: list[jax.Array]) -> tuple[list[jax.Array], None]:
    if op not in _LINEAR:
        raise UsageError(f"kolo.jax.jit_all_reduce has gradients for {' and '.join(_LINEAR)}, not for {op}")
    return _all_reduce(group, op, arrays), None


def _backward(group: kolo.Group, op: str, _: None, adjoints: list[Any]) -> tuple[list[Any]]:
    """Returns the adjoints. Adjoints of integers have no bytes (type float0) and are returned unchanged."""
    has_bytes = [adjoint.dtype != jax.dtypes.float0 for adjoint in adjoints]
    sums = iter(_all_reduce(group, op, [adjoint for adjoint, has in zip(adjoints, has_bytes) if has]))
    return ([next(sums) if has else adjoint for adjoint, has in zip(adjoints, has_bytes)],)


_all_reduce.defvjp(_forward, _backward)
