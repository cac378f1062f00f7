#!/usr/bin/env python3
"""Measures the cost of FSDP2 over Kolo and over Gloo, alternating in one job, and compares losses.

    torchrun --nproc-per-node 2 benchmarks/peers/torch_fsdp.py [--json FILE]

Prints the median time of a training step of a small GPT, sharded over each backend, and unsharded
without any exchange. Exposed time is the difference to the latter. The exit status is 1 if the
losses differ. If Gloo sums instead of averaging (github.com/pytorch/pytorch/issues/162338), a line
says so, and FSDP divides its sums. Each rank has one thread; bind ranks to cores.
"""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import torch
import torch.distributed as dist
import torch_runs
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import kolo.torch  # noqa: F401  # registers the backend


def averages(group):
    """Returns whether a reduce-scatter of `group` averages when asked to."""
    mean = torch.empty(1)
    dist.reduce_scatter_tensor(mean, torch.full((dist.get_world_size(),), 2.0), dist.ReduceOp.AVG, group=group)
    return mean.item() == 2.0


def sharded(group, sum_only):
    model, loss = torch_runs.gpt()
    mesh = DeviceMesh.from_group(group, "cpu")
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if sum_only:
        model.set_force_sum_reduction_for_comms(True)
    return torch_runs.Training(model, loss)


def main():
    options = torch_runs.parser_of(__doc__).parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("kolo", init_method="kolo://")
    gloo = dist.new_group(backend="gloo")
    gloo_averages = averages(gloo)
    if dist.get_rank() == 0:
        print(f"gloo of torch {torch.__version__} {'averages' if gloo_averages else 'sums: FSDP divides its sums'}", flush=True)
    runs = {
        "none": torch_runs.Training(*torch_runs.gpt()),
        "kolo": sharded(dist.group.WORLD, sum_only=False),
        "gloo": sharded(gloo, sum_only=not gloo_averages),
    }
    rows = torch_runs.report(torch_runs.measured_in_turns("gpt d 256, FSDP2", runs, options), options)
    dist.destroy_process_group()
    torch_runs.check_losses(rows)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
