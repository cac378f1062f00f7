#!/usr/bin/env python3
"""The short form of scripts/accuracy-table: LeNet on MNIST for a few steps, two seeds. accuracy_table_test.py PROGRAM"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 200
WAYS = ["dense", "fp16", "top-k 1 %, no feedback", "top-k 1 %", "top-k 1 %, warm-up"]


def main():
    data = pathlib.Path(os.environ.get("KOLO_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not (data / "mnist").is_dir():
        print("skipped: KOLO_TEST_DATA does not name a directory with mnist/")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [ROOT / "scripts" / "accuracy-table", "--tasks", "mnist", "--seeds", "2", "--ranks", "2", "--steps",
             str(STEPS), "--ways", ",".join(way.replace(",", ";") for way in WAYS), "--data", data, "--results", folder,
             "--program", sys.argv[1]], check=True, stdout=subprocess.PIPE, text=True)  # fmt: skip
        record = json.loads((pathlib.Path(folder) / "accuracy.json").read_text(encoding="utf-8"))
    print(done.stdout)
    assert all(run["steps"] == STEPS for run in record), "all ways have equal steps"
    assert all(f"| {way} |" in done.stdout for way in WAYS), "a row for each way"
    loss = {way: statistics.fmean(run["eval_loss"] for run in record if run["way"] == way) for way in WAYS}
    # 16 bits cost nothing (seen: 2 %). What is kept for later is worth keeping, and so are a warm-up's dense steps (seen:
    # each of these losses is about 15 % below the one before).
    assert abs(loss["fp16"] - loss["dense"]) < 0.05 * loss["dense"], loss
    assert loss["top-k 1 %"] < loss["top-k 1 %, no feedback"], loss
    assert loss["top-k 1 %, warm-up"] < loss["top-k 1 %"], loss


if __name__ == "__main__":
    main()
