#!/usr/bin/env -S python3 -B
"""Tests messages and collectives of more than 4 GiB, inside a node and between nodes.

`full=1` runs more operations, inside a node and between nodes; this takes minutes and nearly 10 GiB of memory.

    huge_test.py LIBRARY [ucx=1] [full=1]
"""

import pathlib
import re
import sys
import unittest

import support

support.enter_python_with_numpy()

from scene_jobs import Scenes, job  # noqa: E402  (a Python that has NumPy)

FULL = "full=1" in sys.argv
NEEDED_GIB = 10 if FULL else 7

# The test moves some GiB, perhaps on a busy machine.
job.PATIENCE = 250


def available_gib():
    found = re.search(r"MemAvailable:\s+(\d+) kB", pathlib.Path("/proc/meminfo").read_text())
    limits = [int(found[1]) << 10]
    limit = pathlib.Path("/sys/fs/cgroup/memory.max")
    used = pathlib.Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        limits.append(int(limit.read_text()) - int(used.read_text()))
    return min(limits) / 2**30


INSIDE = ("message",)
BETWEEN = ("all_reduce", "all_to_all")
if FULL:
    INSIDE = BETWEEN = INSIDE + BETWEEN + (
        "reduce_scatter", "all_gather", "reduce", "gather", "scatter", "broadcast", "table"
    )  # fmt: skip


@unittest.skipUnless(
    available_gib() >= NEEDED_GIB, f"{available_gib():.1f} GiB of memory are available, {NEEDED_GIB} are needed"
)
class Huge(Scenes):
    file = "huge_scenes.py"

    def check_each(self, operations, nodes):
        for operation in operations:
            with self.subTest(operation=operation, nodes=nodes):
                outcome = self.check(operation, nodes=nodes)
                self.assertEqual(len(outcome.find(f"(all {operation} bytes were right)")), 2, outcome)

    def test_inside_a_node(self):
        self.check_each(INSIDE, [2])

    @job.needs_ucx
    def test_between_nodes(self):
        self.check_each(BETWEEN, [1, 1])


if __name__ == "__main__":
    job.main()
