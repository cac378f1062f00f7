#!/usr/bin/env -S python3 -B
"""What the package says of itself, and how scripts/wheel answers."""

import re
import subprocess
import unittest

import support

import kolo

VERSION = re.search(r"project\(kolo VERSION ([\d.]+)", (support.ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


class Package(unittest.TestCase):
    def test_it_has_the_version_of_the_project(self):
        described = (support.PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
        self.assertEqual(kolo.__version__, VERSION)
        self.assertIn(f'\nversion = "{VERSION}"\n', described)

    def test_every_public_name_has_a_docstring(self):
        for name in kolo.__all__:
            with self.subTest(name):
                each = getattr(kolo, name)
                self.assertTrue(isinstance(each, int) or each.__doc__)
                self.assertEqual(getattr(each, "__module__", "kolo"), "kolo")

    def test_it_says_that_it_is_typed(self):
        self.assertTrue((support.PACKAGE / "kolo" / "py.typed").exists())

    def test_it_imports_no_numpy(self):
        program = "import sys, kolo; sys.exit('numpy' in sys.modules)"
        subprocess.run([support.sys.executable, "-B", "-c", program], cwd=support.PACKAGE, check=True)


class Wheel(unittest.TestCase):
    def run_script(self, *arguments):
        command = [support.ROOT / "scripts" / "wheel", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_help(self):
        self.assertIn("scripts/wheel [--check]", self.run_script("--help").stdout)

    def test_usage_errors(self):
        done = self.run_script("--fast")
        self.assertEqual(done.returncode, 64)
        self.assertIn("unknown option --fast", done.stderr)


if __name__ == "__main__":
    support.main()
