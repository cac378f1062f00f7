#!/usr/bin/env python3
"""scripts/plot draws what kolo-train and kolo-bench write, and says what is wrong with anything else."""

import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PLOT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "plot"
PNG = b"\x89PNG\r\n\x1a\n"


def training_run(ranks, wire):
    curve = [
        {
            "step": step,
            "seconds": step * 0.04,
            "train_loss": 1.5 + 4 * math.exp(-step / 200),
            # Not every point was evaluated.
            "eval_loss": 1.6 + 4 * math.exp(-step / 210) if step % 100 == 0 else None,
            "eval_accuracy": 0.6 - 0.5 * math.exp(-step / 300) if step % 100 == 0 else None,
        }
        for step in range(0, 1001, 10)
    ]
    return {"model": "gpt", "ranks": ranks, "nodes": 1, "wire": wire, "compression": None, "curve": curve}


def bench_rows(system, algorithm, peak):
    sizes = [4 << power for power in range(0, 25, 2)]
    rows = []
    for size in sizes:
        time_us = 6 + size / (peak * 1000)
        rows.append(
            {
                "system": system,
                "algorithm": algorithm,
                "size": size,
                "time_us": time_us,
                "busbw_GBps": size / time_us / 1000,
            }
        )
    return rows


class PlotTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)

    def write(self, name, value):
        path = self.folder / name
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
        return path

    def plot(self, *arguments):
        return subprocess.run([PLOT, *map(str, arguments)], capture_output=True, text=True, check=False)

    def expect_pictures(self, name, words):
        svg = (self.folder / f"{name}.svg").read_text(encoding="utf-8")
        for word in words:
            self.assertIn(word, svg)
        self.assertTrue((self.folder / f"{name}.png").read_bytes().startswith(PNG))

    def test_training_curves_carry_labels_and_units(self):
        one = self.write("one.json", training_run(1, "float32"))
        two = self.write("two.json", training_run(2, "bfloat16"))
        done = self.plot("train", "--title", "GPT", "-o", self.folder / "curves", f"alone={one}", two)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_pictures("curves", ["GPT", "alone", "2 ranks, bfloat16", "held-out loss (nats)", "step"])

    def test_bench_has_a_curve_for_each_system(self):
        rows = bench_rows("kolo", "ring", 5) + bench_rows("mpi", "auto", 3)
        file = self.write("bench.json", rows)
        done = self.plot("bench", "-o", self.folder / "bench", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_pictures("bench", ["kolo, ring", "mpi", "bus bandwidth (GB/s)", "64K"])

    def test_what_cannot_be_drawn_is_named(self):
        for content in ("{", "[]", {"ranks": 1}, {**training_run(1, "float32"), "curve": []}):
            file = self.write("bad.json", content)
            done = self.plot("train", "-o", self.folder / "never", file)
            self.assertEqual(done.returncode, 1)
            self.assertIn("bad.json", done.stderr)
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    if not shutil.which("gnuplot"):
        print("skipped: gnuplot is missing")
        sys.exit(77)
    unittest.main()
