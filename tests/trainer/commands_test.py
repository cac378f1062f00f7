#!/usr/bin/env -S python3 -B
"""The subcommands of kolo-train on what a run has left: evaluate, generate, export, average.

Called as `commands_test.py KOLO_TRAIN`.
"""

import json
import pathlib
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
        cls.trained = cls.call("--config", config, "--run", cls.run_folder, "--json", cls.summary, "--sample", 30)

    @staticmethod
    def call(*arguments, status=0):
        done = subprocess.run([KOLO_TRAIN, *map(str, arguments)], capture_output=True, text=True, errors="replace",
                              timeout=120)
        assert done.returncode == status, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout if status == 0 else done.stderr

    def on_run(self, command, weights, *arguments, status=0):
        config = self.run_folder / "config.toml"
        return self.call(command, "--config", config, "--weights", weights, *arguments, status=status)

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

    def test_generate_continues_the_prompt(self):
        text = self.on_run("generate", self.checkpoint)
        self.assertEqual(self.trained.split("generated text:\n")[1].split("\ngpt: ")[0] + "\n", text)
        self.assertNotEqual(self.on_run("generate", self.checkpoint, "--seed", 2), text)

    def test_an_export_is_as_good_as_its_checkpoint(self):
        file = self.folder / "weights.safetensors"
        self.call("export", self.checkpoint, file)
        self.assertEqual(self.evaluation(file), self.evaluation(self.checkpoint))

    def test_the_mean_of_equal_weights_is_the_same(self):
        file = self.folder / "mean.safetensors"
        self.call("average", file, self.checkpoint, self.checkpoint)
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
        output = self.call(*options, "--stop-after", 20)
        self.assertIn("stopped as --stop-after says after step 20", output)
        result = self.folder / "stopped.json"
        self.call(*options, "--json", result)
        summary = json.loads(self.summary.read_text())
        self.assertEqual(json.loads(result.read_text())["weights_hash"], summary["weights_hash"])

    def test_what_a_full_disk_has_no_room_for_is_an_error_and_the_rest_is_there(self):
        disk = self.folder / "disk"
        disk.mkdir()
        result = self.folder / "lost.json"

        def on_full_disk(*options):
            """Status, output, errors and what is left on a disk of 64 KiB."""
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
        table = self.call(*options).splitlines()
        self.assertRegex(table[-2], r"^1e-2 +40 ")
        self.assertRegex(table[-1], r"^1e-5 +20 ")
        results = json.loads((folder / "sweep.json").read_text())
        self.assertEqual([run["options"]["lr"] for run in results], ["1e-2", "1e-5"])
        self.call(*options)
        self.assertEqual(json.loads((folder / "sweep.json").read_text()), results)
        self.assertIn("--run is what it gives each run", self.call(*options, "--run", "x", status=64))

    def test_misuse(self):
        config = self.run_folder / "config.toml"
        self.assertIn("--weights is missing", self.call("evaluate", "--config", config, status=64))
        self.assertIn("mlp", self.call("generate", "--weights", self.checkpoint, "--model", "mlp", status=78))
        self.assertIn("--help explains", self.call("average", "only-a-file", status=64))


if __name__ == "__main__":
    unittest.main(verbosity=2)
