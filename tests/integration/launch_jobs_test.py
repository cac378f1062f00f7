#!/usr/bin/env -S python3 -B
"""Tests that sums do not depend on how a job is started: by mpirun, like torchrun, or alone; on
one node, on several, and on nodes of different sizes. Under mpirun, also tests jobs in which
some ranks do not start, open several runtimes, or fork: MPI has no deadlines, and can be started
only once in a process."""

import pathlib
import subprocess
import unittest

import job

CALLS = ("all_reduce", "gradients", "groups")
TIMEOUT = 75
CONNECT_TIMEOUT_MS = 5000
# A shell command in which one rank calls something else.
ODD_RANK = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then {}; fi; exec "$0" "$@"'


class Launch(unittest.TestCase):
    def each(self, shapes, check):
        """Runs each call in jobs of the last shape, and one in jobs of the other shapes."""
        for shape in shapes:
            for call in CALLS if shape == shapes[-1] else CALLS[1:2]:
                with self.subTest(shape=shape, call=call):
                    check(shape, call)

    def test_alone(self):
        for call in CALLS:
            job.run_command([job.PROGRAM, call, 4]).digest(ranks=1, nodes=1)

    def test_like_torchrun(self):
        self.each((2, 4), lambda ranks, call: job.run([call, 4], [ranks]).digest(ranks, nodes=1))

    @job.needs_mpi
    def test_by_mpirun(self):
        self.each((1, 2, 4), lambda ranks, call: job.run_mpi([call, 4], ranks).digest(ranks, nodes=1))

    @job.needs_mpi
    @job.needs_ucx
    def test_several_nodes_by_mpirun(self):
        self.each((2, 3), lambda nodes, call: job.run_mpi([call, 4], 4, nodes).digest(4, nodes))

    @job.needs_ucx
    def test_several_nodes_like_torchrun(self):
        def check(nodes, call):
            # Costs measured on a busy machine may give one rank all messages between nodes.
            outcome = job.run([call, 4], nodes, calibrate="off")
            outcome.digest(sum(nodes), len(nodes))
            sent = [int(count) for count in outcome.find(r"(\d+) bytes to other nodes")]
            if call != "groups":  # groups count their bytes separately
                self.assertGreater(min(sent), 0, outcome)

        self.each(([1, 1], [2, 2], [2, 1, 1]), check)

    @job.needs_ucx
    def test_only_jobs_across_nodes_load_ucx(self):
        nowhere = "/nowhere/libucp.so.0"
        job.run(["all_reduce", 1], [2], ucx_library=nowhere).digest(2, nodes=1)
        outcome = job.run(["all_reduce", 1], [1, 1], ucx_library=nowhere)
        self.assertEqual(outcome.statuses, [job.CONFIG] * 2, outcome)
        reason = f"communication between nodes needs UCX: {nowhere}: .*; install UCX .*KOLO_UCX_LIBRARY"
        self.assertEqual(len(outcome.find(f"({reason})")), 2, outcome)

    @unittest.skipIf(subprocess.call("setpriv --pdeathsig KILL true", shell=True), "setpriv knows no --pdeathsig")
    def test_ranks_end_with_scripts_launch_however_that_ends(self):
        for limit in ([], ["--timeout", str(job.PATIENCE)]):
            command = [job.LAUNCH, "-n", "2", "--launcher", "tcp", *limit, "--", job.PROGRAM, "endless", "gradients"]
            with self.subTest(limit=limit), subprocess.Popen(
                command, env=job.environment(), stdout=subprocess.PIPE, text=True
            ) as launcher:
                for _ in range(2):
                    self.assertIn("in the middle", launcher.stdout.readline())
                launcher.kill()
                # The ranks have the other end of the pipe.
                rest, _ = launcher.communicate(timeout=job.PATIENCE)
                self.assertEqual(rest, "")

    @job.needs_mpi
    def test_the_example_of_the_readme_and_mpi_programs_in_c_and_cxx(self):
        for name, figure in (("wrap_example", "loss"), ("mpi_cxx_example", "accuracy"), ("mpi_example", "loss")):
            with self.subTest(name):
                outcome = job.run_mpi([], 2, program=pathlib.Path(job.PROGRAM).with_name(name))
                self.assertEqual(outcome.statuses, [0], outcome)
                self.assertEqual(len(outcome.find(rf"({figure} \S+ on 2 ranks)")), 1, outcome)


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
