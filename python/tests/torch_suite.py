#!/usr/bin/env python3
"""Runs the DistributedTest suite that comes with torch against a backend.

    torch_suite.py [--backend gloo] [--ranks 3] [TEST...]

Nothing of the suite is copied: it is imported from the installed torch. TEST is the name of a test; default: all. Tests
that need a GPU skip themselves. The last lines name what failed; over kolo, the tests of torch_exceptions.txt may, and
must.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import unittest

import torch_support

torch_support.enter_python_with_torch()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

EXCEPTIONS = pathlib.Path(__file__).with_name("torch_exceptions.txt")


def suite():
    """The suite's class for the backend that the environment names."""
    import torch
    from torch.testing._internal.common_distributed import DistTestCases

    if os.environ["BACKEND"] == "kolo":
        import kolo.torch

        kolo.torch.register()
        for feature in ("ddp", "subgroup", "plugin"):
            DistTestCases.backend_feature[feature].add("kolo")
    from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

    class TestDistributed(TestDistBackend, DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            # Forked, not spawned: ranks need not import torch again.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return TestDistributed


def exceptions():
    """The tests that may fail over kolo."""
    lines = EXCEPTIONS.read_text(encoding="utf-8").splitlines()
    return {line.partition(":")[0] for line in lines if line and not line.startswith("#")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="kolo")
    parser.add_argument("--ranks", default="3")
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        for name in ("barrier", "test_dir", "init_dir"):
            os.mkdir(os.path.join(folder, name))
        os.environ |= {
            "BACKEND": options.backend,
            "WORLD_SIZE": options.ranks,
            "TEMP_DIR": folder,
            "INIT_METHOD": "file://" + os.path.join(folder, "init_dir", "store"),
        }
        globals()["TestDistributed"] = suite()
        names = [f"TestDistributed.{test}" for test in options.tests]
        program = unittest.main(argv=[sys.argv[0], *names], verbosity=2, exit=False)
    failed = {case.id().rpartition(".")[2] for case, _ in program.result.failures + program.result.errors}
    print(f"{program.result.testsRun} tests, {len(program.result.skipped)} skipped, {len(failed)} failed: {' '.join(sorted(failed))}")
    excepted = exceptions() if options.backend == "kolo" else set()
    unexpected = failed - excepted
    passed = excepted - failed if not options.tests else set()
    if unexpected:
        print("not among the exceptions:", *sorted(unexpected))
    if passed:
        print("exceptions that pass now, to be taken from the list:", *sorted(passed))
    return 1 if unexpected or passed else 0


if __name__ == "__main__":
    sys.exit(main())
