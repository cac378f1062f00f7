#!/usr/bin/env -S python3 -B
"""A rank that is killed or frozen while the job closes: every survivor ends by itself, cleanly or with the error
that names the rank, and nothing of the job is left. Runs in a machine of its own, as nothing_left_test does."""

import signal

import job
import traces

PEER_TIMEOUT_MS = 2000
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)


class Closing(traces.LeavesNothing):
    def nodes(self):
        return ([2], [3], [1, 1], [2, 1]) if job.HAS_UCX else ([2], [3])

    def started(self, nodes):
        return job.started(["close"], nodes, peer_timeout=PEER_TIMEOUT_MS, spin=0)

    def check_survivors(self, ranks, may_end_well):
        lost = ranks[-1].rank
        for rank in ranks[:-1]:
            status = rank.finish()
            said = f"{status} {rank.lines} {rank.errors()}"
            if may_end_well and status == 0:
                self.assertIn("closed", rank.lines[-1], said)
            else:
                self.assertEqual(status, job.PEER_LOST, said)
                self.assertIn(f"error {job.PEER_LOST} about rank {lost}: ", rank.lines[-1], said)

    def test_before_it_closes_too(self):
        for number in SIGNALS:
            for nodes in self.nodes():
                with self.subTest(nodes=nodes, signal=number.name):
                    with self.started(nodes) as ranks:
                        ranks[-1].read_until("in the middle")
                        for rank in ranks[:-1]:
                            rank.read_until("closing")
                            job.wait_until(rank.is_asleep, f"rank {rank.rank} waits for the end")
                        ranks[-1].signal(number)
                        self.check_survivors(ranks, may_end_well=False)
                    self.check_nothing_left()

    # Whether all have agreed on the end by then differs from run to run.
    def test_while_it_closes_too(self):
        for number in SIGNALS:
            for nodes in self.nodes():
                with self.subTest(nodes=nodes, signal=number.name):
                    with self.started(nodes) as ranks:
                        ranks[-1].read_until("in the middle")
                        ranks[-1].process.stdin.write("go on\n")
                        ranks[-1].process.stdin.flush()
                        ranks[-1].read_until("closing")
                        ranks[-1].signal(number)
                        self.check_survivors(ranks, may_end_well=True)
                    self.check_nothing_left()


if __name__ == "__main__":
    job.enter_private_machine()
    job.main()
