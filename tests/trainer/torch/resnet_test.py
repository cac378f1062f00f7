#!/usr/bin/env -S python3 -B
"""ResNet-20 and ResNet-18 beside the same networks in PyTorch: outputs, gradients, running statistics.

    resnet_test.py RESNET_DUMP

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
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

PROGRAM = sys.argv.pop(1)
IMAGES, CLASSES = 4, 10


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride, projects):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride, self.missing = stride, outputs - inputs
        if projects and (stride > 1 or self.missing):
            self.shortcut_conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut_norm = nn.BatchNorm2d(outputs)

    def shortcut(self, x):
        if hasattr(self, "shortcut_conv"):
            return self.shortcut_norm(self.shortcut_conv(x))
        return functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.missing))

    def forward(self, x):
        y = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        return functional.relu(y + self.shortcut(x))


class Resnet(nn.Module):
    def __init__(self, channels, blocks, projects, is_large):
        super().__init__()
        self.is_large = is_large
        kernel, stride = (7, 2) if is_large else (3, 1)
        self.conv = nn.Conv2d(3, channels[0], kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(channels[0])
        before = channels[0]
        for stage, width in enumerate(channels):
            layers = []
            for i in range(blocks):
                layers.append(Block(before, width, 2 if stage > 0 and i == 0 else 1, projects))
                before = width
            self.add_module(f"stage{stage + 1}", nn.ModuleDict({f"block{i}": b for i, b in enumerate(layers)}))
        self.stages = len(channels)
        self.fc = nn.Linear(before, CLASSES)

    def forward(self, x):
        x = functional.relu(self.norm(self.conv(x)))
        if self.is_large:
            x = functional.max_pool2d(x, 3, 2, 1)
        for stage in range(self.stages):
            for block in getattr(self, f"stage{stage + 1}").values():
                x = block(x)
        return self.fc(x.mean((2, 3)))


def ours(name):
    """Our name of a parameter or buffer, given torch's."""
    if "norm" in name:
        name = name.replace(".weight", ".gain").replace("running_var", "running_variance")
    return name


class ResnetTest(unittest.TestCase):
    def check(self, name, side, channels, blocks, projects):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([PROGRAM, name, str(side), folder], check=True)

            def read(path, shape, dtype=np.float32):
                values = np.fromfile(pathlib.Path(folder) / path, dtype)
                return torch.from_numpy(values.reshape(tuple(shape)).copy())

            def expect(path, wanted):
                # Torch computes in float64. Relative to the largest element: sums of some thousand fp32
                # terms in each of 20 layers.
                wanted = wanted.detach()
                got = read(path, wanted.shape).double()
                bound = 2e-3 * float(wanted.abs().max())
                self.assertLess(float((got - wanted).abs().max()), bound, path)

            model = Resnet(channels, blocks, projects, side >= 64).double()
            names = [ours(n) for n, _ in model.named_parameters()]
            found = [p.name for p in (pathlib.Path(folder) / "value").iterdir()]
            self.assertEqual(sorted(names), sorted(found))
            with torch.no_grad():
                for n, parameter in model.named_parameters():
                    parameter.copy_(read(f"value/{ours(n)}", parameter.shape))
            pixels = read("pixels", (IMAGES, side, side, 3), np.uint8).double().permute(0, 3, 1, 2)
            images = (pixels - 127.5) / 73.9
            classes = read("classes", (IMAGES,), np.int32).long()
            logits = model(images)
            expect("logits", logits)
            functional.cross_entropy(logits, classes, reduction="sum").backward()
            for n, parameter in model.named_parameters():
                expect(f"gradient/{ours(n)}", parameter.grad)
            for n, buffer in model.named_buffers():
                if "num_batches" not in n:
                    expect(f"buffer/{ours(n)}", buffer)
            expect("evaluated", model.eval()(images))

    def test_resnet20(self):
        self.check("resnet20", 16, [16, 32, 64], 3, False)

    def test_resnet18_of_small_images(self):
        self.check("resnet18", 17, [64, 128, 256, 512], 2, True)

    def test_resnet18_of_large_images(self):
        self.check("resnet18", 66, [64, 128, 256, 512], 2, True)


if __name__ == "__main__":
    unittest.main()
