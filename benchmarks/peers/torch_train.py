#!/usr/bin/env -S python3 -B
"""Measures a step of kolo-train beside PyTorch's of the same model, in turns: one rank, one thread, float32 and bfloat16.

    benchmarks/peers/torch_train.py --images MNIST --text TEXT [--program kolo-train] [--blocks 3] [--steps 30] [--json FILE]

The models are an MLP of 1.9 M parameters (784-1024-1024-10, batch 512) and GPTs of 4 layers over 128 bytes of text, of
width 128 (batch 8) and 256 (batch 4), all with AdamW. PyTorch trains on random data of the same shapes; its bfloat16 is
autocast. Prints the median of the blocks' median steps in milliseconds, and ratios to PyTorch and to float32.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional

PRECISIONS = ("float32", "bfloat16")
CONTEXT = 128
HEADS = 4
LAYERS = 4


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.inner_norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.query_key_value(self.attention_norm(x)).view(batch, length, 3, HEADS, width // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.contract(functional.gelu(self.expand(self.inner_norm(x)), approximate="tanh"))


class Gpt(nn.Module):
    """The model of trainer/models/gpt.h."""

    def __init__(self, width):
        super().__init__()
        self.tokens = nn.Embedding(256, width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(LAYERS))
        self.final_norm = nn.LayerNorm(width)

    def forward(self, text):
        x = self.tokens(text) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.final_norm(x), self.tokens.weight).flatten(0, 1)


class Mlp(nn.Sequential):
    """The model of trainer/models/mlp.h."""

    def __init__(self):
        super().__init__(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


class TorchRun:
    """A model that trains with PyTorch on one random batch."""

    def __init__(self, model, inputs, targets, precision):
        self._model, self._inputs, self._targets = model, inputs, targets
        self._autocast = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), fused=True)

    def step(self):
        self._optimizer.zero_grad(set_to_none=True)
        with self._autocast:
            outputs = self._model(self._inputs)
        functional.cross_entropy(outputs.float(), self._targets).backward()
        # As kolo-train does: the norm is part of its progress, and of skipped steps.
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()

    def median_ms(self, steps):
        times = []
        for _ in range(steps):
            began = time.perf_counter()
            self.step()
            times.append(1e3 * (time.perf_counter() - began))
        return statistics.median(times[steps // 5 :])


class KoloRun:
    """The same in a process of kolo-train."""

    def __init__(self, program, arguments, precision):
        self._command = [program, *map(str, arguments), "--precision", precision, "--progress", "lines"]

    def median_ms(self, steps):
        with tempfile.TemporaryDirectory() as folder:
            summary = pathlib.Path(folder) / "summary.json"
            command = [*self._command, "--steps", steps, "--json", summary]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
            return json.loads(summary.read_text())["step_ms"]


def models(options):
    """Yields (name, arguments of kolo-train, maker of PyTorch's model, its inputs and targets)."""
    torch.manual_seed(1)
    common = ("--clip-norm", 1, "--eval-every", 10**6, "--loader-threads", 0)
    mlp = ("--model", "mlp", "--hidden", 1024, "--batch", 512, "--data", options.images, *common)
    yield "mlp 1.9 M", mlp, Mlp, torch.randn(512, 784), torch.randint(10, (512,))
    for width, batch in ((128, 8), (256, 4)):
        gpt = ("--model", "gpt", "--layers", LAYERS, "--width", width, "--heads", HEADS, "--context", CONTEXT)
        gpt = (*gpt, "--batch", batch, "--data", options.text, "--sample", 0, *common)
        text = torch.randint(256, (batch, CONTEXT + 1))
        yield f"gpt d {width}", gpt, lambda width=width: Gpt(width), text[:, :-1].contiguous(), text[:, 1:].flatten()


def measure(name, arguments, make, inputs, targets, options):
    """One row."""
    runs = {}
    for precision in PRECISIONS:
        runs["kolo", precision] = KoloRun(options.program, arguments, precision)
        runs["torch", precision] = TorchRun(make(), inputs, targets, precision)
    blocks = {key: [] for key in runs}
    for _ in range(options.blocks):
        for key, run in runs.items():
            blocks[key].append(run.median_ms(options.steps))
    row = {f"{system}_{precision}_ms": statistics.median(times) for (system, precision), times in blocks.items()}
    for precision in PRECISIONS:
        row[f"{precision}_of_torch"] = row[f"kolo_{precision}_ms"] / row[f"torch_{precision}_ms"]
    for system in ("kolo", "torch"):
        row[f"{system}_speedup"] = row[f"{system}_float32_ms"] / row[f"{system}_bfloat16_ms"]
    return {"model": name, **row}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, metavar="MNIST", help="folder of MNIST's files")
    parser.add_argument("--text", required=True, metavar="TEXT", help="file or folder of text")
    parser.add_argument("--program", default="kolo-train")
    parser.add_argument("--steps", type=int, default=30, help="steps of a block")
    parser.add_argument("--blocks", type=int, default=3, help="blocks of each system, in turns")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, load {os.getloadavg()[0]:.1f}", flush=True)
    rows = []
    for model in models(options):
        rows.append(measure(*model, options))
        print("  ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if options.json:
        found = {"torch": torch.__version__, "steps": options.steps, "blocks": options.blocks, "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
