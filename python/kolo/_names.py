"""Names that the library has for its numbers."""

from __future__ import annotations

import functools
import itertools
from typing import Any, Callable

from ._errors import UsageError
from ._library import library


def numbered(name_of: Callable[[int], Any], first: int) -> dict[str, int]:
    """Numbers from `first` on, until one has no name, by their names."""
    names = itertools.takewhile(bool, map(name_of, itertools.count(first)))
    return {name.decode(): number for number, name in enumerate(names, first)}


@functools.lru_cache(maxsize=None)
def ops() -> dict[str, int]:
    """Numbers of operations in the C interface, by their names."""
    return numbered(library().kolo_op_name, 0)


def choice(choices: dict[str, int], value: str, what: str) -> int:
    """Errors: UsageError for what is none of the choices."""
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise UsageError(f"{what} is one of {', '.join(choices)}, not {value!r}") from None
