"""Errors of Kolo as exceptions, one class for each class of errors."""

from __future__ import annotations

import enum
from typing import Any

from . import _c
from ._library import library


class Status(enum.IntEnum):
    """The class of an error."""

    OK = _c.KOLO_OK
    USAGE = _c.KOLO_USAGE
    DATA = _c.KOLO_DATA
    PEER_LOST = _c.KOLO_PEER_LOST
    INTERNAL = _c.KOLO_INTERNAL
    RESOURCES = _c.KOLO_RESOURCES
    IO = _c.KOLO_IO
    TIMEOUT = _c.KOLO_TIMEOUT
    STALL = _c.KOLO_STALL
    MISMATCH = _c.KOLO_MISMATCH
    AUTH = _c.KOLO_AUTH
    CONFIG = _c.KOLO_CONFIG
    SHUTDOWN = _c.KOLO_SHUTDOWN
    CANCELLED = _c.KOLO_CANCELLED


_CLASSES: dict[int, type[KoloError]] = {}


class KoloError(Exception):
    """Base class of all errors of Kolo. Fields that do not apply are None or empty.

    The text of the exception is one line with all fields. Ranks that fail for the same cause get equal texts.
    """

    status: Status = Status.INTERNAL
    """The class of the error, for programs that do not distinguish exception classes."""
    rank: int | None = None
    """The rank that found the error."""
    peer: int | None = None
    """The rank that caused the error."""
    group: str = ""
    """The group whose ranks these are; empty: the job."""
    verb: str = ""
    """Where it happened: mark, agree, plan, start, run, complete or wait."""
    tensor: str = ""
    """The tensor or bucket."""
    what: str = ""
    """The sentence that says what happened."""

    def __init_subclass__(cls, status: Status | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if status is not None:
            cls.status = status
            _CLASSES[status] = cls

    def __init__(self, text: str = "", **fields: Any) -> None:
        super().__init__(text)
        self.what = text
        for name, value in fields.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    @property
    def exit_status(self) -> int:
        """The exit status for this class of error, for `sys.exit`: 69 for a lost peer."""
        return int(library().kolo_exit_status(self.status))


class UsageError(KoloError, ValueError, status=Status.USAGE):
    """The caller broke the contract of a call."""


class DataError(KoloError, ValueError, status=Status.DATA):
    """Saved state is truncated, malformed or of another set."""


class PeerLostError(KoloError, ConnectionError, status=Status.PEER_LOST):
    """Another rank (`peer`) died, froze or became unreachable. Every later call fails, too."""


class InternalError(KoloError, RuntimeError, status=Status.INTERNAL):
    """An invariant of Kolo itself does not hold; please report it."""


class ResourceError(KoloError, MemoryError, status=Status.RESOURCES):
    """Out of descriptors, memory or arena space."""


class IoError(KoloError, OSError, status=Status.IO):
    """A system call on a file or socket failed."""


class DeadlineError(KoloError, TimeoutError, status=Status.TIMEOUT):
    """A deadline passed although every peer is alive."""


class StallError(KoloError, TimeoutError, status=Status.STALL):
    """Ranks waited too long for tensors that others had not submitted."""


class MismatchError(KoloError, ValueError, status=Status.MISMATCH):
    """Ranks disagree about a tensor's name, shape, dtype or operation."""


class AuthenticationError(KoloError, PermissionError, status=Status.AUTH):
    """A peer did not know the secret of the job."""


class ConfigError(KoloError, ValueError, status=Status.CONFIG):
    """Options are unknown, malformed or contradict each other."""


class ShutdownError(KoloError, RuntimeError, status=Status.SHUTDOWN):
    """The runtime was closed before the operation finished, or before it began."""


class CancelledError(KoloError, status=Status.CANCELLED):
    """The program cancelled the operation."""


def _text(value: bytes | None) -> str:
    return value.decode("utf-8", "replace") if value else ""


def _rank(value: int) -> int | None:
    return value if value >= 0 else None


def last_error(status: int) -> KoloError:
    """Returns the error of the calling thread's last call, which returned `status`."""
    pointer = library().kolo_last_error()
    if not pointer:
        return _CLASSES.get(status, KoloError)(f"status {status}")
    error = pointer.contents
    return _CLASSES.get(error.status, KoloError)(
        _text(error.text),
        rank=_rank(error.rank),
        peer=_rank(error.peer),
        **{name: _text(getattr(error, name)) for name in ("group", "verb", "tensor", "what")},
    )


def check(status: int) -> None:
    """Raises the error of the call that returned `status`, unless `status` is KOLO_OK."""
    if status:
        raise last_error(status)
