"""Measurements of kolo-bench: a collective over size, its share of the limit over ranks, overlap, and errors of means."""

import bench_rows
from gnuplot import Axis, Curve, Panel, PlotError, read_rows

# A system keeps its colour in all pictures; a curve has the colour of the first name that begins its own.
STYLES = {"kolo, arena": 0, "kolo, user": 5, "kolo, device-user": 5, "kolo, device": 0, "mpi": 1, "Open MPI 4": 1, "Open MPI": 3,
          "MPICH": 4, "Intel": 6, "gloo": 2, "nccl": 2}  # fmt: skip
METHODS = {
    "direct": "Kolo, direct",
    "two-level": "Kolo, two levels",
    "ring": "ring",
    "ring-premultiplied": "ring, 1/n first",
}
CALLS = {"flat": "one call", "packed": "one call, packed", "each": "a call each"}


def selected_rows(arguments, field):
    """The rows of all inputs that pass the filters and have `field`."""
    filters = [bench_rows.parse_filter(text) for text in arguments.where]
    rows = []
    for name in arguments.inputs:
        rows += bench_rows.read(name)
    rows = [row for row in bench_rows.matching(rows, filters) if field in row]
    if not rows:
        raise PlotError(f"{', '.join(arguments.inputs)}: no rows" + (f" where {', '.join(arguments.where)}" if filters else ""))
    return rows


def only(rows, key, hint):
    """The only value of a field. Raises PlotError if there are several."""
    values = sorted({str(bench_rows.value(row, key)) for row in rows})
    if len(values) > 1:
        raise PlotError(f"rows with {key} {', '.join(values)} make no one picture: add --where {hint or key}=VALUE")
    return bench_rows.value(rows[0], key)


def shape_text(row):
    ranks, nodes = row["ranks"], row["nodes"]
    text = f"{ranks} rank{'s' if ranks != 1 else ''} on {nodes} node{'s' if nodes != 1 else ''}"
    return text + links_text(row)


def links_text(row):
    rate = row.get("rate")
    return "" if rate is None else f", links {'unshaped' if rate == 'none' else rate}"


def distinct(rows, field):
    """The values of a field in the rows, in order of first occurrence."""
    return list(dict.fromkeys(row[field] for row in rows if row.get(field)))


def footer(rows):
    """Facts for the comparison, then machines, commits and the commands that produced the rows."""
    commits = distinct(rows, "commit")
    commands = distinct(rows, "script") if all(row.get("script") for row in rows) else distinct(rows, "command")
    source = [*distinct(rows, "machine"), *([f"commit {', '.join(commits)}"] if commits else []), *commands]
    return [" ".join(bench_rows.notes(rows)), " · ".join(source)]


def size_axis():
    """Sizes are powers of two: a tick for every factor of 16 from 4 on, with the names of the tools' options."""
    return Axis("size (bytes)", log=2, ticks=[(1 << power, bench_rows.size_text(1 << power)) for power in range(2, 40, 4)])


def time_axis():
    """A tick for every factor of 10, with its unit."""
    units = [(0.001, "ns"), (1, "µs"), (1e3, "ms"), (1e6, "s")]
    ticks = [(factor * unit, f"{factor} {name}") for unit, name in units for factor in (1, 10, 100)]
    return Axis("median time", log=10, ticks=ticks)


def times_by_curve(rows):
    """{curve: {size: median in µs}}."""
    times = {}
    for case, curves in bench_rows.by_case(rows).items():
        for name, launches in curves.items():
            times.setdefault(name, {})[case[-1]] = bench_rows.figure(name, launches)
    return by_importance(times)


def display_name(name, rows):
    """The name of a curve beside these rows: Gloo inside a node has the name of its transport."""
    if name == "gloo" and all(row["nodes"] == 1 for row in rows):
        return "gloo, loopback TCP"
    return bench_rows.bound_name(name, rows)


def by_importance(curves):
    """{name: points} with the bounds first, and Kolo last, which is drawn over the others."""
    order = [*bench_rows.BOUNDS, "nccl", "gloo", "mpi", "kolo, device-user", "kolo, user", "kolo, device", "kolo, arena"]

    def place(name):
        name = "mpi" if bench_rows.is_mpi(name) else name
        return order.index(name) if name in order else -1

    return dict(sorted(curves.items(), key=lambda item: place(item[0])))


def named_curve(name, pairs, rows):
    style = next((style for first, style in STYLES.items() if name.startswith(first)), None)
    return Curve(display_name(name, rows), pairs, style=style, thin=name in bench_rows.BOUNDS)


