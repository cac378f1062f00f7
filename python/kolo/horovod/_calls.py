"""Calls for one tensor, and the same for several, which share an agreement and messages."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable, Sequence, TypeVar

from torch import Tensor

from ._handles import Handle

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


def calls(
    terms: Callable[P, T], run: Callable[[Sequence[Tensor], T], R], first: Callable[[R], S], name: str, doc: str
) -> tuple[Callable[Concatenate[Tensor, P], S], Callable[Concatenate[Sequence[Tensor], P], R]]:
    """`name` and its grouped form. Both take what `terms` takes behind the tensors; `run` does the work, and `first`
    gives the result of one tensor."""

    def single(tensor: Tensor, *args: P.args, **kwargs: P.kwargs) -> S:
        return first(run([tensor], terms(*args, **kwargs)))

    def grouped(tensors: Sequence[Tensor], *args: P.args, **kwargs: P.kwargs) -> R:
        return run(tensors, terms(*args, **kwargs))

    others = list(inspect.signature(terms).parameters.values())
    for call, own, what, text in (
        (single, name, inspect.signature(single).parameters["tensor"], doc),
        (grouped, f"grouped_{name}", inspect.signature(grouped).parameters["tensors"], f"As `{name}` for several tensors."),
    ):
        call.__name__ = call.__qualname__ = own
        call.__doc__ = text
        call.__module__ = terms.__module__
        call.__signature__ = inspect.Signature([what, *others], return_annotation=Any)  # type: ignore[union-attr]
    return single, grouped


class First:
    """A handle of one tensor over a grouped operation."""

    def __init__(self, grouped: Handle) -> None:
        self._grouped = grouped

    def done(self) -> bool:
        return self._grouped.done()

    def result(self) -> Tensor:
        return self._grouped.result()[0]
