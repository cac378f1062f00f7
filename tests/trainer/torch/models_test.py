#!/usr/bin/env -S python3 -B
"""Compares residual networks, bert and models with tables with the same models in PyTorch: outputs,
gradients and running statistics.

    models_test.py MODEL_DUMP

Skipped without torch, which scripts/torch-check installs.
"""

import functools
import unittest

from model_dumps import Dumped, np, torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


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
        self.fc = nn.Linear(before, 10)

    def forward(self, x):
        x = functional.relu(self.norm(self.conv(x)))
        if self.is_large:
            x = functional.max_pool2d(x, 3, 2, 1)
        for stage in range(self.stages):
            for block in getattr(self, f"stage{stage + 1}").values():
                x = block(x)
        return self.fc(x.mean((2, 3)))


def ours(name):
    """Returns our name of a parameter or buffer, given torch's name."""
    if "norm" in name:
        name = name.replace(".weight", ".gain").replace("running_var", "running_variance")
    return name


class ResnetTest(Dumped):
    def check(self, name, side, channels, blocks, projects):
        # Torch computes in float64. The bound covers sums of some thousand float32 terms in each of
        # 20 layers.
        bound = 2e-3
        self.run_ours(name, side)
        model = Resnet(channels, blocks, projects, side >= 64).double()
        found = self.parameters({ours(n): parameter.shape for n, parameter in model.named_parameters()})
        with torch.no_grad():
            for n, parameter in model.named_parameters():
                parameter.copy_(found[ours(n)])
        pixels = self.read("first", (-1, side, side, 3), np.uint8).double().permute(0, 3, 1, 2)
        images = (pixels - 127.5) / 73.9
        logits = model(images)
        loss = functional.cross_entropy(logits, self.integers("targets"), reduction="sum")
        self.compare(logits, loss, {ours(n): parameter for n, parameter in model.named_parameters()}, bound)
        for n, buffer in model.named_buffers():
            if "num_batches" not in n:
                self.expect(f"buffer/{ours(n)}", buffer, bound)
        self.expect("evaluated", model.eval()(images), bound)

    def test_resnet20(self):
        self.check("resnet20", 16, [16, 32, 64], 3, False)

    def test_resnet18_of_small_images(self):
        self.check("resnet18", 17, [64, 128, 256, 512], 2, True)

    def test_resnet18_of_large_images(self):
        self.check("resnet18", 66, [64, 128, 256, 512], 2, True)


TEXTS, LENGTH, TOKENS, CHOSEN, CLASSES, LAYERS, BERT_WIDTH, HEADS = 5, 70, 30, 3, 4, 2, 16, 4
gelu = functools.partial(functional.gelu, approximate="tanh")

LINEAR = {"query_key_value": (3, 1), "project": (1, 1), "expand": (4, 1), "contract": (1, 4)}
# PyTorch's layer names by our names.
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
    return {f"{name}.gain": (BERT_WIDTH,), f"{name}.bias": (BERT_WIDTH,)}


def encoder_shapes():
    shapes = {"embedding.token": (TOKENS, BERT_WIDTH), "embedding.position": (LENGTH, BERT_WIDTH), **norm("embedding_norm")}
    for block in (f"block{i}" for i in range(LAYERS)):
        for name, (outputs, inputs) in LINEAR.items():
            shapes |= linear(f"{block}.{name}", outputs * BERT_WIDTH, inputs * BERT_WIDTH)
        shapes |= norm(f"{block}.attention_norm") | norm(f"{block}.inner_norm")
    return shapes


def name_in_layer(name):
    if name in IN_LAYER:
        return IN_LAYER[name]
    layer, kind = name.split(".")
    return f"{IN_LAYER[layer]}.{'weight' if kind == 'gain' else kind}"


