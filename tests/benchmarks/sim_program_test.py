#!/usr/bin/env -S python3 -B
"""Tests kolo-sim and scripts/plot-sim as users start them. Called as `sim_program_test.py
KOLO_SIM`."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = sys.argv.pop(1)


class SimTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out.json"

    def run_it(self, *arguments, status=0, program=PROGRAM):
        done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr + done.stdout)
        return done

    def rows(self, *arguments):
        self.run_it(*arguments, "--json", self.out)
        return json.loads(self.out.read_text(encoding="utf-8"))

    def test_all_reduce_writes_a_row_per_size_ranks_rate_and_algorithm(self):
        rows = self.rows(
            "all-reduce", "--ranks", "2,4", "--gbit", "1,10", "--bytes", "4,1M", "--algorithm", "ring",
            "--algorithm", "direct",
        )  # fmt: skip
        self.assertEqual(len(rows), 16)
        for row in rows:
            self.assertLess(0, row["time_us"])
            self.assertEqual(row["nodes"], row["ranks"])
        large = [row for row in rows if row["size"] == 1 << 20 and row["algorithm"] == "ring" and row["ranks"] == 2]
        slow, fast = (next(r for r in large if round(r["network_gbit"]) == rate) for rate in (1, 10))
        self.assertGreater(slow["time_us"], 8 * fast["time_us"])

    def test_equal_seeds_give_equal_times(self):
        late = ["all-reduce", "--ranks", 16, "--ranks-per-node", 4, "--bytes", "1M", "--late-us", 300]
        first, again = self.rows(*late, "--seed", 1), self.rows(*late, "--seed", 1)
        self.assertEqual(first, again)
        self.assertNotEqual(first, self.rows(*late, "--seed", 2))

    def test_an_option_that_a_call_would_ignore_is_an_error(self):
        for text, *command in (
            ("--ranks belongs to calls without --nodes", "all-reduce", "--ranks", 4, "--nodes", 2),
            ("--seed belongs to --late-us, or --slow-share", "all-reduce", "--seed", 7),
            ("--slow-factor belongs to --slow-share", "step", "--slow-factor", 2),
            ("--slow-share belongs to --slow-factor", "step", "--slow-share", 0.5),
            ("--seed belongs to", "collective", "--collective", "gather", "--seed", 7),
            ("--batch belongs to calls without --compute-ms", "step", "--batch", 9, "--compute-ms", 5),
            ("--tflops belongs to calls without --compute-ms", "step", "--tflops", 9, "--compute-ms", 5),
            ("--compression belongs to --memory arena and user", "step", "--memory", "device", "--compression",
             "topk(0.01)"),
        ):  # fmt: skip
            with self.subTest(command=command):
                self.assertIn(f"kolo: {text}", self.run_it(*command, status=64).stderr)

    def test_its_own_rows_can_be_checked(self):
        rows = self.rows("all-reduce", "--ranks", 4, "--bytes", "4,1M,16M", "--algorithm", "ring")
        for row in rows:
            row["system"] = "kolo"
        measured = self.folder / "measured.json"
        measured.write_text(json.dumps(rows), encoding="utf-8")
        checked = self.rows("check", "--column", "time_us", "--measured", measured)
        self.assertEqual(len(checked), 3)
        for row in checked:
            self.assertLess(abs(row["error"]), 0.02)
        slower = self.rows(
            "check", "--column", "time_us", "--link-costs", "network_bytes_per_us=10", "--measured", measured
        )  # fmt: skip
        self.assertGreater(slower[-1]["error"], 10)

    def test_the_rows_of_a_host_can_be_checked(self):
        host = ROOT / "benchmarks" / "results" / "host.json"
        checked = self.rows("check", "--column", "p99_us", "--measured", host)
        measured = [
            row for row in json.loads(host.read_text(encoding="utf-8"))
            if row["system"] == "kolo" and row["p99_us"] is not None and (row["in_place"] or row["memory"] == "user")
        ]  # fmt: skip
        self.assertEqual([row["measured_us"] for row in checked], [row["p99_us"] for row in measured])
        self.assertIn("auto", {row["algorithm"] for row in checked})

    def test_steps_can_be_drawn(self):
        if not shutil.which("gnuplot"):
            self.skipTest("gnuplot is missing")
        self.rows("step", "--model", "resnet50", "--ranks", "1,8,16", "--ranks-per-node", 8, "--gbit", "10,100")
        self.run_it("-o", self.folder / "efficiency", self.out, program=ROOT / "scripts" / "plot-sim")
        svg = (self.folder / "efficiency.svg").read_text(encoding="utf-8")
        for word in ("ResNet-50", "100 Gbit/s", "efficiency (%)", "ranks"):
            self.assertIn(word, svg)
        self.assertTrue((self.folder / "efficiency.png").read_bytes().startswith(b"\x89PNG"))

    def test_a_job_on_a_mesh_is_predicted(self):
        text = self.folder / "text"
        text.write_text("to be, or not to be: " * 999, encoding="utf-8")
        job = ["mesh", "--data", text, "--layers", 4, "--width", 32, "--heads", 4, "--tied", "off", "--context", 16, "--batch", 2]
        whole, split, deep = (
            self.rows(*job, "--ranks", ranks, "--mesh", mesh, "--accumulate", 6)[0]
            for ranks, mesh in ((1, "auto"), (8, "tensor=2,pipeline=2"), (8, "data=2,pipeline=4"))
        )
        self.assertEqual(split["mesh"], "data=2,tensor=2,pipeline=2")
        # Block: 12 w² + 13 w, of which 6 w are on all tensor ranks; the first stage has 256 words and 16 positions.
        self.assertEqual(split["parameters_per_rank"][0], 2 * ((12 * 32 + 7) * 32 // 2 + 6 * 32) + (128 + 16) * 32)
        self.assertEqual(sum(deep["parameters_per_rank"]), 2 * whole["parameters"])
        self.assertEqual(whole["bubble"], 0)
        self.assertLess(split["bubble"], deep["bubble"])
        self.assertLess(split["activation_bytes"], whole["activation_bytes"])
        slow, fast = (self.rows(*job, "--mesh", "pipeline=4", "--gbit", gbit)[0] for gbit in (0.01, 100))
        self.assertGreater(slow["step_ms"], 10 * fast["step_ms"])
        big = self.rows("mesh", "--data", text, "--shape", "gpt2-xl", "--mesh", "pipeline=8")[0]
        self.assertGreater(big["optimizer_bytes"], 8 * big["parameters"])
        for text, *wrong in (
            ("--heads 4 cannot be dealt out to 8", "--mesh", "tensor=8"),
            ("--lairs", "--lairs", 5),
        ):  # fmt: skip
            with self.subTest(wrong=wrong):
                done = subprocess.run([PROGRAM, *map(str, [*job, *wrong])], capture_output=True, text=True, check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(text, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_steps_with_compression_say_what_was_chosen(self):
        step = ["step", "--ranks", 4, "--gbit", "1", "--memory", "user", "--compute-ms", 50]
        (dense,) = self.rows(*step)
        (sparse,) = self.rows(*step, "--compression", "topk(0.01)")
        self.assertEqual((dense["compression"], dense["sparse_buckets"]), ("none", 0))
        self.assertGreater(sparse["sparse_buckets"], 0)
        self.assertLess(10 * sparse["wire_bytes"], dense["wire_bytes"])
        self.assertLess(sparse["step_ms"], dense["step_ms"])
        chosen = self.run_it(*step, "--compression", "auto").stdout
        self.assertIn("predicted", chosen.split("\n#   ")[1])

    def test_compressions_can_be_drawn_and_told_over_rates(self):
        if not shutil.which("gnuplot"):
            self.skipTest("gnuplot is missing")
        ways = [word for way in ("none", "fp16", "topk(0.01)", "auto") for word in ("--compression", way)]
        self.rows("step", "--ranks", "2,4", "--gbit", "0.1,100", "--memory", "user", "--compute-ms", 30, *ways)
        plot = ROOT / "scripts" / "plot-sim"
        self.run_it("--over", "gbit", "-o", self.folder / "map", self.out, program=plot)
        svg = (self.folder / "map.svg").read_text(encoding="utf-8")
        for word in ("topk(0.01)", "fp16", "auto", "4 ranks", "Gbit/s", "times as fast"):
            self.assertIn(word, svg)
        table = self.run_it("--table", self.out, program=plot).stdout.splitlines()
        self.assertEqual(len(table), 4)
        self.assertRegex(table[2], r"^\| 0.1 \| 0.01 \| topk [0-9.]+ × \([0-9.]+\) \| topk ")
        self.assertRegex(table[3], r"^\| 100 \| 0.01 \| dense 1.0 × ")
        self.assertEqual(self.rows("step", "--compression", "fp16")[0]["compression"], "fp16")
        self.assertIn("without compression", self.run_it("--table", self.out, program=plot, status=1).stderr)

    def test_what_is_wrong_is_named(self):
        wrong = [
            (64, ["all-reduce", "--ranks", 5000]),
            (78, ["all-reduce", "--ranks", 12, "--ranks-per-node", 8]),
            (78, ["all-reduce", "--ranks", 4096, "--algorithm", "ring", "--bytes", "64M"]),
            (64, ["step", "--model", "alexnet"]),
            (64, ["step", "--compression", "magic(7)"]),
            (74, ["check", "--measured", self.folder]),
            (74, ["all-reduce", "--bytes", "4", "--json", self.folder]),
            (64, ["step", "--compute-ms", "-3"]),
            (64, ["step", "--batch", "0"]),
            (74, ["check", "--measured", self.folder / "nothing.json"]),
        ]
        for status, arguments in wrong:
            self.assertNotEqual(self.run_it(*arguments, status=status).stderr, "")


if __name__ == "__main__":
    unittest.main()
