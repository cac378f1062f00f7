"""Kolo's errors as the ones that Horovod raises."""

from __future__ import annotations

import contextlib
from typing import Iterator

from kolo import KoloError, UsageError

__all__ = ["HorovodInternalError"]


class HorovodInternalError(RuntimeError):
    """An operation failed. Its `__cause__` is the error of Kolo, with rank, peer and tensor as fields."""


@contextlib.contextmanager
def internal_errors() -> Iterator[None]:
    """Raises errors of Kolo as HorovodInternalError; those of the caller, which are ValueErrors, as they are."""
    try:
        yield
    except UsageError:
        raise
    except KoloError as error:
        raise HorovodInternalError(str(error)) from error
