#!/usr/bin/env -S python3 -B
"""Tests a rank whose thread is stuck in a call while it drives the engine. Its watchdog reports
the call, and later its return. The job continues, or ends with one error on all ranks."""

import contextlib
import signal
import unittest

import job

STALL = 75
STUCK = "the engine has not returned from '"
MOVES = "the engine moves again after "


@contextlib.contextmanager
def stuck(nodes, call, held=0, **settings):
    """Starts ranks that wait for the last one. It waits for `go_on`. One rank's thread is held."""
    with job.started(["straggle", call], nodes, spin=0, **settings) as ranks:
        job.read_until(ranks, "in the middle")
        job.wait_until(ranks[held].is_asleep, f"rank {held} sleeps")
        ranks[held].signal(signal.SIGUSR1)
        yield ranks


class StuckCall(unittest.TestCase):
    def check(self, nodes, call, awaited, **settings):
        """Holds rank 0, which waits for the last rank, until it has printed `awaited`."""
        with stuck(nodes, call, stall_warn=500, **settings) as ranks:
            job.wait_until(lambda: awaited in ranks[0].errors(), awaited)
            ranks[0].signal(signal.SIGUSR2)
            job.wait_until(lambda: MOVES in ranks[0].errors(), MOVES)
            ranks[-1].go_on()
            statuses = [rank.finish() for rank in ranks]
            said = "".join(rank.said() for rank in ranks)
            self.assertNotIn(STUCK, "".join(rank.errors() for rank in ranks[1:]), said)
            return statuses, [rank.lines[-1] for rank in ranks], said

    def fails_on_peers(self, nodes, call, awaited=STUCK, stall_warn=500, **settings):
        """Holds rank 0 after it has printed `awaited`, until all other ranks have ended. Returns
        their statuses and outputs."""
        with stuck(nodes, call, stall_warn=stall_warn, **settings) as ranks:
            job.wait_until(lambda: awaited in ranks[0].errors(), awaited)
            ranks[-1].go_on()
            statuses = [rank.finish() for rank in ranks[1:]]
            lines = [rank.lines[-1] for rank in ranks[1:]]
            ranks[0].signal(signal.SIGUSR2)
            ranks[0].finish()
            return statuses, lines, "".join(rank.said() for rank in ranks)

    def goes_on(self, nodes, call):
        with self.subTest(nodes=nodes, call=call):
            statuses, lines, said = self.check(nodes, call, STUCK)
            self.assertEqual(statuses, [0] * sum(nodes), said)
            self.assertEqual(len({line.partition("digest ")[2] for line in lines}), 1, said)

    def test_is_reported_and_does_no_harm_if_it_returns(self):
        self.goes_on([2], "all_reduce")
        self.goes_on([3], "gradients")

    @job.needs_ucx
    def test_on_two_nodes(self):
        self.goes_on([1, 1], "gradients")

    def test_ends_the_job_with_one_error_after_stall_abort(self):
        error = "rank 0 has not returned from a call for "
        statuses, lines, said = self.check([2], "all_reduce", error, stall_abort=1000)
        self.assertEqual(statuses, [STALL] * 2, said)
        for line in lines:
            self.assertIn(f"error {STALL} about rank 0: {error}", line, said)

    def check_peers_of_a_stuck_rank(self, nodes):
        with self.subTest(nodes=nodes):
            statuses, lines, said = self.fails_on_peers(nodes, "all_reduce", stall_abort=1000)
            self.assertEqual(statuses, [STALL] * (sum(nodes) - 1), said)
            for line in lines:
                self.assertIn(f"error {STALL} about rank 0: rank 0 has not returned from a call for ", line, said)

    def test_is_the_same_error_on_peers_while_it_lasts(self):
        self.check_peers_of_a_stuck_rank([3])

    @job.needs_ucx
    def test_is_the_same_error_on_other_nodes_if_the_rank_is_not_alone_on_its_own(self):
        self.check_peers_of_a_stuck_rank([2, 2])

    def test_without_warnings_stall_abort_still_ends_the_job(self):
        error = "rank 0 has not returned from a call for "
        statuses, lines, said = self.fails_on_peers([2], "all_reduce", error, stall_warn=0, stall_abort=1000)
        self.assertEqual(statuses, [STALL], said)
        self.assertIn(f"error {STALL} about rank 0: {error}", lines[0], said)
        self.assertNotIn(STUCK, said)

    def test_peers_that_lose_the_rank_know_that_it_is_stuck(self):
        statuses, lines, said = self.fails_on_peers([2], "all_reduce", peer_timeout=2000)
        self.assertEqual(statuses, [job.PEER_LOST], said)
        self.assertIn(f"error {job.PEER_LOST} about rank 0: rank 0 has been silent for 2 s: it is stuck in '", lines[0], said)

    def test_who_waits_is_told_while_a_rank_is_stuck(self):
        table = "waiting: rank 0; missing: rank 2; no answer: rank 1\n"
        with stuck([3], "all_reduce", held=1, stall_warn=1000) as ranks:
            job.wait_until(lambda: table in ranks[0].errors(), table)
            ranks[1].signal(signal.SIGUSR2)
            ranks[-1].go_on()
            self.assertEqual([rank.finish() for rank in ranks], [0] * 3)
            said = ranks[0].errors()
            self.assertRegex(said, r"the ranks that do not answer:\n  rank 1: for \d+ s, stuck in '\w+', in a call")

    @job.needs_ucx
    def test_is_the_same_error_on_other_nodes_if_the_rank_is_alone_on_its_own(self):
        self.check_peers_of_a_stuck_rank([1, 2])

    @job.needs_ucx
    def test_alone_on_its_node_the_rank_is_lost_before_stall_abort(self):
        statuses, lines, said = self.fails_on_peers([1, 1], "all_reduce", peer_timeout=3000)
        self.assertEqual(statuses, [job.PEER_LOST], said)
        self.assertIn(f"error {job.PEER_LOST} about rank 0: rank 0 has been silent for ", lines[0], said)


if __name__ == "__main__":
    job.main()
