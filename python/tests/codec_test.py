#!/usr/bin/env -S python3 -B
"""Codecs in NumPy: kolo.testing.check_codec accepts correct ones and names what others do wrong."""

import unittest

import support

support.enter_python_with_numpy()

import sys  # noqa: E402  (a Python that has NumPy)

sys.path.insert(0, str(support.PACKAGE))
import numpy as np  # noqa: E402

import kolo  # noqa: E402
from codecs_in_numpy import Exact, Half, Largest, Signs  # noqa: E402
from kolo.codec import RankSteps  # noqa: E402
from kolo.testing import check_codec  # noqa: E402


class Triple(Exact):
    def decode(self, payload, count):
        return 3 * payload.view(np.float32)


class Remembering(Exact):
    factor = np.float32(1)

    def encode(self, values):
        self.factor = values[0]
        return super().encode(values)

    def decode(self, payload, count):
        return payload.view(np.float32) * self.factor


class Clearing(Exact):
    def encode(self, values):
        payload = values.copy().view(np.uint8)
        values[:] = 0
        return payload


class Endless(Exact):
    def decode(self, payload, count):
        return np.full(count, np.inf, np.float32)


class Wide(Exact):
    def decode(self, payload, count):
        return payload.view(np.float32).astype(np.float64)


class Text(Exact):
    def encode(self, values):
        return "values"


class Codecs(unittest.TestCase):
    def test_correct_codecs(self):
        for codec in (Exact(), Half(), Signs(), Largest()):
            for ranks in (1, 3):
                with self.subTest(codec=codec, ranks=ranks):
                    check_codec(codec, ranks)

    def test_wrong_codecs(self):
        for codec, error, text in (
            (Triple(), AssertionError, "residuals grow faster"),
            (Remembering(), AssertionError, "decode depends on more than the payload"),
            (Clearing(), AssertionError, "encode changes the values"),
            (Endless(), AssertionError, "decoded values are not finite"),
            (Wide(), kolo.UsageError, "no float32 array"),
            (Text(), kolo.UsageError, "no uint8 array"),
        ):
            with self.subTest(codec=codec), self.assertRaisesRegex(error, text):
                check_codec(codec)

    def test_codes_of_sums_leave_residuals_at_their_owner(self):
        """Two ranks send 3 and 4 by their signs: 1 each, if the magnitude is one."""

        class Ones(Signs):
            def decode(self, payload, count):
                return np.sign(super().decode(payload, count))

        ranks = [RankSteps(Ones(), rank, 2) for rank in range(2)]
        gradients = [{"x": np.full(2, value, np.float32)} for value in (3, 4)]
        shares = [rank.contribute(own) for rank, own in zip(ranks, gradients)]
        sums = [rank.merge([each[i] for each in shares]) for i, rank in enumerate(ranks)]
        for rank, own in zip(ranks, gradients):
            rank.finish(sums, own, "sum")
        self.assertEqual([own["x"].tolist() for own in gradients], [[1, 1], [1, 1]])
        self.assertEqual([[part.tolist() for part in rank.kept["x"]] for rank in ranks], [[[2, 2], [1]], [[3, 3], [1]]])

    def test_a_number_that_is_not_finite_is_not_sent(self):
        rank = RankSteps(Exact(), 0, 1)
        self.assertEqual(rank.contribute({"x": np.array([1, np.nan], np.float32)}), [])
        share = rank.contribute({"x": np.full(2, 3e38, np.float32)})[0]
        self.assertEqual(rank.merge([share, share]), [])
        self.assertEqual(rank.kept, {})

    def test_misuse(self):
        rank = RankSteps(Exact(), 0, 1)
        for gradients, text in (
            ({}, "no gradients"),
            ({"a": np.zeros(3)}, "'a' is no contiguous float32"),
            ({"a": np.zeros((4, 4), np.float32).T[:, :2]}, "'a' is no contiguous float32"),
        ):
            with self.assertRaisesRegex(kolo.UsageError, text):
                rank.contribute(gradients)
        rank.kept["a"] = np.zeros(2, np.float32), np.zeros(2, np.float32)
        with self.assertRaisesRegex(kolo.UsageError, "'a' has 3 values, but a residual of another size"):
            rank.contribute({"a": np.zeros(3, np.float32)})


if __name__ == "__main__":
    support.main()
