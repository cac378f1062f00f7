#!/usr/bin/env -S python3 -B
"""A message of more than 4 GiB arrives, inside a node and between nodes."""

import pathlib
import re
import unittest

import job

NEEDED_GIB = 7


def available_gib():
    found = re.search(r"MemAvailable:\s+(\d+) kB", pathlib.Path("/proc/meminfo").read_text())
    limits = [int(found[1]) << 10]
    limit = pathlib.Path("/sys/fs/cgroup/memory.max")
    used = pathlib.Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        limits.append(int(limit.read_text()) - int(used.read_text()))
    return min(limits) / 2**30


@unittest.skipUnless(available_gib() >= NEEDED_GIB, f"{NEEDED_GIB} GiB of memory are not available")
class HugeMessage(unittest.TestCase):
    def check(self, nodes):
        outcome = job.run(["huge"], nodes)
        self.assertEqual(outcome.statuses, [0] * sum(nodes), outcome)
        self.assertIn("the huge message was right", str(outcome))

    def test_inside_a_node(self):
        self.check([2])

    @job.needs_ucx
    def test_between_nodes(self):
        self.check([1, 1])


if __name__ == "__main__":
    job.main()
