#!/usr/bin/env -S python3 -B
"""Tests jobs of Python processes: the scenes of scenes.py, and ranks that are interrupted, killed or end."""

import signal
import subprocess
import sys
import tempfile
import unittest

import support

support.enter_python_with_numpy()

from scene_jobs import LIBRARY, SETTINGS, Scenes, job  # noqa: E402  (a Python that has NumPy)

PEER_LOST_EXIT = 1  # Exit status of an uncaught exception.


class OwnScenes(Scenes):
    def test_on_two_ranks(self):
        self.check(
            "all_reduces,gradients,given_up,equal,compression,codes,power_sgd,rows,dropped,cycles,awaited,threads,texts,"
            "forked,misuse,taken_back"
        )

    def test_on_three_ranks(self):
        self.check("collectives,coded,grouped_messages,groups,arena", nodes=[3])

    def test_alone(self):
        outcome = self.check("all_reduces,gradients,rows,cycles,coded,all_ways,arena", nodes=[1])
        self.assertEqual(outcome.find("all messages were right, (.*)"), ["0 bytes to other nodes"], outcome)

    @job.needs_ucx
    def test_groups_and_messages_on_several_nodes(self):
        """Groups follow nodes in any order of ranks."""
        for nodes in ("abbac", "baba"):
            self.check("grouped_messages,groups", nodes=nodes)

    def test_rows_have_the_same_bits_whatever_the_nodes(self):
        shapes = ([4], [2, 2]) if job.HAS_UCX else ([4], [4])
        digests = [self.check("row_bits,coded", nodes=nodes).find("rows (.*)") for nodes in shapes]
        self.assertEqual(len(digests[0]), 4)
        self.assertEqual({digest for each in digests for digest in each}, {digests[0][0]})

    # The calls of rank 1 and of the others, as quoted in the error.
    QUOTED = {
        "all_reduce shape": ("'even': all_reduce float32 [11] sum", "'even': all_reduce float32 [10] sum"),
        "all_reduce dtype": ("'even': all_reduce int32 [10] sum", "'even': all_reduce float32 [10] sum"),
        "all_reduce op": ("'even': all_reduce float32 [10] max", "'even': all_reduce float32 [10] sum"),
        "all_reduce name": ("'odd': all_reduce float32 [10] sum", "'even': all_reduce float32 [10] sum"),
        "gradients shape": ("'even': float32 [11, 2]", "'even': float32 [10, 2]"),
        "gradients dtype": ("'even': int32 [10, 2]", "'even': float32 [10, 2]"),
        "gradients op": ("max", "sum"),
        "gradients name": ("'odd': float32 [10, 2]", "'even': float32 [10, 2]"),
    }

    def test_ranks_that_disagree_get_one_error_and_go_on(self):
        outcome = self.check("disagree,order", nodes=[2, 2] if job.HAS_UCX else [4], mismatch_after=200)
        for case, quoted in self.QUOTED.items():
            with self.subTest(case):
                texts = outcome.find(f"^{case}: (.*)")
                self.assertEqual(texts, texts[:1] * 4, outcome)
                for part in (*quoted, "rank 1", "ranks 0, 2, 3"):
                    self.assertIn(part, texts[0])

    def test_a_rank_that_closes_early(self):
        outcome = self.check("early", mismatch_after=200)
        self.assertEqual(len(outcome.find("(noticed:.*rank 1 has closed and takes no part in 'gradient 7')")), 1, outcome)

    def test_deadlines(self):
        outcome = self.check("deadline", operation_timeout=400)
        self.assertEqual(len(outcome.find("(late: rank 0: recv from rank 1, tag 0: no result within the timeout)")), 2, outcome)

    def test_ranks_that_meet_in_a_store(self):
        with tempfile.TemporaryDirectory() as folder:
            variables = [job.environment(**SETTINGS) | {"SCENE_RANK": str(rank)} for rank in range(2)]
            with job.processes(self.command("stored", folder), variables) as ranks:
                for rank in ranks:
                    self.assertEqual(rank.finish(), 0, rank.errors())

    @job.needs_mpi
    def test_under_mpirun(self):
        outcome = job.run_mpi(self.command("gradients,grouped_messages,forked"), 2, **SETTINGS)
        self.assertEqual(outcome.statuses, [0], outcome)


