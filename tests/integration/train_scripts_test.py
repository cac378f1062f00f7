#!/usr/bin/env python3
"""Tests that scripts/accuracy-table and scripts/loss-over-seconds save and evaluate runs, which job scripts/train
starts, and that scripts/kill-check ends ranks that are stuck."""

import argparse
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS / "lib"))
import train_runs  # noqa: E402  (the path comes first)

FAKE = """#!/usr/bin/env python3
import pathlib, sys
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if arguments["--seed"] == "13":
    sys.exit("bad luck")
pathlib.Path(arguments["--json"]).write_text('{"steps": 5, "seed": ' + arguments["--seed"] + "}")
log = pathlib.Path(__file__).with_suffix(".log")
log.write_text((log.read_text() if log.exists() else "") + "x")
"""

STUCK = """#!/bin/sh
echo "rank $RANK is here"
[ "$RANK" = 0 ] && kill -STOP $$
exit 3
"""


def script(name):
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        self.program = self.path / "train.py"
        self.program.write_text(FAKE, encoding="utf-8")
        self.program.chmod(0o755)

    def run_seed(self, seed, launcher=(), **environment):
        return train_runs.run(self.path / "runs", "one", list(launcher), ["--seed", seed], program=self.program,
                              environment=environment)

    def times_run(self):
        return len(self.program.with_suffix(".log").read_text(encoding="utf-8"))

    def test_a_run_that_is_there_is_not_run_again(self):
        self.assertEqual(self.run_seed(4), {"steps": 5, "seed": 4})
        self.assertEqual(self.run_seed(4), {"steps": 5, "seed": 4})
        self.assertEqual(self.times_run(), 1)

    def test_other_arguments_are_another_run(self):
        self.run_seed(4)
        self.assertEqual(self.run_seed(5)["seed"], 5)
        self.assertEqual(self.times_run(), 2)

    def test_another_launcher_or_environment_is_another_run(self):
        for times in (1, 2):
            self.run_seed(4)
            self.assertEqual(self.times_run(), 3 * times - 2)
            self.run_seed(4, ["env", "RANKS=2"])
            self.assertEqual(self.times_run(), 3 * times - 1)
            self.run_seed(4, KOLO_CALIBRATION_FILE="costs")
            self.assertEqual(self.times_run(), 3 * times)

    def test_runs_of_other_numbers_of_ranks_and_nodes_have_other_files(self):
        table = script("accuracy-table")
        settings = argparse.Namespace(data=self.path, steps=None, results=self.path, program=self.program)
        for settings.ranks, settings.nodes in ((2, 0), (4, 0), (4, 2)):
            with unittest.mock.patch.object(train_runs, "run", return_value={}) as run:
                table.run_way("mnist", "dense", 1, 0, settings)
            self.assertEqual(run.call_args.args[1], f"mnist-dense-{settings.ranks}-{settings.nodes}-1")

    def test_a_run_that_fails_says_why_and_is_not_kept(self):
        with self.assertRaisesRegex(train_runs.RunError, "one ended with status 1:\nbad luck"):
            self.run_seed(13)
        self.assertFalse((self.path / "runs" / "one.json").exists())

    def test_options_replace_those_of_the_task(self):
        arguments = train_runs.with_options(["--epochs", "3", "--lr", "1"], ["--steps", "9", "--lr", "2"])
        self.assertEqual(arguments, ["--lr", "2", "--steps", "9"])


