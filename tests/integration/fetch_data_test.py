#!/usr/bin/env -S python3 -B
"""Tests scripts/fetch-data: it checks sums, keeps existing files, and names alternatives on
failure. Called as `fetch_data_test.py KOLO_TRAIN`. Fetches nothing from a network."""

import gzip
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KOLO_TRAIN = sys.argv.pop(1)


def run(*arguments):
    done = subprocess.run([ROOT / "scripts" / "fetch-data", *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class FetchData(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_wrong_sum_is_an_error_and_nothing_is_kept(self):
        (self.folder / "input.txt").write_text("something else")
        status, text = run("tinyshakespeare", "--folder", self.folder / "data", "--source", f"file://{self.folder}")
        self.assertEqual(status, 1, text)
        self.assertIn("input.txt has the SHA-256 " + hashlib.sha256(b"something else").hexdigest(), text)
        self.assertEqual(list((self.folder / "data" / "tinyshakespeare").iterdir()), [])

    def test_without_a_network_it_says_what_else_can_be_done(self):
        status, text = run("trec", "--folder", self.folder, "--source", "http://127.0.0.1:1")
        self.assertEqual(status, 1)
        self.assertIn("cannot fetch http://127.0.0.1:1/train_5500.label", text)
        self.assertIn("--synthetic makes a stand-in", text)

    def test_archives_are_unpacked_and_what_they_lack_is_named(self):
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            entry = tarfile.TarInfo("cifar/data_batch_3.bin")
            entry.size = 3
            archive.addfile(entry, io.BytesIO(b"abc"))
        (self.folder / "cifar-10-binary.tar.gz").write_bytes(content.getvalue())
        status, text = run("cifar10", "--folder", self.folder / "data", "--source", f"file://{self.folder}")
        self.assertEqual(status, 1)
        self.assertIn("cifar-10-binary.tar.gz has no data_batch_1.bin", text)

    def test_what_is_there_with_the_right_sum_is_not_fetched(self):
        data = ROOT.parent / "shared" / "data" / "optdigits"
        if not data.exists():
            self.skipTest(f"no copy of the set in {data}")
        arguments = ("optdigits", "--folder", self.folder, "--source", f"file://{data}")
        status, text = run(*arguments)
        self.assertEqual(status, 0, text)
        self.assertIn("563,639 bytes", text)
        status, text = run("optdigits", "--folder", self.folder, "--source", "http://127.0.0.1:1")
        self.assertEqual((status, text), (0, f"{self.folder / 'optdigits'}: all files are there\n"))

    def test_the_stand_in_is_the_same_each_time_and_can_be_learned(self):
        for name in ("a", "b"):
            status, text = run("--synthetic", "--images", 600, "--folder", self.folder / name)
            self.assertEqual(status, 0, text)
        files = sorted((self.folder / "a" / "synthetic").iterdir())
        self.assertEqual(len(files), 4)
        for file in files:
            self.assertEqual(file.read_bytes(), (self.folder / "b" / "synthetic" / file.name).read_bytes())
        self.assertEqual(len(gzip.decompress(files[0].read_bytes())), 16 + 100 * 28 * 28)
        result = self.folder / "summary.json"
        subprocess.run([KOLO_TRAIN, "--model", "lenet", "--data", files[0].parent, "--epochs", "6", "--batch", "16",
                        "--json", result], check=True, capture_output=True, timeout=300)  # fmt: skip
        self.assertGreater(json.loads(result.read_text())["eval_accuracy"], 0.6)

    def test_without_arguments_it_lists_the_sets(self):
        status, text = run()
        self.assertEqual(status, 64)
        self.assertIn("movielens_small", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
