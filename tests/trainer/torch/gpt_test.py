#!/usr/bin/env -S python3 -B
"""Compares GPT with the same network in PyTorch: logits and gradients, with learned and rotary
positions, and with weights read and written under GPT-2's names. Also compares one sequence in a
model with the 124 million weights of --shape gpt2.

    gpt_test.py MODEL_DUMP KOLO_TRAIN GptTest|Gpt2ShapeTest

Skipped without torch, which scripts/torch-check installs, or without memory.
"""

import dataclasses
import json
import math
import pathlib
import re
import struct
import subprocess
import sys
import unittest

from model_dumps import Dumped, np, torch
from torch.nn import functional

KOLO_TRAIN = sys.argv.pop(1)


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of a batch and of the model."""

    sequences: int
    context: int
    tokens: int
    layers: int
    width: int
    heads: int


SMALL = Shape(sequences=2, context=70, tokens=53, layers=3, width=48, heads=4)
# The shape of --shape gpt2, with a short sequence.
GPT2 = Shape(sequences=1, context=16, tokens=50257, layers=12, width=768, heads=12)


def in_block(width):
    """Returns our names in a block with GPT-2's name and shape. GPT-2's Conv1D multiplies by
    [inputs, outputs]."""
    return {
        "attention_norm.gain": ("ln_1.weight", (width,)),
        "attention_norm.bias": ("ln_1.bias", (width,)),
        "query_key_value.weight": ("attn.c_attn.weight", (width, 3 * width)),
        "query_key_value.bias": ("attn.c_attn.bias", (3 * width,)),
        "project.weight": ("attn.c_proj.weight", (width, width)),
        "project.bias": ("attn.c_proj.bias", (width,)),
        "inner_norm.gain": ("ln_2.weight", (width,)),
        "inner_norm.bias": ("ln_2.bias", (width,)),
        "expand.weight": ("mlp.c_fc.weight", (width, 4 * width)),
        "expand.bias": ("mlp.c_fc.bias", (4 * width,)),
        "contract.weight": ("mlp.c_proj.weight", (4 * width, width)),
        "contract.bias": ("mlp.c_proj.bias", (width,)),
    }


def names(shape, is_rotary):
    """Returns GPT-2's name and shape of each of our parameters."""
    found = {"embedding.token": ("wte.weight", (shape.tokens, shape.width))}
    if is_rotary:
        found["output.weight"] = ("lm_head.weight", (shape.tokens, shape.width))
    else:
        found["embedding.position"] = ("wpe.weight", (shape.context, shape.width))
    for i in range(shape.layers):
        for ours, (theirs, its_shape) in in_block(shape.width).items():
            found[f"block{i}.{ours}"] = (f"h.{i}.{theirs}", its_shape)
    found["final_norm.gain"] = ("ln_f.weight", (shape.width,))
    found["final_norm.bias"] = ("ln_f.bias", (shape.width,))
    return found


