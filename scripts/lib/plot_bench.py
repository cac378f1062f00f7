"""What kolo-bench measured: all-reduce over size, its share of the limit over ranks, and overlap."""

import bench_rows
from gnuplot import Axis, Curve, Panel, PlotError

# A system keeps its colour from picture to picture.
STYLES = {"kolo, arena": 0, "kolo, user": 5, "kolo, device": 0, "kolo, device-user": 5, "mpi": 1, "gloo": 2, "nccl": 2}
CALLS = {"flat": "one call", "packed": "one call, packed", "each": "a call each"}
LIMITS = {"memory": "limit: memory", "wire": "limit: wire"}


def selected_rows(arguments, field):
    """The rows of all inputs that the filters let through and that have `field`."""
    filters = [bench_rows.parse_filter(text) for text in arguments.where]
    rows = []
    for name in arguments.inputs:
        rows += bench_rows.read(name)
    rows = [row for row in bench_rows.matching(rows, filters) if field in row]
    if not rows:
        raise PlotError(f"{', '.join(arguments.inputs)}: no rows" + (f" where {', '.join(arguments.where)}" if filters else ""))
    return rows


def only(rows, key, hint):
    """The one value of a field. Raises PlotError if there are several."""
    values = sorted({str(row.get(key)) for row in rows})
    if len(values) > 1:
        raise PlotError(f"rows with {key} {', '.join(values)} make no one picture: add --where {hint or key}=VALUE")
    return rows[0].get(key)


def shape_text(row):
    ranks, nodes = row["ranks"], row["nodes"]
    text = f"{ranks} rank{'s' if ranks != 1 else ''} on {nodes} node{'s' if nodes != 1 else ''}"
    return text + links_text(row)


def links_text(row):
    rate = row.get("rate")
    return "" if rate is None else f", links {'unshaped' if rate == 'none' else rate}"


def footer(rows):
    """Machine, commit and command, as far as the rows know them."""
    parts = [rows[0].get("machine")]
    commits = sorted({row["commit"] for row in rows if row.get("commit")})
    parts += [f"commit {', '.join(commits)}"] if commits else []
    parts.append(rows[0].get("command"))
    return " · ".join(part for part in parts if part)


def size_axis():
    """Sizes are powers of two: a tick for every factor of 16 from 4 on, named as the tools' options name them."""
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
    """The limit by its kind; everything else by its own name."""
    if name != "limit":
        return name
    kinds = {row["algorithm"].split(",")[0] for row in rows if row["system"] == "limit"}
    return LIMITS.get(kinds.pop(), name) if len(kinds) == 1 else name


def by_importance(curves):
    """{name: points} with the limit first and Kolo last, which is drawn over the others."""
    order = ["limit", "nccl", "gloo", "mpi", "kolo, device-user", "kolo, user", "kolo, device", "kolo, arena"]
    return dict(sorted(curves.items(), key=lambda item: order.index(item[0]) if item[0] in order else -1))


def named_curve(name, pairs, rows):
    return Curve(display_name(name, rows), pairs, style=STYLES.get(name), thin=name == "limit")


def all_reduce(arguments):
    """Time over size, and bus bandwidth over size where it means something: (panels, title, footer)."""
    rows = selected_rows(arguments, "size")
    try:
        for key in ("ranks", "nodes", "rate", "in_place", "dtype", "op"):
            only(rows, key, key)
        rows = [row for row in rows if row["size"] > 0]
        times = times_by_curve(rows)
        first = rows[0]
        ranks = first["ranks"]
        title = arguments.title or (
            f"All-reduce, {first['dtype']} {first['op']}, {'in' if first['in_place'] else 'out of'} place, {shape_text(first)}"
        )
    except (KeyError, TypeError, IndexError) as error:
        raise PlotError(f"{', '.join(arguments.inputs)}: not the JSON of an all-reduce ({error!r})") from error
    panels = [
        Panel(
            [named_curve(name, list(points.items()), rows) for name, points in times.items()],
            size_axis(),
            time_axis(),
        )
    ]
    if ranks > 1:
        factor, unit = bandwidth_scale(times, 2 * (ranks - 1) / ranks / 1000)
        panels.append(
            Panel(
                [
                    named_curve(name, [(size, factor * size / us) for size, us in points.items()], rows)
                    for name, points in times.items()
                ],
                size_axis(),
                bandwidth_axis(times, factor, unit),
            )
        )
    return panels, title, footer(rows)


def highest_bandwidth(times, factor):
    """Of the systems: where the cache serves it, a limit would leave no room for the rest."""
    systems = [points for name, points in times.items() if name != "limit"] or times.values()
    return max(factor * size / us for points in systems for size, us in points.items())


def bandwidth_scale(times, factor):
    """`factor`, which makes GB/s, or what makes the smaller unit that slow links want, and its name."""
    return (factor, "GB/s") if highest_bandwidth(times, factor) >= 1 else (1000 * factor, "MB/s")


def bandwidth_axis(times, factor, unit):
    return Axis(f"bus bandwidth ({unit})", high=highest_bandwidth(times, factor) * 1.15)


def scaling(arguments):
    """What share of its limit each system reaches, over ranks or nodes, for each size: (panels, title, footer)."""
    rows = selected_rows(arguments, "size")
    sizes = [bench_rows.parse_size(text) for text in arguments.sizes.split(",")]
    panels = []
    try:
        for key in ("rate", "in_place", "dtype", "op"):
            only(rows, key, key)
        for size in sizes:
            shares = {}
            for curves_of_case, over in cases_of_size(rows, size, arguments.over):
                limit = bench_rows.figure("limit", curves_of_case["limit"])
                for name, launches in curves_of_case.items():
                    if name != "limit":
                        shares.setdefault(name, []).append((over, 100 * limit / bench_rows.figure(name, launches)))
            if not shares:
                raise PlotError(f"{', '.join(arguments.inputs)}: no rows of {bench_rows.size_text(size)} bytes beside their limit")
            counts = sorted({over for pairs in shares.values() for over, _ in pairs})
            curves = [named_curve(name, pairs, rows) for name, pairs in by_importance(shares).items()]
            axis = Axis(arguments.over, log=2, ticks=[(count, str(count)) for count in counts])
            panels.append(Panel(curves, axis, share_axis(shares), bench_rows.size_text(size)))
    except (KeyError, TypeError) as error:
        raise PlotError(f"{', '.join(arguments.inputs)}: not the JSON of an all-reduce ({error!r})") from error
    title = arguments.title or f"All-reduce: efficiency beside the limit over {arguments.over}{links_text(rows[0])}"
    return panels, title, footer(rows)


def share_axis(shares):
    """Up to the limit at least, so that one sees how far it is."""
    highest = max(share for pairs in shares.values() for _, share in pairs)
    return Axis("share of the limit (%)", high=max(105, highest * 1.05))


def cases_of_size(rows, size, over):
    """(curves of a case, its number of ranks or nodes) for the cases that were measured beside a limit. Over
    nodes: those with one rank on each."""
    for case, curves in bench_rows.by_case([row for row in rows if row["size"] == size]).items():
        shape = dict(zip(bench_rows.CASE, case))
        if "limit" in curves and (over == "ranks" or shape["ranks"] == shape["nodes"]):
            yield curves, shape[over]


def best_calls(rows):
    """Of each peer, the row of the calls that expose least."""
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
        # Without fusion every gradient is a bucket of its own: shown a step left of the smallest size.
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
