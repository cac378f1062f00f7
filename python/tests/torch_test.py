#!/usr/bin/env -S python3 -B
"""Runs jobs of torch over the backend `kolo`: the scenes of torch_scenes.py, torch_training_scenes.py and
torch_local_scenes.py.

    torch_test.py LIBRARY [mpi=1 ucx=1]
"""

import torch_support

torch_support.enter_python_with_torch()

from scene_jobs import Scenes, job  # noqa: E402  (a Python that has torch)


class Backend(Scenes):
    file = "torch_scenes.py"

    def test_parts_and_messages(self):
        self.check("parts,overlaps,default_device,completed,messages,batches,values_of_futures,table", nodes=[3])

    @job.needs_ucx
    def test_two_nodes(self):
        self.check("parts,messages,ddp", nodes=[1, 1])

    def test_ddp(self):
        self.check("ddp")

    def test_another_start(self):
        self.check("again")

    def test_futures(self):
        self.check("inference,starved")

    def test_long_time_outs(self):
        self.check("patient")
        self.check("longer")

    def test_groups(self):
        for scene in ("groups", "beside_gloo"):
            with self.subTest(scene):
                self.check(scene, nodes=[3])

    def test_an_exception(self):
        self.check("handled", nodes=[3])

    def test_a_mismatch(self):
        self.check("mismatch,diverged", mismatch_after=200)

    def test_three_ranks_that_diverge(self):
        self.check("diverged,splits", nodes=[3], mismatch_after=200)

    @job.needs_ucx
    def test_splits_on_two_nodes(self):
        self.check("splits", nodes=[1, 1], mismatch_after=200)

    def test_the_debug_level_of_torch(self):
        self.check("detail")

    def test_a_deadline(self):
        self.check("deadline")


class Training(Scenes):
    file = "torch_training_scenes.py"

    def test_the_optimizer(self):
        self.check("optimizer,tied,accumulation")

    def test_some_ranks(self):
        self.check("subgroup", nodes=[3])

    def test_branches(self):
        self.check("branches", nodes=[3])

    def test_top_k(self):
        self.check("top_k,checkpoint")

    @job.needs_ucx
    def test_top_k_on_two_nodes(self):
        self.check("top_k", nodes=[1, 1])

    def test_misuse(self):
        self.check("misuse", mismatch_after=200)

    def test_a_lost_rank(self):
        self.check_lost()


class Local(Scenes):
    file = "torch_local_scenes.py"

    def test_ranks_that_train_apart(self):
        self.check("local,diloco,state,scaled,resumed_elsewhere,misuse")

    def test_three_ranks(self):
        self.check("local,diloco,some_ranks,balanced", nodes=[3])

    def test_balanced_batches(self):
        self.check("balanced,measured")

    @job.needs_ucx
    def test_bytes_between_nodes(self):
        self.check("bytes_sent,diloco", nodes=[1, 1])


if __name__ == "__main__":
    job.main()
