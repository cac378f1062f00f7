"""Curves of training runs, from files of `kolo-train --json`."""

import gnuplot
from gnuplot import Axis, Curve, Panel, PlotError

METRICS = {
    "train_loss": "training loss (nats)",
    "eval_loss": "held-out loss (nats)",
    "eval_accuracy": "held-out accuracy (%)",
    "eval_rmse": "held-out root mean square error",
}
OVER = {"steps": ("step", "step"), "seconds": ("seconds", "time (s)")}


def read_json(argument):
    """Reads FILE or LABEL=FILE; returns (label or None, value)."""
    label, equals, name = argument.rpartition("=")
    return (label if equals else None), gnuplot.read_json(name)


def describe_run(run):
    """The name of a training run for which the caller gave none."""
    parts = [f"{run['ranks']} rank" + ("s" if run["ranks"] != 1 else "")]
    if (run.get("nodes") or 1) > 1:
        parts.append(f"{run['nodes']} nodes")
    parts.append(run["wire"])
    if run.get("compression") not in (None, "none"):
        parts.append(run["compression"])
    return ", ".join(parts)


def panels(arguments):
    """One panel, with a curve per run: a metric over steps or seconds."""
    key, axis = OVER[arguments.over]
    scale = 100 if arguments.metric == "eval_accuracy" else 1
    curves = []
    for argument in arguments.inputs:
        label, run = read_json(argument)
        try:
            pairs = [
                (point[key], scale * point[arguments.metric])
                for point in run["curve"]
                if point.get(arguments.metric) is not None
            ]
            label = label or describe_run(run)
        except (KeyError, TypeError) as error:
            raise PlotError(f"{argument}: not the JSON of a training run ({error!r})") from error
        if not pairs:
            raise PlotError(f"{argument}: no {arguments.metric} in its curve")
        curves.append(Curve(label, pairs))
    values = [value for curve in curves for _, value in curve.pairs]
    margin = (max(values) - min(values)) * 0.05 or 1
    y = Axis(METRICS[arguments.metric], low=min(values) - margin, high=max(values) + margin)
    # Runs end at different positions, so names at their ends would cover other curves.
    corner = "bottom right" if arguments.metric == "eval_accuracy" else "top right"
    return [Panel(curves, Axis(axis, low=0), y, legend=corner)]
