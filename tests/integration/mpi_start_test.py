#!/usr/bin/env -S python3 -B
"""Jobs under mpirun whose ranks do not all start, start more than one runtime, or fork: MPI has no deadlines of its own,
and starts only once in a process."""

import unittest

import job

TIMEOUT = 75
CONNECT_TIMEOUT_MS = 5000
# What one rank does in place of the others' call.
ODD_RANK = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then {}; fi; exec "$0" "$@"'


@job.needs_mpi
class MpiStart(unittest.TestCase):
    def run_with_odd_rank(self, does):
        arguments = ["-c", ODD_RANK.format(does), job.PROGRAM, "all_reduce", "2"]
        return job.run_mpi(arguments, 2, program="sh", connect_timeout=CONNECT_TIMEOUT_MS)

    def test_a_rank_that_never_starts_mpi(self):
        outcome = self.run_with_odd_rank("exec sleep 300")
        self.assertEqual(outcome.statuses, [TIMEOUT], outcome)
        self.assertIn(f"not all ranks came within {CONNECT_TIMEOUT_MS} ms (MPI_Init)", outcome.errors, outcome)

    def test_a_rank_that_fails_before_it_connects(self):
        outcome = self.run_with_odd_rank("export KOLO_TIMELINE=/nonexistent/timeline")
        self.assertNotEqual(outcome.statuses, [0], outcome)
        self.assertIn("/nonexistent/timeline", str(outcome))

    def test_several_runtimes_in_one_process(self):
        for nodes in (0, 2) if job.HAS_UCX else (0,):
            with self.subTest(nodes=nodes):
                outcome = job.run_mpi(["jobs"], 2, nodes)
                self.assertEqual(outcome.statuses, [0], outcome)
                self.assertEqual(len(outcome.find("(has had three jobs)")), 2, outcome)

    def test_a_forked_child_ends_without_mpi(self):
        outcome = job.run_mpi(["fork"], 2, connect_timeout=CONNECT_TIMEOUT_MS)
        self.assertEqual(outcome.statuses, [0], outcome)


if __name__ == "__main__":
    job.main()
