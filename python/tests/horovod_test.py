#!/usr/bin/env -S python3 -B
"""Jobs of kolo.horovod: the scenes of horovod_scenes.py, and the script horovod_elastic.py.

horovod_test.py LIBRARY [mpi=1 ucx=1]
"""

import inspect
import os
import re
import sys
import tempfile
import unittest

import support
import torch_support

torch_support.enter_python_with_torch()

from scene_jobs import HERE, SETTINGS, Scenes, job  # noqa: E402  (a Python that has torch)

os.environ["PYTHONPATH"] = str(support.PACKAGE)  # The script only imports.

# The parameters of Horovod 0.28's calls for PyTorch, with their defaults: scripts pass them by position and by name.
_REDUCED = "average=None, name=None, {}op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=all"
_SCATTERED = "name=None, {}op=Average, process_set=all, prescale_factor=1.0, postscale_factor=1.0"
_MOVED = "name=None, process_set=all"
_COMPRESSED = "compression=none, "

SIGNATURES = {
    "init": "comm=None, process_sets=None",
    **dict.fromkeys(("shutdown", "is_initialized", "rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"), ""),
    "allreduce": "tensor, " + _REDUCED.format(_COMPRESSED),
    **dict.fromkeys(("allreduce_", "allreduce_async", "allreduce_async_"), "tensor, " + _REDUCED.format("")),
    "grouped_allreduce": "tensors, " + _REDUCED.format(_COMPRESSED),
    **dict.fromkeys(
        ("grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_"), "tensors, " + _REDUCED.format("")
    ),
    "sparse_allreduce_async": "tensor, name, op, process_set=all",
    **dict.fromkeys(("allgather", "allgather_async"), "tensor, " + _MOVED),
    **dict.fromkeys(("grouped_allgather", "grouped_allgather_async"), "tensors, " + _MOVED),
    **dict.fromkeys(("broadcast", "broadcast_", "broadcast_async", "broadcast_async_"), "tensor, root_rank, " + _MOVED),
    **dict.fromkeys(("alltoall", "alltoall_async"), "tensor, splits=None, " + _MOVED),
    "reducescatter": "tensor, " + _SCATTERED.format(_COMPRESSED),
    "reducescatter_async": "tensor, " + _SCATTERED.format(""),
    "grouped_reducescatter": "tensors, " + _SCATTERED.format(_COMPRESSED),
    "grouped_reducescatter_async": "tensors, " + _SCATTERED.format(""),
    "poll": "handle",
    "synchronize": "handle",
    "join": "device=-1",
    "barrier": "process_set=all",
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_object": "obj, root_rank=0, name=None, process_set=all",
    "allgather_object": "obj, name=None",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
    "DistributedOptimizer": "optimizer, named_parameters=None, compression=none, backward_passes_per_step=1, op=Average, "
    "gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, process_set=all",
    "start_timeline": "file_path, mark_cycles=False",
    "stop_timeline": "",
}


class Signatures(unittest.TestCase):
    def test_those_of_horovod(self):
        import kolo.horovod as hvd

        written = {"NoneCompressor": "none", "Average": "Average", "_GlobalProcessSet": "all"}

        def default(value):
            names = (getattr(value, "__name__", ""), getattr(value, "name", ""), type(value).__name__)
            return next((written[name] for name in names if name in written), repr(value))

        for name, expected in SIGNATURES.items():
            parameters = inspect.signature(getattr(hvd, name)).parameters.values()
            texts = [p.name if p.default is p.empty else f"{p.name}={default(p.default)}" for p in parameters]
            with self.subTest(name):
                self.assertEqual(", ".join(texts), expected)
                self.assertTrue(all(p.kind == p.POSITIONAL_OR_KEYWORD for p in parameters))


class HorovodScenes(Scenes):
    file = "horovod_scenes.py"

    def test_operations(self):
        self.check("places,allreduces,lazy,collectives,fails_part_way,default_device", nodes=[3])

    def test_derivatives_process_sets_and_joins(self):
        self.check("derivatives,sets,joins", nodes=[3])

    def test_optimizers(self):
        self.check("optimizers,accumulation,branches,states")

    def test_adasum(self):
        self.check("adasum,adasum_optimizer", nodes=[3])

    def test_states_of_elastic_jobs(self):
        self.check("elastic_states")
        self.check("unfinished", statuses=[0, 9])

    def test_sparse_gradients_and_batch_normalization(self):
        self.check("tables,norms", nodes=[3])

    def test_misuse(self):
        self.check("misuse")

    def test_alone(self):
        self.check("places,allreduces,collectives,derivatives,optimizers,accumulation,states,norms", nodes=[1])
        self.check("adasum,adasum_optimizer,elastic_states,unclosed", nodes=[1])

    @job.needs_ucx
    def test_nodes_of_unequal_size(self):
        self.check("places", "2,1", nodes=[2, 1])
        self.check("optimizers,collectives,sets", nodes=[2, 1])

    def test_other_starts_and_torch_beside(self):
        self.check("again,served,beside,unclosed", nodes=[3])

    def test_a_mismatch(self):
        self.check("mismatch", mismatch_after=200)

    def test_a_lost_rank(self):
        self.check_lost()

    @job.needs_mpi
    def test_under_mpirun(self):
        outcome = job.run_mpi(self.command("places,optimizers,again"), 3, **SETTINGS)
        self.assertEqual(outcome.statuses, [0], outcome)


class Elastic(unittest.TestCase):
    """A job in which a rank is killed ends like an undisturbed one."""

    def run_job(self, *arguments, **settings):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        # The other rank ends by itself before torchrun checks, after so many seconds, for failed ranks.
        launcher += ["--max-restarts", "2", "--monitor-interval", "4"]
        command = [*launcher, str(HERE / "horovod_elastic.py"), *arguments]
        outcome = job.run_command(command, **SETTINGS, **settings)
        self.assertFalse(any(outcome.statuses), outcome)
        return outcome

    def losses(self, outcome):
        return dict(re.findall(r"step (\d+): loss (\S+)", "\n".join(outcome.lines)))

    def test_a_rank_that_is_killed(self):
        expected = self.losses(self.run_job())
        self.assertEqual(len(expected), 24)
        with tempfile.TemporaryDirectory() as folder:
            for settings in ({}, {"commits": folder}):
                outcome = self.run_job("--kill-at", "13", **settings)
                self.assertEqual(self.losses(outcome), expected, outcome)
                # The last commit was made in step 12; restarted ranks print the step in which they begin.
                self.assertEqual(sorted(outcome.find(r"^rank \d from step (\d+)$")), ["0", "0", "12", "12"], outcome)
                self.assertEqual(len(outcome.find("^rank (.) goes on$")), 2, outcome)
                self.assertIn("HorovodInternalError: ", outcome.errors)
                self.assertEqual(os.listdir(folder), [], "commits of a job that is done")


if __name__ == "__main__":
    job.main()
