#!/usr/bin/env -S python3 -B
"""Runs jobs of Python on stand-ins of devices: the scenes of device_scenes.py.

    device_test.py LIBRARY [mpi=1 ucx=1]    with libkolo_c_on_stand_ins.so
"""

import support

support.enter_python_with_numpy()

from scene_jobs import Scenes, job  # noqa: E402  (a Python that has NumPy)


class Device(Scenes):
    file = "device_scenes.py"

    def test_streams(self):
        self.check("streams", nodes=[3], device="cuda")

    @job.needs_ucx
    def test_two_nodes(self):
        self.check("streams", nodes=[1, 1], device="cuda")

    def test_refusals(self):
        self.check("refused", device="cuda")


if __name__ == "__main__":
    job.main()
