#!/usr/bin/env -S python3 -B
"""Tests scripts/gpu-check without a GPU: its message, its parts, and its reports."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU_CHECK = ROOT / "scripts" / "gpu-check"
REPORT = ROOT / "scripts" / "lib" / "gpu_report.py"

PARTS = """\
all-reduce\t0\t9\t30\tall-reduce by NCCL
tests\t8\t31\t75\tevery test of the label gpu
sanitizer\t77\t0\t60\tcompute-sanitizer on the kernel tests
kernels\t0\t20\t45\tkernels beside a device-to-device copy
torch-kernels\t0\t22\t45\tthe same operations in PyTorch
nccl\t124\t60\t60\tdevice collectives, 2 and 4 ranks on one GPU
hierarchy\t0\t12\t60\thierarchical all-reduce
train\t0\t18\t60\tkolo-train, GPT in bfloat16
torch-train\tnone\t0\t75\tthe same GPT in PyTorch
"""
TESTS = "kernels_gpu_test\tfailed (139)\ncuda_device_test\tpassed\nnccl_group_test\tskipped\n"


def kernel_row(kernel, share, peer=None, peer_us=None):
    return {"kernel": kernel, "bytes": 1 << 30, "us": 250.0, "floor_us": 250.0 * share, "share_of_copy": share,
            "wrong": 0, "peer": peer, "peer_us": peer_us}  # fmt: skip


KERNELS = {
    "device": "cuda:0 (Example GPU)",
    "copy_gb_per_s": 4000.0,
    "rows": [
        kernel_row("pack to float32, 64 KiB each", 0.9, "cudaMemcpyAsync per tensor", 9000.0),
        kernel_row("pack to float32, 64 KiB each", 0.9, "cub::DeviceMemcpy::Batched", 300.0),
        kernel_row("pack to float32, 4 KiB each", 0.5),
        kernel_row("unpack from float32, 300 x 4 KiB", 0.1),
        kernel_row("add received shard, float32", 0.88),
        kernel_row("top-k, 1 % of 67108864", 0.7),
    ],
}
TRAINER = {"copy_gb_per_s": 4050.0, "rows": [{"kernel": "AdamW with bfloat16 copy", "bytes": 1 << 30, "us": 300.0,
                                              "floor_us": 270.0, "share_of_copy": 0.9}]}  # fmt: skip
TORCH = {
    "copy_gb_per_s": 4100.0,
    "rows": [
        {"system": "torch", "kernel": "pack to float32, 64 KiB each", "us": 500.0, "share_of_copy": 0.5},
        {"system": "torch", "kernel": "layer norm forward, bfloat16, 1 x 768", "us": 100.0, "share_of_copy": 0.75},
    ],
}
HIERARCHY = [{"system": "kolo", "size": 1048576, "algorithm": "hierarchical:native,ring", "ranks": 4, "nodes": 2,
              "time_us": 51234.5, "wire_bytes": 524288, "wrong": 0}]  # fmt: skip
GATHER = [{"collective": "all-gather", "system": "kolo", "size": 4194304, "algorithm": "auto", "ranks": 2,
           "time_us": 41000.5, "wrong": 0}]  # fmt: skip
SCATTER = [{"collective": "scatter", "system": "nccl", "size": 4096, "algorithm": "default", "ranks": 2,
            "time_us": 9000.0, "wrong": 3}]  # fmt: skip
TRAIN = {"model": "gpt", "device": "cuda", "step_ms": 61.25, "tokens_per_s": 133747.0, "train_loss": 2.5}
TWO_RANKS = TRAIN | {"step_ms": 420.5, "tokens_per_s": 4870.0, "weights_hash": "00ff"}
TORCH_TRAIN = [{"system": "torch eager", "parameters": 121500000, "step_ms": 72.5, "tokens_per_s": 113000.0}]


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.work = self.folder / "work"
        self.work.mkdir()
        self.leave("parts.tsv", PARTS)
        self.leave("machine.txt", "gpu\tExample GPU\ndriver\t580.1\ncommit\tabc1234\n")
        self.leave("tests.tsv", TESTS)
        self.leave("tests.log", "\n".join(f"line {number}" for number in range(100)) + "\nkernels_gpu_test: wrong bits\n")
        self.leave("sanitizer.log", "+ part_sanitizer\ncompute-sanitizer is not on this machine\n+ exit 77\n")
        self.leave("nccl.log", "rank 1 waits\n")
        self.leave("kernels.json", json.dumps(KERNELS))
        self.leave("trainer-kernels.json", json.dumps(TRAINER))
        self.leave("torch-kernels.json", json.dumps(TORCH))
        self.leave("hierarchy.json", json.dumps(HIERARCHY))
        self.leave("collective-all-gather.json", json.dumps(GATHER))
        self.leave("collective-scatter.json", json.dumps(SCATTER))
        self.leave("train.json", json.dumps(TRAIN))
        self.leave("train-products.json", json.dumps({**TRAIN, "step_ms": 71.5}))
        self.leave("two-ranks-1.json", json.dumps(TWO_RANKS))
        self.leave("torch-train.json", json.dumps(TORCH_TRAIN))

    def leave(self, name, text):
        (self.work / name).write_text(text, encoding="utf-8")

    def report(self, status=1):
        outcome = subprocess.run([REPORT, self.work, self.folder / "gpu"], capture_output=True, text=True)
        self.assertEqual(outcome.returncode, status, outcome.stderr)
        self.markdown = (self.folder / "gpu.md").read_text(encoding="utf-8")
        return json.loads((self.folder / "gpu.json").read_text(encoding="utf-8"))

    def test_shows_parts_tests_kernels_beside_peers_training_and_collectives(self):
        report = self.report()
        self.assertEqual([part["status"] for part in report["parts"]],
                         ["passed", "failed", "skipped", "passed", "passed", "timed out", "passed", "passed",
                          "not started"])  # fmt: skip
        self.assertEqual(report["parts"][2]["detail"], "compute-sanitizer is not on this machine")
        self.assertEqual(report["machine"]["commit"], "abc1234")
        self.assertEqual(report["tests"], {"passed": ["cuda_device_test"], "failed": ["kernels_gpu_test"],
                                           "skipped": ["nccl_group_test"]})  # fmt: skip
        self.assertEqual(report["copy_gb_per_s"], {"kolo": 4000.0, "kolo trainer": 4050.0, "PyTorch": 4100.0})
        verdicts = {row["kernel"]: (row.get("bar"), row.get("met")) for row in report["kernels"]}
        self.assertEqual(verdicts, {
            "pack to float32, 64 KiB each": (0.85, True),
            "pack to float32, 4 KiB each": (0.6, False),
            "unpack from float32, 300 x 4 KiB": (None, None),
            "add received shard, float32": (0.9, False),
            "top-k, 1 % of 67108864": (1 / 1.5, True),
            "AdamW with bfloat16 copy": (0.85, True),
            "layer norm forward, bfloat16, 1 x 768": (None, None),
        })  # fmt: skip
        self.assertEqual(report["collectives"], GATHER + SCATTER)
        for text in (
            "| tests | every test of the label gpu | **failed** (8) | 31 |", "**timed out** after 60 s", "not started: the time",
            "1 passed, 1 failed, 1 skipped.\n- kernels_gpu_test failed\n- nccl_group_test skipped",
            "kernels_gpu_test: wrong bits", "rank 1 waits",  # the ends of logs
            "| pack to float32, 64 KiB each | 250.0 | 90 % | 85 % | yes | 0 | cudaMemcpyAsync per tensor 9000.0, "
            "cub::DeviceMemcpy::Batched 300.0, PyTorch 500.0 (50 %) |",
            "| layer norm forward, bfloat16, 1 x 768 | – | – |  |  |  | PyTorch 100.0 (75 %) |",
            "| kolo, a small GPT, 2 ranks on one GPU |  | 420.50 | 4870 |",
            "| kolo, attention by products |  | 71.50 | 133747 |",
            "| torch eager | 121500000 | 72.50 | 113000 |",
            "| 1048576 | hierarchical:native,ring | 4 | 2 | 51234.5 | 524288 | 0 |",
            "| scatter | 4096 | nccl | default | 2 | 9000.0 | 3 |",
        ):  # fmt: skip
            self.assertIn(text, self.markdown)
        self.assertNotIn("line 5\n", self.markdown)

    def test_says_what_it_cannot_read_and_shows_the_rest(self):
        self.leave("kernels.json", json.dumps(KERNELS)[:100])
        self.leave("torch-kernels.json", json.dumps({"rows": [*TORCH["rows"], {"kernel": "odd"}]}))
        (self.work / "train.json").unlink()
        report = self.report()
        self.assertEqual(len(report["problems"]), 2)
        for text in ("kernels.json is no JSON", "1 rows without kernel", "torch eager"):
            self.assertIn(text, self.markdown)
        for file in self.work.iterdir():
            file.unlink()
        self.assertEqual(self.report(status=0)["parts"], [])


class Script(unittest.TestCase):
    """Runs the script itself, with fakes of the tools of a GPU machine."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()

    def tool(self, name, script):
        file = self.folder / "bin" / name
        file.write_text("#!/bin/sh\n" + script + "\n", encoding="utf-8")
        file.chmod(0o755)

    def program(self, name, script):
        """A program of the build that was carried."""
        file = self.folder / "build" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/bash\n" + script + "\n", encoding="utf-8")
        file.chmod(0o755)

    def variables(self):
        return os.environ | {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "KOLO_GPU_BUILD": str(self.folder / "build"),
            "KOLO_GPU_DEPS": str(self.folder / "none"),
            "OUT": str(self.folder / "out"),
            "TMPDIR": str(self.folder),
        }

    def run_script(self, *arguments, **more):
        return subprocess.run([GPU_CHECK, *map(str, arguments)], env=self.variables() | more, capture_output=True,
                              text=True)  # fmt: skip

    def test_without_a_gpu_it_says_why_and_does_nothing(self):
        self.tool("nvidia-smi", "echo 'the driver is not loaded'; exit 9")
        outcome = self.run_script()
        self.assertEqual((outcome.returncode, outcome.stdout), (77, "no CUDA device: the driver is not loaded\n"))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["bin"])

    def test_the_parts_come_in_order_of_value_and_their_limits_are_the_budget(self):
        outcome = self.run_script("--dry-run")
        self.assertEqual(outcome.returncode, 0)
        lines = [line.split() for line in outcome.stdout.splitlines()]
        self.assertEqual([line[0] for line in lines],
                         ["all-reduce", "two-ranks", "tests", "probe", "nccl", "hierarchy", "train", "torch-train",
                          "kernels", "torch-kernels", "collectives", "sanitizer"])  # fmt: skip
        self.assertLessEqual(sum(int(line[1]) for line in lines), 520)

    def play_gpu(self):
        self.tool("nvidia-smi", 'case "$*" in -L) echo "GPU 0";; *compute_cap*) echo 9.0;; *) echo Example;; esac')

    def report(self):
        """Returns the JSON and Markdown of the run, and a function that reads a file that the parts left."""
        (file,) = (self.folder / "out").glob("gpu-*.json")
        texts = [file.with_suffix(suffix).read_text(encoding="utf-8") for suffix in (".json", ".md")]
        archive = tarfile.open(file.with_suffix(".tgz"))
        self.addCleanup(archive.close)
        return json.loads(texts[0]), texts[1], lambda name: archive.extractfile(f"./{name}").read().decode()

    def statuses(self):
        return {part["name"]: part["status"] for part in self.report()[0]["parts"]}

    def test_what_is_built_is_gathered_stripped_and_carried(self):
        tree = self.folder / "checkout" / "build" / "gpu"
        (self.folder / "checkout").mkdir()
        shutil.copytree(ROOT / "scripts", self.folder / "checkout" / "scripts")
        self.play_gpu()
        self.tool("strip", "exec true")
        for stale in (tree / "bin/kolo-train", tree / "tests/a/old_test"):  # of an earlier build
            stale.parent.mkdir(parents=True, exist_ok=True)
            stale.touch(0o755)
        self.tool("cmake", f"""echo "cmake $*"
                  for file in bin/kolo-bench lib/libkolo.so.2.1.0 tests/a/one_test tests/a/two_test.d; do
                    mkdir -p {tree}/$(dirname $file); echo "$file" >{tree}/$file; chmod +x {tree}/$file
                  done; ln -sf libkolo.so.2.1.0 {tree}/lib/libkolo.so.2
                  case $1 in --build) exit 3;; esac""")
        outcome = subprocess.run([self.folder / "checkout" / "scripts" / "gpu-check", "--build"],
                                 env=self.variables() | {"KOLO_COMMIT": "abc"}, capture_output=True, text=True)  # fmt: skip
        self.assertEqual(outcome.returncode, 3, "a target that does not compile is a failure")
        self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=90 ", outcome.stdout)
        self.assertIn(" --target gpu_tests kolo-bench kolo-train gpu_kernel_bench gpu_trainer_bench ", outcome.stdout)
        self.assertIn("no bin/kolo-train", outcome.stderr)
        carried = self.folder / "build"
        files = sorted(str(file.relative_to(carried)) for file in carried.rglob("*") if file.is_file())
        self.assertEqual(files, ["bin/kolo-bench", "commit", "lib/libkolo.so.2", "tests/a/one_test"])
        self.assertEqual((carried / "commit").read_text(), "abc\n")
        self.assertEqual((carried / "lib/libkolo.so.2").read_text(), "lib/libkolo.so.2.1.0\n")
        with tarfile.open(carried.with_suffix(".tgz")) as archive:
            self.assertEqual(sorted(each.name[2:] for each in archive if each.isfile()), files)

    def test_failing_and_skipped_parts_of_unpacked_programs_are_all_in_the_report(self):
        self.play_gpu()
        self.program("bin/kolo-bench", "echo 'a rank has failed' >&2; exit 8")
        self.program("tests/x/passing_test", "echo '[       OK ] A.B (0 ms)'")
        self.program("tests/x/skipped_test", "echo '[  SKIPPED ] A.B (0 ms)'")
        self.program("tests/y/crashing_test", "echo '[       OK ] A.B'; echo 'the last words'; kill -SEGV $$")
        self.program("bin/kolo-train", "echo 'no model for this GPU'; exit 77")
        os.rename(shutil.make_archive(self.folder / "programs", "gztar", self.folder / "build"), self.folder / "build.tgz")
        shutil.rmtree(self.folder / "build")
        outcome = self.run_script("--only", "all-reduce,tests,train,kernels")
        self.assertEqual(outcome.returncode, 1, outcome.stderr)
        report, markdown, _ = self.report()
        statuses = {part["name"]: part["status"] for part in report["parts"]}
        self.assertEqual(statuses, {"all-reduce": "failed", "tests": "failed", "train": "skipped", "kernels": "failed"})
        self.assertEqual(report["tests"], {"passed": ["passing_test"], "failed": ["crashing_test"],
                                           "skipped": ["skipped_test"]})  # fmt: skip
        self.assertEqual(report["machine"]["gpu"], "Example")
        self.assertIn("skipped: no model for this GPU", outcome.stdout)
        for text in ("a rank has failed", "the last words", "bin/gpu_kernel_bench was not built"):
            self.assertIn(text, markdown)

    def test_a_hanging_part_ends_with_what_it_started_and_later_ones_do_not_start(self):
        self.play_gpu()
        left = self.folder / "left"
        self.program("bin/gpu_kernel_bench",
                     f"trap '' TERM INT; echo started; sleep 1000 & echo $$ $! >{left}; while :; do sleep 0.2; done")  # fmt: skip
        outcome = self.run_script("--only", "kernels,collectives", "--budget", 6)
        self.assertEqual(outcome.returncode, 1, outcome.stderr)
        self.assertEqual(self.statuses(), {"kernels": "timed out", "collectives": "not started"})
        self.assertIn("started", self.report()[2]("kernels.log"))
        self.assertEqual([pid for pid in left.read_text().split() if self.is_running(pid)], [])

    @staticmethod
    def is_running(pid):
        try:
            return ") Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False

    def test_a_run_that_was_cut_off_is_resumed(self):
        self.play_gpu()
        self.program("tests/x/a_test", "echo '[       OK ] A.B'")
        self.program("bin/kolo-train", f"echo $$ >{self.folder}/training; exec sleep 1000")
        commit = self.folder / "build" / "commit"
        commit.write_text("abc\n")
        script = subprocess.Popen([GPU_CHECK, "--only", "tests,train,torch-train"], env=self.variables(),
                                  stdout=subprocess.DEVNULL)  # fmt: skip
        while not (self.folder / "training").exists():
            time.sleep(0.02)
        script.kill()
        script.wait()
        os.kill(int((self.folder / "training").read_text()), 9)
        self.assertEqual(self.statuses(), {"tests": "passed"}, "the part that ended was on disk")
        (archive,) = (self.folder / "out").glob("gpu-*.tgz")
        archive = archive.rename(self.folder / "before.tgz")
        self.program("tests/x/a_test", "exit 9")
        self.program("bin/kolo-train", "exit 5")
        outcome = self.run_script("--only", "tests,train", "--resume", archive)
        self.assertNotIn("tests: ", outcome.stdout, "what had passed did not run again")
        self.assertEqual(self.statuses(), {"tests": "passed", "train": "failed"})
        commit.write_text("def\n")
        self.assertIn("is of another commit: this is programs\tdef", self.run_script("--resume", archive).stderr)

    def test_tests_that_were_all_skipped_have_not_passed(self):
        self.play_gpu()
        self.program("tests/x/a_test", "echo '[  SKIPPED ] A.B'")
        self.assertEqual(self.run_script("--only", "tests").returncode, 1)
        self.assertIn("no test has passed", self.report()[1])

    def test_a_long_program_of_tests_runs_in_shards_with_a_log_and_an_outcome_each(self):
        self.play_gpu()
        self.program("tests/x/trainer_cuda_models_test",
                     """echo "[       OK ] $GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS, $OMP_NUM_THREADS thread"
                     [ "$GTEST_SHARD_INDEX" != 3 ]""")  # fmt: skip
        self.program("tests/x/short_test", 'echo "[       OK ] ${GTEST_TOTAL_SHARDS-whole}"')
        self.assertEqual(self.run_script("--only", "tests").returncode, 1)
        report, _, left = self.report()
        shards = [f"trainer_cuda_models_test-{shard}" for shard in range(8)]
        failed = shards.pop(3)
        self.assertEqual(report["tests"], {"passed": ["short_test", *shards], "failed": [failed], "skipped": []})
        self.assertEqual(left(f"{shards[-1]}.txt"), "[       OK ] 7 of 8, 1 thread\n")
        self.assertEqual(left("short_test.txt"), "[       OK ] whole\n")

    def test_the_shorter_program_of_kernels_runs_first_and_the_other_even_if_it_fails(self):
        self.play_gpu()
        for name, status in (("kernel", 0), ("trainer", 1)):
            self.program(f"bin/gpu_{name}_bench", f"echo {name} >>{self.folder}/order; exit {status}")
        self.assertEqual(self.run_script("--only", "kernels").returncode, 1)
        self.assertEqual((self.folder / "order").read_text(), "trainer\nkernel\n")

    def test_the_time_to_import_torch_is_part_of_the_probe(self):
        self.play_gpu()
        python = shutil.which("python3")
        self.tool("python3", f"""case "$*" in
                  "-c import torch") sleep 1.1;;
                  *gpu_probe.py*) echo "probe: $*";;
                  *) exec {python} "$@";;
                  esac""")
        self.program("lib/libkolo.so.2", "")
        self.assertEqual(self.run_script("--only", "probe").returncode, 0)
        seconds = re.search(r"^probe: .* --seconds (\d+)$", self.report()[2]("probe.log"), re.MULTILINE)
        self.assertIn(int(seconds[1]), range(10, 85))

    def test_runs_that_end_with_different_weights_have_failed(self):
        self.play_gpu()
        self.tool("mpirun", "shift 4; exec \"$@\"")
        self.program("bin/kolo-train", f"""while [ "$1" != --json ]; do shift; done
                     echo run >>{self.folder}/runs; echo '{{"weights_hash": "'$(wc -l <{self.folder}/runs)'"}}' >"$2" """)  # fmt: skip
        self.assertEqual(self.run_script("--only", "two-ranks").returncode, 1)
        self.assertIn("two runs end with different weights: 1, 2", self.report()[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
