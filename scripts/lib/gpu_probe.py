#!/usr/bin/env python3
"""Looks for hangs and crashes of Kolo on one GPU that several ranks share; scripts/lib/one-gpu says how.

    gpu_probe.py [--cpu] [--ranks N] [--seconds S] [CHECK...]

  foreign   memory that is not of the device is refused, and a tensor of torch on the GPU is not
  capture   torch captures CUDA graphs while all-reduces are in flight; both must have the right values
  torch     the backend kolo of torch.distributed with tensors on the GPU: work waits in streams and not in the thread,
            losses in DDP, with its hook, in FSDP2 and by DistributedOptimizer are those of one rank with all batches;
            Adasum of Horovod's verbs
  opposite  ranks begin all-reduces of several groups in opposite orders
  kill      kill -9 of one rank in the middle of all-reduces of several groups: the others get an error and end

Without names all checks run, each with ranks of its own. KOLO_LIBRARY names a libkolo with CUDA and NCCL. --cpu tries
this script on a machine without a GPU, in host memory and without captures.
"""

import argparse
import math
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PATIENCE = 50  # seconds for each check; contexts of several ranks take turns on the GPU
LEFT_FOR_OTHERS = 10  # seconds that a check that hangs leaves to each later one
LOST_WITHIN = 8  # seconds from the kill to the end of the last survivor
GROUPS = 4
COUNT = 1 << 16


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- one rank ------------------------------------------------------------------------------------


def expect(condition, what):
    if not condition:
        raise SystemExit(f"rank {os.environ['RANK']}: {what}")


def foreign(job, torch, place):
    host = torch.ones(8)
    try:
        import kolo

        job.all_reduce(kolo.Memory(host.data_ptr(), 8, "float32", owner=host, is_device=True))
    except kolo.UsageError as error:
        named = "memory of no device" if place == "cuda" else "needs a device"
        expect(named in str(error), f"another refusal: {error}")
    else:
        expect(False, "host memory was taken for device memory")
    own = torch.ones(8, device=place)
    job.all_reduce(own)
    expect(bool((own == job.size).all()), "a wrong sum of a tensor on the GPU")


def capture(job, torch, place):
    for step in range(20):
        x = torch.full((COUNT,), float(job.rank + step), device=place)
        y = torch.ones(64, device=place)
        if place == "cuda":
            torch.cuda.synchronize()
        if job.rank == 0:
            time.sleep(0.01)  # so that the others wait for this rank while they capture
        ticket = job.all_reduce(x, wait=False, name=f"x {step}")
        if place == "cuda":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):  # in the global mode
                for _ in range(50):
                    y += 1
            graph.replay()
            torch.cuda.synchronize()
            expect(bool((y == 51).all()), "the graph has other values")
        ticket.wait()
        total = sum(rank + step for rank in range(job.size))
        expect(bool((x == total).all()), "a wrong sum beside a capture")


def groups_of(job):
    ranks = list(range(job.size))  # A group's first rank launches first, so the ranks' orders differ.
    return [job.group(ranks if i % 2 == 0 else ranks[::-1], name=f"g{i}") for i in range(GROUPS)]


def begin_all(groups, torch, place, step, reverse):
    """Begins an all-reduce in each group; returns the tensors and tickets in order of the groups."""
    order = range(GROUPS - 1, -1, -1) if reverse else range(GROUPS)
    begun = {}
    for i in order:
        x = torch.full((COUNT << i,), float(i + step), device=place)
        if place == "cuda":
            torch.cuda.synchronize()
        begun[i] = (x, groups[i].all_reduce(x, wait=False))
    return [begun[i] for i in range(GROUPS)]


def opposite(job, torch, place):
    groups = groups_of(job)
    for step in range(50):
        for i, (x, ticket) in enumerate(begin_all(groups, torch, place, step, reverse=job.rank % 2 == 1)):
            ticket.wait()
            expect(bool((x == (i + step) * job.size).all()), f"a wrong sum in group {i}")


def kill(job, torch, place):
    import kolo

    groups = groups_of(job)
    try:
        for step in range(1000):
            begun = begin_all(groups, torch, place, step, reverse=job.rank % 2 == 1)
            if step == 5 and job.rank == job.size - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            for _, ticket in begun:
                ticket.wait()
    except kolo.KoloError as error:
        print(f"rank {job.rank}: {error}", flush=True)
        expect(f"rank {job.size - 1}" in str(error), "the error does not name the lost rank")
        raise SystemExit(0) from None
    expect(False, "nothing was lost")


def streams(torch, dist, place):
    x = torch.zeros(COUNT, device=place)
    start, end = torch.cuda.Stream(), torch.cuda.Stream()
    for asks_future in (False, True):
        torch.cuda.synchronize()
        dist.barrier()
        with torch.cuda.stream(start):
            torch.cuda._sleep(1_000_000_000)  # about half a second
            x.fill_(dist.get_rank() + 1.0)
            work = dist.all_reduce(x, async_op=True)
        with torch.cuda.stream(end):
            if asks_future:
                work.get_future().wait()
            else:
                work.wait()
            copy = x.clone()
            expect(not end.query(), "a wait waits for the device")
        end.synchronize()
        expect(bool((copy == sum(range(1, dist.get_world_size() + 1))).all()), "a stream that waits sees another sum")
    whole = torch.empty(COUNT * dist.get_world_size(), device=place)
    dist.all_gather_into_tensor(whole, torch.full((COUNT,), float(dist.get_rank()), device=place))
    part = torch.empty(COUNT, device=place)
    dist.reduce_scatter_tensor(part, whole)
    expect(bool((part == dist.get_rank() * dist.get_world_size()).all()), "a wrong sum of parts")
    strided = torch.full((64, 3), float(dist.get_rank()), device=place).t()
    dist.broadcast(strided, 1)
    expect(bool((strided == 1).all()), "a wrong copy of a strided tensor")


