"""Tests that programs apply to their own extensions of Kolo."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from .codec import Codec, RankSteps, decoded, encoded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float32]

__all__ = ["check_codec"]


def check_codec(codec: Codec, ranks: int = 3, seed: int = 0) -> None:
    """Checks the properties that `kolo.codec.CodedReducer` needs, without a job, over steps of `ranks` ranks that live
    in this thread, each with a copy of the codec. Numbers are normal, of many magnitudes, equal, and zero.

    - Decoded values are finite, and follow from payload and count alone.
    - All ranks get the same bits.
    - What came out and what is kept add up to what was put in, but for rounding.
    - Residuals grow no faster than if nothing were sent.

    Errors: AssertionError that names the property; UsageError for arrays of another dtype or shape.
    """
    random = np.random.default_rng(seed)
    for count in (1, ranks, 257, 3000):
        shape = (ranks, count)
        normal = random.standard_normal(shape)
        for kind, numbers in {
            "normal": normal,
            "of many magnitudes": normal * 2.0 ** random.integers(-20, 10, shape),
            "equal": np.full(shape, -2.5),
            "zero": np.zeros(shape),
        }.items():
            subject = f"{count} numbers, {kind}, seed {seed}"
            _check_decoding(codec, numbers[0].astype(np.float32), subject)
            _check_steps(codec, numbers.astype(np.float32), subject)


def _check_decoding(codec: Codec, values: Values, subject: str) -> None:
    sender, receiver = copy.deepcopy(codec), copy.deepcopy(codec)
    before = values.copy()
    payload = encoded(sender, values)
    assert values.tobytes() == before.tobytes(), f"encode changes the values: {subject}"
    first = decoded(receiver, payload, len(values)).copy()
    assert np.isfinite(first).all(), f"decoded values are not finite: {subject}"
    receiver.encode(-values)
    for each in (sender, receiver):
        again = decoded(each, payload.copy(), len(values))
        assert first.tobytes() == again.tobytes(), f"decode depends on more than the payload: {subject}"


def _check_steps(codec: Codec, contributions: Values, subject: str) -> None:
    size, count = contributions.shape
    members = [RankSteps(copy.deepcopy(codec), rank, size) for rank in range(size)]
    put_in, came_out = contributions.sum(0, np.float64), np.zeros(count)
    length = float(np.linalg.norm(contributions.astype(np.float64)))
    for step in range(1, 13):
        results = [{"x": values.copy()} for values in contributions]
        shares = [member.contribute(own) for member, own in zip(members, results)]
        sums = [member.merge([each[rank] for each in shares]) for rank, member in enumerate(members)]
        for member, own in zip(members, results):
            member.finish(sums, own, "sum")
            assert own["x"].tobytes() == results[0]["x"].tobytes(), f"ranks get different bits: {subject}"
        came_out += results[0]["x"]
        kept = [member.kept["x"][0].astype(np.float64) for member in members]
        grown = max(float(np.linalg.norm(each)) for each in kept)
        assert grown <= 1.001 * step * length, f"residuals grow faster than if nothing were sent: {subject}"
        left = sum(kept) + np.concatenate([member.kept["x"][1] for member in members])
        # Each step rounds each rank's values and sums a few times; none is larger than all that was put in.
        error = 2.0**-21 * (size + 4) * size * step * step * length
        assert (np.abs(came_out + left - step * put_in) <= error).all(), f"sent and kept do not add up: {subject}"
