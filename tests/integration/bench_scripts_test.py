#!/usr/bin/env -S python3 -B
"""Tests that scripts/bench-host and scripts/bench-cluster leave rows of every launch, tables and
pictures, and nothing else.

Called as `bench_scripts_test.py KOLO_BENCH`. Sizes are small, because only files are tested.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = sys.argv.pop(1)
CLUSTER_NAME = f"bench{os.getpid()}"
# Calls kolo-bench with a small model.
SMALL = """#!/bin/sh
if [ "$1" = overlap ]; then set -- "$@" --width 16 --compute-ms 1 --fusion-sizes 64K; fi
exec "{}" "$@"
"""


def run(script, *arguments, program=PROGRAM):
    cheap = {"BENCH_SECONDS": "0.01", "BENCH_LAYERS": "1"}
    environment = {**os.environ, **cheap, "BENCH_PROGRAM": program, "KOLO_CLUSTER": CLUSTER_NAME}
    return subprocess.run(
        [ROOT / "scripts" / script, *map(str, arguments)], capture_output=True, text=True, env=environment
    )


class BenchScripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name, "results")
        self.folder.mkdir()
        self.program = pathlib.Path(folder.name, "kolo-bench")
        self.program.write_text(SMALL.format(PROGRAM))
        self.program.chmod(0o755)

    def succeed(self, script, *arguments):
        done = run(script, *arguments, "--results", self.folder, program=self.program)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def rows(self, name):
        rows = json.loads((self.folder / name).read_text())
        for row in rows:
            self.assertTrue(row["machine"] and row["commit"] and row["command"].startswith("kolo-bench"))
            self.assertFalse(row["wrong"])
        return rows

    def expect_files(self, *names):
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), sorted(names))

    def test_one_host(self):
        self.succeed("bench-host", "--ranks", "2", "--sizes", "64K", "--overlap-iterations", "3")
        rows = self.rows("host.json")
        bound = ["copies, bound"] if os.cpu_count() >= 2 else []
        self.assertEqual({row["label"] for row in rows if row["system"] == "mpi"}, {"copies", "CMA", "UCX", *bound})
        self.assertEqual({row["memory"] for row in rows if row["system"] == "kolo"}, {"arena", "user"})
        self.assertIn("streaming", {row["system"] for row in rows})
        script = f"scripts/bench-host --ranks 2 --sizes 64K --overlap-iterations 3 --results {self.folder}"
        self.assertEqual({row["script"] for row in rows}, {script})
        self.assertGreater(len(self.rows("host-overlap.json")), 3)
        self.assertIn("### 2 ranks on 1 node", (self.folder / "host.md").read_text())
        pictures = [f"{name}.{kind}" for name in ("host-2-ranks", "host-overlap-2-ranks") for kind in ("svg", "png")]
        self.expect_files("host.json", "host.md", "host-overlap.json", *pictures)

    def test_a_cluster(self):
        check = subprocess.run([ROOT / "scripts" / "cluster", "check"], capture_output=True, text=True)
        if check.returncode:
            self.skipTest(check.stdout.strip())
        earlier = {"system": "kolo", "size": 4, "dtype": "float32", "op": "sum", "ranks": 2, "nodes": 2, "in_place": True,
                   "memory": "user", "algorithm": "tree", "label": "TCP", "rate": "none", "time_us": 9.5, "wrong": 0,
                   "machine": "another", "commit": "abc", "command": "kolo-bench all-reduce"}  # fmt: skip
        (self.folder / "cluster.json").write_text(json.dumps([earlier]))
        self.succeed("bench-cluster", "--shapes", "2x1", "--rates", "1gbit", "--sizes", "64K", "--add")
        kept, *rows = self.rows("cluster.json")
        self.assertEqual({name: kept[name] for name in earlier}, earlier)
        self.assertEqual({(row["rate"], row["nodes"], row["ranks"]) for row in rows}, {("1gbit", 2, 2)})
        self.assertEqual({row["label"] for row in rows if row["system"] == "mpi"}, {"TCP", "UCX"})
        self.assertEqual({row["algorithm"] for row in rows if row["system"] == "limit"}, {"wire"})
        self.expect_files("cluster.json", "cluster.md", "cluster-2x1-1gbit.svg", "cluster-2x1-1gbit.png")
        down = subprocess.run([ROOT / "scripts" / "cluster", "status"], env={**os.environ, "KOLO_CLUSTER": CLUSTER_NAME})
        self.assertEqual(down.returncode, 1)

    def test_wrong_calls_are_refused(self):
        for script in ("bench-host", "bench-cluster"):
            self.assertEqual(run(script, "--no-such-option").returncode, 64)
        self.assertEqual(run("bench-host", "--ranks", "two").returncode, 64)
        self.assertEqual(run("bench-cluster", "--shapes", "2").returncode, 64)


if __name__ == "__main__":
    if not shutil.which("gnuplot"):
        print("skipped: gnuplot is missing")
        sys.exit(77)
    unittest.main(verbosity=2)
