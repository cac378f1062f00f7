#!/usr/bin/env -S python3 -B
"""Tests that the Python package safetensors reads weights exported by kolo-train, and writes them.

Called as `safetensors_package_test.py KOLO_TRAIN`. Skipped without torch and safetensors, which scripts/torch-check
installs.
"""

import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python" / "tests"))
import torch_support  # noqa: E402  (the path comes first)

torch_support.enter_python_with_torch(is_short=True)

import torch  # noqa: E402

try:
    import safetensors
    import safetensors.torch
except ImportError as error:
    print(f"skipped: {error}; scripts/torch-check installs it")
    sys.exit(77)

PROGRAM = sys.argv.pop(1)


class SafetensorsPackage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = self.folder / "text.txt"
        self.text.write_text("the ring goes round and round. " * 200)
        self.train("--run", self.folder / "run", "--resume", "auto")

    def train(self, *arguments):
        done = subprocess.run(
            [PROGRAM, "--model", "gpt", "--data", self.text, "--steps", "4", "--batch", "2", "--layers", "1", "--width", "16",
             "--heads", "2", "--context", "16", "--sample", "0", "--json", self.folder / "summary.json",
             "--export", self.folder / "weights.safetensors", *arguments],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_pytorch_loads_what_was_exported(self):
        weights = safetensors.torch.load_file(self.folder / "weights.safetensors")
        for name, tensor in weights.items():
            self.assertEqual(tensor.dtype, torch.float32, name)
            self.assertTrue(torch.isfinite(tensor).all(), name)
        self.assertEqual(weights["block0.attention_norm.gain"].shape, (16,))
        # The same numbers are read without the package, from the bytes of the data in the order of
        # the header.
        data = (self.folder / "weights.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        for name, tensor in weights.items():
            begin, end = (8 + length + offset for offset in header[name]["data_offsets"])
            self.assertEqual(tensor.numpy().tobytes(), data[begin:end], name)

    def test_the_package_reads_a_checkpoint(self):
        (file,) = (self.folder / "run" / "step-00000004").glob("*.safetensors")
        with safetensors.safe_open(file, framework="pt") as opened:
            self.assertEqual(opened.metadata()["step"], "4")
            self.assertEqual(opened.get_tensor("adam.steps").item(), 4)
            self.assertEqual(opened.get_tensor("rank/compression").dtype, torch.uint8)

    def test_training_begins_with_weights_that_pytorch_saved(self):
        weights = safetensors.torch.load_file(self.folder / "weights.safetensors")
        narrow = {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}
        safetensors.torch.save_file(narrow, self.folder / "narrow.safetensors")
        # The learning rate is so small that no float32 weight changes.
        self.train("--weights", self.folder / "narrow.safetensors", "--lr", "1e-30")
        actual = safetensors.torch.load_file(self.folder / "weights.safetensors")
        self.assertEqual(actual.keys(), weights.keys())
        for name, tensor in narrow.items():
            self.assertTrue(torch.allclose(actual[name], tensor.to(torch.float32), rtol=0, atol=1e-20), name)

    def test_kolo_reads_what_the_package_wrote(self):
        """Rewrites a checkpoint's file with the package, and its checksum in the manifest. The
        checkpoint must export the same weights."""
        checkpoint = self.folder / "run" / "step-00000004"
        (file,) = checkpoint.glob("*.safetensors")
        safetensors.torch.save_file(safetensors.torch.load_file(file), file, metadata={"step": "4"})
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        manifest["files"][0]["bytes"] = file.stat().st_size
        (checkpoint / "manifest.json").write_text(json.dumps(manifest))
        again = self.folder / "again.safetensors"
        done = subprocess.run([PROGRAM, "export", checkpoint, again], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 65)
        (actual,) = re.findall(r"its XXH3 sum is (\w+),", done.stderr)
        manifest["files"][0]["xxh3"] = actual
        (checkpoint / "manifest.json").write_text(json.dumps(manifest))
        subprocess.run([PROGRAM, "export", checkpoint, again], check=True)
        self.assertEqual(again.read_bytes(), (self.folder / "weights.safetensors").read_bytes())


if __name__ == "__main__":
    program = unittest.main(argv=[sys.argv[0], "-v"], exit=False)
    sys.exit(not program.result.wasSuccessful())