def turned(x):
    """Rotates [..., length, head width] by positions: pair i of n is a complex number that
    rotates by p / 10000^(i/n)."""
    n = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[-2]).double(), 10000.0 ** (-torch.arange(n).double() / n))
    y = torch.complex(x[..., :n], x[..., n:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([y.real, y.imag], -1)


def gpt2(w, tokens, shape, is_rotary=False):
    """Returns the logits of GPT-2 as published, from weights under its names."""

    def norm(x, name):
        return functional.layer_norm(x, (shape.width,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def conv1d(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["wte.weight"][tokens]
    if not is_rotary:
        x = x + w["wpe.weight"]
    for i in range(shape.layers):
        packed = conv1d(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
        q, k, v = (part.unflatten(-1, (shape.heads, -1)).transpose(1, 2) for part in packed.split(shape.width, -1))
        if is_rotary:
            q, k = turned(q), turned(k)
        scores = q @ k.transpose(-1, -2) / math.sqrt(shape.width // shape.heads)
        mask = torch.ones(shape.context, shape.context, dtype=torch.bool).tril()
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


class GptDumped(Dumped):
    def theirs(self, path, shape):
        """Returns one of our parameters or gradients in GPT-2's order of elements."""
        is_dense = len(shape) == 2 and path.rpartition("/")[2].startswith("block")
        return self.read(path, shape[::-1]).T if is_dense else self.read(path, shape)

    def loss_of(self, used, shape, is_rotary, logits_bound):
        """Compares the logits; returns torch's loss on the dump's tokens."""
        tokens, following = (self.integers(name, shape.sequences, shape.context) for name in ("first", "targets"))
        logits = gpt2(used, tokens, shape, is_rotary)
        self.expect("output", logits, logits_bound)
        return functional.cross_entropy(logits.flatten(0, 1), following.flatten(), reduction="sum")


class GptTest(GptDumped):
    def check(self, kind, *file, weights=None):
        is_rotary = kind == "rotary"
        self.run_ours(kind, *file)
        found = sorted(path.name for path in (self.folder / "value").iterdir())
        self.assertEqual(found, sorted(names(SMALL, is_rotary)))
        used = {}
        for ours, (theirs, shape) in names(SMALL, is_rotary).items():
            value = self.theirs(f"value/{ours}", shape)
            if weights:
                self.assertTrue(torch.equal(value, weights[theirs]), theirs)
            used[theirs] = value.double().requires_grad_()

        # Torch computes in float64. A rounding is 2^-24 = 6e-8 of a value. Through three blocks,
        # each value passes about 30 operations, with sums of up to 192 terms, whose errors add at
        # random: 6e-8 * 30 * sqrt(192) = 2.5e-5 of the largest element. Gradients pass the same
        # number of operations backwards.
        self.loss_of(used, SMALL, is_rotary, 2.5e-5).backward()
        for ours, (theirs, shape) in names(SMALL, is_rotary).items():
            # The gradient of the keys' bias is zero, because softmax ignores a constant added to
            # all scores. Its bound is relative to the gradients of queries and values.
            self.expect(ours, used[theirs].grad, 5e-5, self.theirs(f"gradient/{ours}", shape))

    def test_learned_positions(self):
        self.check("gpt")

    def test_rotary_positions_and_an_output_table(self):
        self.check("rotary")

    def random_gpt2(self):
        """Returns weights as after training: biases and gains differ from their initial values."""
        torch.manual_seed(4)
        return {
            name: torch.randn(shape) * (0.2 if len(shape) == 2 else 0.1) + (1.0 if ".ln_" in f".{name}" and "weight" in name else 0.0)
            for name, shape in names(SMALL, False).values()
        }

    def test_weights_with_prefix_masks_and_output_table(self):
        weights = self.random_gpt2()
        stored = {f"transformer.{name}": tensor for name, tensor in weights.items()}
        stored["lm_head.weight"] = weights["wte.weight"]
        for i in range(SMALL.layers):
            stored[f"transformer.h.{i}.attn.bias"] = torch.ones(1, 1, SMALL.context, SMALL.context, dtype=torch.bool).tril()
        file = self.folder / "weights.safetensors"
        write_safetensors(file, stored)
        self.check("gpt", file, weights=weights)

    def test_an_export_has_what_training_had(self):
        text = self.folder / "text"
        text.write_text("hand in hand " * 100)
        for name, layout in (("ours", []), ("theirs", ["--layout", "gpt2"])):
            if not layout:
                subprocess.run(
                    [KOLO_TRAIN, "--data", text, "--steps", "1", "--layers", str(SMALL.layers), "--width", str(SMALL.width), "--heads",
                     str(SMALL.heads), "--context", "16", "--batch", "1", "--sample", "0", "--export", self.folder / "trained"],
                    check=True, capture_output=True,
                )  # fmt: skip
            subprocess.run([KOLO_TRAIN, "export", self.folder / "trained", self.folder / name, *layout], check=True)
        ours, theirs = (read_safetensors(self.folder / name) for name in ("ours", "theirs"))
        self.assertEqual(len(ours), len(theirs))
        for name, tensor in ours.items():
            other = theirs["transformer." + names(SMALL, False)[name][0]]
            is_dense = name.startswith("block") and tensor.dim() == 2
            self.assertTrue(torch.equal(other, tensor.T if is_dense else tensor), name)


class Gpt2ShapeTest(GptDumped):
    # The first and last weights of blocks, one weight in every block, and the table that is input
    # and output.
    GRADIENTS = (
        "embedding.token",
        "embedding.position",
        "block0.attention_norm.gain",
        "block0.query_key_value.weight",
        "block6.project.weight",
        "block11.contract.weight",
        "block11.contract.bias",
        "final_norm.gain",
    )
    # Memory for float32 values in files, float64 values here and gradients of the table; before
    # that, for the dump's weights and gradients.
    BYTES = 4 << 30

    def test_a_short_sequence(self):
        self.run_ours("gpt2", *self.GRADIENTS)
        used, elements = {}, 0
        for ours, (theirs, shape) in names(GPT2, False).items():
            used[theirs] = self.theirs(f"value/{ours}", shape).double().requires_grad_(ours in self.GRADIENTS)
            elements += used[theirs].numel()
        # The published number is 124.4 million with 1024 positions.
        self.assertEqual(elements + (1024 - GPT2.context) * GPT2.width, 124_439_808)

        # As in GptTest, values pass 12 blocks of about 10 operations with sums of up to 3072 terms,
        # whose errors add at random: 6e-8 * sqrt(120 * 3072) = 3.6e-5 of the largest logit, and
        # twice that for gradients.
        loss = self.loss_of(used, GPT2, False, 3.6e-5)
        # The loss is larger than any logit.
        self.expect("loss", loss, 3.6e-5, self.read("loss", (), np.float64))
        loss.backward()
        for ours in self.GRADIENTS:
            theirs, shape = names(GPT2, False)[ours]
            self.expect(ours, used[theirs].grad, 7.2e-5, self.theirs(f"gradient/{ours}", shape))


def require_memory(least):
    """Exits with 77 and the reason unless this many bytes are free."""
    found = re.search(r"MemAvailable: +(\d+) kB", pathlib.Path("/proc/meminfo").read_text())
    if found and int(found[1]) << 10 < least:
        print(f"skipped: {least >> 30} GiB of free memory are needed, and there are {(int(found[1]) << 10) / 2**30:.1f}")
        sys.exit(77)


if __name__ == "__main__":
    if Gpt2ShapeTest.__name__ in sys.argv:
        require_memory(Gpt2ShapeTest.BYTES)
    unittest.main()
