"""Errors of means over 16-bit contributions, from rows of `kolo-bench error --json`."""

import json
import pathlib

import gnuplot

NAMES = {
    "direct": "Kolo, direct",
    "two-level": "Kolo, two levels",
    "ring": "ring",
    "ring-premultiplied": "ring, 1/n first",
}


def read_rows(files):
    """The rows of all files."""
    rows = []
    for name in files:
        try:
            rows += json.loads(pathlib.Path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise gnuplot.PlotError(f"{name}: {error}") from error
    return rows


def panels(arguments):
    """A panel per wire: the largest error over ranks, a curve per method."""
    rows = read_rows(arguments.inputs)
    try:
        drawn = []
        for wire in dict.fromkeys(row["wire"] for row in rows):
            curves = []
            for style, (method, name) in enumerate(NAMES.items()):
                pairs = [(row["ranks"], row["most_ulp"]) for row in rows if (row["wire"], row["method"]) == (wire, method)]
                if pairs:
                    curves.append(gnuplot.Curve(name, pairs, style=style))
            ranks = sorted({row["ranks"] for row in rows})
            x = gnuplot.Axis("ranks", log=2, ticks=[(count, str(count)) for count in ranks])
            ticks = [(value, str(value)) for value in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)]
            y = gnuplot.Axis("largest error (units in the last place)", log=2, ticks=ticks, low=0.25)
            drawn.append(gnuplot.Panel(curves, x, y, wire))
        footer = f"kolo-bench error, {rows[0]['count']} elements a case around 1, deviation {rows[0]['deviation']}, simulated ranks, seed {rows[0]['seed']}"
    except (KeyError, TypeError, IndexError) as error:
        raise gnuplot.PlotError(f"not the JSON of kolo-bench error ({error!r})") from error
    return drawn, arguments.title or "Error of the mean over ranks, against float64", [footer]
