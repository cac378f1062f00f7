#!/usr/bin/env -S python3 -B
"""A text becomes tokens, a model learns them, and what it leaves works without the data.

Called as `tokens_test.py KOLO_TRAIN`.
"""

import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

KOLO_TRAIN = sys.argv.pop(1)
TEXT = "the ring goes round and round and hands are held, and who holds a hand holds the ring. "
SHAPE = ["--layers", 1, "--width", 32, "--heads", 2, "--context", 16, "--batch", 2, "--seed", 3]
LABELS = {"pos": "fine good glad", "neg": "poor bad sad"}


def call(*arguments, status=0):
    done = subprocess.run([KOLO_TRAIN, *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == status, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout if status == 0 else done.stderr


class Tokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.text = cls.folder / "text.txt"
        cls.text.write_text(TEXT * 120)
        cls.tokens = cls.folder / "tokens"
        cls.said = call("tokenize", "--data", cls.text, "--out", cls.tokens, "--vocabulary", 280, "--shard-tokens", 500)
        cls.run_folder = cls.folder / "run"
        cls.export = cls.folder / "weights.safetensors"
        cls.result = cls.folder / "result.json"
        # It learns from a copy, which is gone when its run is used.
        data = shutil.copytree(cls.tokens, cls.folder / "copy")
        cls.trained = call("--data", data, *SHAPE, "--steps", 40, "--run", cls.run_folder, "--export", cls.export,
                           "--json", cls.result, "--sample", 40)
        shutil.rmtree(data)

    def evaluation(self, *arguments):
        file = self.folder / "evaluation.json"
        call("evaluate", *arguments, "--json", file)
        return json.loads(file.read_text())

    def generated(self):
        return self.trained.split("generated text:\n")[1].split("\ngpt: ")[0] + "\n"

    def test_tokenize_says_how_far_it_is(self):
        lines = self.said.splitlines()
        self.assertEqual(lines[0], "counting: 100 % of 0.0 MB")
        self.assertIn("learnt 280 tokens from ", self.said)
        self.assertRegex(self.said, r"train: \d+ tokens in \d files, \d\.\d+ bytes per token")
        self.assertEqual(lines[-1], f"{self.tokens} is complete")
        self.assertIn("as they were written", call("tokenize", "--check", self.tokens))

    def test_the_summary_has_bits_per_byte(self):
        summary = json.loads(self.result.read_text())
        # A token stands for more than two bytes, and a bit is log 2 nats.
        self.assertLess(summary["eval_bits_per_byte"], summary["eval_loss"] / math.log(2) / 2)
        self.assertRegex(self.trained.splitlines()[-1], r", \d\.\d+ bits per byte, ")

    def test_generate_needs_no_data(self):
        checkpoint = self.run_folder / "step-00000040"
        text = call("generate", "--config", self.run_folder / "config.toml", "--weights", checkpoint)
        self.assertEqual(text, self.generated())
        self.assertEqual(call("generate", *SHAPE, "--weights", self.export, "--sample", 40), text)
        self.assertRegex(call("generate", *SHAPE, "--weights", self.export, "--sample", 40, "--prompt", " hands and"), "[a-z]")

    def test_evaluate_reads_other_text_by_the_tokenizer_of_the_weights(self):
        ours = self.evaluation(*SHAPE, "--weights", self.export, "--data", self.tokens)
        self.assertEqual(ours["eval_loss"], json.loads(self.result.read_text())["eval_loss"])
        text = self.evaluation(*SHAPE, "--weights", self.export, "--data", self.text)
        # The windows of two files of tokens are other ones than those of the whole text, within the noise of a model
        # that has learnt: a tenth of a bit.
        self.assertAlmostEqual(text["eval_bits_per_byte"], ours["eval_bits_per_byte"], delta=0.1)
        error = call("evaluate", *SHAPE, "--weights", self.export, "--data", self.other_tokens(), status=65)
        self.assertIn("its tokens were made with another tokenizer", error)

    def other_tokens(self):
        other = self.folder / "other"
        if not other.exists():
            call("tokenize", "--data", self.text, "--out", other, "--vocabulary", 270)
        return other

    def test_bytes_and_tokens_are_compared(self):
        result = self.folder / "bytes.json"
        call("--data", self.text, *SHAPE, "--steps", 2, "--sample", 0, "--json", result)
        summary = json.loads(result.read_text())
        self.assertAlmostEqual(summary["eval_bits_per_byte"], summary["eval_loss"] / math.log(2))

    def test_a_text_is_learnt_with_a_tokenizer(self):
        result = self.folder / "text.json"
        call("--data", self.text, "--tokenizer", self.tokens, *SHAPE, "--steps", 2, "--sample", 0, "--json", result)
        self.assertLess(json.loads(result.read_text())["eval_bits_per_byte"], 4)

    def test_weights_of_texts_take_their_words_along(self):
        def table(name, rows):
            (self.folder / name).mkdir()
            for part in ("train.csv", "test.csv"):
                (self.folder / name / part).write_text("text,label\n" + "".join(rows))
            return self.folder / name

        rows = [f"{word} {other},{label}\n" for label, words in LABELS.items()
                for word in words.split() for other in words.split()]
        weights = self.folder / "words.safetensors"
        options = ["--model", "embedding-bag", "--min-count", 1, "--format", "csv"]
        call(*options, "--data", table("first", rows), "--epochs", 60, "--lr", 0.05, "--export", weights)
        # Words and labels come in another order, and some words are new.
        second = table("second", [f"strange {row}" for row in reversed(rows[3:])] + ["glad,pos\n", "glad,pos\n"])
        found = self.evaluation(*options, "--data", second, "--weights", weights)
        self.assertEqual(found["eval_accuracy"], 1.0)
        self.assertIsNone(found["eval_bits_per_byte"])
        # A new model reads texts by the words that weights or a run keep.
        runs = self.folder / "by-weights", self.folder / "by-run"
        for place, run in ((weights, runs[0]), (runs[0], runs[1])):
            call(*options, "--data", second, "--tokenizer", place, "--steps", 1, "--run", run)
            self.assertNotIn("strange", (run / "tokenizer" / "words.json").read_text())

    def test_an_encoder_is_fine_tuned_with_the_words_that_it_learnt(self):
        rows = [f"{word} {other},{label}\n" for label, words in LABELS.items()
                for word in words.split() for other in words.split()]
        table = self.folder / "texts.csv"
        table.write_text("text,label\n" + "".join(rows))
        options = ["--model", "bert", "--layers", 1, "--width", 8, "--heads", 2, "--max-length", 8, "--steps", 1]
        weights, tuned = self.folder / "encoder.safetensors", self.folder / "tuned.safetensors"
        words = ["--data", table, "--min-count", 1]
        for data in (["--data", self.tokens], words):  # byte pairs, words
            call(*options, "--task", "masked-tokens", *data, "--export", weights)
            fine_tuning = [*options, *words]
            said = call(*fine_tuning, "--weights", weights, "--weights-part", "shared", "--export", tuned)
            self.assertIn("; new: pooler.weight", said)
            self.evaluation(*fine_tuning, "--weights", tuned)
        options += words
        plain = self.folder / "no-words.safetensors"
        plain.write_bytes(weights.read_bytes().replace(b'"words.json"', b'"words.none"'))
        said = call(*options, "--weights", plain, "--weights-part", "shared", status=65)
        self.assertIn("it came with no vocabulary", said)

    def test_misuse(self):
        self.assertIn("--data or --check", call("tokenize", status=64))
        self.assertIn("--out", call("tokenize", "--data", self.text, status=64))
        self.assertIn("there already", call("tokenize", "--data", self.text, "--out", self.tokens, status=74))
        self.assertIn("--vocabulary", call("tokenize", "--data", self.text, "--out", self.folder / "x", "--vocabulary", 100,
                                           status=64))
        self.assertIn("absent.txt", call("tokenize", "--data", self.folder / "absent.txt", "--out", self.folder / "x", status=65))
        self.assertIn("no vocab.json", call("--data", self.text, "--tokenizer", self.folder, status=65))
        plain = self.folder / "plain.safetensors"
        shutil.copy(self.export, plain)
        header = plain.read_bytes()
        plain.write_bytes(header.replace(b'"vocab.json"', b'"vocab.none"').replace(b'"merges.txt"', b'"merges.non"'))
        self.assertIn("came with no tokenizer", call("generate", *SHAPE, "--weights", plain, status=64))


if __name__ == "__main__":
    unittest.main(verbosity=2)
