"""Which compression `kolo-sim step --json` predicts to be fastest, over rates and ranks."""

from gnuplot import Axis, Curve, Panel, PlotError
from plot_sim import latencies, read_rows

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


def panels(arguments):
    """A panel per number of ranks; the title and the footer say what was simulated."""
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
    return drawn, title, f"kolo-sim step, network latency {latency} µs, selection on one core"


def table(arguments):
    """Markdown: a line per rate, a column per number of ranks."""
    points, _ = by_point(arguments)
    counts = sorted({ranks for ranks, _ in points})
    lines = ["| Gbit/s | " + " | ".join(f"{count} ranks" for count in counts) + " |", "|---:|" + "---|" * len(counts)]
    for rate in sorted({rate for _, rate in points}):
        cells = [cell(points.get((count, rate), {})) for count in counts]
        lines.append(f"| {rate:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(times):
    """"topk(0.01), 7.1 ×; auto 1.02" of milliseconds by compression."""
    named = {name: ms for name, ms in times.items() if not is_chosen(name)}
    if not named:
        return "–"
    best = min(named, key=named.get)
    text = f"{best}, {times[DENSE] / named[best]:.1f} ×"
    for name, ms in times.items():
        if is_chosen(name):
            text += f"; {name} {ms / named[best]:.2f}"
    return text
