#!/usr/bin/env -S python3 -B
"""Tests that Python, the pages and the library agree with the C header."""

import ctypes
import re
import shutil
import subprocess
import tempfile
import unittest

import support

support.load_the_library_named()

import kolo  # noqa: E402  (the library comes first)
from kolo import _c, _dtypes, _header  # noqa: E402
from kolo._library import library  # noqa: E402

DOCS = support.ROOT / "docs"
STRUCTS = _header.structs()


class Header(unittest.TestCase):
    def test_it_is_read_at_all(self):
        self.assertGreater(len(_c.FUNCTIONS), 50)
        self.assertGreater(len(STRUCTS), 10)
        self.assertEqual(set(_c.FUNCTIONS), set(re.findall(r"\b(kolo_\w+)\(", _header.TEXT)))

    def test_the_library_names_what_the_header_numbers(self):
        names_of = {"status": library().kolo_status_name, "dtype": library().kolo_dtype_name, "op": library().kolo_op_name}
        shorter = {"AUTH": "authentication", "CONFIG": "configuration", "IO": "I/O", "TIMEOUT": "time-out"}
        for kind, name_of in names_of.items():
            body = re.search(rf"typedef int32_t kolo_{kind};\s*enum \{{(.*?)\}}", _header.TEXT, re.DOTALL)[1]
            numbers = {name: int(number) for name, number in re.findall(r"KOLO_(\w+) = (\d+)", body)}
            numbers.pop("SAME_DTYPE", None)
            for name, number in numbers.items():
                expected = shorter.get(name, name.lower())
                self.assertEqual(name_of(number).decode().replace(" ", "_"), expected.replace(" ", "_"))
            self.assertIn(name_of(max(numbers.values()) + 1), (None, b"unknown"))

    def test_the_page_says_which_dtypes_operations_take(self):
        page = (DOCS / "how-to" / "operations.md").read_text(encoding="utf-8")
        table = re.search(r"^\| \| `float32`.*?\n\n", page, re.MULTILINE | re.DOTALL)[0]
        cells = [line[1:-1].split("|") for line in table.splitlines()]
        columns = [re.findall(r"`(\w+)`", cell) for cell in cells[0]]
        says = {
            (op, dtype): bool(cell.strip())
            for row in cells[2:]
            for op in re.findall(r"`(\w+)`", row[0])
            for dtypes, cell in zip(columns[1:], row[1:])
            for dtype in dtypes
        }
        takes = library().kolo_op_takes
        is_so = {
            (op, dtype.name): bool(takes(number, dtype.code))
            for op, number in _dtypes.ops().items()
            for dtype in _dtypes.dtypes()
        }
        self.assertEqual(says, is_so)

    def test_the_page_lists_every_exit_status(self):
        page = (DOCS / "failures.md").read_text(encoding="utf-8")
        table = dict(re.findall(r"^\| (\d\d) \| ([^|]+) \|", page, re.MULTILINE))
        for status in set(kolo.Status) - {kolo.Status.OK}:
            name = library().kolo_status_name(status).decode()
            self.assertIn(name, table[str(library().kolo_exit_status(status))])

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_struct_offsets(self):
        lines = []
        expected = []
        for name in STRUCTS:
            struct = getattr(_c, name)
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            expected.append(f"{name} {ctypes.sizeof(struct)}")
            for field, _ in struct._fields_:
                lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
                expected.append(f"{name}.{field} {getattr(struct, field).offset}")
        body = "\n".join(lines)
        with tempfile.TemporaryDirectory() as folder:
            program = f"#include <stdio.h>\n#include <kolo/kolo_c.h>\nint main(void) {{ {body} return 0; }}\n"
            subprocess.run(
                ["cc", "-x", "c", "-", f"-I{_header.INCLUDE}", "-o", f"{folder}/offsets"], input=program, text=True, check=True
            )
            output = subprocess.run([f"{folder}/offsets"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(output.splitlines(), expected)


if __name__ == "__main__":
    support.main()
