"""The models of kolo-train in PyTorch, for comparison in benchmarks."""

import torch
from torch import nn
from torch.nn import functional

CONTEXT = 128
HEADS = 4
LAYERS = 4

class Mlp(nn.Sequential):
    """The MLP of trainer/models/image_models.h, with 1.9 M parameters."""

    def __init__(self):
        super().__init__(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


class Convolutions(nn.Sequential):
    """The LeNet and convnet of trainer/models/image_models.h."""

    def __init__(self, side, channels, kernel, padding, hidden):
        layers = []
        for inputs, outputs in zip(channels, channels[1:]):
            layers += [nn.Conv2d(inputs, outputs, kernel, padding=padding), nn.MaxPool2d(2), nn.ReLU()]
            side = (side - kernel + 1 + 2 * padding) // 2
        features = channels[-1] * side * side
        dense = [nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 10)]
        super().__init__(*layers, nn.Flatten(), *dense)


class LstmClassifier(nn.Module):
    """The LSTM of trainer/models/text_models.h on padded texts, [steps, texts]. Padding is
    faster here than packed sequences."""

    def __init__(self, words, classes, lengths):
        super().__init__()
        self.words = nn.Embedding(words, 64, padding_idx=0)
        self.lstm = nn.LSTM(64, 64)
        self.output = nn.Sequential(nn.Dropout(0.5), nn.Linear(64, classes))
        mask = torch.arange(max(lengths))[:, None] < torch.tensor(lengths)
        self.register_buffer("shares", (mask / torch.tensor(lengths))[:, :, None])

    def forward(self, ids):
        states, _ = self.lstm(self.words(ids))
        return self.output((states * self.shares).sum(0))


class Residual(nn.Module):
    """The block of trainer/layers/residual_block.h with a padded shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.stride, self.added = stride, outputs - inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        inner = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        if self.added:
            x = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added))
        return functional.relu(inner + x)


class Resnet20(nn.Sequential):
    """The ResNet of trainer/models/image_models.h, with 20 layers."""

    def __init__(self):
        layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        inputs = 16
        for outputs in (16, 32, 64):
            for _ in range(3):
                layers.append(Residual(inputs, outputs, outputs // inputs))
                inputs = outputs
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.inner_norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.query_key_value(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.contract(functional.gelu(self.expand(self.inner_norm(x)), approximate="tanh"))


class Gpt(nn.Module):
    """The GPT of trainer/models/gpt.h on bytes, with one table for input and output."""

    def __init__(self, width, layers=LAYERS, heads=HEADS, context=CONTEXT):
        super().__init__()
        self.tokens = nn.Embedding(256, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.final_norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, text):
        x = self.tokens(text) + self.positions.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.final_norm(x), self.tokens.weight).flatten(0, 1)
