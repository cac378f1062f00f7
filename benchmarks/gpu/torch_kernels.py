#!/usr/bin/env -S python3 -B
"""Measures PyTorch's operations for which Kolo has kernels, on the same data sizes.

    benchmarks/gpu/torch_kernels.py [--json FILE] [--device cuda] [--mib 256]

Names and rows are those of `gpu_kernel_bench` and `gpu_trainer_bench`. `bytes` is the minimum that
the operation must read and write, so an implementation in several passes has a low share. Times are
medians, measured by events. The upper bound, measured first, is a copy inside the device, bytes
read plus written.
"""

import argparse
import json
import statistics
import time

import torch

WARM_UP = 5
REPEATS = 25


class Bench:
    """Times operations on one device and writes their rows to `file`. `bytes` is the size of a buffer."""

    def __init__(self, device, size, file):
        self.device = torch.device(device)
        self.bytes = size
        self.file = file
        self.rows = []
        self.copy_speed = None
        self.generator = torch.Generator(self.device).manual_seed(1)

    def normal(self, count, dtype=torch.float32):
        """Returns random values: zeros could hide work or run faster."""
        return torch.randn(count, device=self.device, generator=self.generator).to(dtype)

    def microseconds(self, operation):
        """Returns the median time of many runs, measured by events if the device has them."""
        for _ in range(WARM_UP):
            operation()
        if self.device.type != "cuda":
            times = []
            for _ in range(REPEATS):
                start = time.perf_counter()
                operation()
                times.append((time.perf_counter() - start) * 1e6)
            return statistics.median(times)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS + 1)]
        torch.cuda.synchronize()
        events[0].record()
        for event in events[1:]:
            operation()
            event.record()
        torch.cuda.synchronize()
        return statistics.median(a.elapsed_time(b) * 1e3 for a, b in zip(events, events[1:]))

    def measure_copy(self):
        """Measures the bytes per microsecond of a copy, read plus written."""
        source = self.normal(self.bytes // 4)
        target = torch.empty_like(source)
        self.copy_speed = 2 * self.bytes / self.microseconds(lambda: target.copy_(source))

    def add(self, kernel, traffic, operation):
        us = self.microseconds(operation)
        floor_us = traffic / self.copy_speed
        row = {"system": "torch", "kernel": kernel, "bytes": int(traffic), "us": us, "floor_us": floor_us}
        self.rows.append(row | {"share_of_copy": floor_us / us})
        print(f"{kernel:48} {us:>12.1f} us {floor_us / us:>7.3f} of the copy", flush=True)
        if self.file:
            report = {"copy_gb_per_s": self.copy_speed / 1e3, "buffer_mib": self.bytes >> 20, "rows": self.rows}
            with open(self.file, "w", encoding="utf-8") as out:
                json.dump(report, out, indent=1)


def gpt_counts():
    """Returns the sizes of a GPT's 124 million parameters: embeddings, 12 blocks, norm."""
    width = 768
    block = [1, 1, 3 * width, 3, width, 1, 1, 1, 4 * width, 4, 4 * width, 1]
    return [50257 * width, 1024 * width] + [rows * width for rows in 12 * block] + [width, width]


def tensor_sets(size):
    """Returns sets of float32 tensors by name; sizes are in elements."""
    sets = {"300 x 4 KiB": [1 << 10] * 300, "300 x 64 KiB": [1 << 14] * 300}
    for name, each in (("4 KiB each", 1 << 12), ("16 KiB each", 1 << 14), ("64 KiB each", 1 << 16), ("1 MiB each", 1 << 20)):
        sets[name] = [each // 4] * max(1, size // each)
    return sets | {"GPT 124 M": gpt_counts()}


def copies(bench, name, counts):
    """Measures copies between tensors and a bucket of the same type."""
    tensors = [bench.normal(count) for count in counts]
    views = list(bench.normal(sum(counts)).split(counts))
    traffic = 8 * sum(counts)
    bench.add(f"pack to float32, {name}", traffic, lambda: torch._foreach_copy_(views, tensors))
    bench.add(f"unpack from float32, {name}", traffic, lambda: torch._foreach_copy_(tensors, views))


def casts(bench, name, counts, dtype):
    """Measures scaling and rounding into a bucket, and back with a check for infinities."""
    tensors = [bench.normal(count) for count in counts]
    views = list(bench.normal(sum(counts), dtype).split(counts))
    traffic = 6 * sum(counts)
    bucket_dtype = str(dtype).removeprefix("torch.")
    found_inf = torch.zeros(1, device=bench.device)
    inverse_scale = torch.full((1,), 4.0, device=bench.device)

    def unpack():
        torch._foreach_copy_(tensors, views)
        torch._amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, inverse_scale)

    bench.add(f"pack to {bucket_dtype}, {name}", traffic,
              lambda: torch._foreach_copy_(views, torch._foreach_mul(tensors, 0.25)))  # fmt: skip
    bench.add(f"unpack from {bucket_dtype} + scale + flag, {name}", traffic, unpack)


def addition(bench, dtype):
    """Measures the addition of a received shard to this rank's shard."""
    count = bench.bytes // dtype.itemsize
    own, received = bench.normal(count, dtype), bench.normal(count, dtype)
    name = str(dtype).removeprefix("torch.")
    bench.add(f"add received shard, {name}", 3 * bench.bytes, lambda: own.add_(received))


def selection(bench):
    """Measures the selection of the largest sums of gradient and residual, with their indices."""
    count = bench.bytes // 4
    k = max(1, count // 100)
    gradient, residual = bench.normal(count), bench.normal(count)

    def operation():
        residual.add_(gradient)
        places = torch.topk(residual.abs(), k, sorted=False).indices
        values = residual[places]
        residual[places] = 0
        return values

    bench.add(f"top-k, 1 % of {count}", 16 * count + 8 * k, operation)


def optimizer(bench):
    """Measures fused AdamW with float32 weights, and the bfloat16 copy for the next step."""
    count = bench.bytes // 4
    weights = torch.nn.Parameter(bench.normal(count))
    weights.grad = bench.normal(count)
    copy = weights.detach().to(torch.bfloat16)
    adamw = torch.optim.AdamW([weights], lr=1e-3, fused=True)

    def operation():
        adamw.step()
        copy.copy_(weights.detach())

    bench.add("AdamW with bfloat16 copy", 30 * count, operation)


def layer_norm(bench, width):
    """Measures forward and backward passes of bfloat16 rows. Gains and biases do not count."""
    rows = max(1, bench.bytes // 2 // width)
    shape = (rows, width)
    x, gradient = (bench.normal(rows * width, torch.bfloat16).view(shape) for _ in range(2))
    x.requires_grad_()
    gain = torch.ones(width, device=bench.device, dtype=torch.bfloat16, requires_grad=True)
    bias = torch.zeros(width, device=bench.device, dtype=torch.bfloat16, requires_grad=True)
    name = f"{width} columns of bfloat16"
    with torch.no_grad():
        bench.add(f"layer norm forward, {name}", 4 * rows * width,
                  lambda: torch.nn.functional.layer_norm(x, (width,), gain, bias))  # fmt: skip
    y = torch.nn.functional.layer_norm(x, (width,), gain, bias)
    bench.add(f"layer norm backward, {name}", 6 * rows * width,
              lambda: torch.autograd.grad(y, (x, gain, bias), gradient, retain_graph=True))  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mib", type=int, default=256, help="size of a buffer in MiB")
    arguments = parser.parse_args()

    bench = Bench(arguments.device, arguments.mib << 20, arguments.json)
    bench.measure_copy()
    print(f"# copy inside the device: {bench.copy_speed / 1e3:.0f} GB/s, read and written", flush=True)
    sets = tensor_sets(bench.bytes)
    for name, counts in sets.items():
        copies(bench, name, counts)
    for dtype in (torch.bfloat16, torch.float16):
        for name in ("1 MiB each", "GPT 124 M"):
            casts(bench, name, sets[name], dtype)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        addition(bench, dtype)
    selection(bench)
    optimizer(bench)
    for width in (768, 4096):
        layer_norm(bench, width)


if __name__ == "__main__":
    main()
