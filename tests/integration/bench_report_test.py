#!/usr/bin/env -S python3 -B
"""Tests that scripts/bench-report gathers all rows and computes ratios within a launch."""

import json
import pathlib
import subprocess
import tempfile
import unittest

REPORT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "bench-report"


def row(system, median, label="", **fields):
    return {
        "system": system, "size": 65536, "dtype": "float32", "op": "sum", "ranks": 2, "nodes": 1, "in_place": True, "fresh": True,
        "memory": "user", "algorithm": "way", "label": label, "time_us": 2 * median, "median_us": median, **fields,
    }  # fmt: skip


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, rows):
        path = self.folder / name
        path.write_text(json.dumps(rows))
        return path

    def report(self, *arguments):
        return subprocess.run([REPORT, *map(str, arguments)], capture_output=True, text=True, check=False)

    def table(self, *arguments):
        done = self.report("table", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
        head, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        return [dict(zip(head, cells, strict=True)) for cells in body]

    def test_merge_keeps_every_row_and_adds_fields(self):
        one, two = self.write("one.json", [row("kolo", 1)]), self.write("two.json", [row("mpi", 2), row("limit", 1)])
        out = self.folder / "all.json"
        done = self.report("merge", "-o", out, "--set", "rate=1gbit", "--set", "command=a=b", one, two)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(out.read_text())
        self.assertEqual([entry["system"] for entry in rows], ["kolo", "mpi", "limit"])
        self.assertTrue(all(entry["rate"] == "1gbit" and entry["command"] == "a=b" for entry in rows))

    def test_a_peer_counts_with_the_launch_in_which_it_does_best_beside_kolo(self):
        # The ratios of the launches are 30 to 10 and 20 to 5. The best times of all launches would
        # give 20 to 5 or 20 to 10.
        rows = [row("kolo", 10, "a", memory="arena"), row("mpi", 30, "a"), row("limit", 4, "a"),
                row("kolo", 5, "b", memory="arena"), row("mpi", 20, "b"), row("limit", 6, "b")]  # fmt: skip
        (line,) = self.table(self.write("rows.json", rows))
        self.assertEqual(line["size"], "64K")
        self.assertEqual(line["mpi / kolo, arena"], "3.0")
        self.assertEqual(line["mpi µs (algorithm)"], "20.0 (b, way)")
        # The ratios of the launches are 10 to 4 and 5 to 6. The table has their mean.
        self.assertEqual(line["kolo, arena / limit"], "1.67")

    def test_what_is_measured_once_more_counts_instead(self):
        old = [row("kolo", 1), row("kolo", 2, "b"), row("kolo", 3, memory="arena"), row("kolo", 4, rate="1gbit")]
        new = [row("kolo", 5)]
        out = self.folder / "all.json"
        self.report("merge", "-o", out, self.write("old.json", old), self.write("new.json", new))
        self.assertEqual([entry["median_us"] for entry in json.loads(out.read_text())], [2, 3, 4, 5])

    def test_latency_is_told_from_the_launch_where_the_peer_does_best(self):
        rows = [row("kolo", 10, "a", size=4, p99_us=11), row("mpi", 30, "a", size=4, p99_us=90),
                row("kolo", 10, "b", size=4, p99_us=12), row("mpi", 20, "b", size=4, p99_us=21),
                row("kolo", 9, "c", size=4, p99_us=9), row("kolo", 1, size=4096), row("mpi", 1, size=4096)]  # fmt: skip
        done = self.report("latency", self.write("rows.json", rows))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[2:],
                         ["| 2 ranks on 1 node, float32 sum, in place | 4 | 10.0 | 12.0 | 20.0 | 21.0 | b | 2.00 |"])
        nobody = self.report("latency", "--beside", "gloo", self.folder / "rows.json")
        self.assertEqual(nobody.returncode, 1)
        self.assertIn("gloo", nobody.stderr)

    def test_facts_that_a_comparison_needs_stand_below_its_table(self):
        rows = [row("kolo", 10, memory="arena"), row("mpi", 30), row("gloo", 40), row("streaming", 5)]
        text = self.report("table", self.write("rows.json", rows)).stdout
        for words in ("write into each other's gradients", "loopback", "no lower bound", "gloo over loopback TCP µs"):
            self.assertIn(words, text)
        self.assertNotIn("han", text)
        between = [{**each, "nodes": 2, "ranks": 4, "rate": "none"} for each in (*rows[:3], row("limit", 5))]
        text = self.report("table", self.write("between.json", between)).stdout
        self.assertIn("without Open MPI's hierarchical component han", text)
        self.assertIn("TCP stream µs", text)  # without a rate of the links it is no limit
        self.assertNotIn("loopback", text)
        between[1]["candidates"] = ["ring", "han, copied"]
        text = self.report("table", self.write("between.json", between)).stdout
        self.assertIn("han crashes", text)
        self.assertNotIn("without Open MPI", text)

    def test_shapes_have_tables_of_their_own_and_missing_figures_are_dashes(self):
        rows = [row("kolo", 10), row("mpi", 30), row("kolo", 7, ranks=4), row("kolo", 1, in_place=False, size=4)]
        file = self.write("rows.json", rows)
        done = self.report("table", file)
        self.assertEqual(done.stdout.count("### "), 3)
        (line,) = self.table("--where", "ranks=4", file)
        self.assertEqual(line, {"size": "64K", "kolo, user µs": "7.0"})
        rows = [row("kolo", 10), row("mpi", 30), row("kolo", 3, size=4)]
        small, _ = self.table(self.write("gap.json", rows))
        self.assertEqual((small["size"], small["mpi µs (algorithm)"], small["mpi / kolo, user"]), ("4", "–", "–"))

    def test_collectives_have_tables_of_their_own(self):
        moved = {"collective": "all-gather", "op": None, "in_place": False}
        rows = [row("kolo", 10, memory="arena"), row("kolo", 5, memory="arena", **moved), row("gloo", 15, **moved)]
        merged = self.folder / "all.json"
        self.report("merge", "-o", merged, self.write("rows.json", rows))
        text = self.report("table", merged).stdout
        self.assertIn("### 2 ranks on 1 node, float32 sum, in place", text)
        self.assertIn("### all-gather, 2 ranks on 1 node, float32, out of place", text)
        self.assertIn("read each other's buffers", text)
        (line,) = self.table("--where", "collective=all-gather", merged)
        self.assertEqual(line["gloo / kolo, arena"], "3.0")
        (line,) = self.table("--where", "collective=all-reduce", merged)
        self.assertEqual(line["kolo, arena µs"], "10.0")

    def test_untouched_contributions_are_another_case_and_every_mpi_library_a_column(self):
        moved = {"collective": "broadcast", "op": None}
        four, five = {"library": "Open MPI v4.1.4"}, {"library": "Open MPI v5.0.11"}
        rows = [row("kolo", 10, "a"), row("kolo", 5, "a", fresh=False), row("kolo", 8, "b"),
                row("mpi", 30, "a", **four), row("mpi", 16, "b", **five), row("mpi", 7, "b", library="MPICH Version: 5.0.2"),
                row("mpi", 1, "a", library="Intel(R) MPI Library 2021.18 for Linux* OS", **moved)]  # fmt: skip
        merged = self.folder / "all.json"
        self.report("merge", "-o", merged, self.write("rows.json", rows))
        self.assertEqual(len(json.loads(merged.read_text())), len(rows))
        text = self.report("table", merged).stdout
        self.assertIn("### 2 ranks on 1 node, float32 sum, in place, untouched", text)
        self.assertIn("Intel MPI 2021.18 µs", text)
        (line,) = self.table("--where", "collective=all-reduce", "--where", "fresh=true", merged)
        self.assertEqual(line["Open MPI 4.1.4 / kolo, user"], "3.0")
        self.assertEqual(line["Open MPI 5.0.11 / kolo, user"], "2.0")
        self.assertEqual(line["MPICH 5.0.2 µs (algorithm)"], "7.0 (b, way)")
        best = self.report("latency", "--sizes", "64K", "--where", "fresh=true", merged).stdout.splitlines()[-1]
        self.assertIn("| 7.0 | – | b |", best)

    def test_what_is_not_rows_is_named(self):
        for content in ({"ranks": 1}, [1], []):
            done = self.report("table", self.write("bad.json", content))
            self.assertEqual(done.returncode, 1)
            self.assertNotIn("Traceback", done.stderr)
        self.assertIn("absent.json", self.report("table", self.folder / "absent.json").stderr)


if __name__ == "__main__":
    unittest.main()
