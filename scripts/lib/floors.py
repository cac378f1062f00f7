"""Results of models on public data, beside floors that neither chance nor a trivial model reaches."""

import statistics
from typing import NamedTuple

import train_runs


class Task(NamedTuple):
    """One model on one data set."""

    folder: str
    arguments: str
    metric: str
    """Key of the metric in the summary."""
    floor: float
    is_error: bool = False
    """Whether a lower metric is better."""


TASKS = {
    "mlp, optdigits, 15 epochs": Task("optdigits", "--model mlp --epochs 15", "eval_accuracy", 0.94),
    "lenet, MNIST, 1 epoch": Task("mnist", "--model lenet --epochs 1", "eval_accuracy", 0.975),
    "convnet, part of CIFAR-10, 3 epochs": Task("cifar10", "--model convnet --epochs 3", "eval_accuracy", 0.54),
    "embedding-bag, TREC, 4 epochs": Task("trec", "--model embedding-bag --epochs 4", "eval_accuracy", 0.80),
    "lstm, TREC, 4 epochs": Task("trec", "--model lstm --epochs 4", "eval_accuracy", 0.80),
    "lstm, SST-2, 3 epochs": Task("sst2", "--model lstm --epochs 3", "eval_accuracy", 0.77),
    "matrix-factorization, MovieLens, 10 epochs": Task(
        "movielens_small", "--model matrix-factorization --epochs 10", "eval_rmse", 0.90, is_error=True
    ),
    "gpt, tinyshakespeare, 1000 steps": Task(
        "tinyshakespeare", "--model gpt --steps 1000 --sample 0", "eval_loss", 2.49, is_error=True
    ),
}


def reaches(task, values):
    """Whether every run is better than the floor."""
    return all((value < task.floor) == task.is_error for value in values)


def shown(task, value):
    return f"{100 * value:.1f} %" if task.metric == "eval_accuracy" else f"{value:.3f}"


def cell(task, values):
    """Mean and deviation of the runs for one number of ranks."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    mark = "" if reaches(task, values) else " (below)" if not task.is_error else " (above)"
    return f"{shown(task, statistics.fmean(values))} ± {shown(task, deviation)}{mark}"


def table(rows, ranks):
    """Markdown: a line for each task, a column for each number of ranks. `rows` maps (task, ranks) to values by
    seed."""
    heads = [f"{count} rank{'s' if count > 1 else ''}" for count in ranks]
    lines = ["| | floor | " + " | ".join(heads) + " |", "|---|---:|" + "---:|" * len(ranks)]
    for name in dict.fromkeys(name for name, _ in rows):
        task = TASKS[name]
        cells = [cell(task, rows[name, count]) for count in ranks]
        lines.append(f"| {name} | {shown(task, task.floor)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def measure(names, ranks, settings, file_name):
    """Trains each task on each number of ranks with each seed. Returns rows for `table`, and a record."""
    rows, record = {}, []
    for name in names:
        task = TASKS[name]
        for count in ranks:
            for seed in range(1, settings.seeds + 1):
                extra = ["--seed", str(seed), *(["--steps", str(settings.steps)] if settings.steps else [])]
                arguments = [*task.arguments.split(), "--data", str(settings.data / task.folder)]
                launcher = [str(train_runs.ROOT / "scripts" / "launch"), "-n", str(count), "--"]
                result = train_runs.run(settings.results / "floors", file_name(name, count, seed), launcher,
                                        train_runs.with_options(arguments, extra), program=settings.program)
                rows.setdefault((name, count), []).append(result[task.metric])
                record.append({"task": name, "ranks": count, "seed": seed, **{
                    key: result[key] for key in ("steps", "epochs", "eval_loss", task.metric, "samples_per_s", "wall_s",
                                                 "weights_hash", "curve")}})
    return rows, record
