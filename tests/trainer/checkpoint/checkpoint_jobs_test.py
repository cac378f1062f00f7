#!/usr/bin/env -S python3 -B
"""Tests checkpoints of real jobs: signals, kill -9, full disks, read-only folders and export.

Called as `checkpoint_jobs_test.py KOLO_TRAIN mpi=1`.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
import job  # noqa: E402  (the path comes first)

# The model has 17,000 parameters, so that a checkpoint has 200 kB.
TRAINING = ["--model", "gpt", "--batch", "2", "--layers", "1", "--width", "32", "--heads", "2", "--context", "32",
            "--log-every", "100", "--eval-every", "100000", "--sample", "0"]
WAYS = {
    signal.SIGTERM: ["--optimizer", "adamw"],
    signal.SIGUSR1: ["--optimizer", "sgd", "--compression", "topk(0.02,dgc,warmup=20,scope=flat,route=owners)"],
}
STEPS = 1500  # So many that signals and remounts come long before the end.


def steps_in(run):
    return sorted(int(path.name[5:]) for path in run.glob("step-*") if not path.name.endswith(".partial"))


class CheckpointJobs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        text = self.folder / "text.txt"
        text.write_text("the ring goes round and round and hands are held. " * 200)
        self.run_folder = self.folder / "run"
        self.json = self.folder / "summary.json"
        self.job = [*TRAINING, "--data", text, "--json", self.json]

    def started(self, *arguments, ranks=2, steps=300):
        return job.started([*self.job, "--steps", steps, *arguments], [ranks])

    def train(self, *arguments, status=0, **options):
        """Trains to the end and expects this exit status of rank 0. Returns the hash of the
        weights and the log of all ranks."""
        with self.started(*arguments, **options) as ranks:
            statuses = [rank.finish() for rank in ranks]
            log = "".join(rank.errors() for rank in ranks)
            lines = [line for rank in ranks for line in rank.lines]
        self.assertEqual(statuses[0], status, log)
        self.assertLessEqual(set(statuses), {0, status}, log)
        return json.loads(self.json.read_text())["weights_hash"], "\n".join([*lines, log])

    def in_run(self, *arguments):
        return ["--run", self.run_folder, "--resume", "auto", *arguments]

    def stop(self, way, number):
        """Sends a signal to one rank while training runs. Checks that all ranks end in an
        orderly manner."""
        with self.started(*self.in_run("--checkpoint-every", 5, *way), steps=STEPS) as ranks:
            job.wait_until(lambda: steps_in(self.run_folder), "a checkpoint")
            ranks[1].signal(number)
            statuses = [rank.finish() for rank in ranks]
            log = "\n".join(line for rank in ranks for line in [*rank.lines, rank.errors()])
        self.assertEqual(statuses, [0, 0], log)
        self.assertRegex(log, r"stopped by a signal after step \d+; --resume auto goes on")
        self.assertFalse(self.json.exists(), log)

    def test_signals_save_and_end_the_job(self):
        for number, way in WAYS.items():
            with self.subTest(number=number):
                self.json.unlink(missing_ok=True)
                expected, _ = self.train(*way, steps=STEPS)
                self.json.unlink()
                self.stop(way, number)
                (*_, newest) = steps_in(self.run_folder)
                actual, log = self.train(*self.in_run(*way), steps=STEPS)
                self.assertIn(f"resumed at step {newest} ", log)
                self.assertEqual(actual, expected)
                shutil.rmtree(self.run_folder)

    def test_without_a_run_a_signal_ends_the_process_as_ever(self):
        with self.started(steps=100000, ranks=1) as ranks:
            ranks[0].read_until("step")
            ranks[0].signal(signal.SIGTERM)
            self.assertEqual(ranks[0].finish(), -signal.SIGTERM)

    def test_killed_jobs_go_on_with_the_same_bits(self):
        done = subprocess.run(
            [ROOT / "scripts" / "kill-check", "--ways", "topk,shards", "--kills", "3",
             "--program", job.PROGRAM, "--folder", self.folder],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("3 kills"), 2, done.stdout)

    @job.needs_mpi
    def test_under_mpirun(self):
        arguments = [*self.job, "--steps", 60]
        outcome = job.run_mpi(arguments, 2)
        self.assertEqual(outcome.statuses, [0], outcome)
        expected = json.loads(self.json.read_text())["weights_hash"]
        arguments += [*self.in_run(), "--checkpoint-every", 7, "--keep", 100]
        self.assertEqual(job.run_mpi(arguments, 2).statuses, [0])
        newest = steps_in(self.run_folder)[-1]
        self.assertEqual(newest, 60)
        (self.run_folder / f"step-{newest:08}" / "manifest.json").unlink()
        self.json.unlink()
        outcome = job.run_mpi(arguments, 2)
        self.assertEqual(outcome.statuses, [0], outcome)
        self.assertRegex(outcome.errors, r"step-00000060 is passed over: .*manifest\.json: No such file")
        self.assertEqual(json.loads(self.json.read_text())["weights_hash"], expected)

    @contextlib.contextmanager
    def small_disk(self):
        """Mounts a file system of 500 kB, which holds two checkpoints, at the run's folder."""
        self.run_folder.mkdir(exist_ok=True)
        if os.geteuid() != 0:
            self.skipTest("mounting a small file system needs root")
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", self.run_folder],
                                 capture_output=True, text=True, check=False)  # fmt: skip
        if mounted.returncode != 0:
            self.skipTest(f"no file system can be mounted here: {mounted.stderr.strip()}")
        try:
            yield
        finally:
            subprocess.run(["umount", self.run_folder], check=True)

    def test_a_full_disk_does_not_end_training(self):
        expected, _ = self.train()
        with self.small_disk():
            arguments = self.in_run("--checkpoint-every", 10, "--keep", 10)
            # The last state is lost. The exit status of all ranks says so, and the error names the
            # checkpoints that can be resumed.
            actual, log = self.train(*arguments, status=74)
            self.assertEqual(actual, expected)
            self.assertRegex(log, r"the checkpoint of step \d+ is lost, training goes on: cannot write .*: No space left")
            complete = steps_in(self.run_folder)
            self.assertIn(f"the newest there is of step {complete[-1]}", log)
            self.assertGreaterEqual(len(complete), 1)
            # No files remain of checkpoints that did not fit. The complete one resumes to the same
            # end.
            self.assertEqual(len(complete), len(list(self.run_folder.glob("step-*"))))
            again, log = self.train(*arguments, status=74)
            self.assertIn(f"resumed at step {complete[-1]} ", log)
            self.assertEqual(again, expected)

    def test_a_folder_that_becomes_read_only_does_not_end_training(self):
        expected, _ = self.train(steps=STEPS)
        with contextlib.ExitStack() as stack:
            if os.geteuid() == 0:  # root ignores the modes of folders
                stack.enter_context(self.small_disk())
                close = ["mount", "-o", "remount,ro", self.run_folder]
            else:
                close = ["chmod", "-R", "a-w", self.run_folder]
                stack.callback(subprocess.run, ["chmod", "-R", "u+w", self.run_folder], check=True)
            with self.started(*self.in_run("--checkpoint-every", 10, "--keep", 1), steps=STEPS) as ranks:
                job.wait_until(lambda: steps_in(self.run_folder), "a checkpoint")
                job.wait_until(
                    lambda: subprocess.run(close, capture_output=True, check=False).returncode == 0
                    or ranks[0].process.poll() is not None,
                    "read-only",
                )
                statuses = [rank.finish() for rank in ranks]
                log = "".join(rank.errors() for rank in ranks)
            self.assertEqual(statuses, [74, 74], log)
            self.assertEqual(json.loads(self.json.read_text())["weights_hash"], expected)
            self.assertRegex(log, "is lost(, training goes on)?: cannot .*: (Read-only file system|Permission denied)")

    def test_weights_are_exported_from_a_job_and_from_a_checkpoint(self):
        files = [self.folder / name for name in ("job.safetensors", "checkpoint.safetensors")]
        self.train(*self.in_run("--export", files[0]), steps=20)
        checkpoint = self.run_folder / "step-00000020"
        outcome = job.run_command([job.PROGRAM, "export", checkpoint, files[1]])
        self.assertEqual(outcome.statuses, [0], outcome)
        self.assertEqual(files[0].read_bytes(), files[1].read_bytes())
        (checkpoint / "rank-00001.safetensors").unlink()
        outcome = job.run_command([job.PROGRAM, "export", checkpoint, files[1]])
        self.assertEqual(outcome.statuses, [65], outcome)
        self.assertIn("rank-00001.safetensors: No such file", outcome.errors)
        self.assertEqual(files[0].read_bytes(), files[1].read_bytes())
        self.assertEqual(job.run_command([job.PROGRAM, "export", checkpoint]).statuses, [64])


if __name__ == "__main__":
    job.main()
