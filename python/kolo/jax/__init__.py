"""Kolo in JAX: sums and averages of trees of arrays over all ranks, between two jitted steps or inside one.

    with kolo.open() as job:                                   # mpirun, torchrun, srun or alone
        for batch in batches:
            gradients = gradient_of(weights, batch)            # jitted; every rank has a batch of its own
            gradients = kolo.jax.all_reduce(job, gradients, "average")
            weights = update(weights, gradients)               # jitted

    @jax.jit
    def step(weights, batch):                                  # the same in one function
        gradients = kolo.jax.jit_all_reduce(job, gradient_of(weights, batch), "average")
        return update(weights, gradients)

Each rank is a JAX process of its own: `jax.distributed` is not needed.
"""

from __future__ import annotations

from ._jit import jit_all_reduce
from ._trees import all_reduce

__all__ = ["all_reduce", "jit_all_reduce"]
