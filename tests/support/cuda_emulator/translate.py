#!/usr/bin/env python3
"""Rewrites CUDA C++ so that a C++ compiler can compile it against the emulator.

    translate.py INPUT OUTPUT

Four constructs do not exist in C++. They become calls of functions of kernel_language.h; line
numbers stay.

    kernel<T><<<grid, block>>>(a, b)    Call{grid, block}.of(<a call of kernel<T>>)(a, b)
    __shared__ float sums[8][N];        auto& sums = shared<float[8][N]>(<its own key>);
    extern __shared__ float sums[];     float* const sums = dynamic_shared<float>();
    reinterpret_cast<T>(pointer)        aligned_cast<T>(pointer)
"""

import pathlib
import re
import sys

EMULATOR = "::kolo::emulator::"
DYNAMIC = re.compile(r"\bextern\s+__shared__\s+([\w:]+)\s+(\w+)\[\];")
SHARED = re.compile(r"\b__shared__\s+([\w:]+)\s+(\w+)((?:\[[^;]*\])?);")


def begin_of_name(text, end):
    """Returns where the name that ends at `end` begins, including its template arguments."""
    at = len(text[:end].rstrip())
    if text[at - 1] == ">":
        depth = 0
        while True:
            at -= 1
            depth += (text[at] == ">") - (text[at] == "<")
            if depth == 0:
                break
    return re.search(r"[\w:]+$", text[:at]).start()


def rewrite_launches(text):
    """Replaces every `kernel<<<configuration>>>(`, from the last to the first."""
    while (opening := text.rfind("<<<")) >= 0:
        closing = re.compile(r">>>\s*\(").search(text, opening)
        begin = begin_of_name(text, opening)
        kernel, configuration = text[begin:opening], text[opening + 3 : closing.start()]
        call = (
            f"{EMULATOR}Call{{{configuration}}}.of("
            f"[&](auto... of_thread) {{ {kernel}(of_thread...); }})("
        )
        text = text[:begin] + call + text[closing.end() :]
    return text


def translate(text, path):
    text = DYNAMIC.sub(rf"\1* const \2 = {EMULATOR}dynamic_shared<\1>();", text)
    text = SHARED.sub(rf"static char \2_key; auto& \2 = {EMULATOR}shared<\1\3>(\2_key);", text)
    text = text.replace("reinterpret_cast<", f"{EMULATOR}aligned_cast<")
    text = rewrite_launches(text)
    for left in ("__shared__", "<<<"):
        if left in text:
            sys.exit(f"{path}: the emulator cannot translate this {left}")
    return (
        '#include "tests/support/cuda_emulator/kernel_language.h"\n'
        f'#line 1 "{path}"\n{text}'
    )


def main():
    source, target = map(pathlib.Path, sys.argv[1:])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(translate(source.read_text(encoding="utf-8"), source), encoding="utf-8")


if __name__ == "__main__":
    main()
