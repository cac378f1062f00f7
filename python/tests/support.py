"""Shared code of all tests of this folder, and of the scenes that ranks run: the package's path, a Python with NumPy,
the library to load, blocks that must raise.

A test file is called as `NAME.py [LIBRARY]`, or as `NAME.py LIBRARY mpi=1 ucx=1` if it starts jobs. It imports this file
first.
"""

import os
import pathlib
import subprocess
import sys
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent


class raises:
    """A block that must raise an error of this kind with these texts. `error` is the error afterwards."""

    def __init__(self, kind, *texts):
        self._kind = kind
        self._texts = texts

    def __enter__(self):
        return self

    def __exit__(self, _, error, trace):
        assert error is not None, f"no error: {self._kind} {self._texts}"
        if not isinstance(error, self._kind):
            return False
        self.error = error.with_traceback(None)  # The traceback would keep the block's objects alive.
        for text in self._texts:
            assert text in str(error), f"{text!r} is not in: {error}"
        return True


def play(scenes, *arguments):
    """Calls the scenes that the command line names ("a,b"), each with these arguments."""
    for name in sys.argv[1].split(","):
        scenes[name](*arguments)


def has_numpy(python):
    try:
        return subprocess.run([python, "-c", "import numpy"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def enter_python_with_numpy():
    """Restarts the test in a Python with NumPy: this one, or the system's. Without one, prints the reason and exits
    with 77."""
    if has_numpy(sys.executable):
        return
    for python in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if has_numpy(python):
            os.execv(python, [python, "-B", *sys.argv])
    print("skipped: no Python with NumPy was found; on Debian the package python3-numpy has it")
    sys.exit(77)


def load_the_library_named():
    """Makes the package load the library that the command line names; without one the package searches for it."""
    if len(sys.argv) > 1:
        os.environ["KOLO_LIBRARY"] = sys.argv[1]


def main():
    """Runs the tests of the calling file, or those that the command line names after the library; exits with 77 if
    there are none."""
    names = [word for word in sys.argv[2:] if "=" not in word and not word.startswith("-")]
    program = unittest.main(argv=[sys.argv[0], "-v", *names], exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    if len(program.result.skipped) == program.result.testsRun:
        print("skipped:", *{reason for _, reason in program.result.skipped})
        sys.exit(77)


sys.path.insert(0, str(PACKAGE))
