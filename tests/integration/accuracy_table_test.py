#!/usr/bin/env python3
"""The short form of scripts/accuracy-table: LeNet on MNIST for a few steps, two seeds; and a perceptron on optdigits,
which reaches its floor in seconds. accuracy_table_test.py PROGRAM"""

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


def table(folder, data, *options):
    command = [ROOT / "scripts" / "accuracy-table", "--data", data, "--results", folder, "--program", sys.argv[1]]
    return subprocess.run([*command, *options], check=False, stdout=subprocess.PIPE, text=True)


def check_floors(data, folder):
    if not (data / "optdigits").is_dir():
        print("skipped: there is no optdigits/ in KOLO_TEST_DATA, so no floor is checked")
        return
    options = ["--floors", "--tasks", "optdigits", "--seeds", "1", "--ranks"]
    done = table(folder, data, *options, "1,2")
    print(done.stdout)
    assert done.returncode == 0, "the floor of optdigits is reached"
    short = table(folder, data, *options, "1", "--steps", "1")
    assert short.returncode == 1 and "(below)" in short.stdout, "a run of one step is below it"


def main():
    data = pathlib.Path(os.environ.get("KOLO_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not (data / "mnist").is_dir():
        print("skipped: KOLO_TEST_DATA does not name a directory with mnist/")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        check_floors(data, folder)
        done = table(folder, data, "--tasks", "mnist", "--seeds", "2", "--ranks", "2", "--steps", str(STEPS), "--ways",
                     ",".join(way.replace(",", ";") for way in WAYS))
        assert done.returncode == 0
        record = json.loads((pathlib.Path(folder) / "accuracy.json").read_text(encoding="utf-8"))
    print(done.stdout)
    assert all(run["steps"] == STEPS for run in record), "all ways have equal steps"
    assert all(f"| {way} |" in done.stdout for way in WAYS), "a row for each way"
    loss = {way: statistics.fmean(run["eval_loss"] for run in record if run["way"] == way) for way in WAYS}
    # 16 bits cost nothing (observed: 2 %). Residuals must pay, and so must dense steps of a warm-up
    # (observed: each of these losses is about 15 % below the previous one).
    assert abs(loss["fp16"] - loss["dense"]) < 0.05 * loss["dense"], loss
    assert loss["top-k 1 %"] < loss["top-k 1 %, no feedback"], loss
    assert loss["top-k 1 %, warm-up"] < loss["top-k 1 %"], loss


if __name__ == "__main__":
    main()
