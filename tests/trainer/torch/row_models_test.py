#!/usr/bin/env -S python3 -B
"""Models with tables beside the same ones in PyTorch: outputs and gradients.

    row_models_test.py ROW_MODELS_DUMP

Skipped without torch, which scripts/torch-check installs.
"""

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
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

PROGRAM = sys.argv.pop(1)
SAMPLES, ENTRIES, WIDTH, CLASSES = 6, 20, 16, 5


class RowModelsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_ours(self, model, shapes):
        subprocess.run([PROGRAM, model, self.folder], check=True)
        found = sorted(path.name for path in (self.folder / "value").iterdir())
        self.assertEqual(found, sorted(shapes))
        self.parameters = {
            name: self.read(f"value/{name}").reshape(shape).double().requires_grad_() for name, shape in shapes.items()
        }
        return self.read("first", np.int32).long(), self.read("second", np.int32).long(), self.parameters

    def read(self, path, dtype=np.float32):
        return torch.from_numpy(np.fromfile(self.folder / path, dtype))

    def compare(self, output, loss):
        # Bound: a few dozen roundings to float32, relative to the largest element.
        def expect(path, wanted):
            ours = self.read(path).reshape(wanted.shape).double()
            self.assertLess(float((ours - wanted).abs().max()), 1e-5 * float(wanted.abs().max()), path)

        expect("output", output.detach())
        loss.backward()
        for name, parameter in self.parameters.items():
            expect(f"gradient/{name}", parameter.grad)

    def test_embedding_bag(self):
        ids, lengths, p = self.run_ours(
            "embedding-bag",
            {"words": (ENTRIES, WIDTH), "output.weight": (CLASSES, WIDTH), "output.bias": (CLASSES,)},
        )
        texts = ids.reshape(SAMPLES, -1)
        real = torch.cat([text[:length] for text, length in zip(texts, lengths)])
        begins = torch.cumsum(lengths, 0) - lengths
        means = functional.embedding_bag(real, p["words"], begins, mode="mean")
        logits = functional.linear(means, p["output.weight"], p["output.bias"])
        classes = self.read("targets", np.int32).long()
        self.compare(logits, functional.cross_entropy(logits, classes, reduction="sum"))

    def test_lstm(self):
        shapes = {
            "words": (ENTRIES, WIDTH),
            "lstm.input.weight": (4 * WIDTH, WIDTH),
            "lstm.state.weight": (4 * WIDTH, WIDTH),
            "lstm.bias": (4 * WIDTH,),
            "output.weight": (CLASSES, WIDTH),
            "output.bias": (CLASSES,),
        }
        ids, lengths, p = self.run_ours("lstm", shapes)
        lstm = torch.nn.LSTM(WIDTH, WIDTH, batch_first=True).double()
        # PyTorch's second bias is added to the first.
        weights = {
            "weight_ih_l0": p["lstm.input.weight"],
            "weight_hh_l0": p["lstm.state.weight"],
            "bias_ih_l0": p["lstm.bias"],
            "bias_hh_l0": torch.zeros(4 * WIDTH).double(),
        }
        vectors = functional.embedding(ids.reshape(SAMPLES, -1), p["words"], padding_idx=0)
        packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        states = pad_packed_sequence(torch.func.functional_call(lstm, weights, (packed,))[0], batch_first=True)[0]
        logits = functional.linear(states.sum(1) / lengths[:, None], p["output.weight"], p["output.bias"])
        classes = self.read("targets", np.int32).long()
        self.compare(logits, functional.cross_entropy(logits, classes, reduction="sum"))

    def test_matrix_factorization(self):
        tables = {"user.bias": 1, "item.bias": 1, "user.factors": WIDTH, "item.factors": WIDTH}
        users, items, p = self.run_ours(
            "matrix-factorization", {"bias": (1,), **{name: (ENTRIES, width) for name, width in tables.items()}}
        )
        look_up = {
            name: functional.embedding(users if name.startswith("user") else items, p[name], padding_idx=0)
            for name in tables
        }
        products = (look_up["user.factors"] * look_up["item.factors"]).sum(1)
        ratings = p["bias"] + look_up["user.bias"][:, 0] + look_up["item.bias"][:, 0] + products
        self.compare(ratings, 0.5 * functional.mse_loss(ratings, self.read("targets").double(), reduction="sum"))


if __name__ == "__main__":
    unittest.main()
