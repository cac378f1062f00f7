"""Ends for differential_test.py: jobs over Kolo that a rank leaves early. Each job has separate processes.

    differential_ends.py END    with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
"""

import dataclasses
import os
import sys
import threading
from datetime import timedelta
from typing import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import kolo


@dataclasses.dataclass(frozen=True)
class End:
    call: Callable
    ranks: int
    statuses: tuple
    texts: tuple  # Each must be printed by some rank.


ENDS = {}


def end(statuses, *texts):
    """Adds a function to the table, with the exit statuses by rank, and expected texts."""

    def enter(function):
        ENDS[function.__name__] = End(function, len(statuses), tuple(statuses), texts)
        return function

    return enter


def model():
    torch.manual_seed(1)
    return DistributedDataParallel(torch.nn.Linear(8, 4))


def train(steps):
    parallel = model()
    for _ in range(steps):
        parallel(torch.ones(2, 8)).sum().backward()


@end((1, 1), "ValueError: a bug of rank 1", "rank 1")
def an_exception_in_a_loop():
    train(2)
    if dist.get_rank() == 1:
        raise ValueError("a bug of rank 1")
    train(2)


@end((1, 1), "left the job: ValueError: a bug of rank 1", "rank 1")
def an_exception_with_a_group_that_is_destroyed_in_finally():
    """Rank 1 waits for the end of the job and submits nothing more, so the other ranks get the error at once."""
    try:
        an_exception_in_a_loop()
    finally:
        dist.destroy_process_group()


@end((1, 1, 1), "left the job: ValueError: a bug of rank 1", "rank 1")
def an_exception_in_a_subgroup_with_finally():
    group = dist.new_group([0, 1])
    try:
        if dist.get_rank() == 1:
            raise ValueError("a bug of rank 1")
        dist.all_reduce(torch.ones(3), group=group if dist.get_rank() == 0 else None)
    finally:
        dist.destroy_process_group()


@end((1, 3), "rank 1")
def a_program_that_exits():
    if dist.get_rank() == 1:
        sys.exit(3)
    dist.all_reduce(torch.ones(3))


@end((1, 9), "PeerLostError", "rank 1")
def a_process_that_dies():
    if dist.get_rank() == 1:
        os._exit(9)
    dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()


@end((1, 1), "ranks disagree", "float32 [3]", "float32 [4]")
def a_mismatch_that_nobody_catches():
    dist.all_reduce(torch.ones(3 + dist.get_rank()))


@end((0, 0), "rank 0 is over", "rank 1 is over")
def operations_that_nobody_waits_for():
    for number in range(20):
        work = dist.all_reduce(torch.ones(10_000), async_op=True)
        if number % 2 == 1:
            work.get_future()
    dist.destroy_process_group()
    print(f"rank {os.environ['RANK']} is over")


@end((0, 0), "rank 0 is over", "rank 1 is over")
def a_job_that_is_never_destroyed():
    dist.all_reduce(torch.ones(10))
    dist.new_group()
    print(f"rank {os.environ['RANK']} is over")


@end((1, 1), "UsageError: all_reduce in a callback of a future", "make one bucket")
def an_operation_of_a_callback_that_has_no_place():
    """Rank 1 may begin the callback's operation before or after the program's next one, and the two are equal."""
    if dist.get_rank() == 1:
        dist.recv(torch.empty(1), 0)
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    chain = future.then(lambda _: dist.all_reduce(torch.ones(3)))
    dist.all_reduce(torch.ones(3), async_op=True)
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), 1)
    chain.wait()
    dist.barrier()


@end((0, 0), "rank 0 is over", "rank 1 is over")
def a_callback_that_waits_for_a_message_that_nobody_sends():
    """The future gets an error at the end of the process."""
    never = dist.irecv(torch.empty(1), 1 - dist.get_rank(), tag=5).get_future()
    is_waiting = threading.Event()

    def wait(_):
        is_waiting.set()
        never.wait()

    if dist.get_rank() == 1:
        dist.recv(torch.empty(1), 0)  # Rank 0 has added its callback; a later one would run in this thread.
        dist.all_reduce(torch.ones(3))
        is_waiting.set()
    else:
        dist.all_reduce(torch.ones(3), async_op=True).get_future().then(wait)
        dist.send(torch.ones(1), 1)
    is_waiting.wait()
    dist.barrier()
    print(f"rank {os.environ['RANK']} is over", flush=True)


@end((3, 3), "refused: ")
def a_call_in_a_forked_child():
    dist.all_reduce(torch.ones(3))
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(3))
        except kolo.UsageError as error:
            print("refused:", error, flush=True)
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    dist.destroy_process_group()
    sys.exit(os.waitstatus_to_exitcode(status))


def main():
    import kolo.torch  # noqa: F401  (makes the backend known)

    # Longer than the test waits, so that this timeout ends nothing.
    dist.init_process_group("kolo", timeout=timedelta(seconds=300))
    ENDS[sys.argv[1]].call()


if __name__ == "__main__":
    main()
