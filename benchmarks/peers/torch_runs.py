"""What the benchmarks torch_*.py share: models that PyTorch trains in one job, over several systems in turn."""

import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch_models
from torch import nn


def gpt():
    """A model, equal on all ranks, and its loss on this rank's samples."""
    torch.manual_seed(0)
    model = torch_models.Gpt(256)
    torch.manual_seed(1 + dist.get_rank())
    batch = torch.randint(256, (4, torch_models.CONTEXT + 1))
    return model, lambda step: nn.functional.cross_entropy(step(batch[:, :-1]), batch[:, 1:].flatten())


def mlp():
    """As `gpt`, for a smaller model."""
    torch.manual_seed(0)
    model = torch_models.Mlp()
    torch.manual_seed(1 + dist.get_rank())
    inputs, targets = torch.randn(128, 784), torch.randint(10, (128,))
    return model, lambda step: nn.functional.cross_entropy(step(inputs), targets)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


class Training:
    """A model that trains, as one of the systems makes it parallel.

    `optimizer`: by default that of `sgd`.
    `context`: makes a context manager for each step, entered around its forward and backward pass.
    """

    def __init__(self, parallel, loss, optimizer=None, context=contextlib.nullcontext):
        self._parallel = parallel
        self._loss = loss
        self._context = context
        self._optimizer = optimizer or sgd(parallel)
        self.times = []
        """The durations of the steps, in milliseconds."""

    def steps(self, number):
        """Trains; returns the last loss."""
        for _ in range(number):
            dist.barrier()
            began = time.perf_counter()
            self._optimizer.zero_grad()
            with self._context():
                loss = self._loss(self._parallel)
                loss.backward()
            self._optimizer.step()
            self.times.append(1e3 * (time.perf_counter() - began))
        return loss.item()


def measured_in_turns(name, runs, options):
    """Rows with the median step of each run, after a first block that does not count. The first run is the one that
    exchanges nothing; exposed is the difference to it."""
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
    return [
        {"model": name, "system": system, "step_ms": median, "exposed_ms": median - alone, "loss": losses[system]}
        for system, median in zip(runs, medians.tolist())
    ]


# Relative; sums differ in their order.
LOSS_TOLERANCE = 1e-4


def check_losses(rows):
    """Ends the process with status 1 if a model has learnt something else over Kolo than over Gloo."""
    losses = {(row["model"], row["system"]): row["loss"] for row in rows if "loss" in row}
    for model in {model for model, _ in losses}:
        kolo, gloo = losses[model, "kolo"], losses[model, "gloo"]
        if abs(kolo / gloo - 1) > LOSS_TOLERANCE:
            sys.exit(f"the losses of {model} differ: {kolo} over Kolo, {gloo} over Gloo")


def parser_of(description):
    """The options that the benchmarks share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="steps of a block")
    parser.add_argument("--blocks", type=int, default=4, help="blocks of each system, in turns")
    parser.add_argument("--json", metavar="FILE")
    return parser


def report(rows, options):
    """Prints rows as they come, on rank 0, and writes the file of `--json`. Returns all of them."""
    kept = []
    for row in rows:
        kept.append(row)
        if dist.get_rank() == 0:
            print("  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()), flush=True)
    if dist.get_rank() == 0 and options.json:
        found = {"torch": torch.__version__, "ranks": dist.get_world_size(), "rows": kept}
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1))
    return kept
