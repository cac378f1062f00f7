"""The all-reduce that stands inside jitted functions: a callback that JAX keeps in order."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

import kolo
from kolo import UsageError

from .. import _dtypes, _names
from ._trees import combine

_LINEAR = ("sum", "average")
"""The operations that are their own adjoints."""


def jit_all_reduce(group: kolo.Group, tree: Any, op: str = "sum") -> Any:
    """Combines the arrays of a tree with those of all ranks inside a function under `jax.jit`.

    Shape:     as `all_reduce`, of arrays on one device; each result has the shape and type of its array.
    Gradients: those of the sum of what all ranks differentiate. The adjoint of a sum is the sum over all ranks of the
               adjoints, that of an average their average. Other ops, and forward mode, have none.
    Order:     calls run as they stand in the program, also in loops and branches, and all ranks make the same ones,
               from one thread. They have names of their own, so that other operations of the job may run meanwhile.
    Copies:    arrays are copied once, and so are results.
    Errors:    UsageError or TypeError while JAX traces, also inside `shard_map`, and before JAX 0.7. Others end the
               jitted function: JaxRuntimeError with the text of Kolo's error, where the program waits for its results.
    """
    if jax.__version_info__ < (0, 7):
        raise UsageError(f"kolo.jax.jit_all_reduce needs JAX 0.7 or later, and this is {jax.__version__}")
    leaves, structure = jax.tree.flatten(tree)
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    _names.choice(_names.ops(), op, "op")
    for array in arrays:
        _dtypes.of_any(array.dtype)
    if jax.sharding.get_abstract_mesh().manual_axes:
        raise UsageError("kolo.jax.jit_all_reduce takes whole arrays, and was called inside shard_map or pmap")
    return structure.unflatten(_all_reduce(group, op, arrays) if arrays else [])


class _Call(NamedTuple):
    """What JAX calls. Equal ones are one to its caches."""

    group: kolo.Group
    op: str

    def __call__(self, *arrays: jax.Array) -> list[np.ndarray]:
        # Copies: an interrupt ends the callback and not the operation, and the memory of `arrays` is XLA's.
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
    """Integers have adjoints without bytes, of type float0, which stay where they are."""
    has_bytes = [adjoint.dtype != jax.dtypes.float0 for adjoint in adjoints]
    sums = iter(_all_reduce(group, op, [adjoint for adjoint, has in zip(adjoints, has_bytes) if has]))
    return ([next(sums) if has else adjoint for adjoint, has in zip(adjoints, has_bytes)],)


_all_reduce.defvjp(_forward, _backward)