def collective(arguments):
    """Time over size; beside it bus bandwidth inside a node, or between nodes, where the link dominates and curves
    coincide, the ratio of each time to Kolo's: (panels, title, footer)."""
    rows = selected_rows(arguments, "size")
    try:
        name = only(rows, "collective", "collective")
        for key in ("ranks", "nodes", "rate", "fresh", "in_place", "dtype", "op"):
            only(rows, key, key)
        rows = [row for row in rows if row["size"] > 0]
        times = times_by_curve(rows)
        first = rows[0]
        title = arguments.title or (
            f"{name.capitalize()}, {bench_rows.case_text(first)}, {shape_text(first)}"
        )
        panels = [Panel(named_curves(times, rows), size_axis(), time_axis())]
        if first["nodes"] > 1 and (compared := ratios_by_curve(rows)):
            axis = ratio_axis(f"time relative to {base_curve(rows)}", compared)
            panels.append(Panel(named_curves(compared, rows), size_axis(), axis))
        elif first["ranks"] > 1:
            factor, unit = bandwidth_scale(times, first["busbw_GBps"] / first["algbw_GBps"] / 1000)
            rates = {name: {size: factor * size / us for size, us in points.items()} for name, points in times.items()}
            panels.append(Panel(named_curves(rates, rows), size_axis(), bandwidth_axis(times, factor, unit)))
    except (KeyError, TypeError, IndexError) as error:
        raise PlotError(f"{', '.join(arguments.inputs)}: not the JSON of a collective ({error!r})") from error
    return panels, title, footer(rows)


def ratio_axis(name, compared):
    """An axis around the ratios. Its ticks show a few per cent where the ratios are close to 1."""
    values = [value for points in compared.values() for value in points.values()]
    close = max(values) < 4
    ticks = [0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.7, 2, 3] if close else [0.25, 0.5, 1, 2]
    ticks += [2.0**power for power in range(2, 13)]
    return Axis(name, log=2, ticks=[(tick, f"{tick:g}") for tick in ticks], low=min(values) / 1.1, high=max(values) * 1.1)


def named_curves(points_by_name, rows):
    return [named_curve(name, list(points.items()), rows) for name, points in points_by_name.items()]


def base_curve(rows):
    """Kolo's curve, with which the others are compared, if there is one."""
    present = {bench_rows.curve_name(row) for row in rows}
    return next((name for name in ("kolo, arena", "kolo, device", "kolo, user", "kolo, device-user") if name in present), None)


def ratios_by_curve(rows):
    """{curve: {size: its time relative to that of `base_curve`}}, within launches."""
    base, found = base_curve(rows), {}
    for case, curves in bench_rows.by_case(rows).items():
        for name, launches in curves.items():
            if (ratio := bench_rows.ratio(name, launches, curves.get(base, {}))) is not None:
                found.setdefault(name, {})[case[-1]] = ratio
    return by_importance(found)


def highest_bandwidth(times, factor):
    """The highest bandwidth of a system; bounds are left out, since in a cache they can be so high that nothing else
    has room."""
    systems = [points for name, points in times.items() if name not in bench_rows.BOUNDS] or times.values()
    return max(factor * size / us for points in systems for size, us in points.items())


def bandwidth_scale(times, factor):
    """The factor and the unit: `factor` gives GB/s, and slow links get a smaller unit."""
    return (factor, "GB/s") if highest_bandwidth(times, factor) >= 1 else (1000 * factor, "MB/s")


def bandwidth_axis(times, factor, unit):
    return Axis(f"bus bandwidth ({unit})", high=highest_bandwidth(times, factor) * 1.15)


def scaling(arguments):
    """The share of the limit, or of the streaming reference, that each system reaches over ranks or nodes, for each
    size: (panels, title, footer)."""
    rows = selected_rows(arguments, "size")
    sizes = [bench_rows.parse_size(text) for text in arguments.sizes.split(",")]
    panels, used = [], []
    try:
        what = only(rows, "collective", "collective")
        for key in ("rate", "fresh", "in_place", "dtype", "op"):
            only(rows, key, key)
        for size in sizes:
            shares = {}
            for curves_of_case, bound, over in cases_of_size(rows, size, arguments.over):
                used += [row for launches in curves_of_case.values() for row in launches.values()]
                for name, launches in curves_of_case.items():
                    if name != bound:
                        share = 100 / bench_rows.ratio(name, launches, curves_of_case[bound])
                        shares.setdefault(name, []).append((over, share))
            if not shares:
                raise PlotError(f"{', '.join(arguments.inputs)}: no rows of {bench_rows.size_text(size)} bytes beside a bound")
            counts = sorted({over for pairs in shares.values() for over, _ in pairs})
            curves = [named_curve(name, pairs, used) for name, pairs in by_importance(shares).items()]
            axis = Axis(arguments.over, log=2, ticks=[(count, str(count)) for count in counts])
            panels.append(Panel(curves, axis, share_axis(shares, bound_text(used)), bench_rows.size_text(size)))
    except (KeyError, TypeError) as error:
        raise PlotError(f"{', '.join(arguments.inputs)}: not the JSON of a collective ({error!r})") from error
    title = arguments.title or f"{what.capitalize()}: share of the {bound_text(used)} over {arguments.over}{links_text(rows[0])}"
    return panels, title, footer(used)


