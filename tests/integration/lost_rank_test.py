#!/usr/bin/env -S python3 -B
"""Tests that if a rank is killed, freezes or leaves, every survivor ends by itself, with the
exit status of the cause, and names the rank."""

import signal

import job

PEER_TIMEOUT_MS = 2000


class LostRank(job.Test):
    def check(self, nodes, call, number, lost=1):
        with self.subTest(nodes=nodes, call=call, signal=number.name):
            with job.started(["endless", call], nodes, peer_timeout=PEER_TIMEOUT_MS) as ranks:
                job.read_until(ranks, "in the middle")
                ranks[lost].signal(number)
                for rank in ranks:
                    if rank.rank != lost:
                        self.expect_lost(rank, lost)
                        self.assertIn(f"rank {lost} ", rank.lines[-1].partition("about")[2].partition(":")[2], rank.said())

    def test_killed_on_one_node(self):
        self.check([2], "all_reduce", signal.SIGKILL)
        self.check([4], "gradients", signal.SIGKILL)

    def test_frozen_on_one_node(self):
        self.check([2], "gradients", signal.SIGSTOP)
        self.check([4], "all_reduce", signal.SIGSTOP)

    @job.needs_ucx
    def test_killed_on_two_nodes(self):
        self.check([1, 1], "gradients", signal.SIGKILL)
        self.check([2, 2], "gradients", signal.SIGKILL, lost=0)

    @job.needs_ucx
    def test_frozen_on_two_nodes(self):
        self.check([2, 2], "gradients", signal.SIGSTOP)
        self.check([2, 2], "gradients", signal.SIGSTOP, lost=0)

    @job.needs_ucx
    def test_lost_between_two_other_nodes(self):
        """Node 9 is a child of node 1 in the tree of agreement."""
        for number in (signal.SIGKILL, signal.SIGSTOP):
            self.check([1] * 10, "all_reduce", number)


class Asleep(job.Test):
    """Tests user threads that drive the engine and sleep, because one rank is inactive."""

    def started(self, nodes, call):
        return job.started(["straggle", call], nodes, peer_timeout=PEER_TIMEOUT_MS, spin=0)

    def until_asleep(self, ranks):
        job.read_until(ranks, "in the middle")
        for rank in ranks[:-1]:
            job.wait_until(rank.is_asleep, f"rank {rank.rank} sleeps")

    def test_a_straggler_that_is_killed_or_freezes_is_named(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            for nodes, call in (([3], "gradients"), ([2], "all_reduce"), ([2], "register")):
                with self.subTest(nodes=nodes, call=call, signal=number.name), self.started(nodes, call) as ranks:
                    self.until_asleep(ranks)
                    ranks[-1].signal(number)
                    for rank in ranks[:-1]:
                        self.expect_lost(rank, len(ranks) - 1)

    def test_a_rank_that_freezes_for_a_moment_goes_on(self):
        for call in ("all_reduce", "gradients", "register"):
            with self.subTest(call=call), self.started([3], call) as ranks:
                self.until_asleep(ranks)
                for rank in ranks:
                    rank.signal(signal.SIGSTOP)
                    job.wait_until(rank.is_stopped, f"rank {rank.rank} stops")
                for rank in ranks:
                    rank.signal(signal.SIGCONT)
                ranks[-1].go_on()
                for rank in ranks:
                    self.assertEqual(rank.finish(), 0, rank.said())
                digests = {rank.lines[-1].partition("digest ")[2] for rank in ranks}
                self.assertEqual(len(digests), 1, digests)


class Leaving(job.Test):
    def check(self, scene, nodes, status, pattern):
        with self.subTest(scene=scene, nodes=nodes):
            outcome = job.run([scene], nodes, mismatch_after=200, peer_timeout=PEER_TIMEOUT_MS)
            survivors = sum(nodes) - 1
            self.assertEqual(outcome.statuses[:survivors], [status] * survivors, outcome)
            texts = outcome.find(rf"error {status} about rank [-\d]+: (.*{pattern}.*)")
            self.assertGreaterEqual(len(texts), survivors, outcome)
            self.assertEqual(len(set(texts)), 1, outcome)

    def test_one_rank_closes_early(self):
        self.check("leave", [2], job.MISMATCH, "rank 1 has closed and takes no part in")

    def test_one_rank_throws(self):
        self.check("throw", [2], job.PEER_LOST, "left the job: an exception")
        self.check("throw", [4], job.PEER_LOST, "left the job: an exception")

    @job.needs_ucx
    def test_on_two_nodes(self):
        self.check("leave", [2, 1], job.MISMATCH, "rank 2 has closed and takes no part in")
        self.check("throw", [2, 1], job.PEER_LOST, "left the job: an exception")


if __name__ == "__main__":
    job.main()
