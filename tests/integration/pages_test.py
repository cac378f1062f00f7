#!/usr/bin/env -S python3 -B
"""The pages: what they link to is there, and the example that the README prints is the one that is tested."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "tests" / "integration" / "wrap_example.cc"


def pages():
    if not (ROOT / ".git").exists():  # An archive: whatever lies outside of build folders.
        return [page for page in ROOT.rglob("*.md") if "build" not in page.relative_to(ROOT).parts]
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "*.md"]
    return [ROOT / name for name in subprocess.check_output(git, cwd=ROOT, text=True).splitlines()]


class Pages(unittest.TestCase):
    def test_links_and_pictures_are_there(self):
        self.assertGreater(len(pages()), 10)
        for page in pages():
            links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
            for link in links:
                if "://" not in link:
                    with self.subTest(page=page.name, link=link):
                        self.assertTrue((page.parent / link).exists())

    def test_the_example_of_the_readme_is_the_one_that_runs(self):
        printed = re.search(r"```cpp\n#include <kolo/kolo.h>\n\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
        tested = re.search(r"// \[begin\]\n(.*?)// \[end\]", EXAMPLE.read_text(), re.S)[1]
        self.assertEqual(printed.strip(), tested.strip())


if __name__ == "__main__":
    unittest.main()
