"""Results of the program model_dump, for tests that compare a model with PyTorch's. If torch, which
scripts/torch-check installs, is missing, importing this module skips the test.

Called as `TEST MODEL_DUMP ...`.
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

PROGRAM = sys.argv.pop(1)


class Dumped(unittest.TestCase):
    """Base of tests that run model_dump and compare the tensors that it writes with torch's."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_ours(self, model, *arguments):
        subprocess.run([PROGRAM, model, self.folder, *map(str, arguments)], check=True)

    def read(self, path, shape=(-1,), dtype=np.float32):
        return torch.from_numpy(np.fromfile(self.folder / path, dtype).reshape(tuple(shape)).copy())

    def integers(self, path, *shape):
        return self.read(path, shape or (-1,), np.int32).long()

    def parameters(self, shapes):
        """Returns the values of all parameters in float64 for torch, by name and with these
        shapes."""
        self.assertEqual(sorted(path.name for path in (self.folder / "value").iterdir()), sorted(shapes))
        return {name: self.read(f"value/{name}", shape).double().requires_grad_() for name, shape in shapes.items()}

    def expect(self, path, wanted, bound, got=None):
        """Compares a dumped tensor with torch's. The bound is relative to the largest element."""
        wanted = wanted.detach()
        got = self.read(path, wanted.shape) if got is None else got
        self.assertLess(float((got.double() - wanted).abs().max()), bound * float(wanted.abs().max()), path)

    def compare(self, output, loss, parameters, bound):
        """Compares the output, and the gradients of `loss`."""
        self.expect("output", output, bound)
        loss.backward()
        for name, parameter in parameters.items():
            self.expect(f"gradient/{name}", parameter.grad, bound)
