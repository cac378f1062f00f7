#!/usr/bin/env -S python3 -B
"""Measures the step time of kolo-train's GPT in PyTorch, in bfloat16 on float32 weights.

    benchmarks/gpu/torch_gpt.py [--layers 17] [--width 768] [--heads 12] [--context 1024] [--batch 8]
                            [--steps 60] [--json FILE] [--device cuda]

Measures eager mode and torch.compile, each after a warm-up, and reports the median over steps. The
file is written after each of the two, so that a slow compilation delays only its own row.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))

import torch
import torch_models
from torch.nn import functional

WARM_UP = 5


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(arguments, mode):
    """Trains on random bytes; returns the row of this mode."""
    torch.manual_seed(1)
    device = torch.device(arguments.device)
    model = torch_models.Gpt(arguments.width, arguments.layers, arguments.heads, arguments.context).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.99), fused=True)
    text = torch.randint(0, 256, (arguments.batch, arguments.context + 1), device=device)
    inputs, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    forward = torch.compile(model) if mode == "compiled" else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16):
            logits = forward(inputs)
        loss = functional.cross_entropy(logits.float(), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss

    began = time.perf_counter()
    for _ in range(WARM_UP):
        step()
    synchronize(device)
    warm_up_s = time.perf_counter() - began
    times = []
    for _ in range(arguments.steps):
        start = time.perf_counter()
        loss = step()
        synchronize(device)
        times.append((time.perf_counter() - start) * 1e3)
    step_ms = statistics.median(times)
    return {
        "system": "torch " + mode,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "precision": "bfloat16",
        "batch": arguments.batch,
        "context": arguments.context,
        "steps": arguments.steps,
        "step_ms": step_ms,
        "tokens_per_s": arguments.batch * arguments.context / step_ms * 1e3,
        "train_loss": loss.item(),
        "warm_up_s": warm_up_s,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 17), ("width", 768), ("heads", 12), ("context", 1024), ("batch", 8), ("steps", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json")
    arguments = parser.parse_args()

    torch.set_float32_matmul_precision("high")
    rows = []
    for mode in ("eager", "compiled"):
        rows.append(measure(arguments, mode))
        print(f"torch {mode}: {rows[-1]['step_ms']:.2f} ms per step, {rows[-1]['tokens_per_s']:.0f} tokens/s", flush=True)
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as out:
                json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
