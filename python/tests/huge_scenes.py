"""Operations for huge_test.py that move more than 4 GiB: a message, collectives on one huge array, and collectives in
which rank 0 has a huge part and every other rank a small part.

    huge_scenes.py OPERATION    with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT

Arrays are zeros, because zero pages that are only read take no memory. There are marks at both ends of the huge part
and around 2^32. A small part has a number that identifies its rank.
"""

import sys

import numpy as np
from support import play

import kolo

HUGE, SMALL = (4 << 30) + 12_345, 1001
MARKS = {place: place % 100 + 1 for place in (0, (1 << 32) - 1, 1 << 32, HUGE - 1)}


def zeros(count):
    return np.zeros(count, np.uint8)


def write(part, number=0):
    """Marks a huge part, or fills a small one; returns it."""
    if len(part) < HUGE:
        part.fill(number)
    else:
        part[list(MARKS)] = list(MARKS.values())
    return part


def expect(part, number=0, factor=1):
    """Checks a part that `write` has marked on another rank, times `factor`, and clears the marks."""
    if len(part) < HUGE:
        assert (part == number * factor).all(), part
        return
    marks = part[list(MARKS)].tolist()
    assert marks == [factor * mark for mark in MARKS.values()], marks
    part[list(MARKS)] = 0
    rest = len(part) // 8 * 8
    assert not part[:rest].view(np.uint64).any() and not part[rest:].any(), "another byte is written"


def parts_of(job):
    """Returns the elements of each rank's part, an array for all parts, and its parts."""
    counts = [HUGE] + [SMALL] * (job.size - 1)
    whole = zeros(sum(counts))
    return counts, whole, np.split(whole, np.cumsum(counts)[:-1])


def message(job):
    """Sends a message from rank 0 to the last rank."""
    if job.rank == 0:
        job.send(write(zeros(HUGE)), job.size - 1)
    if job.rank == job.size - 1:
        got = zeros(HUGE)
        assert job.recv(got, 0).count == HUGE
        expect(got)


def all_reduce(job):
    expect(job.all_reduce(write(zeros(HUGE))), factor=job.size)


def reduce(job):
    x, last = write(zeros(HUGE)), job.size - 1
    job.reduce(x, last)
    expect(x, factor=job.size if job.rank == last else 1)


def broadcast(job):
    expect(job.broadcast(write(zeros(HUGE)) if job.rank == 0 else zeros(HUGE), 0))


def table(job):
    """Rank 0 has the rows of a table with the marks; all ranks get the table."""
    width = 4096
    height = HUGE // width + 1
    rows = zeros((len(MARKS) if job.rank == 0 else 0, width))
    for row, (place, mark) in zip(rows, MARKS.items()):
        row[place % width] = mark
    indices = np.array([place // width for place in MARKS][: len(rows)], np.int64)
    got = job.sparse_all_reduce(indices, rows, height, exchange="table", result="table").rows.reshape(-1)
    expect(got[:HUGE])


def all_gather(job):
    """Gathers in place. Every rank but rank 0 receives the huge part."""
    counts, whole, parts = parts_of(job)
    write(parts[job.rank], job.rank)
    job.all_gather(out=whole, counts=counts)
    for rank, part in enumerate(parts):
        expect(part, rank)


def reduce_scatter(job):
    """Reduces in place. Rank 0 sums the huge parts of all ranks."""
    counts, whole, parts = parts_of(job)
    for rank, part in enumerate(parts):
        write(part, rank)
    job.reduce_scatter(out=whole, counts=counts)
    expect(parts[job.rank], job.rank, job.size)


def gather(job):
    """Gathers on the last rank."""
    counts, whole, parts = parts_of(job)
    last = job.size - 1
    mine = write(zeros(counts[job.rank]), job.rank)
    job.gather(mine, last, out=whole if job.rank == last else None, counts=counts)
    for rank, part in enumerate(parts if job.rank == last else []):
        expect(part, rank)


def scatter(job):
    """Scatters from the last rank."""
    counts, whole, parts = parts_of(job)
    last = job.size - 1
    for rank, part in enumerate(parts if job.rank == last else []):
        write(part, rank)
    mine = zeros(counts[job.rank])
    job.scatter(whole if job.rank == last else None, last, out=mine, counts=counts)
    expect(mine, job.rank)


def all_to_all(job):
    """Rank 0 has a huge part for the last rank; all other pairs have small ones."""
    counts = np.full((job.size, job.size), SMALL)
    counts[0, -1] = HUGE
    sent, got = zeros(counts[job.rank].sum()), zeros(counts[:, job.rank].sum())
    for rank, part in enumerate(np.split(sent, np.cumsum(counts[job.rank])[:-1])):
        write(part, 10 * job.rank + rank)
    job.all_to_all(sent, out=got, counts=counts.tolist())
    for rank, part in enumerate(np.split(got, np.cumsum(counts[:, job.rank])[:-1])):
        expect(part, 10 * rank + job.rank)


def main():
    with kolo.open() as job:
        play(globals(), job)
    print(f"all {sys.argv[1]} bytes were right")


main()
