"""One rank of random_delays_test.py. It runs every collective that reduces, and gradient sets, in the job and in
groups, with random delays before each call; then ranks join one after the other.

    delayed_scenes.py SEED [WIRE]    with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT

SEED determines delays and the order of calls, which differ from rank to rank. No bit of a result may depend on it. WIRE
is a 16-bit dtype, for gradients and for their wire. All-reduces send 16-bit floats, which some algorithms refuse, only
if WIRE is given. The program prints a digest of all results.
"""

import hashlib
import random
import sys
import time

import numpy as np
import support  # noqa: F401  (the package's path)

import kolo
from kolo._buffers import array_at

DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64")
# Elements of each rank's part. Several threads sum the large ones, except 16-bit floats.
SMALL, LARGE = 150, 60_001
ROUNDED = {"op": "average", "wire_dtype": "bfloat16"}


def fractions(dtype, rank, number, count):
    """Returns numbers whose sums are rounded, so that the bits show the order of summation; bfloat16 as uint16."""
    real, imaginary = np.random.default_rng([rank, number]).uniform(-1, 1, (2, count))
    if dtype == "bfloat16":
        return (real.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return (real + 1j * imaginary if dtype == "complex64" else real).astype(dtype)


def memory_of(values, dtype):
    """Returns the memory of an array or of a list of arrays; None for None."""
    if isinstance(values, np.ndarray):
        return kolo.Memory(values.ctypes.data, values.size, dtype, values)
    return values and [memory_of(each, dtype) for each in values]


class Call:
    """A collective in flight, from `x` to `out`. It is in place if `x` or `out` is missing."""

    def __init__(self, method, what, dtype, x, out, *arguments, is_kept=True, **options):
        self.name, self.dtype, self.x, self.out = f"{what} {dtype}", dtype, x, out
        self.begins = lambda x, out: method(x, *arguments, out=out, name=self.name, wait=False, **options)
        self.is_kept = is_kept

    def begin(self):
        self.ticket = self.begins(memory_of(self.x, self.dtype), memory_of(self.out, self.dtype))

    def results(self):
        result = self.x if self.out is None else self.out
        if self.is_kept:
            yield from result if isinstance(result, list) else [result]


class RowCall:
    """A row-sparse all-reduce of rows that ranks share; some rows occur more than once."""

    def __init__(self, job, group, number, exchange):
        indices = np.array([i * i * (job.rank + 3) % (200 if i % 2 else 20) for i in range(40 + 10 * job.rank)])
        rows = fractions("float32", job.rank, number, 17 * len(indices)).reshape(-1, 17)
        self.begins = lambda: group.sparse_all_reduce(indices, rows, 200, exchange=exchange, name=exchange, wait=False)

    def begin(self):
        self.ticket = self.begins()

    def results(self):
        yield self.ticket.wait().rows


def kinds_of_sets(wire):
    """Yields name, options and dtype of each kind of gradient set, and whether ranks lack some gradients."""
    yield "plain", {}, "float32", False
    yield "sum", {"op": "sum"}, "float64", True
    yield "contributing", {"divisor": "contributing_ranks"}, "float32", True
    yield "samples", {"divisor": "samples"}, "float32", True
    yield "top-k", {"compression": "topk(0.05)"}, "float32", True
    yield "owners", {"compression": "topk(0.05,route=owners)"}, "float32", True
    if wire:
        yield "rounded", {"wire_dtype": wire}, "float32", True
        yield "rounded samples", {"wire_dtype": wire, "divisor": "samples"}, "float32", True
        yield "16 bits", {}, wire, True


class Sets:
    """Gradient sets of one group: every `stride`-th kind from `first` on. Only matrices of 4096 elements or more can be
    sparse."""

    def __init__(self, group, shapes, wire, first=0, stride=1):
        self.rank = group.rank
        self.sets = []
        for name, options, dtype, has_absent in list(kinds_of_sets(wire))[first::stride]:
            gradients = [kolo.Gradient(shape, dtype) for shape in shapes]
            for i in range(0, len(shapes), 2):  # In the program's memory.
                room = fractions(dtype, 0, 0, int(np.prod(shapes[i])))
                gradients[i] = kolo.Memory(room.ctypes.data, room.size, dtype, room, shape=shapes[i])
            held = group.register_gradients(name, gradients, **options)
            memories = [held.memory(i) for i in range(len(held))]
            views = [array_at(kolo.Memory(each.address, each.nbytes, "uint8", each)) for each in memories]
            self.sets.append((held, views, dtype, has_absent, options.get("divisor") == "samples"))

    def mark(self, number, delay):
        for held, views, dtype, has_absent, has_samples in self.sets:
            if has_samples:
                held.set_samples((self.rank + number) % 4)
            for i in reversed(range(len(held))):
                delay()
                if has_absent and (self.rank + number + i) % 3 == 0:
                    held.absent(i)
                else:
                    views[i][:] = fractions(dtype, self.rank, number, held.memory(i).count).view(np.uint8)
                    held.ready(i)

    def wait(self):
        for held, *_ in self.sets:
            held.wait()

    def results(self):
        for _, views, *_ in self.sets:
            yield from views


class Delayed:
    def __init__(self, job, seed, wire):
        self.job = job
        self.random = random.Random(1000 * seed + job.rank)
        self.all_reduces_16_bits = wire is not None
        self.groups = [
            job.group(list(reversed(range(job.size))), name="reversed"),
            job.split(job.rank % 2, name="parity"),
            job.node_group(name="node"),
            job.cross_group(name="cross"),
        ]
        self.sets = [Sets(job, [(1,), (1000,), (10_001, 7), (7,), (64, 64)], wire)]
        for i, group in enumerate(self.groups):
            self.sets.append(Sets(group, [(1000,), (1,), (1667, 3)], wire, i, len(self.groups)))

    def delay(self):
        """Sleeps for up to 1 ms in half of all cases."""
        drawn = self.random.randrange(2000)
        if drawn < 1000:
            time.sleep(drawn / 1e6)

    def round(self, number):
        """Returns the digest of a round, which combines the different results of all ranks."""
        self.own = hashlib.sha256()
        calls = [call for dtype in DTYPES for call in self.calls(self.job, dtype, number, LARGE)]
        for i, group in enumerate(self.groups):  # Each group has two kinds.
            for dtype in DTYPES[i : i + 2]:
                calls += self.calls(group, dtype, number, SMALL)
        for group in (self.job, *self.groups):
            calls += [RowCall(self.job, group, number, exchange) for exchange in ("rows", "table")]
        self.run(calls, self.sets, number)
        if number % 2 == 0:
            self.run_out_of_data(self.groups[0], SMALL, self.sets[1], number)
        else:
            self.run_out_of_data(self.job, LARGE, self.sets[0], number)
        return self.job.all_reduce(np.frombuffer(self.own.digest(), np.int64).copy(), name="digest").tobytes()

    def run(self, calls, sets, number):
        """Begins all calls, in this rank's order, and an iteration of all sets."""
        order = self.random.sample(calls, len(calls))
        for call in order:
            self.delay()
            call.begin()
        for each in sets:
            each.mark(number, self.delay)
        for call in order:
            call.ticket.wait()
        for each in sets:
            each.wait()
        for each in (*calls, *sets):
            for result in each.results():
                self.own.update(result.tobytes())

    def run_out_of_data(self, group, part, sets, number):
        """Makes each rank of the group continue for a different number of steps, and then join."""
        for step in range(1 + (group.rank + number) % 2):
            use = 10 * (number + 1) + step
            calls = [*self.all_reduces(group, "float32", use, part), *self.scattered(group, "float32", use, part)]
            self.run([*calls, RowCall(self.job, group, use, "rows")], [sets], use)
        group.join()
        for result in sets.results():
            self.own.update(result.tobytes())

    def calls(self, group, dtype, number, part):
        if "float16" not in dtype or self.all_reduces_16_bits:
            yield from self.all_reduces(group, dtype, number, part)
        yield from self.reduces(group, dtype, number, part)
        yield from self.scattered(group, dtype, number, part)

    def new(self, dtype, number, count):
        return fractions(dtype, self.job.rank, number, count)

    def all_reduces(self, group, dtype, number, count):
        def apart(what, **options):
            x = self.new(dtype, number, count)
            return Call(group.all_reduce, what, dtype, x, np.zeros_like(x), **options)

        yield apart("all_reduce", op="average")
        x = self.new(dtype, number, count)
        yield Call(group.all_reduce, "in place", dtype, x, None, scale_before=0.3, scale_after=1.7)
        if dtype != "complex64":
            yield apart("product", op="prod")
        if dtype in ("float32", "float64") and self.all_reduces_16_bits:
            yield apart("rounded", **ROUNDED)
        yield apart("premultiplied", op="premul_sum", scale_before=0.3 + group.rank)
        x = self.new(dtype, number, count)
        out = np.zeros_like(x)
        yield Call(group.all_reduce, "grouped", dtype, self.two(x, 1), self.two(out, 1))

    @staticmethod
    def two(values, parts):
        """Splits the values into two arrays with equally many parts; the first array has the smaller parts."""
        cut = parts * (len(values) // parts // 3)
        return [values[:cut], values[cut:]]

    def reduces(self, group, dtype, number, count):
        root = group.size - 1
        kept = {"is_kept": group.rank == root}
        x = [self.new(dtype, number, count) for _ in range(3)]
        scale = {"op": "premul_sum", "scale_before": 0.7 * group.rank}
        yield Call(group.reduce, "reduce", dtype, x[0], np.zeros_like(x[0]), root, **kept, **scale)
        yield Call(group.reduce, "reduce in place", dtype, x[1], None, root, **kept)
        yield Call(group.reduce, "grouped reduce", dtype, self.two(x[2], 1), None, root, **kept)

    def scattered(self, group, dtype, number, part):
        def apart(what, **options):
            x = self.new(dtype, number, group.size * part)
            return Call(group.reduce_scatter, what, dtype, x, np.zeros_like(x[:part]), **options)

        yield apart("reduce_scatter")
        whole = self.new(dtype, number, group.size * part)
        yield Call(group.reduce_scatter, "reduce_scatter in place", dtype, None, whole)
        if dtype in ("float32", "float64"):
            yield apart("rounded reduce_scatter", **ROUNDED)
        # Parts of different sizes, some of them empty.
        counts = [rank % 3 * part for rank in range(group.size)]
        x = self.new(dtype, number, sum(counts))
        out = np.zeros(counts[group.rank], x.dtype)
        yield Call(group.reduce_scatter, "uneven", dtype, x, out, op="average", counts=counts)
        x = self.new(dtype, number, group.size * part)
        out = np.zeros_like(x[:part])
        yield Call(group.reduce_scatter, "grouped reduce_scatter", dtype, self.two(x, group.size), self.two(out, 1))


def main():
    with kolo.open() as job:
        delayed = Delayed(job, int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
        digest = hashlib.sha256(b"".join(delayed.round(number) for number in range(2))).hexdigest()
        place = f"node {job.node} of {job.num_nodes}"
    print(f"rank {job.rank}: done on {place}, digest {digest}")


main()
