#!/usr/bin/env -S python3 -B
"""The ctypes declarations say what the C header says: constants, structs with their offsets, functions."""

import ctypes
import re
import shutil
import subprocess
import tempfile
import unittest

import support

from kolo import _c

INCLUDE = support.ROOT / "runtime" / "include"
OPAQUE = r"kolo_(runtime|group|ticket|gradients|row_sums)"


def header():
    """The text of kolo_c.h and of those that it includes, without comments and macros."""
    text = (INCLUDE / "kolo" / "kolo_c.h").read_text(encoding="utf-8")
    text = re.sub(r"#include <(kolo/.*)>", lambda name: (INCLUDE / name[1]).read_text(encoding="utf-8"), text)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"^[ \t]*#.*?(?<!\\)$", "", text, flags=re.MULTILINE | re.DOTALL)
    return text.replace('extern "C" {', "")


HEADER = header()
STRUCTS = dict(re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", HEADER, re.DOTALL))
FUNCTIONS = {
    name: (result, arguments)
    for result, name, arguments in re.findall(
        r"([\w][\w \n]*?[ *]+)(kolo_\w+)\(([^)]*)\);", re.sub(r"\{.*?\}", "", HEADER, flags=re.DOTALL)
    )
}


def kind(text):
    """How a type of C is passed: its size and whether it is a pointer."""
    words = re.sub(r"\bconst\b", "", text)
    pointers = words.count("*")
    base = words.replace("*", "").split()[0]
    if pointers:
        return "pointer"
    if base == "void":
        return "void"
    if base in STRUCTS:
        return base
    sizes = {"size_t": 8, "int32_t": 4, "int64_t": 8, "uint64_t": 8, "uint32_t": 4, "int": 4}
    return "double" if base == "double" else sizes.get(base, 4)  # Names of enums are int32_t.


def kind_of_ctypes(declared):
    if declared is None:
        return "void"
    if declared in (ctypes.c_void_p, ctypes.c_char_p) or isinstance(declared, type(ctypes.POINTER(ctypes.c_int))):
        return "pointer"
    if issubclass(declared, ctypes.Structure):
        return declared.__name__
    return "double" if declared is ctypes.c_double else ctypes.sizeof(declared)


class Header(unittest.TestCase):
    def test_it_is_read_at_all(self):
        self.assertGreater(len(FUNCTIONS), 50)
        self.assertGreater(len(STRUCTS), 10)

    def test_constants(self):
        constants = {}
        for body in re.findall(r"enum\s*\{(.*?)\}", HEADER, re.DOTALL):
            for entry in filter(str.strip, body.split(",")):
                name, value = entry.split("=")
                constants[name.strip()] = int(value)
        declared = {name: value for name, value in vars(_c).items() if name.startswith("KOLO_")}
        self.assertEqual(declared, constants)

    def test_functions(self):
        self.assertEqual(set(_c.FUNCTIONS), set(FUNCTIONS))
        for name, (result, arguments) in FUNCTIONS.items():
            parameters = [each for each in arguments.split(",") if each.strip() not in ("", "void")]
            with self.subTest(name):
                declared_result, declared = _c.FUNCTIONS[name]
                self.assertEqual([kind_of_ctypes(each) for each in declared], [kind(each) for each in parameters])
                self.assertEqual(kind_of_ctypes(declared_result), kind(result))

    def test_struct_fields(self):
        self.assertEqual({name for name in vars(_c) if name.startswith("kolo_")}, set(STRUCTS))
        for name, body in STRUCTS.items():
            fields = []
            for line in filter(str.strip, body.split(";")):
                callback = re.search(r"\(\*(\w+)\)", line)
                names = callback[1] if callback else re.search(r"(\w+(?:, \w+)*)$", line.strip())[1]
                fields += names.split(", ")
            with self.subTest(name):
                self.assertEqual([field for field, _ in getattr(_c, name)._fields_], fields)

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
                ["cc", "-x", "c", "-", f"-I{INCLUDE}", "-o", f"{folder}/offsets"], input=program, text=True, check=True
            )
            output = subprocess.run([f"{folder}/offsets"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(output.splitlines(), expected)


if __name__ == "__main__":
    support.main()
