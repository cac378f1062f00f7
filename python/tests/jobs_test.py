#!/usr/bin/env -S python3 -B
"""Jobs of Python processes: the scenes of scenes.py, and what becomes of ranks that are interrupted, killed or end."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import support

support.enter_python_with_numpy()

LIBRARY = sys.argv.pop(1)
sys.argv.insert(1, sys.executable)  # What tests/integration/job.py starts.
sys.path.insert(0, str(support.ROOT / "tests" / "integration"))
import job  # noqa: E402  (the path and the arguments come first)

SCENES = str(pathlib.Path(__file__).resolve().parent / "scenes.py")
PEER_LOST_EXIT = 1  # Of an uncaught exception.


def started(*scene, ranks=2, **settings):
    return job.started(["-B", SCENES, *scene], [ranks], library=LIBRARY, calibrate="off", **settings)


def run(*scene, ranks=2, nodes=None, **settings):
    return job.run(["-B", SCENES, *scene], nodes or [ranks], library=LIBRARY, calibrate="off", **settings)


class Scenes(unittest.TestCase):
    def check(self, *scene, **settings):
        outcome = run(*scene, **settings)
        self.assertFalse(any(outcome.statuses), outcome)
        return outcome

    def test_all_reduces_beside_numpy(self):
        self.check("all_reduces")

    def test_the_other_collectives_beside_numpy(self):
        self.check("collectives", ranks=3)

    def test_gradients(self):
        self.check("gradients,given_up,equal,compression,rows")

    def test_messages_groups_and_memory(self):
        self.check("messages,grouped_messages,groups,arena", ranks=3)

    @job.needs_ucx
    def test_groups_and_messages_on_several_nodes(self):
        self.check("grouped_messages,groups", nodes="abba")

    def test_alone(self):
        self.check("all_reduces,gradients,rows,cycles,arena", ranks=1)

    def test_dropped_tickets_tasks_and_threads(self):
        self.check("dropped,cycles,awaited,threads,forked")

    def test_misuse(self):
        self.check("misuse")

    def test_a_mismatch_names_rank_and_tensor(self):
        self.check("mismatch,order", mismatch_after=200)

    def test_a_rank_that_closes_early(self):
        outcome = self.check("early", mismatch_after=200)
        self.assertEqual(len(outcome.find("(noticed:.*rank 1 has closed and takes no part in 'gradient 7')")), 1, outcome)

    def test_deadlines(self):
        outcome = self.check("deadline", operation_timeout=400)
        self.assertEqual(len(outcome.find("(late: rank 0: recv from rank 1, tag 0: no result within the timeout)")), 2, outcome)

    def test_receives_that_are_taken_back(self):
        self.check("taken_back")

    def test_ranks_that_meet_in_a_store(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = []
            for rank in range(2):
                variables = job.environment(library=LIBRARY, calibrate="off") | {"SCENE_RANK": str(rank)}
                ranks.append(job.Rank(rank, ["-B", SCENES, "stored", folder], variables))
            try:
                for rank in ranks:
                    self.assertEqual(rank.finish(), 0, rank.errors())
            finally:
                for rank in ranks:
                    rank.close()

    @job.needs_mpi
    def test_under_mpirun(self):
        outcome = job.run_mpi(["-B", SCENES, "gradients,messages"], 2, library=LIBRARY, calibrate="off")
        self.assertEqual(outcome.statuses, [0], outcome)


class Commands(unittest.TestCase):
    def run_module(self, *arguments):
        variables = {"PYTHONPATH": str(support.PACKAGE), "PYTHONDONTWRITEBYTECODE": "1", "KOLO_CALIBRATE": "off"}
        command = [sys.executable, "-m", "kolo", *arguments]
        return subprocess.run(
            command, env=job.environment(library=LIBRARY) | variables, capture_output=True, text=True, check=False
        )

    def test_the_doctor_sums_on_two_ranks(self):
        ran = self.run_module("doctor")
        self.assertIn("\nok    an all-reduce on two local ranks has the right sum\n", ran.stdout, ran)
        self.assertIn(f"ok    {LIBRARY}, version ", ran.stdout)
        self.assertEqual(ran.returncode, 1 if "\nFAIL" in ran.stdout else 0)

    def test_the_doctor_says_why_there_is_no_sum(self):
        with tempfile.NamedTemporaryFile() as empty:
            variables = {"PYTHONPATH": str(support.PACKAGE), "PYTHONDONTWRITEBYTECODE": "1", "KOLO_LIBRARY": empty.name}
            command = [sys.executable, "-m", "kolo", "doctor"]
            ran = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("FAIL  the library that KOLO_LIBRARY names cannot be loaded", ran.stdout)
        self.assertIn("FAIL  an all-reduce on two local ranks: rank 1 ended with status 1", ran.stdout)

    def test_the_bench_times_all_reduces_on_two_ranks(self):
        ran = self.run_module("bench", "4", "4096")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""), ran.stdout)
        self.assertIn("over 2 ranks", ran.stdout)
        self.assertEqual([line.split()[0] for line in ran.stdout.splitlines()[2:]], ["4", "4096"])

    def test_another_command_is_a_usage_error(self):
        ran = self.run_module("cure")
        self.assertEqual(ran.returncode, 64)
        self.assertIn("usage: python -m kolo COMMAND", ran.stderr)


class Endings(unittest.TestCase):
    def test_an_interrupt_ends_every_wait_and_the_job(self):
        waits = "all_reduce ticket recv barrier register split close join sparse gradients gradient"
        for wait in waits.split():
            with self.subTest(wait), started("interrupted", wait) as ranks:
                interrupted, survivor = ranks[0].finish(), ranks[1].finish()
                self.assertEqual(interrupted, -signal.SIGINT, ranks[0].errors())
                self.assertIn("KeyboardInterrupt", ranks[0].errors())
                self.assertEqual(survivor, PEER_LOST_EXIT, ranks[1].errors())
                self.assertIn("heard of it", ranks[1].lines, ranks[1].errors())

    def test_an_interrupt_ends_the_wait_for_ranks_that_do_not_come(self):
        variables = job.environment(library=LIBRARY) | {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        rank = job.Rank(0, ["-B", SCENES, "unmet"], variables | {"MASTER_PORT": str(job.free_port())})
        try:
            self.assertEqual(rank.finish(), -signal.SIGINT, rank.errors())
        finally:
            rank.close()

    def test_a_peer_that_is_killed(self):
        with started("lost") as ranks:
            for rank in ranks:
                rank.read_until("in the middle")
            ranks[1].signal(signal.SIGKILL)
            self.assertEqual(ranks[0].finish(), PEER_LOST_EXIT)
            self.assertIn("kolo.PeerLostError: ", ranks[0].errors())
            self.assertIn("rank 1", ranks[0].errors().rpartition("PeerLostError")[2])

    def test_a_script_that_closes_nothing(self):
        outcome = run("open_only")
        self.assertEqual(outcome.statuses, [0, 0], outcome)
        self.assertEqual(outcome.errors, "", outcome)

    def test_a_script_that_ends_by_an_exception(self):
        outcome = run("uncaught")
        self.assertEqual(outcome.statuses, [PEER_LOST_EXIT] * 2, outcome)
        self.assertIn("left the job: RuntimeError: no more data", outcome.errors)
        self.assertIn("kolo.PeerLostError: ", outcome.errors)


if __name__ == "__main__":
    job.main()
