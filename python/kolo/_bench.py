"""`python -m kolo bench`: measures how long an all-reduce takes in a Python program."""

from __future__ import annotations

import sys
import time

from . import _local_ranks
from ._runtime import open as open_job

_SIZES = [4, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 26]


def main(arguments: list[str]) -> int:
    """Runs the benchmark, and returns the exit status. `arguments` are sizes in bytes."""
    if _local_ranks.is_alone():
        outcomes = _local_ranks.run(2, 300, "kolo._bench", *arguments)
        for rank, (status, output) in enumerate(outcomes):
            if output:
                print(output)
            if status:
                print(f"kolo bench: rank {rank} ended with status {status}", file=sys.stderr)
        return next((abs(status) for status, _ in outcomes if status), 0)
    import numpy

    sizes = [4 * max(1, int(size) // 4) for size in arguments] or _SIZES
    with open_job() as job:
        if job.rank == 0:
            print(f"# all-reduce of float32 over {job.size} ranks, nodes: {job.num_nodes}; median of the slowest rank's times")
            print(f"{'size(B)':>10} {'time(us)':>10} {'busbw(GB/s)':>12}")
        for size in sizes:
            x = numpy.empty(size // 4, numpy.float32)
            times = []
            for _ in range(max(5, min(200, (1 << 26) // size))):
                x.fill(1)  # As in a program, the caches hold data that was just written.
                job.barrier()
                start = time.perf_counter()
                job.all_reduce(x, name="x")
                times.append(time.perf_counter() - start)
                if x[0] != job.size or x[-1] != job.size:
                    raise AssertionError(f"the sum is {x[0]} and {x[-1]}, not {job.size}")
            slowest = numpy.array(times)
            job.all_reduce(slowest, "max")
            median = float(numpy.median(slowest))
            if job.rank == 0:
                rate = 2 * (job.size - 1) / job.size * size / median / 1e9
                print(f"{size:>10} {1e6 * median:>10.1f} {rate:>12.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
