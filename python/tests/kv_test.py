#!/usr/bin/env -S python3 -B
"""Parameter stores of Python processes: the scenes of kv_scenes.py."""

import support

support.enter_python_with_numpy()

from scene_jobs import Scenes, job  # noqa: E402  (a Python that has NumPy)


class Stores(Scenes):
    file = "kv_scenes.py"

    def test_types_agree_with_mxnet(self):
        for nodes in ([3], [2, 1]) if job.HAS_UCX else ([3],):
            with self.subTest(nodes=nodes):
                self.check("types", nodes=nodes)

    def test_dist_sync_has_the_bits_of_all_reduce(self):
        self.check("bits", nodes=[2, 2] if job.HAS_UCX else [3], reproducible="on")

    def test_threads_misuse_and_stores_that_nobody_closes(self):
        for scenes in ("callers,in_turn,forked,misuse,left_to_the_job", "left_open"):
            outcome = self.check(scenes)
            self.assertNotIn("closing a parameter store", outcome.errors)
        self.check("left_by_an_exception", nodes=[1])

    def test_an_updater_that_raises(self):
        self.check("failing", statuses=[0, 0])
        self.check("asking", nodes=[1])


if __name__ == "__main__":
    support.main()
