#!/usr/bin/env -S python3 -B
"""Tests documentation pages: links have targets, named files and scripts exist, and the example
in the README is tested. programs_test.py checks the options of programs in commands."""

import json
import pathlib
import re
import unittest

from pages import ROOT, all_pages, anchors, calls, current_pages, files, flags, index_of_files, words

EXAMPLE = ROOT / "tests" / "integration" / "wrap_example.cc"
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PRODUCT = ("topology", "comm", "fusion", "compression", "runtime", "python/kolo", "trainer", "benchmarks",
           "tests/support")
SOURCES = (".h", ".cc", ".cu", ".cuh", ".py")
MOST_WORDS_OF_README = 700
MOST_WORDS_OF_A_FOLDERS_PAGE = 600
MOST_WORDS_OF_RESULTS = 1500  # without tables
MOST_WORDS_OF_A_PAGE = 2500
MOST_WORDS_OF_A_RECORD = 250


def stem(file):
    """Returns the name that the architecture page gives a file: without extension and `-inl`."""
    return file.name.partition(".")[0].removesuffix("-inl")


def is_source(file):
    """Returns whether the architecture page must list this file, a path below the root."""
    if file.parent.as_posix() in ("scripts", "scripts/lib"):
        return file.suffix != ".md"
    return file.as_posix().startswith(tuple(f"{folder}/" for folder in PRODUCT)) and file.suffix in SOURCES