def bound_text(rows):
    """Describes the bound of these rows in a sentence."""
    bounds = {row["system"] for row in rows} & set(bench_rows.BOUNDS)
    return "streaming reference" if bounds == {"streaming"} else bench_rows.bound_name("limit", rows)


def share_axis(shares, bound):
    """An axis that includes the bound, so that the distance to it is visible."""
    highest = max(share for pairs in shares.values() for _, share in pairs)
    return Axis(f"share of the {bound} (%)", high=max(105, highest * 1.05))


def cases_of_size(rows, size, over):
    """(curves of a case, its bound, its number of ranks or nodes) for the cases that were measured beside a bound in
    each relevant launch. Over nodes: cases with one rank per node."""
    for case, curves in bench_rows.by_case([row for row in rows if row["size"] == size]).items():
        shape = dict(zip(bench_rows.CASE, case))
        bound = next((name for name in bench_rows.BOUNDS if name in curves), None)
        if bound and (over == "ranks" or shape["ranks"] == shape["nodes"]):
            yield {name: each for name, each in curves.items() if bench_rows.ratios(each, curves[bound])}, bound, shape[over]


def best_calls(rows):
    """For each peer, the row of the way of calling it that exposes the least."""
    best = {}
    for row in rows:
        system = row["system"]
        if system != "kolo" and (system not in best or row["exposed_us"] < best[system]["exposed_us"]):
            best[system] = row
    return list(best.values())


def overlap(arguments):
    """Exposed communication over the fusion size, beside communication alone: (panels, title, footer)."""
    rows = selected_rows(arguments, "exposed_us")
    try:
        for key in ("ranks", "nodes", "rate", "bytes"):
            only(rows, key, key)
        ours = [row for row in rows if row["system"] == "kolo"]
        # Without fusion every gradient is a separate bucket: shown one step left of the smallest size.
        sizes = sorted({row["fusion_bytes"] for row in ours if row["fusion_bytes"]})
        if not sizes:
            raise PlotError(f"{', '.join(arguments.inputs)}: no fusion size was measured")
        none = sizes[0] // 4
        ends = (none if any(row["fusion_bytes"] == 0 for row in ours) else sizes[0], sizes[-1])

        def over_size(key):
            return [(row["fusion_bytes"] or none, row[key] / 1000) for row in ours]

        curves = [
            Curve("kolo, exposed", over_size("exposed_us"), style=0),
            Curve("kolo, alone", over_size("communication_us"), thin=True),
        ]
        for row in best_calls(rows):
            level = row["exposed_us"] / 1000
            curves.append(Curve(f"{row['system']}, {CALLS[row['calls']]}", [(x, level) for x in ends], style=STYLES[row["system"]]))
        first = rows[0]
        title = arguments.title or (
            f"Communication that a backward pass of {first['compute_us'] / 1000:.0f} ms leaves exposed, "
            f"{first['bytes'] / 1e6:.0f} MB of gradients, {shape_text(first)}"
        )
    except (KeyError, TypeError) as error:
        raise PlotError(f"{', '.join(arguments.inputs)}: not the JSON of an overlap ({error!r})") from error
    ticks = [(none, "none"), *((size, bench_rows.size_text(size)) for size in sizes)]
    lowest = min(y for curve in curves for _, y in curve.pairs)
    axis = Axis("fusion size (bytes)", log=2, ticks=ticks, low=ends[0], high=ends[1])
    return [Panel(curves, axis, Axis("time (ms)", low=min(0, lowest * 1.1)))], title, footer(rows)


def error(arguments):
    """The largest error of means over 16-bit contributions, over ranks; a panel per wire and a curve per method:
    (panels, title, footer)."""
    rows = read_rows(arguments.inputs)
    try:
        drawn = []
        for wire in dict.fromkeys(row["wire"] for row in rows):
            curves = []
            for style, (method, name) in enumerate(METHODS.items()):
                pairs = [(row["ranks"], row["most_ulp"]) for row in rows if (row["wire"], row["method"]) == (wire, method)]
                if pairs:
                    curves.append(Curve(name, pairs, style=style))
            ranks = sorted({row["ranks"] for row in rows})
            x = Axis("ranks", log=2, ticks=[(count, str(count)) for count in ranks])
            ticks = [(value, str(value)) for value in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)]
            y = Axis("largest error (units in the last place)", log=2, ticks=ticks, low=0.25)
            drawn.append(Panel(curves, x, y, wire))
        footer = f"kolo-bench error, {rows[0]['count']} elements a case around 1, deviation {rows[0]['deviation']}, simulated ranks, seed {rows[0]['seed']}"
    except (KeyError, TypeError, IndexError) as why:
        raise PlotError(f"not the JSON of kolo-bench error ({why!r})") from why
    return drawn, arguments.title or "Error of the mean over ranks, against float64", [footer]
