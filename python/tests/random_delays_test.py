#!/usr/bin/env -S python3 -B
"""Tests that every collective that reduces has the same bits in ten runs, with different delays and orders of calls,
numbers of threads, and algorithms.

    random_delays_test.py LIBRARY [ucx=1] [full=1]

`full=1` runs on up to 8 ranks, and with every algorithm of all-reduce; this takes minutes.
"""

import itertools
import sys
import unittest

import support

support.enter_python_with_numpy()

from scene_jobs import Scenes, job  # noqa: E402  (a Python that has NumPy)

IS_FULL = "full=1" in sys.argv
needs_full = unittest.skipUnless(IS_FULL, "only with full=1, which takes minutes")

# Each run uses a different algorithm of those that reduce.
COLLECTIVE_ALGORITHMS = ("auto", "direct", "ring", "pairwise")
RUNS = 10 if IS_FULL else len(COLLECTIVE_ALGORITHMS)
MOST_HELPERS = 3  # So 1 to 4 threads sum.

# Algorithms that round once, for 16-bit floats.
ROUNDS_ONCE = ("auto", "flat", "direct", "hierarchical:direct,direct")
ROUNDS_OFTEN = (
    "ring", "halving_doubling", "hierarchical:direct,ring", "hierarchical:direct,halving_doubling",
    "hierarchical:ring,ring",
)
WIRES = ("bfloat16", "float16")


class RandomDelays(Scenes):
    file = "delayed_scenes.py"

    def digest(self, run, nodes, algorithm, wire):
        settings = {
            "algorithm": f"all-reduce:{algorithm};{COLLECTIVE_ALGORITHMS[run % len(COLLECTIVE_ALGORITHMS)]}",
            "reduce_threads": run % (MOST_HELPERS + 1),
        }
        return self.check(str(run), *wire, nodes=nodes, **settings).digest(sum(nodes), len(nodes))

    def check_runs(self, nodes, algorithm="auto", wire=("bfloat16",)):
        with self.subTest(nodes=nodes, algorithm=algorithm, wire=wire):
            digests = [self.digest(run, nodes, algorithm, wire) for run in range(RUNS)]
            self.assertEqual(digests, [digests[0]] * RUNS)

    def check_all(self, nodes):
        """Runs every algorithm of all-reduce."""
        for algorithm, wire in zip(ROUNDS_ONCE, itertools.cycle(WIRES)):
            self.check_runs(nodes, algorithm, [wire])
        for algorithm in ROUNDS_OFTEN:
            self.check_runs(nodes, algorithm, [])

    def test_on_one_node(self):
        self.check_runs([2])

    @job.needs_ucx
    def test_on_several_nodes(self):
        self.check_runs([2, 1])

    @needs_full
    def test_many_ranks_on_one_node(self):
        for nodes in ([3], [5], [8]):
            self.check_runs(nodes)

    @needs_full
    @job.needs_ucx
    def test_many_ranks_on_several_nodes(self):
        for nodes in ([1, 1], [2, 2], [1, 2, 2], [3, 3, 2], [2, 2, 2, 2]):
            self.check_runs(nodes, wire=["float16"])

    @needs_full
    def test_all_algorithms_on_one_node(self):
        self.check_all([3])

    @needs_full
    @job.needs_ucx
    def test_all_algorithms_on_several_nodes(self):
        self.check_all([2, 2])
        self.check_all([1, 1, 2])


if __name__ == "__main__":
    job.main()