class Pages(unittest.TestCase):
    maxDiff = None

    def test_links_lead_somewhere(self):
        self.assertGreater(len(all_pages()), 15)
        for page in all_pages():
            for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
                if "://" in link:
                    continue
                name, _, anchor = link.partition("#")
                target = page.parent / name if name else page
                with self.subTest(page=page.relative_to(ROOT), link=link):
                    self.assertTrue(target.exists())
                    if anchor:
                        self.assertIn(anchor, anchors(target))

    def test_files_that_pages_name_exist(self):
        folders = {folder.name for folder in ROOT.iterdir() if folder.is_dir()} - {"build"}
        for page in current_pages():
            for name in re.findall(r"`([\w./-]+\.(?:h|cc|cu|cuh|py|sh|md|json))`", page.read_text(encoding="utf-8")):
                if name.split("/")[0] in folders and "/" in name:
                    with self.subTest(page=page.relative_to(ROOT), file=name):
                        self.assertTrue((ROOT / name).exists())

    def test_the_architecture_names_every_file(self):
        listed = index_of_files(ARCHITECTURE)
        rooms = {}
        for file in files("*"):
            rooms.setdefault(str(file.parent.relative_to(ROOT)), set()).add(file)
        missing, unknown = [], []
        for room, contents in rooms.items():
            sources = {stem(file) for file in contents if is_source(file.relative_to(ROOT))}
            missing += [f"{room}/{name}" for name in sorted(sources - set(listed.get(room, [])))]
        for room, names in listed.items():
            stems = {stem(file) for file in rooms.get(room, [])}
            unknown += [f"{room}/{name}" for name in names if name not in stems]
        self.assertGreater(len(listed), 60)
        self.assertEqual(missing, [], "files that docs/architecture.md, Every file, lacks under their room")
        self.assertEqual(unknown, [], "names in docs/architecture.md, Every file, of no file in that room")
        for room, names in listed.items():
            with self.subTest(room=room):
                self.assertEqual(len(names), len(set(names)), "a name stands there twice")

    def test_files_that_the_architecture_names_exist(self):
        for name in re.findall(r"`([\w./-]+\.(?:h|cc|cu|py))`", ARCHITECTURE.read_text(encoding="utf-8")):
            with self.subTest(file=name):
                self.assertTrue((ROOT / name).exists() or any(self.sources(pathlib.Path(name).name)))

    def sources(self, name):
        for folder in ("topology", "comm", "fusion", "compression", "runtime", "python", "trainer", "benchmarks"):
            yield from (ROOT / folder).rglob(name)

    def test_files_that_a_folders_page_names_are_in_its_folder(self):
        for page in current_pages():
            if page.name != "README.md" or page == README or "docs" in page.relative_to(ROOT).parts:
                continue
            for name in re.findall(r"`([\w./-]+\.(?:h|cc|cu|cuh|py))`", page.read_text(encoding="utf-8")):
                places = [page.parent / name, ROOT / name, *page.parent.rglob(pathlib.Path(name).name)]
                with self.subTest(page=page.relative_to(ROOT), file=name):
                    self.assertTrue(any(place.exists() for place in places))

    def test_tables_of_rooms_have_every_folder(self):
        pages = [page for page in current_pages() if "\n| Room |" in page.read_text(encoding="utf-8")]
        self.assertGreater(len(pages), 2)
        for page in pages:
            names = [file.relative_to(page.parent).parts for file in files("*") if page.parent in file.parents]
            cells = re.findall(r"^\| (`[^|]*) \|", page.read_text(encoding="utf-8"), re.M)
            with self.subTest(page=page.relative_to(ROOT)):
                listed = re.findall(r"`(\w+)/`", " ".join(cells))
                self.assertEqual(sorted(listed), sorted({name[0] for name in names if len(name) > 1}))

    def test_pages_import_the_modules_of_kolo_that_they_use(self):
        """`import kolo` does not import these."""
        for page in current_pages():
            text = " ".join(page.read_text(encoding="utf-8").split())
            for module in set(re.findall(r"\bkolo\.(codec|horovod|jax|testing|torch)\.\w", text)):
                with self.subTest(page=page.relative_to(ROOT), module=module):
                    self.assertIn(f"import kolo.{module}", text)

    def test_the_page_of_options_has_every_variable_that_is_read(self):
        page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
        for file in files("*"):
            name = file.relative_to(ROOT).as_posix()
            if not name.startswith(PRODUCT) or file.suffix not in SOURCES:
                continue
            if name.startswith("tests/") or file.name == "options.cc":  # has the variables of tests, too
                continue
            for variable in re.findall(r'"KOLO_([A-Z_]+)"', file.read_text(encoding="utf-8")):
                flag = variable.lower().replace("_", "-")
                with self.subTest(file=name, variable=variable):
                    self.assertTrue(f"`KOLO_{variable}`" in page or f"`--{flag}`" in page)

    def test_scripts_in_commands_exist_and_know_their_options(self):
        seen = 0
        for page in current_pages():
            for script, arguments in calls(page, lambda word: re.fullmatch(r"scripts/[\w-]+", word)):
                seen += 1
                with self.subTest(page=page.relative_to(ROOT), script=script, arguments=arguments):
                    self.assertTrue((ROOT / script).is_file())
                    if script != "scripts/train":  # it passes options on to kolo-train
                        text = (ROOT / script).read_text(encoding="utf-8")
                        for flag in flags(arguments):
                            self.assertIn(flag, text)
        self.assertGreater(seen, 10)

    def test_data_sets_that_pages_fetch_exist(self):
        sets = json.loads((ROOT / "scripts" / "lib" / "data_sets.json").read_text(encoding="utf-8"))
        text = (ROOT / "docs" / "kolo-train.md").read_text(encoding="utf-8")
        listed = re.search(r"`scripts/fetch-data NAME` puts public data into `data/NAME`: ([^.]*)\.", text)[1]
        self.assertEqual(re.findall(r"[\w-]+", listed), list(sets))
        for page in current_pages():
            for _, arguments in calls(page, lambda word: word == "scripts/fetch-data"):
                with self.subTest(page=page.relative_to(ROOT), arguments=arguments):
                    self.assertIn(arguments[0], [*sets, "--synthetic"])

    def test_the_example_of_the_readme_is_the_one_that_runs(self):
        text = README.read_text(encoding="utf-8")
        printed = re.search(r"```cpp\n#include <kolo/kolo.h>\n\n(.*?)```", text, re.S)[1]
        tested = re.search(r"// \[begin\]\n(.*?)// \[end\]", EXAMPLE.read_text(encoding="utf-8"), re.S)[1]
        self.assertEqual(printed.strip(), tested.strip())

    def test_decisions_are_in_the_index_and_short(self):
        """Numbers may have gaps, because records that no longer apply are removed."""
        folder = ROOT / "docs" / "decisions"
        records = [page for page in sorted(folder.glob("*.md")) if page.name != "README.md"]
        index = re.findall(r"^\| \[(\d{4})\]\((\S+)\)", (folder / "README.md").read_text(encoding="utf-8"), re.M)
        self.assertEqual([name for _, name in index], [record.name for record in records])
        for (number, name), record in zip(index, records):
            with self.subTest(record=name):
                self.assertTrue(name.startswith(number + "-"))
                self.assertTrue(record.read_text(encoding="utf-8").startswith(f"# {number}. "))
                self.assertLessEqual(words(record, tables=False), MOST_WORDS_OF_A_RECORD)

    def test_pages_are_short(self):
        self.assertLessEqual(words(README), MOST_WORDS_OF_README)
        for page in all_pages():
            if page.name == "README.md" and page != README and "docs" not in page.relative_to(ROOT).parts:
                with self.subTest(page=page.relative_to(ROOT)):
                    self.assertLessEqual(words(page), MOST_WORDS_OF_A_FOLDERS_PAGE)
            else:
                with self.subTest(page=page.relative_to(ROOT)):
                    self.assertLessEqual(words(page), MOST_WORDS_OF_A_PAGE)
        self.assertLessEqual(words(ROOT / "docs" / "results.md", tables=False), MOST_WORDS_OF_RESULTS)


if __name__ == "__main__":
    unittest.main()
