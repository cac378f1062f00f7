"""The place that operations of callbacks have among the others of their group."""

from __future__ import annotations

import itertools
import threading
from typing import Any, Callable, ClassVar

from kolo import UsageError

_moments = itertools.count()


class Callbacks:
    """The callbacks of a future, and of futures that they take. They run when the future is complete: before or after what
    begins meanwhile, not on all ranks alike. Where it is complete before they are added, they run at once, as a part of the
    program."""

    left: ClassVar[int] = 0
    """Futures whose callbacks may come, or do. Of what completes them."""

    def __init__(self) -> None:
        self.since = next(_moments)

    def run(self, complete: Callable[[], None]) -> None:
        """By what completes the future."""
        before = running()
        _here.callbacks = self
        try:
            complete()
        finally:
            _here.callbacks = before


class _Here(threading.local):
    callbacks: Callbacks | None = None


_here = _Here()


def running() -> Callbacks | None:
    """Those that this thread runs."""
    return _here.callbacks


class Order:
    """Of the operations of a group."""

    def __init__(self) -> None:
        self._latest: dict[tuple[Any, ...], tuple[int, Callbacks | None]] = {}

    def begin(self, verb: str, *sizes: int) -> None:
        """An operation begins. One of another verb or other sizes cannot take its place, and one that moves nothing may.
        Callbacks come in the order in which their futures were taken.

        Errors: UsageError in a callback if one like it has begun that has no place before it on all ranks."""
        if Callbacks.left == 0:  # Callbacks that come later do not mind.
            self._latest.clear()
            return
        if not any(sizes):
            return
        kind = (verb, *sizes)
        callbacks = running()
        moment, others = self._latest.get(kind, (-1, None))
        if callbacks is not None and moment > callbacks.since and (others is None or others.since > callbacks.since):
            raise UsageError(
                f"{verb} in a callback of a future: another one of its size, which the program begins later, has begun "
                "since the future was taken, and ranks may differ in which of them comes first; with DDP hooks make one "
                "bucket (bucket_cap_mb), else begin such operations outside of callbacks"
            )
        self._latest[kind] = (next(_moments), callbacks)
