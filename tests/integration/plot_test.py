#!/usr/bin/env python3
"""Tests that scripts/plot draws output of kolo-train and kolo-bench, and reports wrong input."""

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
            # Only some points have an evaluation.
            "eval_loss": 1.6 + 4 * math.exp(-step / 210) if step % 100 == 0 else None,
            "eval_accuracy": 0.6 - 0.5 * math.exp(-step / 300) if step % 100 == 0 else None,
        }
        for step in range(0, 1001, 10)
    ]
    return {"model": "gpt", "ranks": ranks, "nodes": 1, "wire": wire, "compression": None, "curve": curve}


def bench_rows(system, peak, memory="user", algorithm="auto", **fields):
    rows = []
    for size in [4 << power for power in range(0, 26, 2)]:
        time_us = 6 + size / (peak * 1000)
        row = {
            "system": system,
            "algorithm": algorithm,
            "memory": memory,
            "size": size,
            "dtype": "float32",
            "op": "sum",
            "ranks": 2,
            "nodes": 1,
            "in_place": True,
            "fresh": True,
            "time_us": 2 * time_us,
            "median_us": time_us,
            "algbw_GBps": size / time_us / 2000,
            "busbw_GBps": size / time_us / 2000,
            "label": "",
        }
        rows.append({**row, **fields})
    return rows


def overlap_rows(**fields):
    shape = {"ranks": 2, "nodes": 1, "bytes": 40_000_000, "compute_us": 20_000, **fields}
    ours = [
        {**shape, "system": "kolo", "fusion_bytes": size, "exposed_us": 4000 + size / 4096, "communication_us": 7000}
        for size in (0, 1 << 20, 1 << 22, 1 << 24)
    ]
    peer = {**shape, "system": "mpi", "fusion_bytes": None, "communication_us": 24_000}
    return [
        *({**row, "calls": "buckets"} for row in ours),
        {**peer, "calls": "flat", "exposed_us": 25_000},
        {**peer, "calls": "each", "exposed_us": 24_000},
    ]


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

    def draw(self, kind, name, words, *arguments):
        """Draws the pictures `name`, and expects that they contain the words."""
        done = self.plot(kind, "-o", self.folder / name, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        svg = (self.folder / f"{name}.svg").read_text(encoding="utf-8")
        for word in words:
            self.assertTrue(word in svg, f"{word!r} is not in {name}.svg")
        self.assertTrue((self.folder / f"{name}.png").read_bytes().startswith(PNG))

    def test_training_curves_carry_labels_and_units(self):
        one = self.write("one.json", training_run(1, "float32"))
        two = self.write("two.json", training_run(2, "bfloat16"))
        words = ["GPT", "alone", "2 ranks, bfloat16", "held-out loss (nats)", "time (s)", "kolo-train --model gpt"]
        self.draw("train", "curves", words, "--title", "GPT", "--footer", "kolo-train --model gpt", f"alone={one}", two)
        self.draw("train", "steps", ["step"], "--over", "steps", one)

    def all_systems(self, **fields):
        return [
            *bench_rows("kolo", 9, memory="arena", **fields),
            *bench_rows("kolo", 6, **fields),
            *bench_rows("mpi", 3, **fields),
            *bench_rows("mpi", 4, library="Intel(R) MPI Library 2021.18", **fields),
            *bench_rows("limit" if fields.get("nodes", 1) > 1 else "streaming", 20, algorithm="any", **fields),
        ]

    def test_bench_has_a_curve_for_each_system_and_memory(self):
        file = self.write("bench.json", self.all_systems(machine="a fast one", commit="abc", command="kolo-bench x"))
        words = ["kolo, arena", "kolo, user", "mpi", "Intel MPI 2021.18", "streaming", "bus bandwidth (GB/s)", "median time", "10 µs", "256K",
                 "2 ranks on 1 node", "a fast one · commit abc · kolo-bench x", "no lower bound"]  # fmt: skip
        self.draw("bench", "bench", words, file)

    def test_rows_of_another_collective_are_drawn_by_its_name(self):
        rows = [*self.all_systems(), *self.all_systems(collective="all-gather", op=None)]
        file = self.write("bench.json", rows)
        self.draw("bench", "gathered", ["All-gather, float32, in place"], "--where", "collective=all-gather", file)
        both = self.plot("bench", "-o", self.folder / "never", file)
        self.assertEqual(both.returncode, 1)
        self.assertIn("rows with collective all-gather, all-reduce make no one picture", both.stderr)

    def test_between_nodes_times_are_drawn_relative_to_kolo(self):
        file = self.write("bench.json", self.all_systems(nodes=2, rate="1gbit"))
        self.draw("bench", "ratios", ["time relative to kolo, arena", "limit", "mpi"], file)

    def test_a_footer_names_every_command_whose_rows_are_drawn_and_no_other(self):
        rows = [*self.all_systems(command="kolo-bench two"), *self.all_systems(command="kolo-bench four", ranks=4),
                *self.all_systems(command="kolo-bench elsewhere", ranks=8)]  # fmt: skip
        rows = [row for row in rows if row["ranks"] != 8 or row["size"] < 1 << 20]
        file = self.write("bench.json", rows)
        self.draw("scaling", "scaling", ["kolo-bench two · kolo-bench four"], "--sizes", "64M", file)
        self.assertNotIn("elsewhere", (self.folder / "scaling.svg").read_text(encoding="utf-8"))

    def test_rows_of_several_shapes_want_a_choice(self):
        file = self.write("bench.json", self.all_systems() + self.all_systems(ranks=4))
        done = self.plot("bench", "-o", self.folder / "never", file)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--where ranks=VALUE", done.stderr)
        self.draw("bench", "four", ["4 ranks on 1 node"], "--where", "ranks=4", "--where", "in_place=true", file)
        done = self.plot("bench", "--where", "ranks=3", "-o", self.folder / "never", file)
        self.assertEqual(done.returncode, 1)
        self.assertIn("ranks=3", done.stderr)

    def test_scaling_shows_the_share_of_the_limit_over_ranks(self):
        file = self.write("bench.json", self.all_systems() + self.all_systems(ranks=4))
        words = ["share of the streaming reference (%)", "ranks", "64K", "64M", "kolo, arena", "mpi"]
        self.draw("scaling", "scaling", words, "--sizes", "64K,64M", file)

    def test_overlap_shows_exposed_time_over_fusion_size(self):
        file = self.write("overlap.json", overlap_rows())
        words = ["kolo, exposed", "kolo, alone", "mpi, a call each", "fusion size", "none", "16M", "20 ms", "40 MB"]
        self.draw("overlap", "overlap", words, file)

    def test_no_picture_is_drawn_of_other_rows(self):
        for kind in ("bench", "scaling", "overlap"):
            for content in ("{", "[]", {"ranks": 1}, [{"system": "kolo"}], [{"system": "kolo", "size": 4, "exposed_us": 1}]):
                done = self.plot(kind, "-o", self.folder / "never", self.write("bad.json", content))
                self.assertEqual(done.returncode, 1, (kind, content))
                self.assertIn("bad.json", done.stderr)
                self.assertNotIn("Traceback", done.stderr)

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
