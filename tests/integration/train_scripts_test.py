#!/usr/bin/env python3
"""Tests that scripts/accuracy-table and scripts/loss-over-seconds save and evaluate runs."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile
import unittest

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

    def run_seed(self, seed):
        return train_runs.run(self.path / "runs", "one", [], ["--seed", seed], program=self.program)

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

    def test_a_run_that_fails_says_why_and_is_not_kept(self):
        with self.assertRaisesRegex(train_runs.RunError, "one ended with status 1:\nbad luck"):
            self.run_seed(13)
        self.assertFalse((self.path / "runs" / "one.json").exists())

    def test_options_replace_those_of_the_task(self):
        arguments = train_runs.with_options(["--epochs", "3", "--lr", "1"], ["--steps", "9", "--lr", "2"])
        self.assertEqual(arguments, ["--lr", "2", "--steps", "9"])


class Tables(unittest.TestCase):
    def test_accuracy_is_a_mean_and_a_deviation_over_seeds(self):
        table = script("accuracy-table")
        runs = {("mnist", "dense"): [{"eval_accuracy": 0.97, "wire_bytes_per_step": 800},
                                     {"eval_accuracy": 0.99, "wire_bytes_per_step": 800}],
                ("mnist", "int8"): [{"eval_accuracy": 0.96, "wire_bytes_per_step": 200}],
                ("gpt", "dense"): [{"eval_loss": 1.5, "wire_bytes_per_step": 0}]}
        text = table.table(runs, ["mnist", "gpt"])
        self.assertIn("| dense | 98.00 ± 1.41 %, 1.000 | 1.5000 ± 0.0000 |", text)
        self.assertIn("| int8 | 96.00 ± 0.00 %, 0.250 |  |", text)
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
