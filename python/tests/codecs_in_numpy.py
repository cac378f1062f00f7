"""Codecs for tests: all bits, 16 bits, the signs with the mean magnitude, the largest tenth."""

import numpy as np


class Exact:
    def encode(self, values):
        return values.view(np.uint8)

    def decode(self, payload, count):
        return payload.view(np.float32)


class Half:
    def encode(self, values):
        return values.astype(np.float16).view(np.uint8)

    def decode(self, payload, count):
        return payload.view(np.float16).astype(np.float32)


class Signs:
    def encode(self, values):
        mean = np.array([np.abs(values).mean()], np.float32)
        return np.concatenate([mean.view(np.uint8), np.packbits(values < 0)])

    def decode(self, payload, count):
        mean = payload[:4].view(np.float32)[0]
        return np.where(np.unpackbits(payload[4:], count=count) == 1, -mean, mean).astype(np.float32)


class Largest:
    def encode(self, values):
        indices = np.argsort(-np.abs(values), kind="stable")[: -(-len(values) // 10)].astype(np.uint32)
        return np.concatenate([indices.view(np.uint8), values[indices].view(np.uint8)])

    def decode(self, payload, count):
        indices, values = np.split(payload, 2)
        result = np.zeros(count, np.float32)
        result[indices.view(np.uint32)] = values.view(np.float32)
        return result
