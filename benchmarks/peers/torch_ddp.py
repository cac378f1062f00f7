#!/usr/bin/env python3
"""Measures the cost of data parallelism over Kolo and over Gloo, alternating in one job.

    torchrun --nproc-per-node 2 benchmarks/peers/torch_ddp.py [--json FILE]
    scripts/cluster run -np 2 --ppn 1 -- PYTHON benchmarks/peers/torch_ddp.py     # between hosts

Prints the median time of a training step with DDP over each backend, with Kolo's optimizer, and
without any exchange of gradients (`no_sync`). Exposed time is the difference to the latter. Then
prints all-reduces by size. The exit status is 1 if losses over Kolo and over Gloo differ. Each rank
has one thread; bind ranks to cores. See
docs/pytorch.md.
"""

import itertools
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import torch
import torch.distributed as dist
import torch_runs
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import kolo.torch

DENSITY = 0.01


def alone(make):
    """Makes a run that never exchanges gradients."""
    model, loss = make()
    parallel = DistributedDataParallel(model)
    return torch_runs.Training(parallel, loss, context=parallel.no_sync)


def ddp(make, options, group=None, hook=None):
    model, loss = make()
    parallel = DistributedDataParallel(model, process_group=group, bucket_cap_mb=options.bucket_mb)
    if hook is not None:
        parallel.register_comm_hook(group, hook)
    return torch_runs.Training(parallel, loss)


def top_k(make, options):
    model, loss = make()
    parallel = DistributedDataParallel(model, bucket_cap_mb=options.bucket_mb)
    parallel.register_comm_hook(kolo.torch.TopKState(parallel, DENSITY), kolo.torch.topk_hook)
    return torch_runs.Training(parallel, loss)


def optimizer(make, compression=None):
    model, loss = make()
    wrapped = kolo.torch.DistributedOptimizer(
        torch_runs.sgd(model), model.named_parameters(), compression=compression
    )
    return torch_runs.Training(model, loss, wrapped)


def measure_models(gloo, options):
    for name, make in (("mlp 1.9 M", torch_runs.mlp), ("gpt d 256", torch_runs.gpt)):
        runs = {
            "none": alone(make),
            "kolo": ddp(make, options),
            "gloo": ddp(make, options, gloo),
            "kolo bf16": ddp(make, options, None, kolo.torch.bf16_hook),
            "gloo bf16": ddp(make, options, gloo, bf16_compress_hook),
            "kolo top-k 1 %": top_k(make, options),
            "kolo optimizer": optimizer(make),
            "kolo optimizer top-k 1 %": optimizer(make, f"topk({DENSITY})"),
        }
        yield from torch_runs.measured_in_turns(name, runs, options)


def measure_sizes(gloo):
    for size in (4, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26):
        tensor = torch.ones(size // 4)
        for system, group in (("kolo", None), ("gloo", gloo)):
            times = []
            for _ in range(60 if size < 1 << 20 else 12):
                dist.barrier()
                began = time.perf_counter()
                dist.all_reduce(tensor, group=group)
                times.append(1e6 * (time.perf_counter() - began))
            median = torch.tensor(statistics.median(times[2:]))
            dist.all_reduce(median, dist.ReduceOp.MAX)
            yield {"system": system, "size": size, "time_us": median.item()}


def main():
    parser = torch_runs.parser_of(__doc__)
    parser.add_argument("--models-only", action="store_true", help="no all-reduces by size")
    parser.add_argument("--bucket-mb", type=float, help="size of DDP's buckets, in MB of 2^20 bytes; default: torch's")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("kolo", init_method="kolo://")
    gloo = dist.new_group(backend="gloo")
    sizes = () if options.models_only else measure_sizes(gloo)
    rows = torch_runs.report(itertools.chain(measure_models(gloo, options), sizes), options)
    dist.destroy_process_group()
    torch_runs.check_losses(rows)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
