#!/usr/bin/env python3
"""Runs the DistributedTest suite that comes with torch against a backend.

    torch_suite.py --backend gloo --save FILE    writes down which tests pass
    torch_suite.py --beside FILE                 demands the same of kolo
    torch_suite.py [--ranks 3] [TEST...]         demands that no test fails

The suite is imported from the installed torch. TEST is the name of a test; default: all. Tests that need a GPU skip
themselves. Over kolo, the tests of torch_exceptions.txt fail or skip themselves, each for the reason given there. The
last lines of the output name other tests that do so, and tests of that file that pass now.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import unittest

import torch_support

torch_support.enter_python_with_torch()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

EXCEPTIONS = pathlib.Path(__file__).with_name("torch_exceptions.txt")


def suite(backend):
    """Returns the suite's class for this backend. The suite selects tests by the names of torch's own backends, so the
    name is Gloo's until it has selected them."""
    import torch

    os.environ["BACKEND"] = "gloo"
    from torch.testing._internal.distributed import distributed_test

    os.environ["BACKEND"] = distributed_test.BACKEND = backend
    if backend == "kolo":
        import kolo.torch

        kolo.torch.register()

    class TestDistributed(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            # Forked, not spawned, so that ranks need not import torch again.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return TestDistributed


def exceptions():
    """Returns the tests that do not pass over kolo."""
    lines = EXCEPTIONS.read_text(encoding="utf-8").splitlines()
    return {line.partition(":")[0] for line in lines if line and not line.startswith("#")}


def names_of(cases):
    return {case.id().rpartition(".")[2] for case, _ in cases}


class Result(unittest.TextTestResult):
    """A result that also records which tests began."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.began = []

    def startTest(self, test):
        super().startTest(test)
        self.began.append(test.id().rpartition(".")[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="kolo")
    parser.add_argument("--ranks", default="3")
    parser.add_argument("--save", metavar="FILE")
    parser.add_argument("--beside", metavar="FILE")
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        for name in ("barrier", "test_dir", "init_dir"):
            os.mkdir(os.path.join(folder, name))
        os.environ |= {
            "WORLD_SIZE": options.ranks,
            "TEMP_DIR": folder,
            "INIT_METHOD": "file://" + os.path.join(folder, "init_dir", "store"),
        }
        globals()["TestDistributed"] = suite(options.backend)
        names = [f"TestDistributed.{test}" for test in options.tests]
        runner = unittest.TextTestRunner(resultclass=Result, verbosity=2)
        program = unittest.main(argv=[sys.argv[0], *names], testRunner=runner, exit=False)
    result = program.result
    failed, skipped = names_of(result.failures + result.errors), names_of(result.skipped)
    passed = set(result.began) - failed - skipped
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    if options.save:
        pathlib.Path(options.save).write_text(json.dumps(sorted(passed)), encoding="utf-8")
    wanted = set(json.loads(pathlib.Path(options.beside).read_text(encoding="utf-8"))) if options.beside else set()
    excepted = exceptions() if options.backend == "kolo" else set()
    unexpected = (failed | (wanted - passed)) - excepted
    if unexpected:
        print("not among the exceptions:", *sorted(unexpected))
    if excepted & passed:
        print("exceptions that pass now, to be taken from the list:", *sorted(excepted & passed))
    return 1 if unexpected or excepted & passed else 0


if __name__ == "__main__":
    sys.exit(main())
