#!/usr/bin/env -S python3 -B
"""GPT beside the same network in PyTorch: logits and gradients, with learned and rotary positions, and with weights
under GPT-2's names, read and written.

    gpt_test.py GPT_DUMP KOLO_TRAIN

Skipped without torch, which scripts/torch-check installs.
"""

import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python" / "tests"))
import torch_support  # noqa: E402

torch_support.enter_python_with_torch(is_short=True)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional  # noqa: E402

PROGRAM, KOLO_TRAIN = sys.argv[1:3]
del sys.argv[1:3]
SEQUENCES, CONTEXT, TOKENS, LAYERS, WIDTH, HEADS = 2, 70, 53, 3, 48, 4

# Our names in a block, GPT-2's, and their shape there: Conv1D, which multiplies by [inputs, outputs].
IN_BLOCK = {
    "attention_norm.gain": ("ln_1.weight", (WIDTH,)),
    "attention_norm.bias": ("ln_1.bias", (WIDTH,)),
    "query_key_value.weight": ("attn.c_attn.weight", (WIDTH, 3 * WIDTH)),
    "query_key_value.bias": ("attn.c_attn.bias", (3 * WIDTH,)),
    "project.weight": ("attn.c_proj.weight", (WIDTH, WIDTH)),
    "project.bias": ("attn.c_proj.bias", (WIDTH,)),
    "inner_norm.gain": ("ln_2.weight", (WIDTH,)),
    "inner_norm.bias": ("ln_2.bias", (WIDTH,)),
    "expand.weight": ("mlp.c_fc.weight", (WIDTH, 4 * WIDTH)),
    "expand.bias": ("mlp.c_fc.bias", (4 * WIDTH,)),
    "contract.weight": ("mlp.c_proj.weight", (4 * WIDTH, WIDTH)),
    "contract.bias": ("mlp.c_proj.bias", (WIDTH,)),
}


def names(is_rotary):
    """GPT-2's name and shape of each of our parameters."""
    found = {"embedding.token": ("wte.weight", (TOKENS, WIDTH))}
    if is_rotary:
        found["output.weight"] = ("lm_head.weight", (TOKENS, WIDTH))
    else:
        found["embedding.position"] = ("wpe.weight", (CONTEXT, WIDTH))
    for i in range(LAYERS):
        for ours, (theirs, shape) in IN_BLOCK.items():
            found[f"block{i}.{ours}"] = (f"h.{i}.{theirs}", shape)
    found["final_norm.gain"] = ("ln_f.weight", (WIDTH,))
    found["final_norm.bias"] = ("ln_f.bias", (WIDTH,))
    return found


