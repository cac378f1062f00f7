"""Training that goes on when a rank is lost: `horovod.torch.elastic`, with the restarts of torchrun.

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0)

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            ...
            state.commit()

    train(state)

    torchrun --nproc-per-node 4 --max-restarts 3 train.py

A lost rank is a HorovodInternalError in all others. It ends their processes; torchrun starts all ranks again, and `run`
goes on from the last commit. Commits are files: see `docs/horovod.md`.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar

from ._commits import commits_of_job
from ._elastic_sampler import ElasticSampler
from ._elastic_state import ObjectState, State, TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]

_Result = TypeVar("_Result")


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """Makes `func(state, ...)` begin with the last commit, or else with the state of rank 0, on all ranks. Collective.

    Errors: those of `func`, after which the process is to end: what other ranks get is a HorovodInternalError.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> _Result:
        state.attach(commits_of_job())
        result = func(state, *args, **kwargs)
        state.detach()
        return result

    return wrapper
