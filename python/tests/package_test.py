#!/usr/bin/env -S python3 -B
"""What the package says of itself, and how scripts/wheel answers."""

import inspect
import re
import subprocess
import unittest

import support

import kolo

VERSION = re.search(r"project\(kolo VERSION ([\d.]+)", (support.ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


def public_functions():
    """Functions, methods and properties that users see, by their full names."""
    for name in kolo.__all__:
        each = getattr(kolo, name)
        if inspect.isfunction(each):
            yield name, each
        elif inspect.isclass(each):
            own = {key: value for base in reversed(each.__mro__) if is_own(base) for key, value in vars(base).items()}
            for key, value in own.items():
                value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                # A named tuple makes methods that are not written here.
                if inspect.isfunction(value) and not key.startswith("_") and is_own(value):
                    yield f"{name}.{key}", value


def is_own(each):
    return each.__module__.split(".")[0] == "kolo"


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

    def test_every_public_method_has_a_docstring_and_annotations(self):
        for name, each in public_functions():
            with self.subTest(name):
                self.assertTrue(inspect.getdoc(each), "no docstring")
                signature = inspect.signature(each)
                bare = [
                    parameter.name
                    for parameter in signature.parameters.values()
                    if parameter.annotation is parameter.empty and parameter.name not in ("self", "cls")
                ]
                self.assertEqual(bare, [], "parameters without a type")
                self.assertIsNot(signature.return_annotation, signature.empty, "no type of the result")

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
