#!/usr/bin/env -S python3 -B
"""Messages between two ranks of real jobs: right however they travel, refused where they do not fit, and an
error that names the rank where it is lost while others wait for a message."""

import signal
import unittest

import job

PEER_TIMEOUT_MS = 2000


class Messages(unittest.TestCase):
    def nodes(self):
        return ([1], [2], [4], [1, 1], [2, 2]) if job.HAS_UCX else ([1], [2], [4])

    def check_right(self, outcome, nodes):
        self.assertEqual(outcome.statuses, [0] * sum(nodes), outcome)
        sent = outcome.find(r"all messages were right, (\d+) bytes to other nodes")
        self.assertEqual(len(sent), sum(nodes), outcome)
        return list(map(int, sent))

    def test_are_right(self):
        elements = 1 + 1024 + 1025 + 65536 + 65537 + 1000000
        for nodes in self.nodes():
            with self.subTest(nodes=nodes):
                outcome = job.run(["messages", 2], nodes, calibrate="off")
                others = sum(nodes) - nodes[0]
                self.assertEqual(self.check_right(outcome, nodes), [2 * others * 4 * elements] * sum(nodes))
                self.assertEqual(outcome.errors, "")

    def test_that_do_not_fit_fail_on_both_ranks(self):
        for field, text in (("length", "whose buffer holds 10"), ("dtype", "which receives int64")):
            for nodes in self.nodes()[1:]:
                with self.subTest(field=field, nodes=nodes):
                    outcome = job.run(["unfit", field], nodes)
                    self.check_right(outcome, nodes)
                    texts = outcome.find(rf"refused with {job.MISMATCH}: (.*)")
                    last = sum(nodes) - 1
                    self.assertEqual(
                        texts, 2 * [f"rank 0 sends 100000 elements of float32 with tag 77 to rank {last}, {text}"]
                    )

    def test_a_lost_rank_that_others_wait_for_is_named(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            for nodes in self.nodes()[1:]:
                with self.subTest(nodes=nodes, signal=number.name):
                    with job.started(["receive"], nodes, peer_timeout=PEER_TIMEOUT_MS) as ranks:
                        for rank in ranks:
                            rank.read_until("in the middle")
                        ranks[-1].signal(number)
                        for rank in ranks[:-1]:
                            status = rank.finish()
                            said = f"{rank.lines}\n{rank.errors()}"
                            self.assertEqual(status, job.PEER_LOST, said)
                            self.assertIn(f"error {job.PEER_LOST} about rank {len(ranks) - 1}: ", rank.lines[-1], said)


if __name__ == "__main__":
    job.main()
