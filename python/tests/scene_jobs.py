"""Runs jobs whose ranks play the scenes of a file in this folder. A test imports this module after it has found the
right Python:

    NAME_test.py LIBRARY [mpi=1 ucx=1]
"""

import pathlib
import sys
import unittest

import support

LIBRARY = sys.argv.pop(1)
sys.argv.insert(1, sys.executable)  # The program that tests/integration/job.py starts.
sys.path.insert(0, str(support.ROOT / "tests" / "integration"))
import job  # noqa: E402  (the path and the arguments come first)

HERE = pathlib.Path(__file__).resolve().parent
SETTINGS = {"library": LIBRARY, "calibrate": "off"}


class Scenes(unittest.TestCase):
    file = "scenes.py"

    def command(self, *scene):
        return ["-B", str(HERE / self.file), *scene]

    def check(self, *scene, nodes=(2,), statuses=None, **settings):
        """Runs the job. `statuses` are the expected exit statuses of its ranks; by default all ranks succeed."""
        outcome = job.run(self.command(*scene), nodes if isinstance(nodes, str) else list(nodes), **SETTINGS, **settings)
        self.assertEqual(outcome.statuses, statuses or [0] * len(outcome.statuses), outcome)
        return outcome

    def check_lost(self, scene="lost", survivor=0):
        """Checks that, if rank 1 of three dies, the other ranks report it."""
        outcome = self.check(scene, nodes=[3], statuses=[survivor, 9, survivor])
        self.assertEqual(len(outcome.find("(lost rank 1)")), 2, outcome)
