"""A program for type checkers, which never runs. scripts/torch-check checks it by mypy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import kolo

if TYPE_CHECKING:
    from typing_extensions import assert_type

Floats = NDArray[np.float32]


def collectives(job: kolo.Runtime, x: Floats, out: Floats, flag: bool) -> None:
    assert_type(job.all_reduce(x), Floats)
    assert_type(job.all_reduce(x, "max", wait=False), kolo.Ticket[Floats])
    assert_type(job.all_reduce(x, wait=False).wait(), Floats)
    assert_type(job.all_reduce([x, x]), list[Floats])
    assert_type(job.all_reduce(x, wait=flag), "Floats | kolo.Ticket[Floats]")
    assert_type(job.broadcast(out=out, root=1), Floats)
    assert_type(job.reduce(x), "Floats | None")
    assert_type(job.all_gather(x, counts=[1, 2]), Floats)
    assert_type(job.all_gather(memoryview(b"0123"), out=out), Floats)
    assert_type(job.all_gather([x, x], counts=[[1, 2], [3, 4]]), list[Floats])
    assert_type(job.gather(x, wait=False).wait(), "Floats | None")
    assert_type(job.barrier(wait=False), kolo.Ticket[None])
    assert_type(job.recv(x).source, int)
    assert_type(job.recv(x, wait=False).wait(), kolo.Received)


def the_rest(job: kolo.Runtime, x: Floats) -> None:
    assert_type(job.allocate(10), NDArray[Any])
    assert_type(job.register_gradients("model", {"x": x})["x"], NDArray[Any])
    assert_type(job.sparse_all_reduce(x, x, 5), kolo.Rows)
    assert_type(job.sparse_all_reduce([x], [x], [5], wait=False).wait(), list[kolo.Rows])


def mistakes(job: kolo.Runtime, x: Floats) -> None:
    job.all_reduce(x, nmae="a")  # type: ignore[call-overload]
    job.all_reduce(x, wait=False) + 1  # type: ignore[operator]