def losses(torch, place, wrap, batches, average):
    """Returns the losses of training with these batches of each step; `wrap` returns a model and an optimizer."""
    torch.manual_seed(1)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(256, 256), torch.nn.Tanh())]
    model, optimizer = wrap(torch.nn.Sequential(*layers).to(place))
    curve = []
    for step in range(10):
        optimizer.zero_grad()
        torch.manual_seed(100 + step)
        x = torch.cat([torch.randn(8, 256) for _ in range(batches.stop)][batches.start :]).to(place)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        curve.append(average(loss.detach()))
    return torch.stack(curve).cpu()


def backend(torch, place):
    import kolo.horovod as hvd
    import kolo.torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("kolo")
    if place == "cuda":
        streams(torch, dist, place)

    def sgd(model):
        return torch.optim.SGD(model.parameters(), lr=1.0)

    def hooked(model):
        parallel = DistributedDataParallel(model)
        parallel.register_comm_hook(None, kolo.torch.bf16_hook)
        return parallel, sgd(model)

    def sharded(model):
        mesh = dist.init_device_mesh(place, (dist.get_world_size(),))
        fully_shard(model, mesh=mesh)
        return model, sgd(model)

    def average(loss):
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        return loss

    hvd.init()
    unit = torch.zeros(hvd.size(), device=place)
    unit[hvd.rank()] = 1.0
    expect(bool((hvd.allreduce(unit, op=hvd.Adasum) == 1).all()), "Adasum of orthogonal gradients is not their sum")
    hvd.shutdown()
    rank, size = dist.get_rank(), dist.get_world_size()
    alone = losses(torch, place, lambda model: (model, sgd(model)), range(0, size), lambda loss: loss)
    expect(bool(alone[-1] < 0.9 * alone[0]), f"one rank learns nothing: {alone}")
    for name, wrap, tolerance in (
        ("DDP", lambda model: (DistributedDataParallel(model), sgd(model)), 1e-4),
        ("bf16_hook", hooked, 2e-2),
        ("FSDP2", sharded, 1e-4),
        ("DistributedOptimizer", lambda m: (m, kolo.torch.DistributedOptimizer(sgd(m), m.named_parameters())), 1e-4),
    ):
        curve = losses(torch, place, wrap, range(rank, rank + 1), average)
        expect(torch.allclose(curve, alone, rtol=tolerance), f"{name}: losses {curve} instead of {alone}")
    dist.destroy_process_group()


CHECKS = {"foreign": foreign, "capture": capture, "torch": backend, "opposite": opposite, "kill": kill}


def run_rank(name, place):
    sys.path.insert(0, str(ROOT / "python"))
    import kolo
    import torch

    if place == "cuda":
        torch.zeros(1, device="cuda")
    if name == "torch":
        return backend(torch, place)
    job = kolo.open(device=place)
    CHECKS[name](job, torch, place)
    job.close()


# --- all ranks -----------------------------------------------------------------------------------


def run_check(name, ranks, place, seconds):
    """Returns the failure of a check, or an empty string."""
    here = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-B", __file__, "--rank-of", name] + (["--cpu"] if place == "cpu" else [])
    if place == "cuda":
        command.insert(0, str(ROOT / "scripts" / "lib" / "one-gpu"))
    processes = [subprocess.Popen(command, env=os.environ | here | {"RANK": str(rank)}) for rank in range(ranks)]
    victim = processes[-1] if name == "kill" else None
    deadline = time.monotonic() + seconds
    killed_at = None
    while any(each.poll() is None for each in processes) and time.monotonic() < deadline:
        if victim and killed_at is None and victim.poll() is not None:
            killed_at = time.monotonic()
            deadline = min(deadline, killed_at + LOST_WITHIN)
        time.sleep(0.05)
    late = [rank for rank, each in enumerate(processes) if each.poll() is None]
    for each in processes:
        if each.poll() is None:
            each.kill()
            each.wait()
    if late:
        return f"ranks {late} hang"
    failed = [rank for rank, each in enumerate(processes) if each.returncode != 0 and each is not victim]
    if failed:
        return f"ranks {failed} failed: {[processes[rank].returncode for rank in failed]}"
    if victim and victim.returncode != -signal.SIGKILL:
        return "the rank to be killed ended before"
    return ""


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("checks", nargs="*", choices=[*CHECKS, []])
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=math.inf, help="time for all checks together")
    parser.add_argument("--rank-of", choices=CHECKS)
    options = parser.parse_args()
    place = "cpu" if options.cpu else "cuda"
    if options.rank_of:
        return run_rank(options.rank_of, place)
    failures, end = 0, time.monotonic() + options.seconds
    names = options.checks or list(CHECKS)
    for later, name in zip(range(len(names) - 1, -1, -1), names):
        began = time.monotonic()
        seconds = max(LEFT_FOR_OTHERS, min(PATIENCE, end - began - later * LEFT_FOR_OTHERS))
        failure = run_check(name, options.ranks, place, seconds)
        print(f"{name}: {failure or 'passed'} ({time.monotonic() - began:.1f} s)", flush=True)
        failures += bool(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
