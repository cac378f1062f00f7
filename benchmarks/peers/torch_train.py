#!/usr/bin/env -S python3 -B
"""Compares training steps of kolo-train and PyTorch on the same models, in float32 and bfloat16.

    benchmarks/peers/torch_train.py --images MNIST --photographs CIFAR --text TEXT --sentences SST2 [--models NAME,NAME]
                                    [--shards] [--hosts RATE] [--program kolo-train] [--blocks 3] [--steps 30]
                                    [--json FILE]

The runs alternate, with one thread per rank. The models are an MLP of 1.9 M parameters
(784-1024-1024-10, batch 512), LeNet on digits, convnet and ResNet-20 on photographs (batch 64), an
LSTM over the words of sentences (width 64, batch 32), and GPTs of 4 layers over 128 bytes of text,
of width 128 (batch 8) and 256 (batch 4), all with AdamW. PyTorch trains on random data of the same
shapes, with convolutions in the faster of its two memory layouts and autocast for bfloat16. Its LSTM
reads one batch with lengths distributed as in the sentences, padded to the longest. With --shards,
two ranks also train with --shard optimizer and gradients, in bfloat16 on a bfloat16 wire, which
rounds gradients as training without shards does. With --hosts, two hosts of scripts/cluster with
links of that rate train the wider GPT, with bfloat16 on the wire; that needs root.

Prints the median of the blocks' median steps in milliseconds, ratios to PyTorch and to float32, and
the speed-up in samples per second of two ranks, each on a separate core; of shards also the bytes of
optimizer state and gradients that rank 0 keeps. A table of all rows follows. The figures show the
speed of the machine only if nothing else runs on it, or if `chrt -r 1` in front of the command, as
root, reserves the cores. The load before each model is printed.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch_models
from torch import nn
from torch.nn import functional

PRECISIONS = ("float32", "bfloat16")
CLUSTER = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "cluster"
SHARDS = ("optimizer", "gradients")
HOSTS_MODEL = "gpt-256"
TEXT_BYTES = 2**18  # read of the text: enough for all steps, and little is held out


class TorchRun:
    """Trains a model in PyTorch on one random batch."""

    def __init__(self, model, inputs, targets, precision):
        self._model, self._inputs, self._targets = model, inputs, targets
        self._autocast = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), fused=True)

    def step(self):
        self._optimizer.zero_grad(set_to_none=True)
        with self._autocast:
            outputs = self._model(self._inputs)
        functional.cross_entropy(outputs.float(), self._targets).backward()
        # kolo-train also clips by the norm.
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()

    def median_ms(self, steps):
        times = []
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})  # binds this process as a rank is bound
        for _ in range(steps):
            began = time.perf_counter()
            self.step()
            times.append(1e3 * (time.perf_counter() - began))
        os.sched_setaffinity(0, cores)
        return statistics.median(times[steps // 5 :])


def faster_layout(make, inputs, targets, precision):
    """Returns the PyTorch run in the memory layout that is faster on this machine."""
    runs = [TorchRun(make(), inputs, targets, precision)]
    if inputs.dim() == 4:
        last = torch.channels_last
        runs.append(TorchRun(make().to(memory_format=last), inputs.to(memory_format=last), targets, precision))
    return min(runs, key=lambda run: run.median_ms(10)) if len(runs) > 1 else runs[0]


class KoloRun:
    """Trains the same model in kolo-train."""

    def __init__(self, launcher, program, arguments, precision):
        self._command = [*launcher, program, *arguments, "--precision", precision, "--progress", "lines"]
        self.bytes_kept = 0  # optimizer state and gradients that rank 0 kept in the last run

    def median_ms(self, steps):
        with tempfile.TemporaryDirectory() as folder:
            summary = pathlib.Path(folder) / "summary.json"
            command = [*self._command, "--steps", steps, "--json", summary]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
            found = json.loads(summary.read_text())
            self.bytes_kept = found["optimizer_bytes"] + found["gradient_bytes"]
            return found["step_ms"]


def sentences(folder, batch):
    """Returns lengths of a batch of texts, distributed as in the folder, and the size of the
    vocabulary."""
    words = re.compile(r"[\w']+|[^\w\s]")
    (file,) = pathlib.Path(folder).glob("*train*")
    texts = [words.findall(line.lower())[1:] for line in file.read_text(errors="replace").splitlines()]
    counts = collections.Counter(word for text in texts for word in text)
    lengths = sorted(map(len, texts))
    spread = [lengths[len(lengths) * (2 * i + 1) // (2 * batch)] for i in range(batch)]
    return spread, 2 + sum(count > 1 for count in counts.values())


def ranks_here(count):
    """Returns the command that starts ranks on this machine, each bound to a core."""
    launcher = ["mpirun", "-np", count, "--bind-to", "core"]
    return [*launcher, "--allow-run-as-root"] if os.geteuid() == 0 else launcher


def two_hosts():
    """Returns the command that starts a rank on each of two emulated hosts, on separate cores of
    this machine."""
    return [CLUSTER, "run", "-np", 2, "--", "sh", "-c", 'exec taskset -c "$OMPI_COMM_WORLD_RANK" "$0" "$@"']


def models(options):
    """Returns for each model its kolo-train arguments, PyTorch maker, inputs and targets."""
    torch.manual_seed(1)
    common = ("--optimizer", "adamw", "--clip-norm", 1, "--eval-every", 10**6, "--loader-threads", 0)

    def images(model, batch, shape, data, make, *arguments):
        arguments = ("--model", model, "--batch", batch, "--data", data, *arguments, *common)
        return arguments, make, torch.randn(batch, *shape), torch.randint(10, (batch,))

    def gpt(width, batch):
        shape = ("--layers", torch_models.LAYERS, "--heads", torch_models.HEADS, "--context", torch_models.CONTEXT)
        arguments = ("--model", "gpt", "--width", width, *shape, "--batch", batch, "--data", options.text, "--sample", 0)
        text = torch.randint(256, (batch, torch_models.CONTEXT + 1))
        inputs, targets = text[:, :-1].contiguous(), text[:, 1:].flatten()
        return (*arguments, *common), lambda: torch_models.Gpt(width), inputs, targets

    def lstm(batch):
        lengths, words = sentences(options.sentences, batch)
        arguments = ("--model", "lstm", "--width", 64, "--batch", batch, "--data", options.sentences, *common)
        inputs, targets = torch.randint(1, words, (max(lengths), batch)), torch.randint(2, (batch,))
        return arguments, lambda: torch_models.LstmClassifier(words, 2, lengths), inputs, targets

    digits, photographs = (1, 28, 28), (3, 32, 32)
    return {
        "mlp": images("mlp", 512, (784,), options.images, torch_models.Mlp, "--hidden", 1024),
        "lenet": images("lenet", 64, digits, options.images, lambda: torch_models.Convolutions(28, (1, 16, 32), 5, 0, 128)),
        "convnet": images(
            "convnet", 64, photographs, options.photographs, lambda: torch_models.Convolutions(32, (3, 24, 48, 64), 3, 1, 128)
        ),
        "resnet20": images("resnet20", 64, photographs, options.photographs, torch_models.Resnet20),
        "lstm": lstm(32),
        "gpt-128": gpt(128, 8),
        "gpt-256": gpt(256, 4),
    }


def measure(name, arguments, make, inputs, targets, options):
    """Measures one model; prints and returns its row."""
    runs = {}
    load = os.getloadavg()[0]
    for precision in PRECISIONS:
        runs["kolo", precision] = KoloRun(ranks_here(1), options.program, arguments, precision)
        runs["kolo_2_ranks", precision] = KoloRun(ranks_here(2), options.program, arguments, precision)
        for shard in SHARDS if options.shards else ():
            sharded = (*arguments, "--shard", shard, "--wire", precision)
            runs[f"kolo_{shard}", precision] = KoloRun(ranks_here(2), options.program, sharded, precision)
        if options.hosts and name == HOSTS_MODEL:
            wire = (*arguments, "--wire", "bfloat16")
            runs["kolo_2_hosts", precision] = KoloRun(two_hosts(), options.program, wire, precision)
        runs["torch", precision] = faster_layout(make, inputs, targets, precision)
    blocks = {key: [] for key in runs}
    for _ in range(options.blocks):
        for key, run in runs.items():
            blocks[key].append(run.median_ms(options.steps))
    row = {f"{system}_{precision}_ms": statistics.median(times) for (system, precision), times in blocks.items()}
    for precision in PRECISIONS:
        row[f"{precision}_of_torch"] = row[f"kolo_{precision}_ms"] / row[f"torch_{precision}_ms"]
        for where, what in (("kolo_2_ranks", "scaling"), ("kolo_2_hosts", "hosts_scaling")):
            if (where, precision) in runs:
                row[f"{precision}_{what}"] = 2 * row[f"kolo_{precision}_ms"] / row[f"{where}_{precision}_ms"]
        for shard in SHARDS if options.shards else ():
            row[f"{precision}_{shard}_of_none"] = row[f"kolo_{shard}_{precision}_ms"] / row[f"kolo_2_ranks_{precision}_ms"]
        if options.shards:
            for way, system in zip(("none", *SHARDS), ("kolo_2_ranks", *(f"kolo_{shard}" for shard in SHARDS))):
                row[f"{precision}_{way}_bytes"] = runs[system, precision].bytes_kept
    for system in ("kolo", "torch"):
        row[f"{system}_speedup"] = row[f"{system}_float32_ms"] / row[f"{system}_bfloat16_ms"]
    row = {"model": name, **row, "load_before": load}
    print("  ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def table(rows):
    """Returns the rows as a table in Markdown."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = [keys, ["---"] + ["---:"] * (len(keys) - 1)]
    for row in rows:
        lines.append([f"{row[key]:.3g}" if isinstance(row.get(key), float) else str(row.get(key, "")) for key in keys])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, metavar="MNIST", help="folder of MNIST's files")
    parser.add_argument("--photographs", required=True, metavar="CIFAR", help="folder of CIFAR's files")
    parser.add_argument("--text", required=True, metavar="TEXT", help="file or folder of text")
    parser.add_argument("--sentences", required=True, metavar="SST2", help="folder of SST-2's files")
    parser.add_argument("--models", metavar="NAME,NAME", help="these only")
    parser.add_argument("--program", default="kolo-train")
    parser.add_argument("--shards", action="store_true", help="also two ranks that share out memory: --shard optimizer, gradients")
    parser.add_argument("--hosts", metavar="RATE", help="also two simulated hosts, with links as tc writes them, such as 1gbit")
    parser.add_argument("--steps", type=int, default=30, help="steps of a block")
    parser.add_argument("--blocks", type=int, default=3, help="blocks of each system, in turns")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    if not shutil.which("mpirun"):
        parser.error("mpirun is missing; scripts/setup installs it")
    with tempfile.TemporaryDirectory() as folder:
        options.text = head_of(options.text, pathlib.Path(folder) / "text")
        compare(parser, options)


def head_of(source, target):
    """Copies the first TEXT_BYTES bytes of a text to `target`; returns `target`."""
    with open(source, "rb") as text:
        target.write_bytes(text.read(TEXT_BYTES))
    return target


def compare(parser, options):
    known = models(options)
    chosen = options.models.split(",") if options.models else list(known)
    if unknown := sorted(set(chosen) - set(known)):
        parser.error(f"--models: {', '.join(unknown)} is not among {', '.join(known)}")
    print(f"torch {torch.__version__}, load {os.getloadavg()[0]:.1f}", flush=True)
    if options.hosts:
        subprocess.run([CLUSTER, "up", "2", options.hosts], check=True)
    try:
        rows = [measure(name, *known[name], options) for name in chosen]
    finally:
        if options.hosts:
            subprocess.run([CLUSTER, "down"], check=True)
    print(f"\n{table(rows)}")
    if options.json:
        found = {"torch": torch.__version__, "steps": options.steps, "blocks": options.blocks, "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
