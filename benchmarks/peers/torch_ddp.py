#!/usr/bin/env python3
"""Measures what DDP costs over Kolo and over Gloo, in turns, in one job.

    torchrun --nproc-per-node 2 benchmarks/peers/torch_ddp.py [--json FILE]

Prints the median time of a training step with each backend, and without any exchange of gradients (`no_sync`). Exposed is
the difference. Then all-reduces by size. One thread per rank; bind ranks to cores. See docs/pytorch.md.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import kolo.torch


class Gpt(nn.Module):
    """A byte-level GPT without tricks."""

    def __init__(self, width=256, layers=4, context=128):
        super().__init__()
        self.tokens = nn.Embedding(256, width)
        self.places = nn.Parameter(torch.zeros(context, width))
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, batch):
        return self.head(self.blocks(self.tokens(batch) + self.places, self.mask, is_causal=True))


def mlp():
    model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    inputs, targets = torch.randn(128, 784), torch.randint(10, (128,))
    return model, lambda step: nn.functional.cross_entropy(step(inputs), targets)


def gpt():
    batch = torch.randint(256, (4, 129))
    return Gpt(), lambda step: nn.functional.cross_entropy(step(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


class Training:
    """A model that trains with DDP."""

    def __init__(self, make, group, hook=None, is_synced=True):
        torch.manual_seed(0)
        model, self._loss = make()
        self._parallel = DistributedDataParallel(model, process_group=group)
        if hook is not None:
            self._parallel.register_comm_hook(group, hook)
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self._is_synced = is_synced
        self.times = []

    def steps(self, number):
        for _ in range(number):
            dist.barrier()
            began = time.perf_counter()
            self._optimizer.zero_grad(set_to_none=False)
            if self._is_synced:
                loss = self._loss(self._parallel)
                loss.backward()
            else:
                with self._parallel.no_sync():
                    loss = self._loss(self._parallel)
                    loss.backward()
            self._optimizer.step()
            self.times.append(1e3 * (time.perf_counter() - began))
        return loss.item()


def measure_models(gloo, options):
    for name, make in (("mlp 1.9 M", mlp), ("gpt d 256", gpt)):
        runs = {
            "none": Training(make, None, is_synced=False),
            "kolo": Training(make, None),
            "gloo": Training(make, gloo),
            "kolo bf16": Training(make, None, kolo.torch.bf16_hook),
            "gloo bf16": Training(make, gloo, bf16_compress_hook),
        }
        losses = {}
        for block in range(options.blocks + 1):
            if block == 1:
                for run in runs.values():
                    run.times.clear()
            for system, run in runs.items():
                losses[system] = run.steps(options.steps)
        # The slowest rank's.
        medians = torch.tensor([statistics.median(run.times) for run in runs.values()])
        dist.all_reduce(medians, dist.ReduceOp.MAX)
        alone = medians[0].item()
        for system, median in zip(runs, medians.tolist()):
            yield {"model": name, "system": system, "step_ms": median, "exposed_ms": median - alone, "loss": losses[system]}


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="steps of a block")
    parser.add_argument("--blocks", type=int, default=4, help="blocks of each system, in turns")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("kolo")
    gloo = dist.new_group(backend="gloo")
    rows = []
    for row in (*measure_models(gloo, options), *measure_sizes(gloo)):
        rows.append(row)
        if dist.get_rank() == 0:
            print("  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()), flush=True)
    if dist.get_rank() == 0 and options.json:
        pathlib.Path(options.json).write_text(json.dumps({"torch": torch.__version__, "ranks": dist.get_world_size(), "rows": rows}, indent=1))
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