class Messages(Scenes):
    def test_are_right_by_all_ways_and_fail_on_both_ranks_if_they_do_not_fit(self):
        elements = 1 + 1024 + 1025 + 65536 + 65537 + 1000000
        for nodes in ([2], [4], [1, 1], [2, 2]) if job.HAS_UCX else ([2], [4]):
            with self.subTest(nodes=nodes):
                outcome = self.check("unfit", nodes=nodes)
                sent = f"rank 0 sends 100000 elements of float32 with tag 77 to rank {sum(nodes) - 1}, "
                refused = [sent + "whose buffer holds 10", sent + "which receives int64"]
                self.assertEqual(outcome.find("refused: (.*)"), refused * 2, outcome)
                others = sum(nodes) - nodes[0]
                sent = outcome.find(r"all messages were right, (\d+) bytes to other nodes")
                self.assertEqual(sent, [str(2 * others * 4 * elements)] * sum(nodes), outcome)
                self.assertEqual(outcome.errors, "")

    def test_a_lost_rank_that_others_wait_for_is_named(self):
        # lost_rank_test does the same on more nodes, without Python.
        for number, nodes in ((signal.SIGKILL, [2, 2] if job.HAS_UCX else [4]), (signal.SIGSTOP, [2])):
            with self.subTest(nodes=nodes, signal=number.name):
                with job.started(self.command("receive"), nodes, **SETTINGS, peer_timeout=2000) as ranks:
                    job.read_until(ranks, "in the middle")
                    ranks[-1].signal(number)
                    for rank in ranks[:-1]:
                        self.assertEqual(rank.finish(), PEER_LOST_EXIT, rank.said())
                        self.assertRegex(rank.errors(), rf"PeerLostError: .*rank {len(ranks) - 1}\b")


class Commands(unittest.TestCase):
    def run_module(self, *arguments, library=LIBRARY):
        variables = job.environment(library=library, calibrate="off")
        variables |= {"PYTHONPATH": str(support.PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "kolo", *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    def test_the_doctor_sums_on_two_ranks(self):
        ran = self.run_module("doctor")
        self.assertIn("\nok    an all-reduce on two local ranks has the right sum\n", ran.stdout, ran)
        self.assertIn(f"ok    {LIBRARY}, version ", ran.stdout)
        self.assertEqual(ran.returncode, 1 if "\nFAIL" in ran.stdout else 0)

    def test_the_doctor_says_why_there_is_no_sum(self):
        with tempfile.NamedTemporaryFile() as empty:
            ran = self.run_module("doctor", library=empty.name)
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


class Endings(Scenes):
    def test_an_interrupt_ends_every_wait_and_the_job(self):
        waits = "all_reduce ticket recv barrier register split close join sparse gradients gradient"
        for wait in waits.split():
            with self.subTest(wait), job.started(self.command("interrupted", wait), [2], **SETTINGS) as ranks:
                interrupted, survivor = ranks[0].finish(), ranks[1].finish()
                self.assertEqual(interrupted, -signal.SIGINT, ranks[0].errors())
                self.assertIn("KeyboardInterrupt", ranks[0].errors())
                self.assertEqual(survivor, PEER_LOST_EXIT, ranks[1].errors())
                self.assertIn("heard of it", ranks[1].lines, ranks[1].errors())

    def test_an_interrupt_ends_the_wait_for_ranks_that_do_not_come(self):
        variables = job.environment(library=LIBRARY) | {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        with job.processes(self.command("unmet"), [variables | {"MASTER_PORT": str(job.free_port())}]) as (rank,):
            self.assertEqual(rank.finish(), -signal.SIGINT, rank.errors())

    def test_a_script_that_closes_nothing(self):
        outcome = self.check("open_only")
        self.assertEqual(outcome.errors, "", outcome)

    def test_a_script_that_ends_by_an_exception(self):
        outcome = self.check("uncaught", statuses=[PEER_LOST_EXIT] * 2)
        self.assertIn("left the job: RuntimeError: no more data", outcome.errors)
        self.assertIn("kolo.PeerLostError: ", outcome.errors)


if __name__ == "__main__":
    job.main()