def turned(x):
    """Rotary positions of [..., length, head width]: pair i of n is a complex number that turns by p / 10000^(i/n)."""
    n = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[-2]).double(), 10000.0 ** (-torch.arange(n).double() / n))
    y = torch.complex(x[..., :n], x[..., n:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([y.real, y.imag], -1)


def gpt2(w, tokens, is_rotary=False):
    """Logits of GPT-2 as published, from weights under its names."""

    def norm(x, name):
        return functional.layer_norm(x, (WIDTH,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def conv1d(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["wte.weight"][tokens]
    if not is_rotary:
        x = x + w["wpe.weight"]
    for i in range(LAYERS):
        packed = conv1d(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in packed.split(WIDTH, -1))
        if is_rotary:
            q, k = turned(q), turned(k)
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        mask = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril()
        attended = scores.masked_fill(~mask, -math.inf).softmax(-1) @ v
        x = x + conv1d(attended.transpose(1, 2).flatten(2), f"h.{i}.attn.c_proj")
        inner = functional.gelu(conv1d(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh")
        x = x + conv1d(inner, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["lm_head.weight" if is_rotary else "wte.weight"].T


def write_safetensors(file, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        values = tensor.numpy().tobytes()
        dtype = {torch.float32: "F32", torch.bool: "BOOL"}[tensor.dtype]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(file):
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = torch.from_numpy(np.frombuffer(data[begin:end], np.float32).reshape(entry["shape"]).copy())
    return tensors


class GptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def read(self, path, shape, dtype=np.float32):
        values = np.fromfile(self.folder / path, dtype)
        return torch.from_numpy(values.reshape(shape).copy())

    def theirs(self, path, shape):
        """One of our parameters or gradients in GPT-2's order of elements."""
        is_dense = len(shape) == 2 and path.rpartition("/")[2].startswith("block")
        return self.read(path, shape[::-1]).T if is_dense else self.read(path, shape)

    def check(self, kind, weights=None):
        is_rotary = kind == "rotary"
        subprocess.run([PROGRAM, str(kind), self.folder], check=True)
        found = sorted(path.name for path in (self.folder / "value").iterdir())
        self.assertEqual(found, sorted(names(is_rotary)))
        used = {}
        for ours, (theirs, shape) in names(is_rotary).items():
            value = self.theirs(f"value/{ours}", shape)
            if weights:
                self.assertTrue(torch.equal(value, weights[theirs]), theirs)
            used[theirs] = value.double().requires_grad_()
        tokens, following = (self.read(n, (SEQUENCES, CONTEXT), np.int32).long() for n in ("tokens", "next"))
        logits = gpt2(used, tokens, is_rotary)

        # Torch computes in float64. A rounding is 2^-24 = 6e-8 of a value; on its way through three blocks each value
        # passes some 30 operations, sums of up to 192 terms among them, whose errors add at random:
        # 6e-8 * 30 * sqrt(192) = 2.5e-5 of the largest element. Gradients come back the same way.
        def expect(path, got, wanted, bound):
            error = float((got.double() - wanted).abs().max()) / float(wanted.abs().max())
            self.assertLess(error, bound, path)

        expect("logits", self.read("logits", logits.shape), logits.detach(), 2.5e-5)
        functional.cross_entropy(logits.flatten(0, 1), following.flatten()).backward()
        for ours, (theirs, shape) in names(is_rotary).items():
            # The gradient of the bias of keys is zero: softmax does not see what all scores have in common. It is held
            # against that of queries and values.
            expect(ours, self.theirs(f"gradient/{ours}", shape), used[theirs].grad, 5e-5)

    def test_learned_positions(self):
        self.check("gpt")

    def test_rotary_positions_and_an_output_table(self):
        self.check("rotary")

    def random_gpt2(self):
        """Weights as a model has them after training: biases and gains are not what they begin with."""
        torch.manual_seed(4)
        return {
            name: torch.randn(shape) * (0.2 if len(shape) == 2 else 0.1) + (1.0 if ".ln_" in f".{name}" and "weight" in name else 0.0)
            for name, shape in names(False).values()
        }

    def test_weights_under_gpt2s_names(self):
        weights = self.random_gpt2()
        file = self.folder / "weights.safetensors"
        write_safetensors(file, weights)
        self.check(file, weights)

    def test_weights_with_prefix_masks_and_output_table(self):
        weights = self.random_gpt2()
        stored = {f"transformer.{name}": tensor for name, tensor in weights.items()}
        stored["lm_head.weight"] = weights["wte.weight"]
        for i in range(LAYERS):
            stored[f"transformer.h.{i}.attn.bias"] = torch.ones(1, 1, CONTEXT, CONTEXT, dtype=torch.bool).tril()
        file = self.folder / "weights.safetensors"
        write_safetensors(file, stored)
        self.check(file, weights)

    def test_an_export_has_what_training_had(self):
        text = self.folder / "text"
        text.write_text("hand in hand " * 100)
        for name, layout in (("ours", []), ("theirs", ["--layout", "gpt2"])):
            if not layout:
                subprocess.run(
                    [KOLO_TRAIN, "--data", text, "--steps", "1", "--layers", str(LAYERS), "--width", str(WIDTH), "--heads",
                     str(HEADS), "--context", "16", "--batch", "1", "--sample", "0", "--export", self.folder / "trained"],
                    check=True, capture_output=True,
                )  # fmt: skip
            subprocess.run([KOLO_TRAIN, "export", self.folder / "trained", self.folder / name, *layout], check=True)
        ours, theirs = (read_safetensors(self.folder / name) for name in ("ours", "theirs"))
        self.assertEqual(len(ours), len(theirs))
        for name, tensor in ours.items():
            other = theirs["transformer." + names(False)[name][0]]
            is_dense = name.startswith("block") and tensor.dim() == 2
            self.assertTrue(torch.equal(other, tensor.T if is_dense else tensor), name)


if __name__ == "__main__":
    unittest.main()
