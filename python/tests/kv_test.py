#!/usr/bin/env -S python3 -B
"""Parameter stores of Python processes: the scenes of kv_scenes.py."""

import support

support.enter_python_with_numpy()

from scene_jobs import Scenes, job  # noqa: E402  (a Python that has NumPy)


class Stores(Scenes):
    file = "kv_scenes.py"

    def test_types_agree_with_mxnet(self):
        for ranks in (1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                self.check("types", nodes=[ranks])

    @job.needs_ucx
    def test_types_on_several_nodes(self):
        self.check("types", nodes=[2, 1])

    def test_dist_sync_has_the_bits_of_all_reduce(self):
        for nodes in ([2], [3], [2, 2]) if job.HAS_UCX else ([2], [3]):
            with self.subTest(nodes=nodes):
                self.check("bits", nodes=nodes, reproducible="on")

    def test_a_worker_four_times_as_slow(self):
        outcome = self.check("slowed")
        self.assertEqual(outcome.find("pushes of rank 0: (.*)"), ["40 40"], outcome)

    def test_a_bound_of_staleness(self):
        self.check("bounded", nodes=[3])

    def test_misuse(self):
        self.check("misuse")

    def test_an_updater_that_raises(self):
        self.check("failing", statuses=[0, 0])

    def test_a_rank_that_dies(self):
        outcome = self.check("lost", nodes=[3], statuses=[0, -9, 0])
        self.assertEqual(len(outcome.find("(lost rank 1)")), 2, outcome)

    def test_calls_share_a_thread(self):
        self.check("callers")

    def test_calls_take_turns(self):
        self.check("in_turn")

    def test_a_forked_process(self):
        self.check("forked")

    def test_stores_that_nobody_closes(self):
        for scene in ("left_open", "left_to_the_job"):
            outcome = self.check(scene)
            self.assertEqual(outcome.find("(closing a parameter store)"), [], outcome)


if __name__ == "__main__":
    support.main()
