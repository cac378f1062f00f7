"""Collectives on trees of JAX's arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import kolo
from kolo import UsageError

# JAX takes over memory of NumPy, instead of copying it, if it has this alignment.
_ALIGNMENT = 64


def all_reduce(group: kolo.Group, tree: Any, op: str = "sum") -> Any:
    """Combines the arrays of a tree with those of all ranks; returns a new tree with the results.

    Shape:  a tree of arrays or numbers, of the same structure, shapes and types on all ranks; any tree of JAX. Each
            result has the shape, type and sharding of its array.
    Copies: none for arrays in host memory: Kolo reads them where they lie, and JAX takes over the memory of the
            results. Arrays on a GPU, and those that are sharded, are copied to the host and back.
    `op`:   as of `Group.all_reduce`. All arrays of one type are one operation.
    Errors: UsageError inside `jit` or another transformation of JAX, for which there is `jit_all_reduce`; others as
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
    """Combines arrays in host memory, in place where input and result are one; all of one type are one operation. With
    a prefix operations have names."""
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
    """The elements in host memory: the array itself, which is read by DLPack, or a copy."""
    devices = array.devices()
    is_here = len(devices) == 1 and next(iter(devices)).platform == "cpu"
    return array if is_here else np.asarray(array)


def _empty_like(array: jax.Array) -> np.ndarray:
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)


def _as_jax(result: np.ndarray, like: jax.Array) -> jax.Array:
    """Nobody else has the memory of `result`, so that JAX may keep it."""
    return jax.device_put(result, like.sharding if like.committed else None, may_alias=True)
