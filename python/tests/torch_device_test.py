#!/usr/bin/env -S python3 -B
"""Runs jobs of torch whose tensors are on stand-ins of GPUs (torch_stand_in.py): the scenes of torch_device_scenes.py, and
those of other files that are about tensors.

    torch_device_test.py LIBRARY [mpi=1 ucx=1]    with libkolo_c_on_stand_ins.so
"""

import torch_support

torch_support.enter_python_with_torch()

from scene_jobs import Scenes, job  # noqa: E402  (a Python that has torch)


class OnDevice(Scenes):
    def check(self, *scene, **settings):
        return super().check(*scene, device="cuda", **settings)


class Device(OnDevice):
    file = "torch_device_scenes.py"

    def test_streams(self):
        self.check("streams,default_streams,futures,callbacks,apart,measured,order_of_waits,choice,stages")

    def test_errors(self):
        self.check("errors", mismatch_after=200)

    def test_training(self):
        self.check("overlap,hooks,sharded", device_fusion_bytes="16K")

    def test_refusals(self):
        self.check("refused")

    def test_a_lost_rank(self):
        self.check_lost()
        self.check_lost("lost_later")


class Backend(OnDevice):
    file = "torch_scenes.py"

    def test_operations(self):
        for scenes in ("parts,overlaps,completed", "messages,batches,values_of_futures", "table"):
            with self.subTest(scenes):
                self.check(scenes, nodes=[3])

    def test_ddp(self):
        self.check("ddp", nodes=[3])

    @job.needs_ucx
    def test_two_nodes(self):
        self.check("messages,ddp", nodes=[2, 1])


class Training(OnDevice):
    file = "torch_training_scenes.py"

    def test_the_optimizer(self):
        self.check("optimizer,tied,accumulation")

    def test_some_ranks(self):
        self.check("subgroup", nodes=[3])


class Local(OnDevice):
    file = "torch_local_scenes.py"

    def test_ranks_that_train_apart(self):
        self.check("local,diloco,balanced")


class Horovod(OnDevice):
    file = "horovod_scenes.py"

    def test_operations(self):
        self.check("places,allreduces,collectives,derivatives,sets", nodes=[3])

    def test_training(self):
        self.check("optimizers,accumulation,branches,states,norms,adasum,adasum_optimizer")


if __name__ == "__main__":
    job.main()
