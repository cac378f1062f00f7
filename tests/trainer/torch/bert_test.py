#!/usr/bin/env -S python3 -B
"""The model bert beside PyTorch's nn.TransformerEncoderLayer: outputs and gradients.

    bert_test.py BERT_DUMP

Skipped without torch, which scripts/torch-check installs.
"""

import functools
import pathlib
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

PROGRAM = sys.argv.pop(1)
TEXTS, LENGTH, TOKENS, CHOSEN, CLASSES, LAYERS, WIDTH, HEADS = 5, 70, 30, 3, 4, 2, 16, 4
NO_TARGET = -1
gelu = functools.partial(functional.gelu, approximate="tanh")

LINEAR = {"query_key_value": (3, 1), "project": (1, 1), "expand": (4, 1), "contract": (1, 4)}
# Names of PyTorch's layer by ours.
IN_LAYER = {
    "query_key_value.weight": "self_attn.in_proj_weight",
    "query_key_value.bias": "self_attn.in_proj_bias",
    "project": "self_attn.out_proj",
    "attention_norm": "norm1",
    "expand": "linear1",
    "contract": "linear2",
    "inner_norm": "norm2",
}


def linear(name, outputs, inputs):
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm(name):
    return {f"{name}.gain": (WIDTH,), f"{name}.bias": (WIDTH,)}


def encoder_shapes():
    shapes = {"embedding.token": (TOKENS, WIDTH), "embedding.position": (LENGTH, WIDTH), **norm("embedding_norm")}
    for block in (f"block{i}" for i in range(LAYERS)):
        for name, (outputs, inputs) in LINEAR.items():
            shapes |= linear(f"{block}.{name}", outputs * WIDTH, inputs * WIDTH)
        shapes |= norm(f"{block}.attention_norm") | norm(f"{block}.inner_norm")
    return shapes


def name_in_layer(name):
    if name in IN_LAYER:
        return IN_LAYER[name]
    layer, kind = name.split(".")
    return f"{IN_LAYER[layer]}.{'weight' if kind == 'gain' else kind}"


class BertTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def read(self, path, dtype=np.float32):
        return torch.from_numpy(np.fromfile(self.folder / path, dtype))

    def integers(self, path, *shape):
        return self.read(path, np.int32).long().reshape(shape)

    def encode(self, task, head_shapes):
        """Runs ours, and PyTorch's encoder on the same weights."""
        subprocess.run([PROGRAM, task, self.folder], check=True)
        shapes = encoder_shapes() | head_shapes
        self.assertEqual(sorted(path.name for path in (self.folder / "value").iterdir()), sorted(shapes))
        self.parameters = p = {
            name: self.read(f"value/{name}").reshape(shape).double().requires_grad_() for name, shape in shapes.items()
        }
        tokens, lengths = self.integers("tokens", TEXTS, LENGTH), self.integers("length", TEXTS, 1)
        x = self.norm("embedding_norm", functional.embedding(tokens, p["embedding.token"]) + p["embedding.position"])
        is_padding = torch.arange(LENGTH) >= lengths
        for block in (f"block{i}." for i in range(LAYERS)):
            layer = torch.nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation=gelu, batch_first=True, norm_first=False
            ).double()
            ours = {name_in_layer(name.removeprefix(block)): p[name] for name in p if name.startswith(block)}
            x = torch.func.functional_call(layer, ours, x, {"src_key_padding_mask": is_padding}, strict=True)
        return x, p

    def norm(self, name, x):
        p = self.parameters
        return functional.layer_norm(x, (WIDTH,), p[f"{name}.gain"], p[f"{name}.bias"])

    def linear(self, name, x):
        return functional.linear(x, self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"])

    def compare(self, output, loss):
        # Bound: a few hundred roundings to float32 in sequence, relative to the largest element.
        def expect(path, wanted):
            ours = self.read(path).reshape(wanted.shape).double()
            self.assertLess(float((ours - wanted).abs().max()), 3e-5 * float(wanted.abs().max()), path)

        expect("output", output.detach())
        loss.backward()
        for name, parameter in self.parameters.items():
            expect(f"gradient/{name}", parameter.grad)

    def test_masked_tokens(self):
        head = linear("masked.dense", WIDTH, WIDTH) | norm("masked.norm") | {"masked.output.bias": (TOKENS,)}
        x, p = self.encode("masked-tokens", head)
        chosen = self.integers("chosen", TEXTS, CHOSEN)
        x = x[torch.arange(TEXTS)[:, None], chosen].reshape(-1, WIDTH)
        x = self.norm("masked.norm", gelu(self.linear("masked.dense", x)))
        logits = functional.linear(x, p["embedding.token"], p["masked.output.bias"])
        targets = self.integers("targets", TEXTS * CHOSEN)
        self.compare(logits, functional.cross_entropy(logits, targets, ignore_index=NO_TARGET, reduction="sum"))

    def test_text_classification(self):
        head = linear("pooler", WIDTH, WIDTH) | linear("classifier", CLASSES, WIDTH)
        x, _ = self.encode("text-classification", head)
        logits = self.linear("classifier", torch.tanh(self.linear("pooler", x[:, 0])))
        self.compare(logits, functional.cross_entropy(logits, self.integers("targets", TEXTS), reduction="sum"))


if __name__ == "__main__":
    unittest.main()
