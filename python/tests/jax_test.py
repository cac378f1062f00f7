#!/usr/bin/env -S python3 -B
"""Jobs of JAX processes: the scenes of jax_scenes.py.

    jax_test.py LIBRARY [install=1]

`install=1` makes a Python with JAX (0.6 GB, in a cache) where none is found; without it the test is skipped then.
"""

import os
import pathlib
import sys
import unittest

import jax_support
import support

jax_support.enter_python_with_jax(may_install="install=1" in sys.argv)
sys.argv = [each for each in sys.argv if each != "install=1"]

LIBRARY = sys.argv.pop(1)
sys.argv.insert(1, sys.executable)
sys.path.insert(0, str(support.ROOT / "tests" / "integration"))
import job  # noqa: E402

SCENES = str(pathlib.Path(__file__).resolve().parent / "jax_scenes.py")

# Ranks play two devices each, on the CPU also where there are others.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"


class Scenes(unittest.TestCase):
    def check(self, scene, ranks, statuses=None):
        outcome = job.run(["-B", SCENES, scene], [ranks], library=LIBRARY, calibrate="off")
        self.assertEqual(outcome.statuses, statuses or [0] * ranks, outcome)
        return outcome

    def test_trees(self):
        self.check("trees,memory,refused,jitted_trees", ranks=3)

    def test_inside_jit(self):
        self.check("jitted_order,jitted_gradients", ranks=2)

    def test_a_lost_rank_inside_jit(self):
        outcome = self.check("jitted_lost", ranks=3, statuses=[1, 9, 1])
        self.assertEqual(len(outcome.find("(lost rank 1)")), 2, outcome)

    def test_training(self):
        self.check("training", ranks=2)


if __name__ == "__main__":
    job.main()
