"""Curves on pairs of axes, drawn by gnuplot as SVG and PNG, each curve named at its end."""

import json
import math
import pathlib
import shutil
import subprocess
import textwrap

# Okabe and Ito's colours, which everyone can tell apart, and a point shape for each, for print.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
POINTS = [7, 5, 9, 13, 11, 4, 6]

# The footer's line height in units of the picture, and the characters that fit below a panel.
FOOTER_LINE, FOOTER_COLUMNS = 13, 108
# Space between the footer and the axes, for the ticks and the name of the x axis.
X_NAMES = 66


class PlotError(Exception):
    """The input cannot be drawn; the text says what and why."""


def read_json(name):
    """Reads a program's output. Raises PlotError that names the file."""
    try:
        return json.loads(pathlib.Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlotError(f"{name}: {error}") from error


def read_rows(names):
    """The rows of all files."""
    return [row for name in names for row in read_json(name)]


def quoted(text):
    """A gnuplot string: single quotes keep every character but themselves."""
    return "'" + str(text).replace("'", "''").replace("\n", " ") + "'"


def with_newlines(text):
    """A gnuplot string that may contain line breaks."""
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


class Axis:
    """A name, a scale and its ticks, as (value, text); without ticks gnuplot chooses its own."""

    def __init__(self, name, log=None, ticks=None, low=None, high=None):
        self.name = name
        self.log = log
        self.ticks = ticks
        self.low = low
        self.high = high

    def fitted(self, values):
        """The axis with both ends: by default round numbers around the values."""
        if self.log:
            low = self.log ** math.floor(math.log(min(values), self.log) + 1e-9) if self.low is None else self.low
            high = self.log ** math.ceil(math.log(max(values), self.log) - 1e-9) if self.high is None else self.high
        else:
            low = 0 if self.low is None else self.low
            high = max(values) * 1.05 if self.high is None else self.high
        if low == high:
            high = low * 2 or 1
        if self.log:
            low, high = low / 1.001, high * 1.001  # otherwise the outermost ticks are cut off
        return Axis(self.name, self.log, self.ticks, low, high)

    def place(self, value):
        """Relative position of a value on a fitted axis, 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def script(self, letter):
        lines = [
            f"set {letter}label {quoted(self.name)}",
            f"set logscale {letter} {self.log}" if self.log else f"unset logscale {letter}",
            f"set {letter}range [{self.low}:{self.high}]",
        ]
        if self.ticks:
            marks = ", ".join(f"{quoted(text)} {value}" for value, text in self.ticks)
            lines.append(f"set {letter}tics ({marks})")
        else:
            lines.append(f"set {letter}tics autofreq")
        return lines


class Curve:
    """A name and its (x, y) pairs, in order of x. `style` selects its colour and point among the curves; a thin one is
    context rather than a result."""

    def __init__(self, name, pairs, style=None, thin=False):
        self.name = name
        self.pairs = sorted(pairs)
        self.style = style
        self.thin = thin

    def colour(self, index):
        return "#777777" if self.thin else COLOURS[(index if self.style is None else self.style) % len(COLOURS)]

    def script(self, block, index):
        style = index if self.style is None else self.style
        line = "dt 2 lw 1.5" if self.thin else "lw 2"
        # A few points help, but many hide the line.
        many = len(self.pairs) > 40 or self.thin
        points = f"lines {line}" if many else f"linespoints {line} ps 0.7 pt {POINTS[style % len(POINTS)]}"
        return f"$data{block} using 1:2 with {points} lc rgb '{self.colour(index)}' title {quoted(self.name)}"


def spread(places, gap):
    """The positions, moved apart to about `gap`, in their order and within 0 to 1."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = sorted(places)
    for _ in range(200):  # neighbours push each other; more than enough for a dozen
        for low in range(len(moved) - 1):
            lack = gap - (moved[low + 1] - moved[low])
            if lack > 1e-6:
                moved[low] -= lack / 2
                moved[low + 1] += lack / 2
        moved = [min(max(place, 0), 1) for place in moved]
    return [moved[order.index(index)] for index in range(len(places))]


class Panel:
    """One pair of axes with its curves, which are named at their ends, or in a legend if its corner is given ("top
    right")."""

    def __init__(self, curves, x, y, title="", legend=None):
        self.curves = curves
        self.x = x.fitted([x_value for curve in curves for x_value, _ in curve.pairs])
        self.y = y.fitted([y_value for curve in curves for _, y_value in curve.pairs])
        self.title = title
        self.legend = legend

    def margin(self):
        """Characters that the names need to the right of the axes."""
        return 3 if self.legend else max(len(curve.name) for curve in self.curves) + 3

    def names(self):
        """The commands that put a name at the end of each curve without overlaps."""
        ends = spread([self.y.place(curve.pairs[-1][1]) for curve in self.curves], 0.048)
        for index, curve in enumerate(self.curves):
            x = min(self.x.place(curve.pairs[-1][0]), 1) + 0.015
            yield (
                f"set label {quoted(curve.name)} at graph {x:.4f}, graph {ends[index]:.4f} left "
                f"tc rgb '{curve.colour(index)}'"
            )

    def script(self, first_block, labels=()):
        """The panel's commands, with more labels; its data are the blocks $data<first_block> and up."""
        lines = ["unset label", f"set title {quoted(self.title)}", *self.x.script("x"), *self.y.script("y")]
        lines += [f"set key {self.legend}"] if self.legend else ["unset key", *self.names()]
        lines += labels
        plots = [curve.script(first_block + index, index) for index, curve in enumerate(self.curves)]
        return "\n".join([*lines, f"set rmargin {self.margin()}", "plot " + ", \\\n     ".join(plots)])


def footer_labels(lines, height, font_size):
    """The commands that put the lines of a footer below all panels."""
    for number, text in enumerate(reversed(lines)):
        place = f"screen 0.01, screen {(8 + FOOTER_LINE * number) / height:.4f}"
        yield f"set label {quoted(text)} at {place} left font ',{font_size}' tc rgb '#777777'"


def draw(panels, title, name, footer=()):
    """Draws the panels side by side into NAME.svg and NAME.png. Each text of the footer begins a line; the footer says
    what was measured and how."""
    lines = [line for text in footer if text for line in textwrap.wrap(text, FOOTER_COLUMNS * len(panels), break_on_hyphens=False)]
    if not shutil.which("gnuplot"):
        raise PlotError("gnuplot is missing; scripts/setup --with-tests installs it")
    # As wide as pages show it, so that letters keep their size.
    width, height = 560 * len(panels), 420 + FOOTER_LINE * len(lines)
    bottom = (X_NAMES + FOOTER_LINE * len(lines)) / height
    data, blocks, block = [], [], 0
    for panel in panels:
        blocks.append(block)
        for curve in panel.curves:
            rows = "\n".join(f"{x} {y}" for x, y in curve.pairs)
            data.append(f"$data{block} << EOD\n{rows}\nEOD")
            block += 1
    for suffix, font_size, terminal in (
        ("svg", 10, f"svg size {width},{height} dynamic font 'Helvetica,14' background 'white'"),
        ("png", 5.5, f"pngcairo size {2 * width},{2 * height} fontscale 2 linewidth 2 pointscale 2 font 'Sans,7'"),
    ):
        labels = list(footer_labels(lines, height, font_size))
        drawing = [panel.script(first, labels if panel is panels[0] else ()) for panel, first in zip(panels, blocks)]
        script = "\n".join(
            [
                *data,
                f"set terminal {terminal} noenhanced",
                f"set output {quoted(f'{name}.{suffix}')}",
                "set border 3 lc rgb '#666666'",
                "set tics nomirror textcolor rgb '#333333'",
                "set grid lt 1 lc rgb '#e4e4e4' lw 0.7",
                "set key samplen 2 spacing 1.2",
                f"set bmargin at screen {bottom:.4f}",
                f"set multiplot layout 1,{len(panels)} title {with_newlines(title)}",
                *drawing,
                "unset multiplot",
                "unset output",
            ]
        )
        done = subprocess.run(["gnuplot"], input=script, text=True, capture_output=True, check=False)
        if done.returncode != 0 or done.stderr.strip():
            raise PlotError(f"gnuplot: {done.stderr.strip()}")
        print(f"{name}.{suffix}")
