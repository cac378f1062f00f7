"""Compression by a codec of yours, in NumPy: sums of codes, with error feedback.

    class Half:
        def encode(self, values):           # float32 in one dimension, read-only, finite
            return values.astype(np.float16).view(np.uint8)

        def decode(self, payload, count):   # uint8 in one dimension
            return payload.view(np.float16).astype(np.float32)

    kolo.testing.check_codec(Half())
    reducer = kolo.codec.CodedReducer(job, Half())
    reducer.all_reduce({"weight": gradient})    # on all ranks, in place

Each rank sends codes of its values, plus what it could not send before, to the owners of the sums. Owners add them in
rank order, and send codes of the sums, plus what these left out before, to all ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, List, Mapping, Protocol, Sequence, Tuple

import numpy as np

from ._errors import UsageError
from ._group import Group

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float32]
    Payloads = List[NDArray[np.uint8]]  # By tensor.
    State = Mapping[str, Tuple[Values, Values]]

__all__ = ["Codec", "CodedReducer"]


class Codec(Protocol):
    """What `CodedReducer` calls. Decoded values follow from payload and count alone, alike on all ranks."""

    def encode(self, values: Values) -> NDArray[np.uint8]: ...

    def decode(self, payload: NDArray[np.uint8], count: int) -> Values: ...


class CodedReducer:
    """Sums or averages gradients by a codec, and keeps the residuals of this rank.

    Threads: one at a time; on all ranks the same calls in the same order.
    Cost: four collectives for all gradients of a call, and the codec's work in this thread.
    """

    def __init__(self, group: Group, codec: Codec) -> None:
        self._group = group
        self._rank = RankSteps(codec, group.rank, group.size)

    def all_reduce(self, gradients: Mapping[str, Values], op: str = "average") -> bool:
        """Replaces contiguous float32 arrays by their sum or average over all ranks, on all ranks. Names and sizes are
        the same on all ranks; a residual belongs to a name.

        Returns False if a number on any rank was not finite: then all values are NaN, and no residual has changed.
        """
        if op not in ("sum", "average"):
            raise UsageError(f"a codec makes the op sum or average, not {op}")
        shares = self._rank.contribute(gradients)
        lengths = self._lengths(shares, (self._group.size, len(gradients)))  # [rank, owner, tensor]
        sums: Payloads = []
        if lengths.min() >= 0:
            got = self._group.all_to_all(np.concatenate(sum(shares, [])), counts=lengths.sum(2).tolist())
            sums = self._rank.merge(_split(got, lengths[:, self._group.rank]))
        lengths = self._lengths([sums] if sums else [], (1, len(gradients)))
        if lengths.min() < 0:
            for values in gradients.values():
                values.fill(np.nan)
            return False
        got = self._group.all_gather(np.concatenate(sums), counts=lengths.sum((1, 2)).tolist())
        self._rank.finish(_split(got, lengths[:, 0]), gradients, op)
        return True

    def state_dict(self) -> State:
        """The residuals of this rank by name: of its values, and of the sums that it owns."""
        return {name: (kept.copy(), of_sums.copy()) for name, (kept, of_sums) in self._rank.kept.items()}

    def load_state_dict(self, state: State) -> None:
        """For the same rank of a job of as many ranks."""
        self._rank.kept = {name: (kept.copy(), of_sums.copy()) for name, (kept, of_sums) in state.items()}

    def _lengths(self, own: list[Payloads], shape: tuple[int, int]) -> NDArray[np.int64]:
        """Returns the lengths of all ranks' payloads, [rank, *shape]; -1 for a rank that has none."""
        lengths = np.full(shape, -1, np.int64)
        if own:
            lengths[:] = [[len(payload) for payload in row] for row in own]
        return self._group.all_gather(lengths)


