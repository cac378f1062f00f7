#!/usr/bin/env python3
"""The short form of scripts/accuracy-table: the rows of LeNet on MNIST after a few steps; and a perceptron on optdigits,
which reaches its floor in seconds. accuracy_table_test.py PROGRAM"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 20
WAYS = ["dense", "top-k 1 %, warm-up"]


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
        done = table(folder, data, "--tasks", "mnist", "--seeds", "1", "--ranks", "2", "--steps", str(STEPS), "--ways",
                     ",".join(way.replace(",", ";") for way in WAYS))
        assert done.returncode == 0
        record = json.loads((pathlib.Path(folder) / "accuracy.json").read_text(encoding="utf-8"))
    print(done.stdout)
    assert [(run["way"], run["steps"]) for run in record] == [(way, STEPS) for way in WAYS], "all ways have equal steps"
    assert all(f"| {way} |" in done.stdout for way in WAYS), "a row for each way"


if __name__ == "__main__":
    main()
