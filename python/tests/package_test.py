#!/usr/bin/env -S python3 -B
"""Tests the package's documentation and types, and the answers of scripts/wheel."""

import _ctypes
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import support

import kolo

VERSION = re.search(r"project\(kolo VERSION ([\d.]+)", (support.ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


def public_functions():
    """Returns public functions, methods and properties, by their full names."""
    for name in kolo.__all__:
        each = getattr(kolo, name)
        if inspect.isfunction(each):
            yield name, each
        elif inspect.isclass(each):
            own = {key: value for base in reversed(each.__mro__) if is_own(base) for key, value in vars(base).items()}
            for key, value in own.items():
                value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                # A named tuple generates methods that are not written here.
                if inspect.isfunction(value) and not key.startswith("_") and is_own(value):
                    yield f"{name}.{key}", value


def is_own(each):
    return each.__module__.split(".")[0] == "kolo"


class Package(unittest.TestCase):
    def test_it_has_the_version_of_the_project(self):
        described = (support.PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
        self.assertEqual(kolo.__version__, VERSION)
        self.assertIn(f'\nversion = "{VERSION}"\n', described)

    def test_a_handle_that_nobody_opened_says_how_to_get_one(self):
        each = "try:\n    kolo.{}()\nexcept (kolo.UsageError, TypeError) as error:\n    print(error)\n"
        program = "import kolo\n" + "".join(map(each.format, ("Runtime", "Group", "GradientSet", "Ticket")))
        ran = subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONPATH": str(support.PACKAGE)}, capture_output=True, text=True, check=True
        )
        self.assertIn("job = kolo.open()", ran.stdout)
        self.assertEqual(ran.stderr, "")  # A finalizer would print its exception.

    def test_nccl_of_nvidias_packages_is_found(self):
        program = "from kolo import _library; print(_library.nvidia_nccl())"

        def found(*folders, program=program):
            path = os.pathsep.join([str(support.PACKAGE), *map(str, folders)])
            variables = {"PYTHONPATH": path, "LD_LIBRARY_PATH": str(folders[0])}
            return subprocess.run([sys.executable, "-S", "-c", program], env=variables, capture_output=True, text=True,
                                  check=True).stdout.strip()  # fmt: skip

        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            self.assertEqual(found(one, two), "")
            (pathlib.Path(one) / "nvidia" / "cublas").mkdir(parents=True)
            self.assertEqual(found(one, two), "")
            file = pathlib.Path(two) / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
            file.parent.mkdir(parents=True)
            file.touch()
            self.assertEqual(found(one, two), str(file))
            shutil.copy(_ctypes.__file__, pathlib.Path(one) / "libnccl.so.2")
            self.assertEqual(found(one, two, program=f"import ctypes; ctypes.CDLL('libnccl.so.2'); {program}"), "")

    def test_the_wheel_has_the_licence_of_all_that_is_in_its_library(self):
        libraries = (support.ROOT / "scripts/lib/wheel_libraries.sh").read_text(encoding="utf-8")
        names = re.findall(r'^  "(\S+) \S+ [0-9a-f]{64} \S+"$', libraries, re.MULTILINE)
        self.assertIn("hwloc", names)
        texts = {path.stem for path in (support.PACKAGE / "licenses").glob("*.txt")}
        self.assertEqual(texts, {*names, "cuda", "libcxx", "zig"})

    def test_the_page_of_the_package_needs_no_other_file(self):
        described = (support.PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
        page = (support.PACKAGE / re.search('^readme = "(.+)"$', described, re.MULTILINE)[1]).read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)]+)\)", page)
        self.assertEqual([link for link in links if not link.startswith("https://")], [])

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
