#!/usr/bin/env python3
"""Training that goes on when a process is lost: DDP over Kolo, checkpoints, and torchrun's restarts.

    torchrun --nproc-per-node 2 --max-restarts 3 python/examples/elastic.py --checkpoints DIR

If a rank dies, freezes or is cut off, all other ranks get a `kolo.PeerLostError`. This program does not catch it: each
process ends, torchrun starts all ranks again, and they continue from the newest checkpoint. With several hosts, DIR is
a folder that all hosts share.
"""

import argparse
import os
import pathlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import kolo.torch


def newest(folder):
    """Returns the path of the newest checkpoint; None if there is none."""
    return max(folder.glob("step-*.pt"), default=None)


def save(folder, step, model, optimizer):
    """Saves a checkpoint. The file gets its name when it is complete, so a killed process leaves no partial file."""
    draft = folder / "draft"
    with open(draft, "wb") as file:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(folder / f"step-{step:09}.pt")


def load(folder, model, optimizer):
    """Loads the checkpoint that rank 0 names, and returns the number of its steps. Collective."""
    named = [newest(folder) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(named)
    if named[0] is None:
        return 0
    state = torch.load(named[0])
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def batch(step):
    """Returns this rank's samples of a step, which are the same if the step is repeated."""
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    inputs = torch.randn(256, 64, generator=generator)
    return inputs, inputs.square().sum(1, keepdim=True).sqrt()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", type=pathlib.Path, default="checkpoints")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    options = parser.parse_args()
    options.checkpoints.mkdir(parents=True, exist_ok=True)

    dist.init_process_group("kolo", init_method="kolo://")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 1))
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = load(options.checkpoints, model, optimizer)
    print(f"rank {dist.get_rank()}, process {os.getpid()}: from step {begin}", flush=True)

    for step in range(begin, options.steps):
        inputs, targets = batch(step)
        loss = (parallel(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.9g}", flush=True)
            if (step + 1) % options.every == 0:
                save(options.checkpoints, step + 1, model, optimizer)
    dist.destroy_process_group()


main()