class BertTest(Dumped):
    # The bound covers a few hundred roundings to float32 in sequence.
    BOUND = 3e-5

    def encode(self, task, head_shapes):
        """Runs our model, and PyTorch's encoder on the same weights."""
        self.run_ours(task)
        self.weights = p = self.parameters(encoder_shapes() | head_shapes)
        tokens, lengths = self.integers("first", TEXTS, LENGTH), self.integers("second", TEXTS, 1)
        x = self.norm("embedding_norm", functional.embedding(tokens, p["embedding.token"]) + p["embedding.position"])
        is_padding = torch.arange(LENGTH) >= lengths
        for block in (f"block{i}." for i in range(LAYERS)):
            layer = torch.nn.TransformerEncoderLayer(
                BERT_WIDTH, HEADS, 4 * BERT_WIDTH, dropout=0.0, activation=gelu, batch_first=True, norm_first=False
            ).double()
            ours = {name_in_layer(name.removeprefix(block)): p[name] for name in p if name.startswith(block)}
            x = torch.func.functional_call(layer, ours, x, {"src_key_padding_mask": is_padding}, strict=True)
        return x, p

    def norm(self, name, x):
        p = self.weights
        return functional.layer_norm(x, (BERT_WIDTH,), p[f"{name}.gain"], p[f"{name}.bias"])

    def linear(self, name, x):
        return functional.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def test_masked_tokens(self):
        head = linear("masked.dense", BERT_WIDTH, BERT_WIDTH) | norm("masked.norm") | {"masked.output.bias": (TOKENS,)}
        x, p = self.encode("masked-tokens", head)
        chosen = self.integers("third", TEXTS, CHOSEN)
        x = x[torch.arange(TEXTS)[:, None], chosen].reshape(-1, BERT_WIDTH)
        x = self.norm("masked.norm", gelu(self.linear("masked.dense", x)))
        logits = functional.linear(x, p["embedding.token"], p["masked.output.bias"])
        loss = functional.cross_entropy(logits, self.integers("targets"), ignore_index=-1, reduction="sum")
        self.compare(logits, loss, p, self.BOUND)

    def test_text_classification(self):
        head = linear("pooler", BERT_WIDTH, BERT_WIDTH) | linear("classifier", CLASSES, BERT_WIDTH)
        x, p = self.encode("text-classification", head)
        logits = self.linear("classifier", torch.tanh(self.linear("pooler", x[:, 0])))
        self.compare(logits, functional.cross_entropy(logits, self.integers("targets"), reduction="sum"), p, self.BOUND)


SAMPLES, ENTRIES, WIDTH, TEXT_CLASSES = 6, 20, 16, 5


class RowModelsTest(Dumped):
    # The bound covers a few dozen roundings to float32.
    BOUND = 1e-5

    def run_on(self, model, shapes):
        self.run_ours(model)
        return self.integers("first"), self.integers("second"), self.parameters(shapes)

    def test_embedding_bag(self):
        ids, lengths, p = self.run_on(
            "embedding-bag",
            {"words": (ENTRIES, WIDTH), "output.weight": (TEXT_CLASSES, WIDTH), "output.bias": (TEXT_CLASSES,)},
        )
        texts = ids.reshape(SAMPLES, -1)
        real = torch.cat([text[:length] for text, length in zip(texts, lengths)])
        begins = torch.cumsum(lengths, 0) - lengths
        means = functional.embedding_bag(real, p["words"], begins, mode="mean")
        logits = functional.linear(means, p["output.weight"], p["output.bias"])
        self.compare(logits, functional.cross_entropy(logits, self.integers("targets"), reduction="sum"), p, self.BOUND)

    def test_lstm(self):
        shapes = {
            "words": (ENTRIES, WIDTH),
            "lstm.input.weight": (4 * WIDTH, WIDTH),
            "lstm.state.weight": (4 * WIDTH, WIDTH),
            "lstm.bias": (4 * WIDTH,),
            "output.weight": (TEXT_CLASSES, WIDTH),
            "output.bias": (TEXT_CLASSES,),
        }
        ids, lengths, p = self.run_on("lstm", shapes)
        lstm = torch.nn.LSTM(WIDTH, WIDTH, batch_first=True).double()
        # PyTorch has a second bias, which is added to the first.
        weights = {
            "weight_ih_l0": p["lstm.input.weight"],
            "weight_hh_l0": p["lstm.state.weight"],
            "bias_ih_l0": p["lstm.bias"],
            "bias_hh_l0": torch.zeros(4 * WIDTH).double(),
        }
        vectors = functional.embedding(ids.reshape(SAMPLES, -1), p["words"])
        packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        states = pad_packed_sequence(torch.func.functional_call(lstm, weights, (packed,))[0], batch_first=True)[0]
        logits = functional.linear(states.sum(1) / lengths[:, None], p["output.weight"], p["output.bias"])
        self.compare(logits, functional.cross_entropy(logits, self.integers("targets"), reduction="sum"), p, self.BOUND)

    def test_matrix_factorization(self):
        tables = {"user.bias": 1, "item.bias": 1, "user.factors": WIDTH, "item.factors": WIDTH}
        users, items, p = self.run_on(
            "matrix-factorization", {"bias": (1,), **{name: (ENTRIES, width) for name, width in tables.items()}}
        )
        look_up = {
            name: functional.embedding(users if name.startswith("user") else items, p[name], padding_idx=0)
            for name in tables
        }
        products = (look_up["user.factors"] * look_up["item.factors"]).sum(1)
        ratings = p["bias"] + look_up["user.bias"][:, 0] + look_up["item.bias"][:, 0] + products
        loss = 0.5 * functional.mse_loss(ratings, self.read("targets").double(), reduction="sum")
        self.compare(ratings, loss, p, self.BOUND)


if __name__ == "__main__":
    unittest.main()
