"""Parts that the benchmarks torch_*.py share: they train models in one job over alternating
systems."""

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
    """Returns a GPT, equal on all ranks, and a function of its loss on this rank's samples."""
    torch.manual_seed(0)
    model = torch_models.Gpt(256)
    torch.manual_seed(1 + dist.get_rank())
    batch = torch.randint(256, (4, torch_models.CONTEXT + 1))
    return model, lambda step: nn.functional.cross_entropy(step(batch[:, :-1]), batch[:, 1:].flatten())


def mlp():
    """Returns an MLP, equal on all ranks, and a function of its loss on this rank's samples."""
    torch.manual_seed(0)
    model = torch_models.Mlp()
    torch.manual_seed(1 + dist.get_rank())
    inputs, targets = torch.randn(128, 784), torch.randint(10, (128,))
    return model, lambda step: nn.functional.cross_entropy(step(inputs), targets)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


class Training:
    """Trains a model that one of the systems has made parallel.

    `optimizer`: by default the result of `sgd`.
    `context`: makes a context manager for each step, entered for its forward and backward pass.
    """

    def __init__(self, parallel, loss, optimizer=None, context=contextlib.nullcontext):
        self._parallel = parallel
        self._loss = loss
        self._context = context
        self._optimizer = optimizer or sgd(parallel)
        self.times = []
        """The durations of the steps, in milliseconds."""

    def steps(self, number):
        """Trains for `number` steps; returns the last loss."""
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
    """Yields rows with the median step of each run, without the first block. The first run
    exchanges nothing; exposed time is the difference to it."""
    losses = {}
    for block in range(options.blocks + 1):
        if block == 1:
            for run in runs.values():
                run.times.clear()
        for system, run in runs.items():
            losses[system] = run.steps(options.steps)
    # The time of a step is the time of the slowest rank.
    medians = torch.tensor([statistics.median(run.times) for run in runs.values()])
    dist.all_reduce(medians, dist.ReduceOp.MAX)
    alone = medians[0].item()
    return [
        {"model": name, "system": system, "step_ms": median, "exposed_ms": median - alone, "loss": losses[system]}
        for system, median in zip(runs, medians.tolist())
    ]


# Relative tolerance. Sums are rounded in different orders.
LOSS_TOLERANCE = 1e-4


def check_losses(rows):
    """Ends the process with status 1 if a model's losses over Kolo and over Gloo differ."""
    losses = {(row["model"], row["system"]): row["loss"] for row in rows if "loss" in row}
    for model in {model for model, _ in losses}:
        kolo, gloo = losses[model, "kolo"], losses[model, "gloo"]
        if not abs(kolo / gloo - 1) <= LOSS_TOLERANCE:  # true for NaN too
            sys.exit(f"the losses of {model} differ: {kolo} over Kolo, {gloo} over Gloo")


def parser_of(description):
    """Returns a parser for the options that the benchmarks share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="steps of a block")
    parser.add_argument("--blocks", type=int, default=4, help="blocks of each system, in turns")
    parser.add_argument("--json", metavar="FILE")
    return parser


def report(rows, options):
    """Prints rows on rank 0 as they are measured, writes them to the file of `--json`, and
    returns them."""
    kept = []
    for row in rows:
        kept.append(row)
        if dist.get_rank() == 0:
            print("  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()), flush=True)
    if dist.get_rank() == 0 and options.json:
        found = {"torch": torch.__version__, "ranks": dist.get_world_size(), "rows": kept}
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1))
    return kept
