#!/usr/bin/env -S python3 -B
"""Tests a libtorch program, built like a user's with the installed package, on two ranks.

    libtorch_test.py BUILD_FOLDER GENERATOR COMPILER

Skipped without torch, which scripts/torch-check installs.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent / "libtorch"
sys.path.insert(0, str(SOURCE.parents[2] / "python" / "tests"))
import torch_support  # noqa: E402

torch_support.enter_python_with_torch()

BUILD, GENERATOR, COMPILER = sys.argv[1:]
WORK = tempfile.TemporaryDirectory()
# the program that job.py starts
sys.argv[1:] = [os.path.join(WORK.name, "build", "libtorch_example")]
import job  # noqa: E402


def cmake(*arguments):
    done = subprocess.run(["cmake", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stdout)


class LibtorchTest(unittest.TestCase):
    def test_two_ranks_train_as_one(self):
        prefix = f"{WORK.name}/prefix"
        torch = importlib.util.find_spec("torch").submodule_search_locations[0]
        cmake("--install", BUILD, "--prefix", prefix, "--component", "library")
        cmake(
            *("-S", SOURCE, "-B", f"{WORK.name}/build", "-G", GENERATOR, "-DCMAKE_BUILD_TYPE=Release"),
            *(f"-DCMAKE_CXX_COMPILER={COMPILER}", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DTORCH_FOLDER={torch}"),
        )
        cmake("--build", f"{WORK.name}/build")
        outcome = job.run([], [2], calibrate="off")
        self.assertEqual(outcome.statuses, [0, 0], outcome)
        self.assertEqual(len(outcome.find("(on 2 ranks, as on one)")), 2, outcome)


if __name__ == "__main__":
    job.main()
