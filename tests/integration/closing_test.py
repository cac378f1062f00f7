#!/usr/bin/env -S python3 -B
"""Tests how groups, jobs and processes end with calls in flight. If a rank is killed or frozen
while the job closes, every survivor ends by itself, cleanly or with the error that names the
rank, and nothing of the job remains. Runs in separate namespaces, like nothing_left_test."""

import signal

import job

PEER_TIMEOUT_MS = 2000
KILL, STOP = signal.SIGKILL, signal.SIGSTOP


class Closing(job.LeavesNothing):
    def nodes(self):
        return ([2], [3], [1, 1], [2, 1]) if job.HAS_UCX else ([2], [3])

    def lose(self, prepare, may_end_well, signals):
        for number, nodes in zip(signals, self.nodes()):
            with self.subTest(nodes=nodes, signal=number.name):
                with job.started(["close"], nodes, peer_timeout=PEER_TIMEOUT_MS, spin=0) as ranks:
                    ranks[-1].read_until("in the middle")
                    prepare(ranks)
                    ranks[-1].signal(number)
                    for rank in ranks[:-1]:
                        self.expect_lost(rank, ranks[-1].rank, but_for="closed" if may_end_well else None)
                self.check_nothing_left()

    def test_before_it_closes_too(self):
        def prepare(ranks):
            for rank in ranks[:-1]:
                rank.read_until("closing")
                job.wait_until(rank.is_asleep, f"rank {rank.rank} waits for the end")

        self.lose(prepare, may_end_well=False, signals=(KILL, STOP, STOP, KILL))

    def test_while_it_closes_too(self):
        """Timing determines whether all ranks have agreed on the end by then."""

        def prepare(ranks):
            ranks[-1].go_on()
            ranks[-1].read_until("closing")

        self.lose(prepare, may_end_well=True, signals=(STOP, KILL, KILL, STOP))

    def check_end(self, scene, nodes):
        outcome = job.run(scene, nodes, calibrate="off")
        self.assertEqual(outcome.statuses, [0] * sum(nodes), outcome)
        self.assertEqual(len(outcome.find("(all that was in flight has ended)")), sum(nodes), outcome)
        return outcome

    def test_groups_that_are_dropped_in_flight_end_well(self):
        for nodes, count in zip(self.nodes(), (20_000, 1_000_000, 1_000_000, 20_000)):
            with self.subTest(nodes=nodes, count=count):
                self.check_end(["drop", count], nodes)

    def test_calls_in_flight_end_alike(self):
        for nodes in self.nodes()[1::2]:
            with self.subTest(nodes=nodes):
                outcome = self.check_end(["outstanding", 0], nodes)
                self.assertEqual(outcome.find(r"(\d+ of 300) failed"), ["0 of 300"] * sum(nodes), outcome)

    def test_calls_of_one_rank_alone_fail_when_the_others_have_closed(self):
        for nodes in self.nodes()[1::2]:
            with self.subTest(nodes=nodes):
                outcome = self.check_end(["outstanding", 50], nodes)
                others = ["0 of 300"] * (sum(nodes) - 1)
                self.assertEqual(outcome.find(r"(\d+ of \d+) failed"), [*others, "50 of 350"], outcome)
                texts = outcome.find(r"failed: (rank \d+ has closed and takes no part in 'call)")
                self.assertEqual(len(texts), 1, outcome)

    def test_a_forked_child_has_no_part_in_the_job_which_goes_on(self):
        self.check_end(["fork"], self.nodes()[-1])

    def test_a_static_job_ends_with_the_process(self):
        outcome = job.run(["keep"], self.nodes()[-1], calibrate="off")
        self.assertEqual((outcome.statuses, outcome.errors), ([0] * 3, ""), outcome)

    def test_a_process_ends_that_calls_exit_in_one_thread_while_another_works(self):
        outcome = job.run(["exit"], self.nodes()[-1], calibrate="off")
        self.assertEqual(outcome.statuses, [0] * 3, outcome)
        told = outcome.find(r"told: .*(rank \d+ has closed and takes no part in 'once')")
        self.assertEqual(told, ["rank 2 has closed and takes no part in 'once'"] * 2)


if __name__ == "__main__":
    job.enter_private_machine()
    job.main()
