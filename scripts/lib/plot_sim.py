"""Predicted efficiency over ranks, from rows of `kolo-sim step --json`."""

import json
import pathlib

from gnuplot import Axis, Curve, Panel, PlotError

MODELS = {"resnet50": "ResNet-50", "gpt1b": "GPT"}


def read_rows(files):
    """The rows of all files."""
    rows = []
    for name in files:
        try:
            rows += json.loads(pathlib.Path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise PlotError(f"{name}: {error}") from error
    return rows


def best(rows):
    """By model, rate and ranks, the row of the algorithm that is fastest there."""
    found = {}
    for row in rows:
        key = (row["model"], round(row["network_gbit"], 3), row["ranks"])
        if key not in found or row["step_ms"] < found[key]["step_ms"]:
            found[key] = row
    return found


def size_text(parameters):
    return f"{parameters / 1e9:.2f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"


def latencies(rows):
    """Those of the network, in microseconds."""
    costs = [dict(item.split("=") for item in row["link_costs"].split(",")) for row in rows]
    return sorted({float(cost["network_latency_us"]) for cost in costs})


def model_panel(model, found):
    """Efficiency of one model over ranks, one curve per rate."""
    first = next(row for key, row in found.items() if key[0] == model)
    rates = sorted({key[1] for key in found if key[0] == model}, reverse=True)
    curves = []
    for style, rate in enumerate(rates):
        pairs = [(key[2], 100 * row["efficiency"]) for key, row in found.items() if key[:2] == (model, rate)]
        curves.append(Curve(f"{rate:g} Gbit/s", pairs, style=style))
    most = max(ranks for _, _, ranks in found)
    ticks = [(1 << power, str(1 << power)) for power in range(0, 21, 2) if 1 << power <= most]
    title = f"{MODELS.get(model, model)}, {size_text(first['parameters'])} parameters, {first['compute_ms']:.0f} ms of compute"
    return Panel(curves, Axis("ranks", log=2, ticks=ticks, low=1, high=most), Axis("efficiency (%)", low=0, high=100), title)


def panels(arguments):
    """A panel per model; the title and the footer say what was simulated."""
    rows = read_rows(arguments.inputs)
    try:
        found = best(rows)
        models = list(dict.fromkeys(key[0] for key in found))
        if not models:
            raise PlotError("no rows")
        drawn = [model_panel(model, found) for model in models]
        per_node = max(row["ranks"] // row["nodes"] for row in rows)
        algorithms = sorted({row["algorithm"] for row in rows})
        wires = sorted({row["wire"] for row in rows})
        latency = ", ".join(f"{us:g}" for us in latencies(rows))
    except (KeyError, TypeError, ValueError) as error:
        raise PlotError(f"not the JSON of kolo-sim step ({error!r})") from error
    title = arguments.title or f"Predicted scaling efficiency, {per_node} ranks on a node's link, {', '.join(wires)} on the wire"
    footer = f"kolo-sim step, network latency {latency} µs; at each point the fastest of {', '.join(algorithms)}"
    return drawn, title, [footer]
