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

_STEPS = 12


def check_codec(codec: Codec, ranks: int = 3, seed: int = 0) -> None:
    """Checks the properties that `kolo.codec.CodedReducer` needs, without a job: sums over `ranks` ranks that live in
    this thread, each with a copy of the codec. Numbers are normal, of many magnitudes, equal, and zero.

    - Decoded values are finite float32 numbers, which follow from payload and count alone.
    - All ranks get the same bits.
    - What came out and what is kept add up to what was put in, but for rounding.
    - Residuals grow no faster than if nothing were sent.
    - A number that is not finite on one rank changes no residual.

    Errors: AssertionError that names the property; UsageError for arrays of another dtype or shape.
    """
    random = np.random.default_rng(seed)
    draws = {
        "normal": lambda count: random.standard_normal(count),
        "of many magnitudes": lambda count: random.standard_normal(count) * 2.0 ** random.integers(-20, 10, count),
        "equal": lambda count: np.full(count, -2.5),
        "zero": lambda count: np.zeros(count),
    }
    for kind, draw in draws.items():
        for count in (1, ranks, 257, 3000):
            subject = f"{count} numbers, {kind}, seed {seed}"
            _check_decoding(codec, draw(count).astype(np.float32), subject)
            _check_steps(codec, [draw(count).astype(np.float32) for _ in range(ranks)], subject)


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


def _check_steps(codec: Codec, contributions: list[Values], subject: str) -> None:
    members = [RankSteps(copy.deepcopy(codec), rank, len(contributions)) for rank in range(len(contributions))]
    count = len(contributions[0])
    came_out = np.zeros(count)
    put_in = sum(each.astype(np.float64) for each in contributions)
    length = sum(float(np.linalg.norm(each.astype(np.float64))) for each in contributions)
    for step in range(1, _STEPS + 1):
        results = _reduced(members, contributions)
        for result in results:
            assert result.tobytes() == results[0].tobytes(), f"ranks get different bits: {subject}"
        came_out += results[0]
        kept = np.zeros(count)
        for rank, member in enumerate(members):
            values, of_sums = member.kept["x"]
            kept += values
            kept[count * rank // len(members) : count * (rank + 1) // len(members)] += of_sums
        grown = max(float(np.linalg.norm(member.kept["x"][0])) for member in members)
        assert grown <= 2 * step * length, f"residuals grow faster than if nothing were sent: {subject}"
        # Each step rounds each rank's values and sums a few times; none is larger than all that was put in.
        error = 2.0**-23 * (len(members) + 4) * step * step * 4 * length
        assert (np.abs(came_out + kept - step * put_in) <= error).all(), f"sent and kept do not add up: {subject}"
    before = [copy.deepcopy(member.kept) for member in members]
    spoilt = [contributions[0].copy(), *contributions[1:]]
    spoilt[0][-1] = np.nan
    assert not members[0].contribute({"x": spoilt[0]}), f"a NaN is sent: {subject}"
    for member, state in zip(members, before):
        for now, then in zip(member.kept["x"], state["x"]):
            assert now.tobytes() == then.tobytes(), f"a NaN changes a residual: {subject}"


def _reduced(members: list[RankSteps], contributions: list[Values]) -> list[Values]:
    """One step of all ranks, whose payloads are handed over as lists."""
    results = [{"x": each.copy()} for each in contributions]
    shares = [member.contribute(own) for member, own in zip(members, results)]
    sums = [member.merge([own[rank] for own in shares]) for rank, member in enumerate(members)]
    for member, own in zip(members, results):
        member.finish(sums, own, "sum")
    return [own["x"] for own in results]
