#!/usr/bin/env -S python3 -B
"""Compares byte pairs with those of the package tokenizers: merges and tokens must be equal.

    byte_pair_encoding_test.py KOLO_TRAIN

Skipped without tokenizers (pip install tokenizers), which KOLO_TOKENIZERS_PYTHON may have in place of this Python.
"""

import array
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest


def enter_python_with_tokenizers():
    for python in (os.environ.pop("KOLO_TOKENIZERS_PYTHON", None), sys.executable):
        if python and subprocess.run([python, "-c", "import tokenizers"], capture_output=True).returncode == 0:
            if python != sys.executable:
                os.execv(python, [python, "-B", *sys.argv])
            return
    print("skipped: no Python with the package tokenizers was found; KOLO_TOKENIZERS_PYTHON names one")
    sys.exit(77)


enter_python_with_tokenizers()
import tokenizers  # noqa: E402

KOLO_TRAIN = sys.argv.pop(1)
VOCABULARY = 480
PARTS = ["naïve", " Жук", "½", " ", "日本語", "…", " ", "\u0085", "\u180e", "e\u0301", "😀\u200d", "٣४", " ", "  ", "\n",
         "\n\n", "\t", "'s", "'LL", "we'll", " 42nd", "...", "word", " another", " wording", " is", " it", "<|", "\0", "\x7f"]


class BytePairEncodingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        # The held-out tenth at the end is only x, so both programs learn from the same text.
        generator = random.Random(3)
        learnt = "".join(generator.choice(PARTS) for _ in range(6000))
        held_out = "x" * ((len(learnt.encode()) + 8) // 9)
        cls.text = learnt + held_out
        file = pathlib.Path(folder.name) / "text.txt"
        file.write_text(cls.text, newline="")
        cls.out = pathlib.Path(folder.name) / "tokens"
        subprocess.run([KOLO_TRAIN, "tokenize", "--data", file, "--out", cls.out, "--vocabulary", str(VOCABULARY)],
                       check=True, stdout=subprocess.DEVNULL)
        cls.train_text = cls.text.encode()[: len(cls.text.encode()) - len(cls.text.encode()) // 10].decode()

    def tokens(self, part):
        known = json.loads((self.out / "tokens.json").read_text())
        return [token for shard in known[part] for token in array.array("H", (self.out / shard["file"]).read_bytes())]

    def test_the_same_merges(self):
        theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
        theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=VOCABULARY - 1, min_frequency=2, show_progress=False,
                                                 initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
        theirs.train_from_iterator([self.train_text], trainer)
        merges = json.loads(theirs.to_str())["model"]["merges"]
        ours = (self.out / "merges.txt").read_text().splitlines()[1:]
        self.assertGreater(len(ours), 200)
        self.assertEqual(ours, [pair if isinstance(pair, str) else " ".join(pair) for pair in merges])

    def test_the_same_tokens_by_our_files(self):
        theirs = tokenizers.ByteLevelBPETokenizer(str(self.out / "vocab.json"), str(self.out / "merges.txt"))
        self.assertEqual(self.tokens("train"), theirs.encode(self.train_text).ids)


if __name__ == "__main__":
    unittest.main(verbosity=2)
