#!/usr/bin/env -S python3 -B
"""Tests that after success, after an error, and after kill -9 of every rank, nothing of a job
remains: no process, no socket, no file in /dev/shm or /tmp. Runs in separate namespaces, so that
everything there is the job's."""

import signal

import job

LISTENS = " 00010000 "


class NothingLeft(job.LeavesNothing):
    def nodes(self):
        return ([2], [2, 1]) if job.HAS_UCX else ([2],)

    def test_after_success(self):
        for nodes in self.nodes():
            with self.subTest(nodes=nodes):
                job.run(["gradients", 2], nodes).digest(sum(nodes), len(nodes))
                self.check_nothing_left()

    @job.needs_mpi
    def test_after_success_under_mpirun(self):
        job.run_mpi(["gradients", 2], 2).digest(2, 1)
        self.check_nothing_left()

    def test_after_an_error(self):
        for nodes in self.nodes():
            with self.subTest(nodes=nodes):
                outcome = job.run(["throw"], nodes)
                self.assertEqual(outcome.statuses[:-1], [job.PEER_LOST] * (sum(nodes) - 1), outcome)
                self.check_nothing_left()

    def test_after_kill_of_all(self):
        for nodes, call in zip(self.nodes(), ("all_reduce", "gradients")):
            with self.subTest(nodes=nodes, call=call):
                with job.started(["endless", call], nodes) as ranks:
                    job.read_until(ranks, "in the middle")
                    for rank in ranks:
                        rank.signal(signal.SIGKILL)
                    self.assertEqual([rank.finish() for rank in ranks], [-signal.SIGKILL] * len(ranks))
                self.check_nothing_left()

    def test_no_name_while_it_runs(self):
        with job.started(["endless", "gradients"], [2]) as ranks:
            job.read_until(ranks, "in the middle")
            new = job.traces() - self.before
            self.assertEqual({trace for trace in new if trace.startswith("/")}, set())
            # Unix sockets that listen have this flag.
            self.assertEqual({trace for trace in new if trace.startswith("socket unix") and LISTENS in trace}, set())
            self.assertEqual(len([trace for trace in new if trace.startswith("process")]), len(ranks))


if __name__ == "__main__":
    job.enter_private_machine()
    job.main()
