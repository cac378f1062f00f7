"""Rows that `kolo-bench --json` wrote, from several launches: read, gathered, and one figure from each case.

A launch is told by its `label`: Open MPI's transports can only be chosen when a job starts, so a case is
measured several times, and ratios are taken within a launch.
"""

import json
import pathlib
import statistics


class RowsError(Exception):
    """What was given are no rows; says why."""


# What tells one case from another, whatever the system and the launch.
CASE = ("rate", "ranks", "nodes", "dtype", "op", "in_place", "size")


# What tells a row from all others of a file: measured once more, the later one counts.
IDENTITY = (*CASE, "system", "memory", "wire_dtype", "label", "calls", "fusion_bytes", "bytes")


def latest(rows):
    """The rows without those that were measured once more later."""
    found = {}
    for row in rows:
        key = tuple(row.get(field) for field in IDENTITY)
        found.pop(key, None)  # the later one takes its place among the others, too
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
    """The rows whose fields read as the filters say; true and false as in JSON."""

    def text(value):
        return str(value).lower() if isinstance(value, bool) else str(value)

    return [row for row in rows if all(text(row.get(key)) == value for key, value in filters)]


def median_us(row):
    """Of rows from before there were medians, the mean."""
    return row.get("median_us", row["time_us"])


def curve_name(row):
    """Systems with an arena have a curve for each memory."""
    return f"kolo, {row['memory']}" if row["system"] == "kolo" else row["system"]


def by_case(rows):
    """{case: {curve: {label: row}}}; `case` as CASE says."""
    cases = {}
    for row in rows:
        case = tuple(row.get(key) for key in CASE)
        cases.setdefault(case, {}).setdefault(curve_name(row), {})[row.get("label", "")] = row
    return cases


def figure(curve, launches):
    """One time of a curve's launches: a peer counts with its best, what is ours and the limit in the middle."""
    times = [median_us(row) for row in launches.values()]
    ours = curve.startswith("kolo") or curve == "limit"
    return statistics.median(times) if ours else min(times)


def fastest(launches):
    """The row with the least median."""
    return min(launches.values(), key=median_us)


def ratios(launches, base):
    """How many times the time of `base` the time of `launches` is, within each launch that has both."""
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
