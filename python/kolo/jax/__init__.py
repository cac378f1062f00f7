"""Kolo in JAX: sums and averages of trees of arrays over all ranks, between two jitted steps.

    with kolo.open() as job:                                   # mpirun, torchrun, srun or alone
        for batch in batches:
            gradients = gradient_of(weights, batch)            # jitted; every rank has a batch of its own
            gradients = kolo.jax.all_reduce(job, gradients, "average")
            weights = update(weights, gradients)               # jitted

Each rank is a JAX process of its own: `jax.distributed` is not needed.
"""

from __future__ import annotations

from ._trees import all_reduce

__all__ = ["all_reduce"]
