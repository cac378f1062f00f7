#!/usr/bin/env -S python3 -B
"""The same sums however a job is started: by mpirun, as torchrun does it, or alone; on one node, on
several, and on nodes of different sizes."""

import pathlib
import subprocess
import unittest

import job

CALLS = ("all_reduce", "gradients", "groups")


class Launch(unittest.TestCase):
    def test_alone(self):
        for call in CALLS:
            job.run_command([job.PROGRAM, call, 4]).digest(ranks=1, nodes=1)

    def test_like_torchrun(self):
        for ranks in (2, 4):
            for call in CALLS:
                with self.subTest(ranks=ranks, call=call):
                    job.run([call, 4], [ranks]).digest(ranks, nodes=1)

    @job.needs_mpi
    def test_by_mpirun(self):
        for ranks in (1, 2, 4):
            for call in CALLS:
                with self.subTest(ranks=ranks, call=call):
                    job.run_mpi([call, 4], ranks).digest(ranks, nodes=1)

    @job.needs_mpi
    @job.needs_ucx
    def test_several_nodes_by_mpirun(self):
        for nodes in (2, 3):
            for call in CALLS:
                with self.subTest(nodes=nodes, call=call):
                    job.run_mpi([call, 4], 4, nodes).digest(4, nodes)

    @job.needs_ucx
    def test_several_nodes_like_torchrun(self):
        for nodes in ([1, 1], [2, 2], [2, 1, 1]):
            for call in CALLS:
                with self.subTest(nodes=nodes, call=call):
                    # Costs that are measured on a busy machine may leave the network to one rank.
                    outcome = job.run([call, 4], nodes, calibrate="off")
                    outcome.digest(sum(nodes), len(nodes))
                    sent = [int(count) for count in outcome.find(r"(\d+) bytes to other nodes")]
                    if call != "groups":  # Their bytes are their own.
                        self.assertGreater(min(sent), 0, outcome)

    @job.needs_ucx
    def test_only_jobs_across_nodes_load_ucx(self):
        nowhere = "/nowhere/libucp.so.0"
        job.run(["all_reduce", 1], [2], ucx_library=nowhere).digest(2, nodes=1)
        outcome = job.run(["all_reduce", 1], [1, 1], ucx_library=nowhere)
        self.assertEqual(outcome.statuses, [job.CONFIG] * 2, outcome)
        reason = f"communication between nodes needs UCX: {nowhere}: .*; install UCX .*KOLO_UCX_LIBRARY"
        self.assertEqual(len(outcome.find(f"({reason})")), 2, outcome)

    def test_nothing_crosses_the_network_inside_a_node(self):
        self.assertEqual(job.run(["gradients", 2], [2]).find(r"(\d+) bytes to other nodes"), ["0", "0"])

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
                # The ranks hold the other end.
                rest, _ = launcher.communicate(timeout=job.PATIENCE)
                self.assertEqual(rest, "")

    @job.needs_mpi
    def test_example_of_the_readme(self):
        outcome = job.run_mpi([], 2, program=pathlib.Path(job.PROGRAM).with_name("wrap_example"))
        self.assertEqual(outcome.statuses, [0], outcome)
        self.assertEqual(len(outcome.find(r"(loss \S+ on 2 ranks)")), 1, outcome)

    @job.needs_mpi
    def test_an_mpi_program_in_cxx(self):
        outcome = job.run_mpi([], 2, program=pathlib.Path(job.PROGRAM).with_name("mpi_cxx_example"))
        self.assertEqual(outcome.statuses, [0], outcome)
        self.assertEqual(len(outcome.find(r"(accuracy \S+ on 2 ranks)")), 1, outcome)

    @job.needs_mpi
    def test_an_mpi_program_in_c(self):
        outcome = job.run_mpi([], 2, program=pathlib.Path(job.PROGRAM).with_name("mpi_example"))
        self.assertEqual(outcome.statuses, [0], outcome)
        self.assertEqual(len(outcome.find(r"(loss \S+ on 2 ranks)")), 1, outcome)


if __name__ == "__main__":
    job.main()
