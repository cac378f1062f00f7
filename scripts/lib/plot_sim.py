"""Plots rows of `kolo-sim step --json`: efficiency over ranks, and the fastest compression over rates and ranks."""

import re

from gnuplot import Axis, Curve, Panel, PlotError, read_rows

MODELS = {"resnet50": "ResNet-50", "gpt1b": "GPT"}


def best(rows):
    """By model, rate and ranks, the row of the fastest algorithm."""
    found = {}
    for row in rows:
        key = (row["model"], round(row["network_gbit"], 3), row["ranks"])
        if key not in found or row["step_ms"] < found[key]["step_ms"]:
            found[key] = row
    return found


def size_text(parameters):
    return f"{parameters / 1e9:.2f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"


def latencies(rows):
    """The network latencies, in microseconds."""
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
    """A panel per model, the title, and a footer that describes the simulation."""
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


# --- compression -----------------------------------------------------------------------------------

DENSE = "none"


def is_chosen(compression):
    return compression.startswith("auto")


def by_point(arguments):
    """{(ranks, rate): {compression: milliseconds}} of one model, and its rows."""
    rows = read_rows(arguments.inputs)
    points = {}
    try:
        for row in rows:
            point = points.setdefault((row["ranks"], round(row["network_gbit"], 3)), {})
            before = point.get(row["compression"], row["step_ms"])
            point[row["compression"]] = min(before, row["step_ms"])
        if len({row["model"] for row in rows}) != 1:
            raise PlotError("rows of one model are wanted")
    except (KeyError, TypeError) as error:
        raise PlotError(f"not the JSON of kolo-sim step ({error!r})") from error
    without = [f"{ranks} ranks at {rate:g} Gbit/s" for (ranks, rate), times in points.items() if DENSE not in times]
    if without:
        raise PlotError(f"no row without compression for {without[0]}")
    return points, rows


def compression_panels(arguments):
    """A panel per number of ranks, the title, and a footer that describes the simulation."""
    points, rows = by_point(arguments)
    compressions = [name for name in dict.fromkeys(row["compression"] for row in rows) if name != DENSE]
    rates = sorted({rate for _, rate in points})
    highest = max(times[DENSE] / us for times in points.values() for us in times.values())
    lowest = min(times[DENSE] / us for times in points.values() for us in times.values())
    drawn = []
    for count in sorted({ranks for ranks, _ in points}):
        curves = [Curve("dense", [(rate, 1) for rate in rates], style=6)]
        for style, name in enumerate(compressions):
            pairs = [(rate, times[DENSE] / times[name])
                     for (ranks, rate), times in points.items() if ranks == count and name in times]  # fmt: skip
            curves.append(Curve(name, pairs, style=style, thin=is_chosen(name)))
        x = Axis("Gbit/s of each node's link", log=10, ticks=[(rate, f"{rate:g}") for rate in rates])
        ticks = [(2.0**power, f"{2.0**power:g}") for power in range(-10, 11)]
        y = Axis("times as fast as dense float32", log=2, ticks=ticks, low=lowest / 1.1, high=highest * 1.1)
        drawn.append(Panel(curves, x, y, f"{count} ranks"))
    first = rows[0]
    title = arguments.title or (
        f"Predicted step of {first['parameters'] / 1e6:.1f} M parameters, {first['compute_ms']:.0f} ms of compute, "
        f"{first['ranks'] // first['nodes']} rank{'s' if first['ranks'] > first['nodes'] else ''} on a node"
    )
    latency = ", ".join(f"{us:g}" for us in latencies(rows))
    return drawn, title, [f"kolo-sim step, network latency {latency} µs, selection on one core"]


def density_of(compression):
    """The density of a spec: 0.01 for "topk(0.01,dgc)", or the default."""
    found = re.search(r"\(([0-9.e-]+)", compression)
    return float(found[1]) if found else 0.01


def compression_table(arguments):
    """Markdown: a line per rate and density that `auto` was given, a column per number of ranks."""
    points, _ = by_point(arguments)
    counts = sorted({ranks for ranks, _ in points})
    chosen = sorted({name for times in points.values() for name in times if is_chosen(name)}, key=density_of)
    if not chosen:
        raise PlotError("no row of auto")
    lines = ["| Gbit/s | density | " + " | ".join(f"{count} ranks" for count in counts) + " |"]
    lines.append("|---:|---:|" + "---|" * len(counts))
    for rate in sorted({rate for _, rate in points}):
        for name in chosen:
            cells = [cell(points.get((count, rate), {}), name) for count in counts]
            lines.append(f"| {rate:g} | {density_of(name):g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(times, chosen):
    """A cell such as "topk 7.1 × (1.02)" from milliseconds by compression: the fastest of dense, 16 bits and top-k with
    the density of `chosen`, its speed relative to dense float32, and the time of `chosen` relative to it."""
    density = density_of(chosen)
    named = {name: ms for name, ms in times.items()
             if not is_chosen(name) and (not name.startswith("topk") or density_of(name) == density)}  # fmt: skip
    if not named or chosen not in times:
        return "–"
    best = min(named, key=named.get)
    word = "dense" if best == DENSE else best.partition("(")[0]
    return f"{word} {times[DENSE] / named[best]:.1f} × ({times[chosen] / named[best]:.2f})"
