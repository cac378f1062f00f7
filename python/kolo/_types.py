"""Types of arguments and results, for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence, TypedDict, TypeVar

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counts = Sequence[int] | Sequence[Sequence[int]] | Sequence[Sequence[Sequence[int]]]
    A = TypeVar("A", bound=NDArray[Any] | list[NDArray[Any]])
X = TypeVar("X")  # An array, or a list of them.


class Named(TypedDict, total=False):
    """What every collective takes by name."""

    name: str | None
    stream: int | None


class Scaled(Named, total=False):
    scale_before: float
    scale_after: float


class Summed(Scaled, total=False):
    wire_dtype: Any


class Parted(Named, total=False):
    counts: Counts | None
    """Of each rank's part; of a list of arrays a list of those of each."""


class SummedParts(Summed, Parted, total=False):
    pass


class RowOptions(Scaled, total=False):
    op: str
    result: str
    exchange: str
