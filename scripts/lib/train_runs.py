"""Training runs, each of which is saved in a file and not repeated if that exists."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = ROOT / "build" / "bin" / "kolo-train"
DATA = ROOT / "data"  # where scripts/fetch-data puts data sets

# By task: the options for a model that learns its data well without compression.
TASKS = {
    "mnist": ["--model", "lenet", "--optimizer", "sgd", "--lr", "0.02", "--batch", "16", "--epochs", "3"],
    "cifar10": ["--model", "convnet", "--optimizer", "sgd", "--lr", "0.02", "--batch", "16", "--epochs", "10",
                "--weight-decay", "0.0005"],
    "gpt": ["--model", "gpt", "--lr", "0.006", "--steps", "1000", "--batch", "8", "--sample", "0"],
}
# Warm-up of top-k by task; W stands for a share of all steps. With AdamW the density must not fall gradually, and dense
# steps must last longer than the rise of the learning rate.
WARM_UP = {"mnist": "warmup=W,ramp=W", "cifar10": "warmup=W,ramp=W", "gpt": "warmup=W"}
WARM_UP_SHARE = {"mnist": 0.1, "cifar10": 0.1, "gpt": 0.15}
# Threshold of 2-bit codes by task; with AdamW, of directions.
THRESHOLD = {"mnist": "0.1", "cifar10": "0.1", "gpt": "2"}
# Further options of top-k, by task.
RULES = {"gpt": ",rule=lossless"}
# Tensors that are not sent sparsely, by task: the embeddings of GPT are 5 % of it, and rows of rare bytes would wait.
DENSE = {"gpt": "embedding*=fp16,"}
FOLDERS = {"mnist": "mnist", "cifar10": "cifar10", "gpt": "tinyshakespeare"}


class RunError(Exception):
    """A run failed; the text says which and how it ended."""


def options_of(task, data):
    """The arguments of kolo-train for a task; of repeated options the last counts."""
    return [*TASKS[task], "--data", str(data / FOLDERS[task])]


def compression_of(task, spec):
    """The arguments of kolo-train for a spec of all tensors that may be sparse."""
    if not spec.startswith(("topk", "2bit", "sign")):
        return ["--compression", spec]
    dense = DENSE.get(task, "")
    if spec.startswith("topk"):
        spec = spec.replace(")", RULES.get(task, "") + ")")
    return ["--compression", f"{dense}*={spec}" if dense else spec]


def warmed_up(task, spec, steps):
    """`spec`, in which the task's warm-up and threshold replace WARM-UP and THRESHOLD, and its share of all steps W."""
    spec = spec.replace("WARM-UP", WARM_UP[task]).replace("THRESHOLD", THRESHOLD[task])
    return spec.replace("=W", f"={max(1, round(steps * WARM_UP_SHARE[task]))}")


def with_options(arguments, extra):
    """`arguments`, in which the options of `extra` (NAME VALUE pairs) replace those of the same name."""
    values = dict(zip(arguments[::2], arguments[1::2]))
    if "--steps" in extra:
        values.pop("--epochs", None)
    values.update(zip(extra[::2], extra[1::2]))
    return [text for pair in values.items() for text in pair]


def run(folder, name, launcher, arguments, program=TRAIN, environment=None):
    """The JSON of `kolo-train ARGUMENTS`: from FOLDER/NAME.json if a run with equal arguments, launcher and environment
    wrote it, else from a new run, which is saved there."""
    file = folder / f"{name}.json"
    command = [str(argument) for argument in arguments]
    job = {"command": command, "launcher": launcher, "environment": environment or {}}
    if file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if {key: kept.get(key) for key in job} == job:
            return kept["run"]
    folder.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    print(f"{name}: {' '.join(command)}", file=sys.stderr, flush=True)
    done = subprocess.run([*launcher, str(program), *command, "--progress", "lines", "--json", str(part)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise RunError(f"{name} ended with status {done.returncode}:\n{done.stdout[-2000:]}")
    result = json.loads(part.read_text(encoding="utf-8"))
    part.unlink()
    file.write_text(json.dumps({**job, "run": result}) + "\n", encoding="utf-8")
    return result
