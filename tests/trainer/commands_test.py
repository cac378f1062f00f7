#!/usr/bin/env -S python3 -B
"""Tests the subcommands of kolo-train. evaluate, generate, export and average read checkpoints and
weights of finished runs. tokenize makes tokens for training; the weights then work without the
data.

Called as `commands_test.py KOLO_TRAIN`.
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
CONFIG = """
model = "gpt"
batch = 2
steps = 60
log-every = 20
eval-every = 20
eval-samples = 0
[shape]
layers = 1
width = 32
heads = 2
context = 32
"""
TEXT = "the ring goes round and round and hands are held, and who holds a hand holds the ring. "
SHAPE = ["--layers", 1, "--width", 32, "--heads", 2, "--context", 16, "--batch", 2, "--seed", 3]
LABELS = {"pos": ("fine", "good", "glad"), "neg": ("poor", "bad", "sad")}
ROWS = [f"{word} {other},{label}\n" for label, words in LABELS.items() for word in words for other in words]


def call(*arguments, status=0):
    done = subprocess.run([KOLO_TRAIN, *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == status, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout if status == 0 else done.stderr


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        text = cls.folder / "text.txt"
        text.write_text("the ring goes round and round and hands are held. " * 200)
        config = cls.folder / "job.toml"
        config.write_text(f'data = "{text}"\n{CONFIG}')
        cls.run_folder = cls.folder / "run"
        cls.summary = cls.folder / "summary.json"
        cls.trained = call("--config", config, "--run", cls.run_folder, "--json", cls.summary, "--sample", 30)

    def on_run(self, command, weights, *arguments, status=0):
        config = self.run_folder / "config.toml"
        return call(command, "--config", config, "--weights", weights, *arguments, status=status)

    def evaluation(self, weights):
        result = self.folder / "evaluation.json"
        self.on_run("evaluate", weights, "--json", result)
        return json.loads(result.read_text())

    @property
    def checkpoint(self):
        return self.run_folder / "step-00000060"

    def test_evaluate_finds_what_training_found(self):
        summary = json.loads(self.summary.read_text())
        evaluation = self.evaluation(self.checkpoint)
        self.assertEqual(evaluation["eval_loss"], summary["eval_loss"])
        self.assertEqual(evaluation["eval_accuracy"], summary["eval_accuracy"])
        self.on_run("evaluate", self.checkpoint)
        self.assertEqual(json.loads(self.summary.read_text()), summary)

    def test_targets_and_steps_that_are_out_of_reach_are_told(self):
        job = ["--data", self.folder / "text.txt", "--layers", 1, "--width", 32, "--heads", 2, "--context", 16, "--steps", 2]
        error = call(*job, "--target", 90, status=78)
        self.assertIn("--target 90: accuracy is greater than 0 and at most 1: 0.9 for 90 %", error)
        lines = call(*job, "--target", 0.9999, "--batch", 2000, "--sample", 0).splitlines()
        self.assertIn("the target 0.9999 was not reached", lines[:-1])
        self.assertTrue(any("1 ranks x batch 2000 x 1 passes takes more than the" in line for line in lines))

    def test_generate_continues_the_prompt(self):
        text = self.on_run("generate", self.checkpoint)
        self.assertEqual(self.trained.split("generated text:\n")[1].split("\ngpt: ")[0] + "\n", text)
        self.assertNotEqual(self.on_run("generate", self.checkpoint, "--seed", 2), text)

    def test_an_export_is_as_good_as_its_checkpoint(self):
        file = self.folder / "weights.safetensors"
        call("export", self.checkpoint, file)
        self.assertEqual(self.evaluation(file), self.evaluation(self.checkpoint))

    def test_the_mean_of_equal_weights_is_the_same(self):
        file = self.folder / "mean.safetensors"
        call("average", file, self.checkpoint, self.checkpoint)
        self.assertEqual(self.evaluation(file), self.evaluation(self.checkpoint))

    def test_the_numbers_of_the_run_are_kept(self):
        lines = [json.loads(line) for line in (self.run_folder / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in lines], [20, 20, 40, 40, 60, 60])
        summary = json.loads(self.summary.read_text())
        self.assertEqual([line["train_loss"] for line in lines[::2]], [p["train_loss"] for p in summary["curve"]])
        self.assertEqual(len(list((self.run_folder / "tensorboard").iterdir())), 1)

    def test_a_job_that_stops_after_a_step_ends_as_one_that_did_not(self):
        run = self.folder / "stopped"
        options = ["--config", self.folder / "job.toml", "--run", run, "--resume", "auto", "--sample", 0]
        output = call(*options, "--stop-after", 20)
        self.assertIn("stopped as --stop-after says after step 20", output)
        result = self.folder / "stopped.json"
        call(*options, "--json", result)
        summary = json.loads(self.summary.read_text())
        self.assertEqual(json.loads(result.read_text())["weights_hash"], summary["weights_hash"])

    def test_what_a_full_disk_has_no_room_for_is_an_error_and_the_rest_is_there(self):
        disk = self.folder / "disk"
        disk.mkdir()
        result = self.folder / "lost.json"

        def on_full_disk(*options):
            """Runs a command on a disk of 64 KiB; returns status, output, errors and the
            remaining files."""
            script = 'mount -t tmpfs -o size=64k tmpfs "$0" && { "$@" && status=0 || status=$?; cd "$0" && find . >&3; exit $status; }'
            with tempfile.TemporaryFile("w+") as left:
                command = ["unshare", "--map-root-user", "--mount", "bash", "-c", f"exec 3<>/dev/fd/{left.fileno()}; {script}"]
                done = subprocess.run([*command, disk, KOLO_TRAIN, "--config", self.folder / "job.toml", "--steps", "20",
                                       "--sample", "0", "--json", result, *options], capture_output=True, text=True,
                                      timeout=120, pass_fds=[left.fileno()])  # fmt: skip
                left.seek(0)
                return done, left.read().split()

        if subprocess.run(["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", disk], check=False).returncode:
            self.skipTest("this machine lets no user mount a file system")
        done, left = on_full_disk("--run", disk / "run")
        self.assertEqual(done.returncode, 74, done.stderr)
        self.assertIn("no checkpoint of the last step, 20, could be written; there is none", done.stderr)
        self.assertIn("20 steps", done.stdout.splitlines()[-1])
        self.assertEqual(json.loads(result.read_text())["steps"], 20)
        self.assertEqual([path for path in left if "step-" in path], [])
        done, left = on_full_disk("--export", disk / "weights.safetensors")
        self.assertEqual((done.returncode, left), (74, ["."]), done.stderr)
        self.assertIn("weights.safetensors", done.stderr)

    def test_sweep_compares_runs_and_can_be_repeated(self):
        folder = self.folder / "sweep"
        options = ["sweep", "--vary", "lr=1e-5,1e-2", "--folder", folder, "--config", self.folder / "job.toml",
                   "--rounds", 2, "--steps", 40, "--sample", 0]
        table = call(*options).splitlines()
        self.assertRegex(table[-2], r"^1e-2 +40 ")
        self.assertRegex(table[-1], r"^1e-5 +20 ")
        results = json.loads((folder / "sweep.json").read_text())
        self.assertEqual([run["options"]["lr"] for run in results], ["1e-2", "1e-5"])
        call(*options)
        self.assertEqual(json.loads((folder / "sweep.json").read_text()), results)
        self.assertIn("--run is what it gives each run", call(*options, "--run", "x", status=64))
        self.assertIn("--run is what it gives each run", call(*options, "--vary", "run=x,y", status=64))

    def test_misuse(self):
        config = self.run_folder / "config.toml"
        self.assertIn("--weights is missing", call("evaluate", "--config", config, status=64))
        self.assertIn("mlp", call("generate", "--weights", self.checkpoint, "--model", "mlp", status=78))
        self.assertIn("--help explains", call("average", "only-a-file", status=64))


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
        # Training reads a copy of the data, which is deleted before the run is used.
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
        # A token represents more than two bytes, and one bit is log 2 nats.
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
        # Two files of tokens have other windows than the whole text. The bound, a tenth of a bit,
        # is the noise of a trained model.
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

        weights = self.folder / "words.safetensors"
        options = ["--model", "embedding-bag", "--min-count", 1, "--format", "csv"]
        call(*options, "--data", table("first", ROWS), "--epochs", 60, "--lr", 0.05, "--export", weights)
        # The other table has words and labels in another order, and some new words.
        second = table("second", [f"strange {row}" for row in reversed(ROWS[3:])] + ["glad,pos\n", "glad,pos\n"])
        found = self.evaluation(*options, "--data", second, "--weights", weights)
        self.assertEqual(found["eval_accuracy"], 1.0)
        self.assertIsNone(found["eval_bits_per_byte"])
        # A new model reads texts with the vocabulary that is stored with weights or a run.
        runs = self.folder / "by-weights", self.folder / "by-run"
        for place, run in ((weights, runs[0]), (runs[0], runs[1])):
            call(*options, "--data", second, "--tokenizer", place, "--steps", 1, "--run", run)
            self.assertNotIn("strange", (run / "tokenizer" / "words.json").read_text())

    def test_an_encoder_is_fine_tuned_with_the_words_that_it_learnt(self):
        table = self.folder / "texts.csv"
        table.write_text("text,label\n" + "".join(ROWS))
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
