"""Rows that `kolo-bench --json` wrote, from several launches: read, merged, and one figure for each case.

A row's `label` names its launch: Open MPI's transports can only be chosen when a job starts, so a case is
measured several times, and ratios are taken within a launch.
"""

import json
import pathlib
import re
import statistics


class RowsError(Exception):
    """The input holds no rows; the text says why."""


# Systems that only move bytes: a lower bound between nodes, and a reference inside one.
BOUNDS = ("limit", "streaming")

# Names that MPI libraries report: "Open MPI v4.1.4", "MPICH Version: 5.0.2", "Intel(R) MPI Library 2021.18 ...".
LIBRARY = re.compile(r"(Open MPI|MPICH|Intel)\b.*?(\d+(?:\.\d+)+)")

# The fields that identify a case, for all systems and launches.
CASE = ("rate", "collective", "ranks", "nodes", "dtype", "op", "fresh", "in_place", "size")


# The fields that identify a row of a file; of equal rows the later counts.
IDENTITY = (*CASE, "system", "library", "memory", "wire_dtype", "label", "calls", "fusion_bytes", "bytes", "width", "density")


def value(row, field):
    """A field of a row; older rows lack some."""
    return row.get(field, {"collective": "all-reduce", "fresh": False}.get(field))


def latest(rows):
    """The rows without those that were measured again later."""
    found = {}
    for row in rows:
        key = tuple(value(row, field) for field in IDENTITY)
        found.pop(key, None)  # the later row also takes the later place
        found[key] = row
    return list(found.values())


def read(name):
    """The rows of a file. Raises RowsError naming it."""
    try:
        rows = json.loads(pathlib.Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RowsError(f"{name}: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "system" in row for row in rows):
        raise RowsError(f"{name}: not the JSON of a benchmark")
    return rows


def parse_filter(text):
    """("ranks", "2") of "ranks=2"."""
    key, equals, value = text.partition("=")
    if not equals:
        raise RowsError(f"'{text}' is no KEY=VALUE")
    return key, value


def matching(rows, filters):
    """The rows whose fields have the texts of the filters; true and false as in JSON."""

    def text(field):
        return str(field).lower() if isinstance(field, bool) else str(field)

    return [row for row in rows if all(text(value(row, key)) == wanted for key, wanted in filters)]


def median_us(row):
    """The median; the mean for old rows without a median."""
    return row.get("median_us", row["time_us"])


def curve_name(row):
    """The curve of a row: systems with an arena have one for each memory, MPI one for each library."""
    if row["system"] == "kolo":
        return f"kolo, {row['memory']}"
    library = LIBRARY.match(row.get("library") or "")
    return " ".join(library.groups()).replace("Intel", "Intel MPI") if library else row["system"]


def by_case(rows):
    """{case: {curve: {label: row}}}; `case` has the fields of CASE."""
    cases = {}
    for row in rows:
        case = tuple(value(row, key) for key in CASE)
        cases.setdefault(case, {}).setdefault(curve_name(row), {})[row.get("label", "")] = row
    return cases


def case_text(row):
    """Dtype, operation, whether in place, and contributions of a case: "float32 sum, in place"."""
    words = [row["dtype"], *([row["op"]] if row["op"] else [])]
    untouched = "" if value(row, "fresh") else ", untouched"
    return f"{' '.join(words)}, {'in' if row['in_place'] else 'out of'} place{untouched}"


def is_mpi(curve):
    """Whether a curve is that of an MPI library."""
    return curve == "mpi" or curve.startswith(("Open MPI", "MPICH", "Intel"))


def is_peer(curve):
    """Whether a curve is that of another system that sums; not Kolo, and not a bound."""
    return not curve.startswith("kolo") and curve not in BOUNDS


def figure(curve, launches):
    """One time for a curve's launches: the best of a peer, the median of Kolo or a bound."""
    times = [median_us(row) for row in launches.values()]
    return min(times) if is_peer(curve) else statistics.median(times)


def ratio(curve, launches, base):
    """A curve's time relative to that of `base`, within a launch: the least of a peer, the median of Kolo or a bound;
    None without a common launch."""
    found = ratios(launches, base)
    if not found:
        return None
    return min(found) if is_peer(curve) else statistics.median(found)


def bound_name(bound, rows):
    """The name of a bound: over unlimited links the CPUs take the time, and the stream is no lower bound."""
    return "TCP stream" if bound == "limit" and any(row.get("rate") == "none" for row in rows) else bound


def notes(rows):
    """Facts that a reader must know to compare the figures of these rows, as sentences."""
    systems = {row["system"] for row in rows}
    nodes = {row["nodes"] for row in rows}
    found = []
    if any(row["system"] == "kolo" and row.get("memory") in ("arena", "device") and row["ranks"] > row["nodes"] for row in rows):
        sums = value(rows[0], "collective") == "all-reduce"
        what = "write into each other's gradients" if sums else "read each other's buffers"
        found.append(f"kolo, arena: ranks of a node {what}; the others keep private buffers, as kolo, user does.")
    if "gloo" in systems and 1 in nodes:
        found.append("gloo: TCP over the loopback, it has no shared memory.")
    if "streaming" in systems:
        found.append("streaming: moves the same bytes in memory that all ranks have mapped; a reference, no lower bound.")
    if "limit" in systems:
        name = bound_name("limit", rows)
        what = "a plain stream" if name != "limit" else "a TCP stream"
        beaten = "; without a limit of the links processors decide, and it is no lower bound." if name != "limit" else "."
        found.append(f"{name}: {what} of the least bytes that a node must send and receive{beaten}")
    two_levels = [row for row in rows if row["system"] == "mpi" and 1 < row["nodes"] < row["ranks"]]
    if any("han, copied" in row.get("candidates", []) for row in two_levels):
        found.append("mpi: in place Open MPI's han crashes (4.1.4), so its contribution is copied first, within the time.")
    if two_levels and not any("han" in name for row in two_levels for name in row.get("candidates", [])):
        found.append("mpi: without Open MPI's hierarchical component han.")
    return found


def fastest(launches):
    """The row with the lowest median."""
    return min(launches.values(), key=median_us)


def ratios(launches, base):
    """The times of `launches` relative to those of `base`, for each launch that has both."""
    return [median_us(row) / median_us(base[label]) for label, row in launches.items() if label in base]


def parse_size(text):
    """65536 of "64K"."""
    factors = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    try:
        return int(text[:-1]) * factors[text[-1]] if text[-1:] in factors else int(text)
    except ValueError as error:
        raise RowsError(f"'{text}' is no size") from error


def size_text(size):
    """"64K" of 65536."""
    for factor, unit in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)