class Train(unittest.TestCase):
    """scripts/train in a checkout where there is nothing to install or build, and launch prints the program's words."""

    def train(self, *arguments, status=0):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            (root / "scripts" / "lib").mkdir(parents=True)
            for name, text in {"scripts/lib/packages.sh": "train_packages=()\nmissing_packages() { :; }\n",
                               "scripts/lib/build.sh": "configure_training() { :; }\nbuild_configured() { :; }\n",
                               "scripts/launch": '#!/bin/sh\nprintf "%s\\n" "$@"\n',
                               "build/CMakeCache.txt": ""}.items():
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            (root / "scripts" / "launch").chmod(0o755)
            for name in ("train", "lib/common.sh"):
                shutil.copy(SCRIPTS / name, root / "scripts" / name)
            done = subprocess.run([root / "scripts" / "train", *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            words = done.stdout.splitlines()
            return [word.replace(folder, "ROOT") for word in words[words.index("--") + 1:]] if status == 0 else done.stderr

    def test_what_names_a_job_replaces_the_default_job(self):
        program, default = "ROOT/build/bin/kolo-train", ["--model", "gpt", "--data", "ROOT"]
        self.assertEqual(self.train(), [program, *default, "--steps", "400"])
        self.assertEqual(self.train("--epochs", "2"), [program, *default, "--epochs", "2"])
        for job in (["--config", "job.toml"], ["--config=job.toml", "--lr", "1"], ["--model", "mlp"]):
            self.assertEqual(self.train("-n", "3", *job), [program, *job])

    def test_commands_that_do_not_train_are_refused(self):
        said = self.train("-n", "1", "evaluate", "--weights", "x", status=64)
        self.assertIn("this script only trains; call build/bin/kolo-train evaluate", said)


class KillCheck(unittest.TestCase):
    def test_a_stuck_rank_is_killed_and_the_log_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "stuck")
            program.write_text(STUCK, encoding="utf-8")
            program.chmod(0o755)
            kill_check = script("kill-check")
            job = kill_check.Job(program, 2, [])
            for rank in job.ranks:
                self.addCleanup(rank.kill)
            os.waitid(os.P_PID, job.ranks[0].pid, os.WSTOPPED | os.WNOWAIT)
            job.ranks[1].wait()
            with unittest.mock.patch.object(kill_check, "PATIENCE", 0):
                statuses, log = job.finish()
        self.assertEqual(statuses, [-9, 3])
        self.assertEqual(sorted(log.splitlines()), ["rank 0 is here", "rank 1 is here"])


class Tables(unittest.TestCase):
    def test_accuracy_is_a_mean_and_a_deviation_over_seeds(self):
        table = script("accuracy-table")
        runs = {("mnist", "dense"): [{"eval_accuracy": 0.97, "wire_bytes_per_step": 800, "step_ms": 3},
                                     {"eval_accuracy": 0.99, "wire_bytes_per_step": 800, "step_ms": 5}],
                ("mnist", "int8"): [{"eval_accuracy": 0.96, "wire_bytes_per_step": 200, "step_ms": 3}],
                ("gpt", "dense"): [{"eval_loss": 1.5, "wire_bytes_per_step": 0, "step_ms": 9}]}
        text = table.table(runs, ["mnist", "gpt"])
        self.assertIn("| dense | 98.00 ± 1.41 %, 1.000, 1.00 | 1.5000 ± 0.0000 |", text)
        self.assertIn("| int8 | 96.00 ± 0.00 %, 0.250, 0.75 |  |", text)
        self.assertNotIn("fp16", text)
        self.assertEqual(table.spec_of("mnist", "top-k 1 %, warm-up", 600),
                         "topk(0.01,warmup=60,ramp=60,route=owners)")
        self.assertEqual(table.spec_of("gpt", "top-k 1 %, warm-up", 600), "topk(0.01,warmup=90,route=owners)")
        self.assertEqual(table.spec_of("gpt", "2 bits, warm-up", 600), "2bit(2,warmup=90,route=owners)")
        self.assertFalse(table.has("gpt", "top-k 1 %, warm-up, dgc"))
        self.assertTrue(table.has("mnist", "top-k 1 %, warm-up, dgc"))

    def test_the_loss_to_reach_is_one_that_all_curves_reach(self):
        seconds = script("loss-over-seconds")
        fast = [{"seconds": i, "eval_loss": 10 - i} for i in range(10)]
        slow = [{"seconds": 2 * i, "eval_loss": 10 - i if i % 2 == 0 else None} for i in range(10)]
        loss = seconds.common_loss([fast, slow])
        self.assertEqual(loss, 2)
        self.assertEqual(seconds.seconds_to(fast, loss), 8)
        self.assertEqual(seconds.seconds_to(slow, loss), 16)
        runs = {way: {"curve": curve, "steps": 10, "step_ms": 1, "wire_bytes_per_step": 8}
                for way, curve in {"dense float32": slow, "top-k 1 %": fast}.items()}
        self.assertIn("| top-k 1 % | 8.0 | 0.50 | – | 10 | 1.000 | 1.0 | 8 |", seconds.table("gpt", runs))
        runs["dense float16"] = runs["dense float32"]
        self.assertIn("| top-k 1 % | 8.0 | 0.50 | 0.50 | 10 | 1.000 | 1.0 | 8 |", seconds.table("gpt", runs))

    def test_auto_without_a_limit_is_told_by_medians_over_turns(self):
        seconds = script("loss-over-seconds")
        def turn(ms, path):
            return {"step_ms": ms, "compression_decisions": [{"path": path, "reason": f"it took {ms} ms"}]}
        chosen = [turn(5, "dense"), turn(4, "dense"), turn(90, "top-k through owners")]
        text = seconds.unshaped("gpt", chosen, [turn(6, ""), turn(6, ""), turn(7, "")])
        self.assertIn("3 turns: auto chose dense; top-k through owners and took 5.00 ms a step, "
                      "dense float32 6.00 ms", text)
        self.assertIn("- it took 90 ms", text)

    def test_a_way_has_a_beginning_and_evaluations_in_proportion_to_its_steps(self):
        seconds = script("loss-over-seconds")
        self.assertEqual(seconds.spec_of("mnist", "top-k 1 %", 800), "topk(0.01,dgc,ramp=80)")
        self.assertEqual(seconds.spec_of("gpt", "top-k 1 %", 400), "topk(0.01,warmup=60)")
        self.assertEqual(seconds.spec_of("gpt", "dense float16", 400), "fp16")
        self.assertEqual(seconds.options_of("mnist", "topk(0.01,dgc,ramp=80)", 800, 40),
                         ["--compression", "topk(0.01,dgc,ramp=80)",
                          "--steps", "800", "--log-every", "20", "--eval-every", "20"])

    def test_top_k_leaves_embeddings_dense_and_takes_all_sums_of_gpt(self):
        self.assertEqual(train_runs.compression_of("mnist", "topk(0.01)"), ["--compression", "topk(0.01)"])
        self.assertEqual(train_runs.compression_of("gpt", "fp16"), ["--compression", "fp16"])
        self.assertEqual(train_runs.compression_of("gpt", "sign(warmup=9)"),
                         ["--compression", "embedding*=fp16,*=sign(warmup=9)"])
        self.assertEqual(train_runs.compression_of("gpt", "topk(0.01,warmup=9)"),
                         ["--compression", "embedding*=fp16,*=topk(0.01,warmup=9,rule=lossless)"])


if __name__ == "__main__":
    unittest.main()
