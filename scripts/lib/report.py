#!/usr/bin/env python3
"""Sums up what CTest said of each stage of scripts/test.

    report.py FOLDER STAGE:STATUS:SECONDS...

FOLDER holds STAGE.xml, CTest's JUnit report, of every stage that got to its tests. Prints each test
that failed, each that was skipped in whole or in part (and why), a line for each stage in CTest's own words, and last how many
tests passed and failed in all. Exit status 0 if none failed.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree


def skip_reasons(case):
    """How often each reason was given, after GoogleTest's "file:line: Skipped" or after "skipped: "."""
    output = case.findtext("system-out") or ""
    found = re.findall(r": Skipped\n(.+)|^skipped: (.+)", output, re.MULTILINE)
    return collections.Counter((first or second).strip() for first, second in found)


def main():
    folder = pathlib.Path(sys.argv[1])
    passed = failed = total = 0
    stages = []
    for argument in sys.argv[2:]:
        stage, status, seconds = argument.split(":")
        report = folder / f"{stage}.xml"
        cases = xml.etree.ElementTree.parse(report).getroot().findall("testcase") if report.exists() else []
        bad = [case for case in cases if case.get("status") == "fail"]
        skipped = [case for case in cases if case.get("status") not in ("run", "fail")]
        for case in bad:
            print(f"{stage}: {case.get('name')} failed")
        for case in cases:
            for reason, times in skip_reasons(case).items():
                part = "skipped" if case in skipped else f"skipped {times} of its cases"
                print(f"{stage}: {case.get('name')} {part}: {reason}")
        if cases:
            percent = 100 * (len(cases) - len(bad)) // len(cases)
            verdict = f"{percent}% tests passed, {len(bad)} tests failed out of {len(cases)}"
        else:
            verdict = "did not get to its tests" if status != "0" else "compiles; it has no tests"
        if skipped:
            verdict += f", {len(skipped)} skipped"
        total += int(seconds)
        stages.append(f"{stage:8} {seconds:>5} s   {verdict}")
        passed += len(cases) - len(bad) - len(skipped)
        # A stage that fails without a failed test (it did not build, or found no test) counts as one failure.
        failed += len(bad) or (status != "0")
    print("\n".join(stages))
    print(f"{'total':8} {total:>5} s")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