class RankSteps:
    """The steps of one rank between messages. Threads: one."""

    def __init__(self, codec: Codec, rank: int, size: int) -> None:
        self._codec, self._own, self._size = codec, rank, size
        self.kept: dict[str, tuple[Values, Values]] = {}
        """By name, the residuals of values and of the sums that this rank owns."""
        self._next: dict[str, tuple[Values, Values]] = {}

    def contribute(self, gradients: Mapping[str, Values]) -> list[Payloads]:
        """Returns payloads by owner and tensor; none if a number is not finite."""
        if not gradients:
            raise UsageError("there are no gradients")
        self._next = {}
        for name, values in gradients.items():
            if not isinstance(values, np.ndarray) or values.dtype != np.float32 or not values.flags.c_contiguous:
                raise UsageError(f"'{name}' is no contiguous float32 array")
            sizes = values.size, len(values.reshape(-1)[self._part(values.size, self._own)])
            kept, of_sums = self.kept.get(name, [np.zeros(each, np.float32) for each in sizes])
            if (len(kept), len(of_sums)) != sizes:
                raise UsageError(f"'{name}' has {values.size} values, but a residual of another size or number of ranks")
            self._next[name] = _added(values.reshape(-1), kept), of_sums.copy()
        if not _finite(values for values, _ in self._next.values()):
            return []
        owners = range(self._size)
        return [[self._coded(each[self._part(each.size, owner)]) for each, _ in self._next.values()] for owner in owners]

    def merge(self, shares: Sequence[Payloads]) -> Payloads:
        """Returns the payloads of the sums that this rank owns, of all ranks' shares; none if a sum is not finite."""
        for i, (_, sums) in enumerate(self._next.values()):
            total = decoded(self._codec, shares[0][i], sums.size)
            for share in shares[1:]:
                total = _added(total, decoded(self._codec, share[i], sums.size))
            sums[:] = _added(total, sums)
        sums_of_all = [sums for _, sums in self._next.values()]
        return [self._coded(sums) for sums in sums_of_all] if _finite(sums_of_all) else []

    def finish(self, results: Sequence[Payloads], gradients: Mapping[str, Values], op: str) -> None:
        """Writes the sums of all owners to `gradients`, and accepts the residuals."""
        for i, values in enumerate(gradients.values()):
            flat = values.reshape(-1)
            for owner, payloads in enumerate(results):
                part = flat[self._part(flat.size, owner)]
                part[:] = decoded(self._codec, payloads[i], part.size)
            flat /= np.float32(self._size if op == "average" else 1)
        self.kept.update(self._next)

    def _part(self, count: int, owner: int) -> slice:
        return slice(count * owner // self._size, count * (owner + 1) // self._size)

    def _coded(self, values: Values) -> NDArray[np.uint8]:
        """Encodes values, and subtracts what receivers will decode."""
        given = values.view()
        given.flags.writeable = False
        payload = encoded(self._codec, given)
        values -= decoded(self._codec, payload, values.size)
        return payload


def encoded(codec: Codec, values: Values) -> NDArray[np.uint8]:
    payload = codec.encode(values) if values.size else np.empty(0, np.uint8)
    if not isinstance(payload, np.ndarray) or payload.dtype != np.uint8 or payload.ndim != 1:
        raise UsageError("encode of a codec returns no uint8 array of one dimension")
    return payload.copy()  # It may be a view of the values.


def decoded(codec: Codec, payload: NDArray[np.uint8], count: int) -> Values:
    values = codec.decode(payload, count) if count else np.empty(0, np.float32)
    if not isinstance(values, np.ndarray) or values.dtype != np.float32 or values.shape != (count,):
        raise UsageError(f"decode of a codec returns no float32 array of {count} values")
    return values


def _added(a: Values, b: Values) -> Values:
    with np.errstate(over="ignore", invalid="ignore"):
        return a + b


def _finite(arrays: Iterable[Values]) -> bool:
    return all(bool(np.isfinite(each).all()) for each in arrays)


def _split(payload: NDArray[np.uint8], lengths: NDArray[np.int64]) -> list[Payloads]:
    """Returns the payloads of these lengths, which follow each other. They are copies, because payloads are aligned."""
    pieces = iter(np.split(payload, np.cumsum(lengths)[:-1]))
    return [[next(pieces).copy() for _ in row] for row in lengths]
