#!/usr/bin/env -S python3 -B
"""Tests that equal jobs give equal bits in every run and on every rank, for each algorithm, wire
dtype and fusion limit. Between nodes, so does the algorithm that Kolo chooses with `reproducible`.
`direct` and `reproducible` give equal bits for any fusion limit and link costs.

With `full=1`, each algorithm runs with each wire dtype and fusion limit, which takes minutes.
Otherwise it runs with only one of them.
"""

import itertools
import sys
import unittest

import job

# With a 16-bit wire these round each contribution once. Other algorithms round at every hop.
ROUNDS_ONCE = ("auto", "direct", "hierarchical", "hierarchical:direct,direct")
ROUNDS_OFTEN = ("ring", "halving_doubling", "hierarchical:direct,ring", "hierarchical:ring,ring")
WIRES = ("float32", "float16", "bfloat16")
FUSION = ("0", "64K", "4M")

# Costs that a job may have measured at its start: an idle link of 1 Gbit/s, a third of it, and
# another latency.
LINK_COSTS = ("network_bytes_per_us=120", "network_bytes_per_us=40", "network_bytes_per_us=120,network_latency_us=300")

ROUNDS = 4
FULL = "full=1" in sys.argv


class SameBits(unittest.TestCase):
    def digest(self, nodes, **settings):
        return job.run(["gradients", ROUNDS], nodes, **settings).digest(sum(nodes), len(nodes))

    def check(self, nodes):
        if FULL:
            cases = [*itertools.product(ROUNDS_ONCE, WIRES, FUSION), *itertools.product(ROUNDS_OFTEN, ["float32"], FUSION)]
        else:
            cases = [
                *zip(ROUNDS_ONCE, itertools.cycle(WIRES), itertools.cycle(FUSION[:2])),
                *zip(ROUNDS_OFTEN, itertools.repeat("float32"), itertools.cycle(FUSION)),
            ]
        for algorithm, wire, fusion in cases:
            with self.subTest(nodes=nodes, algorithm=algorithm, wire=wire, fusion=fusion):
                settings = {"algorithm": algorithm, "wire_dtype": wire, "fusion_bytes": fusion}
                if algorithm in ("auto", "hierarchical"):
                    settings["reproducible"] = "on"
                self.assertEqual(self.digest(nodes, **settings), self.digest(nodes, **settings))

    def check_direct(self, nodes):
        for wire in WIRES if FULL else WIRES[1:2]:
            with self.subTest(nodes=nodes, wire=wire):
                digests = {self.digest(nodes, algorithm="direct", wire_dtype=wire, fusion_bytes=size) for size in FUSION}
                self.assertEqual(len(digests), 1)

    def test_16_bit_wire_is_refused_where_it_would_round_often(self):
        for algorithm in ROUNDS_OFTEN:
            with self.subTest(algorithm=algorithm):
                outcome = job.run(["gradients", 1], [2], algorithm=algorithm, wire_dtype="bfloat16")
                self.assertIn(job.CONFIG, outcome.statuses, outcome)
                self.assertNotIn(0, outcome.statuses, outcome)
                self.assertTrue(outcome.find("(would round bfloat16 partial sums at every hop)"), outcome)

    def test_one_node(self):
        self.check([3])

    def test_direct_on_one_node(self):
        self.check_direct([3])

    def check_scene(self, scene, nodes):
        digests = {job.run([scene, ROUNDS], nodes, reproducible="on").digest(sum(nodes), len(nodes)) for _ in range(2)}
        self.assertEqual(len(digests), 1)

    def test_groups_on_one_node(self):
        self.check_scene("groups", [4])

    @job.needs_ucx
    def test_groups_on_two_nodes(self):
        self.check_scene("groups", [2, 2])

    @job.needs_ucx
    def test_two_nodes(self):
        self.check([2, 2])

    @job.needs_ucx
    def test_reproducible_whatever_buckets_and_links(self):
        for nodes in ([1, 1, 1], [2, 1]):
            with self.subTest(nodes=nodes):
                digests = {
                    self.digest(nodes, reproducible="on", fusion_bytes=size, link_costs=costs)
                    for size, costs in (*zip(FUSION, LINK_COSTS), *zip(FUSION[::2], LINK_COSTS[::-2]))
                }
                self.assertEqual(len(digests), 1)

    @job.needs_ucx
    def test_uneven_nodes(self):
        self.check([2, 1, 1])

    @job.needs_ucx
    def test_direct_on_two_nodes(self):
        self.check_direct([2, 2])


if __name__ == "__main__":
    job.main()
